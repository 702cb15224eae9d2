"""Survey of the user's data before any work starts: content, possible features, and problems.

The survey is one bounded pass without TFX and TensorFlow. Large unchanged files are not read again. The templates
choose features and model from its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function, passes
from infeed.components.dataset.splits import ByColumns, ByName, SplitBy
from infeed.components.example_gen.codes import note_on, note_on_words
from infeed.components.example_gen.formats import default_settings
from infeed.components.example_gen.inputs import BadRow, BadRows, check_any_good
from infeed.components.example_gen.sources import folders, image_codec
from infeed.components.example_gen.sources.folders import FileRef
from infeed.components.transform.infer import MAX_INTEGER_CLASSES, infer_features
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.image import Resize
from infeed.pipelines.config import EVAL, TEST, Source
from infeed.pipelines.project.groups import find_groups
from infeed.pipelines.project.labels import label_needed, survey_of_label
from infeed.pipelines.project.leaks import find_leaks
from infeed.pipelines.project.number_columns import (
    missing_remark,
    missing_words,
    number_columns,
    read_as,
    remark,
)
from infeed.pipelines.project.repeats import find_repeated_pictures, find_repeats
from infeed.pipelines.project.sources import find_layout, find_split_files, open_splits
from infeed.pipelines.project.tables import Table, check_named
from infeed.pipelines.surveys import IMAGE_COLUMNS, LABEL_OF_PICTURES, ColumnSurvey, ImageSurvey, TableSurvey, Task

_STRICT = IngestOptions()
Sized = tuple[FileRef, tuple[int, int, int]]  # an image with its height, width and channels


def survey_table(
    path: str,
    label: str | Sequence[str] | None,
    task: Task | Mapping[str, Task | None] | None = None,
    source: Source = "csv",
    settings: Mapping[str, Any] = MappingProxyType({}),
    options: IngestOptions = _STRICT,
    keep: Collection[str] = (),
    withhold: bool = True,
) -> TableSurvey:
    """Survey a table, a file or a folder of files, in one pass.

    Args:
      label: label column, or several. None if it is not yet chosen.
      task: task of the label, or of labels by name. None infers it: text and up to 20 distinct integers are classes,
          lists are sets of classes.
      keep: columns to keep even if they give the label away.
      withhold: whether to propose no feature of other columns that certainly give the label away.

    Raises:
      InfeedError: there are no files or rows, the column does not exist, rows have no label, or the label has only one
          value. A missing label is a `LabelNeededError` with the candidates.
    """
    labels = (label,) if isinstance(label, str) else tuple(dict.fromkeys(label or ()))
    asked = dict(task) if isinstance(task, Mapping) else dict.fromkeys(labels, task) if task else {}
    # Files of a test set often have no label. They must not stop the run, and are read neither here nor in training.
    by_name, beside = find_split_files(path, source)
    bare = [one for one in (EVAL, TEST) if one in by_name]
    if labels:
        bare = [one for one in bare if _lack_label(path, labels, source, settings, options, {one: by_name[one]})]
    patterns = {split: pattern for split, pattern in by_name.items() if split not in bare}
    opened = partial(Table, path, source, options=_counting(options, labels), patterns=patterns)
    table = opened(settings)
    names = [column.name for column in table.columns]
    _check_columns(table, path, labels, options, keep, source, settings)
    if words := tuple(column.name for column in table.columns if column.name in labels and column.type == "bool"):
        options = replace(options, words=words)  # names the classes true and false instead of 1 and 0
        opened = partial(Table, path, source, options=_counting(options, labels), patterns=patterns)
        table = opened(settings)
    table, advice, facts = _read_as_written(table, opened, labels, asked, source, settings)
    # Only now, because the rule reads cells with the types that are decided above.
    table.check_rule()
    found, rejected = table.statistics()
    surveyed = _surveys(table, labels, advice, keep)
    if table.found.unlabeled and not table.found.statistics.rows:
        what = f"none of the {table.found.unlabeled:,} rows has a label"
        where = f"{path}, column{'s' * (len(labels) > 1)} {', '.join(map(repr, labels))}"
        raise InfeedError(what, where=where, do="choose a column with values: --label COLUMN")
    first, *more = (survey_of_label(surveyed.pop(name), asked.get(name), names, path) for name in labels)
    # Leaks, groups and repeats compare rows with one another, so they use a sample of bounded size.
    sample, splits = table.found.sample.cells, table.sampled_splits()
    # Dates and timestamps, by type or text.
    times = {column.name for column in table.columns if column.type.startswith(("date", "timestamp", "time"))}
    steps = {name: [step for one in column.features for step in one.steps] for name, column in surveyed.items()}
    times |= {name for name, used in steps.items() if any(isinstance(step, DatePart) for step in used)}
    tasks = {one.column.name: one.task for one in (first, *more)}
    leaks = find_leaks(sample, tasks, times)
    divided = {name: _divided_by(column, options.split_by) for name, column in surveyed.items()}
    surveyed = {name: replace(column, leak=leaks.get(name)) for name, column in divided.items()}
    surveyed |= _withheld(surveyed, keep) if withhold else {}
    # Without the withheld columns: groups and repeats are about what the model sees.
    used = [name for name, column in surveyed.items() if column.features]
    return TableSurvey(
        tuple(surveyed.values()),
        first.column,
        first.task,
        first.column.rows,
        classes=first.classes,
        class_rows=first.class_rows,
        others=tuple(more),
        rejected=rejected,
        unlabeled=table.found.unlabeled,
        words=options.words,
        groups=find_groups(sample, tasks, {n: found[n] for n in surveyed if n not in times}, used, splits),
        repeats=find_repeats(sample, {name: found[name] for name in used}, splits),
        not_read=table.left_out,
        patterns=patterns,
        rows_of=table.rows_of() if patterns else {},
        unlabeled_files=tuple(by_name[split] for split in bare),
        beside=beside,
        **facts,
    )


def _read_as_written(
    table: Table,
    opened: Callable[[Mapping[str, Any]], Table],
    labels: Sequence[str],
    asked: Mapping[str, Task | None],
    source: Source,
    settings: Mapping[str, Any],
) -> tuple[Table, dict[str, str], dict[str, Any]]:
    """Open a table so that words for missing values, codes and numbers are read as such.

    Returns:
      The table, advice by column, and `nulls`, `codes`, `numbers` and `remarks` of the survey.
    """
    # Each finding below changes how cells are read, so the table is opened again with it before the next one.
    written = number_columns(table.found.shapes, source, settings)
    nulls: list[str] = []
    if source == "csv" and "nulls" not in settings:
        # A word that is a class of a label is no missing value.
        of_classes = (name for name in labels if name not in written or not written[name].missing)
        classes = {value for name in of_classes for value, _ in table.statistics()[0][name].counts.items()}
        nulls = missing_words(written, classes)
    of_nulls = "missing", missing_remark(written, nulls)
    if nulls:
        settings = {**settings, "nulls": ["", *nulls]}
        table = opened(settings)
    # Integers with leading zeros are codes, except in the labels of regressions.
    codes, quantities = table.found.codes, [name for name in labels if asked.get(name) == "regression"]
    whole = {column.name for column in table.columns if column.type == "int64" and column.name not in quantities}
    coded = {name: one for name, one in codes.items() if one.zeros and name in whole}
    if coded:
        settings = {**settings, "types": {**settings.get("types", {}), **dict.fromkeys(coded, "bytes")}}
        table = opened(settings)
    written = number_columns(table.found.shapes, source, settings)
    numbers = read_as(written)
    for name in labels:
        few = table.statistics()[0][name].counts.distinct <= MAX_INTEGER_CLASSES
        # A label with few values, such as 10% and 20%, stays a class.
        if asked.get(name, "classification" if few else "regression") != "regression":
            numbers.pop(name, None)
    if numbers:  # unless filtered rows have cells of another format
        read = opened({**settings, "numbers": {**settings.get("numbers", {}), **numbers}})
        try:
            as_good = read.statistics()[1] <= table.statistics()[1]
        except InfeedError:
            as_good = False
        table, numbers = (read, numbers) if as_good else (table, {})
    others = {name: one for name, one in written.items() if name not in numbers}
    advice = {name: one.advice(source, settings, may_miss=name not in labels) for name, one in others.items()}
    uncoded = {name: one for name, one in codes.items() if name not in coded}
    of_codes = ("codes", note_on_words(coded)), ("codes", note_on(uncoded))
    remarks = of_nulls, ("numbers", remark(written, list(numbers))), *of_codes
    told = tuple((topic, text) for topic, text in remarks if text)
    return table, advice, {"nulls": tuple(nulls), "codes": tuple(coded), "numbers": numbers, "remarks": told}


def _check_columns(
    table: Table,
    path: str,
    labels: Sequence[str],
    options: IngestOptions,
    keep: Collection[str],
    source: Source,
    settings: Mapping[str, Any],
) -> None:
    """Raise InfeedError if a label, or a column to keep, is not a column of the table."""
    names = [column.name for column in table.columns]
    for label in labels:
        if label in table.names and label not in names:
            where, do = (
                ("--drop", "remove it from drop") if label in options.drop else ("columns", "add it to the columns")
            )
            raise InfeedError(f"the label {label!r} is not among the columns", where=where, do=do)
    if not labels or not set(labels) <= set(names):
        raise label_needed(table, path, labels, read_as(number_columns(table.found.shapes, source, settings)))
    schema.check_known(keep, names, f"{path}, keep", "column")


def _lack_label(
    path: str,
    labels: Sequence[str],
    source: Source,
    settings: Mapping[str, Any],
    options: IngestOptions,
    pattern: Mapping[str, str],
) -> bool:
    """Return whether the files of a split lack a label column, or have no label in it."""

    def lacks(found: pa.Schema) -> bool:
        return any(name not in found.names or pa.types.is_null(found.field(name).type) for name in labels)

    settings = {**default_settings(path, source), **settings}
    opened = open_splits(path, source, settings, options, pattern, sampled=True)
    # A column may be empty in the sampled rows alone.
    return lacks(opened.schema) and (opened.reopen is None or lacks(opened.reopen(None).schema))


def with_label(options: IngestOptions, labels: Sequence[str], *others: str) -> IngestOptions:
    """Exclude rows without a label, unless the label, or one of `others` that hold it, is required."""
    if {*others} & {*options.required}:
        return options
    return replace(options, labeled=tuple(name for name in labels if name not in options.required))


def _counting(options: IngestOptions, labels: Sequence[str]) -> IngestOptions:
    """Exclude rows without a label. If the label is required and no bad row is allowed, count them for the error."""
    excluding = with_label(options, labels)
    if options.on_bad_row != "fail":
        return excluding
    return replace(excluding, required=tuple(name for name in options.required if name not in labels))


def _divided_by(column: ColumnSurvey, rule: SplitBy | None) -> ColumnSurvey:
    """Return a column that divides the splits as useless, because its values differ between splits."""
    if isinstance(rule, ByName) and rule.column == column.name:
        return replace(column, features=(), useless="it names the split of each row", advice="")
    if isinstance(rule, ByColumns) and rule.columns == (column.name,):
        why = "rows are split by it, so its values differ between splits"
        return replace(column, features=(), useless=why, advice="")
    return column


def _withheld(surveyed: Mapping[str, ColumnSurvey], keep: Collection[str]) -> dict[str, ColumnSurvey]:
    """Withhold columns that certainly give the label away, unless no other column would be left."""
    leaking = {
        name: replace(column, features=(), useless=column.leak.reason)
        for name, column in surveyed.items()
        if column.features and column.leak and column.leak.sure and name not in keep
    }
    others = [name for name, column in surveyed.items() if column.features and name not in leaking]
    return leaking if others else {}


def survey_images(path: str, options: IngestOptions = _STRICT, resize: Resize = "stretch") -> ImageSurvey:
    """Survey the images of class folders or of a CSV by their headers.

    Whole files are read only to count damaged ones, if those are rejected. Raises InfeedError if there are no images, a
    class folder is empty, a file is not an image, or there is a single class.
    """
    check_named(IMAGE_COLUMNS, options)
    options = with_label(options, [LABEL_OF_PICTURES], "label")
    layout = find_layout(path, options)
    bad_rows = BadRows(options.on_bad_row, options.bad_row_limit)
    small = folders.bounded(layout.images, options.max_row_mb, bad_rows)
    sizes = ((image, _size_or_none(image.path, options, bad_rows)) for image in small)
    readable = [(image, size) for image, size in sizes if size]
    if not readable:
        check_any_good(bad_rows.take())
    rejected = layout.rejected + len(layout.images) - len(readable)
    sized = _filtered(readable, options)
    layout = replace(layout, images=tuple(image for image, _ in sized))
    if not sized:
        raise InfeedError("no image is left", where=f"filter {options.filter!r}", do="check the filter")
    counts = Counter(image.text for image, _ in sized if image.text is not None)
    if len(counts) < 2:
        raise InfeedError(f"there is only one class: {min(counts)!r}", where=path, do="use at least two classes")
    [((height, width, channels), most)] = Counter(size for _, size in sized).most_common(1)
    return ImageSurvey(
        layout=layout,
        classes=tuple(sorted(counts)),
        class_rows=tuple(counts[name] for name in sorted(counts)),
        rows=len(sized),
        height=height,
        width=width,
        channels=channels,
        most=most,
        rejected=rejected,
        written=options.written(IMAGE_COLUMNS),
        repeats=find_repeated_pictures([image for image, _ in sized], layout.splits),
        resize=resize,
    )


def _filtered(sized: Sequence[Sized], options: IngestOptions) -> Sequence[Sized]:
    """Return the images that pass the filter. A filter function may need pixels, so then all images pass."""
    if options.filter is None or is_function(options.filter):
        return sized
    heights, widths, channels = zip(*(size for _, size in sized), strict=True)
    texts = [image.text for image, _ in sized]
    numbers = {text: number for number, text in enumerate(sorted({text for text in texts if text is not None}))}
    columns = {
        "image/filename": [image.filename for image, _ in sized],
        "image/height": heights,
        "image/width": widths,
        "image/channels": channels,
        "label": [None if text is None else numbers[text] for text in texts],
        LABEL_OF_PICTURES: texts,
    }
    kept = passes(pa.RecordBatch.from_pydict(columns), options.filter)
    return [one for one, passed in zip(sized, kept.to_pylist(), strict=True) if passed]


def _size_or_none(path: str, options: IngestOptions, bad_rows: BadRows) -> tuple[int, int, int] | None:
    try:
        if options.on_bad_row == "reject":
            data = files.read_bytes(path)
            image_codec.check_whole(data, image_codec.header_of(data, path), path)
        with files.open_input(path) as file:
            height, width, channels = image_codec.upright_size(file, path)
        image_codec.check_size(height, width, channels, path, options.max_row_mb)
        return height, width, 1 if channels == 1 else 3  # gray images are decoded as gray, others as RGB
    except InfeedError as error:
        if options.on_bad_row == "fail":
            do = f"{error.do}, or set such files aside: --on-bad-row reject"
            raise InfeedError(error.what, where=error.where, do=do) from error
        bad_rows.report(BadRow(path, None, None, error.what, ""))
        return None


def _surveys(
    table: Table, labels: Sequence[str], advice: Mapping[str, str], keep: Collection[str]
) -> dict[str, ColumnSurvey]:
    """Describe each column, and propose features for all but the labels. `advice` replaces the proposal's advice."""
    lists = {column.name: column.is_list for column in table.columns}
    found, surveyed = table.statistics()[0], {}
    types, values = {name: column.type for name, column in found.items()}, table.sampled_values()
    for proposal in infer_features(types, found, labels[0], values=values, keep=keep, has_nulls=table.has_nulls):
        name, of = proposal.column, found[proposal.column]
        surveyed[name] = ColumnSurvey(
            name=of.name,
            type=of.type,
            rows=of.rows,
            missing=of.missing + (0 if lists[name] else of.nans + of.infinities),
            distinct=of.counts.distinct if of.counts.exact else None,
            mean=of.mean or 0.0,
            std=of.std or 0.0,
            commonest=next(of.counts.items(), (None, 0))[1] if of.counts.exact else 0,
            is_list=lists[name],
            features=proposal.features,
            useless="" if proposal.features else proposal.reason,
            advice=advice.get(name) or proposal.advice,
            statistics=of,
        )
    return surveyed
