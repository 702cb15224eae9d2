"""Notes about the data of a run, and errors of strict runs.

Every skipped column has a note. Columns may give the label away, and scoring splits may contain rows of train.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from shlex import quote

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted, significant
from infeed.components.dataset.splits import ByColumns, ByName, ByRecord, ByTime, SplitBy
from infeed.components.transform.feature import Feature
from infeed.components.transform.infer import are_whole
from infeed.components.transform.kinds.image import DecodeImage
from infeed.pipelines.config import Blessing
from infeed.pipelines.project.decisions import SEE_CLASSES, is_imbalanced
from infeed.pipelines.surveys import ColumnSurvey, Group, ImageSurvey, Leak, Repeats, Survey, TableSurvey

_MAX_QUANTITY_CLASSES = 20
_FEW_ROWS = 20  # average number of rows per class
_RARE = 5  # maximum rows of a class that is too rare to evaluate
_MIN_NAMED = 20  # with fewer rows, numbers may be distinct by chance
_SHOWN = 12  # maximum columns or classes to list by name
_SHOWN_GROUPS = 3  # maximum groups shown, because others mostly describe the same rows
_AGREES = 0.5
_MATERIAL = 0.005  # share of the rows. Fewer repeats hardly change a score
_MANY_COPIES = 0.05  # share of the rows, if all copies are in one split
_RESIZED = {
    "stretch": "stretched or squeezed, which changes the aspect ratio",
    "fit": "shown whole, padded with black",
    "crop": "cropped to the right aspect ratio",
}

Note = tuple[str, str]  # topic and text


def notes(
    survey: Survey, data: str, features: Sequence[Feature], blessing: Blessing, function: str | None = None
) -> Iterator[Note]:
    """Yield notes about the data, the label, and used, skipped or suspicious columns.

    A `function` is the user's preprocessing_fn, which receives all columns.
    """
    if isinstance(survey, ImageSurvey):
        yield from _of_pictures(survey, data, features)
    else:
        yield from _of_table(survey, data, features, function)
    if survey.rejected:
        unit = "image" if isinstance(survey, ImageSurvey) else "row"
        yield "bad rows", f"{counted(survey.rejected, unit)} rejected, in rejected.jsonl beside the examples"
    yield "judged by", why(survey, blessing)


def _of_table(survey: TableSurvey, data: str, features: Sequence[Feature], function: str | None) -> Iterator[Note]:
    yield "data", f"{data}: {survey.rows:,} rows"
    labels = [one.column.name for one in survey.labels]
    for pattern in survey.unlabeled_files:
        yield "left out", f"{pattern}: no {' and '.join(labels)} to score a model by; use it with `infeed predict`"
    if survey.beside:
        yield "left out", f"{_listed(survey.beside)}: the name contains no split"
    yield from _unlabeled(survey.unlabeled, "row", labels)
    yield from (("label", _label(survey.about(name))) for name in labels)
    yield from survey.remarks
    yield from (("left out", f"{name}: {why}") for name, why in survey.not_read.items())
    if function:
        yield "learned from", f"features that {function} computes from the columns"
        return
    used = {column for feature in features for column in feature.inputs}
    names = [column.name for column in survey.columns if column.name in used]
    yield "learned from", f"{len(names)} of {len(survey.columns)} columns: {_listed(names)}"
    left_out = {}
    for column in (one for one in survey.columns if one.name not in used and not one.is_withheld):
        leak = column.leak.reason if column.useless and column.leak and column.leak.sure else ""
        left_out[column.name] = [column.useless or "no feature uses it", leak, column.advice]
    yield from _grouped("left out", {name: "; ".join(filter(None, words)) for name, words in left_out.items()})
    yield from _grouped("note", {c.name: _remark(c) for c in survey.columns if c.name in used})


def nothing_to_learn_from(survey: TableSurvey, data: str) -> InfeedError:
    """Return the error for a table without usable columns, with the reason for each."""
    reasons = [f"{name} ({reason})" for name, reason in {**survey.left_out, **survey.not_read}.items()]
    advice = [f"{column.name}: {column.advice}" for column in survey.columns if column.advice]
    shown = ", ".join(reasons[:_SHOWN]) or "there is no other column"
    do = ["add numeric or categorical columns", *advice[:_SHOWN]]
    do += ["your own function can create features of any column: preprocessing_fn: file.py:function"]
    labels = " and ".join(repr(one.column.name) for one in survey.labels)
    return InfeedError(f"the model can learn {labels} from no column: {shown}", where=data, do="; ".join(do))


def _of_pictures(survey: ImageSurvey, data: str, features: Sequence[Feature]) -> Iterator[Note]:
    size = f"{survey.height} x {survey.width} px, {'gray' if survey.channels == 1 else 'RGB'}"
    others = survey.rows - survey.most
    yield "data", f"{data}: {survey.rows:,} images of {size}" + (f"; {others:,} of other sizes" if others else "")
    for feature in (one for one in features if isinstance(one, DecodeImage)):
        if others or (feature.height, feature.width) != (survey.height, survey.width):
            ways = " or ".join(rule for rule in _RESIZED if rule != feature.resize)
            words = f"every image becomes {feature.height} x {feature.width} px; other sizes are"
            yield "size", f"{words} {_RESIZED[feature.resize]}: --resize {ways} changes that"
    if survey.layout.unused:
        yield "left out", f"{survey.layout.unused}: not used to train or score; use it with `infeed predict`"
    yield from _unlabeled(survey.unlabeled, "image", ["label"])
    yield "label", _classes(survey)


def _unlabeled(rows: int, unit: str, labels: Sequence[str]) -> Iterator[Note]:
    if rows:
        flags = " ".join(f"--required {quote(label)}" for label in labels)
        yield "left out", f"{counted(rows, unit)} without a label: {flags} makes them an error"


def _label(survey: TableSurvey) -> str:
    label = survey.label
    if survey.task != "regression":
        of = "sets of " if survey.task == "multilabel" else ""
        return "; ".join(words for words in (f"{label.name}: {of}{_classes(survey)}", label.advice) if words)
    words = f"{label.name}: a quantity, {significant(label.mean)} on average, deviation {significant(label.std)}"
    if label.distinct is not None and label.distinct <= _MAX_QUANTITY_CLASSES:
        whole = label.statistics is not None and are_whole(label.statistics)
        way = "use --task classification" if whole else "write them as integers or words"
        return f"{words}; its {label.distinct} values may be classes: then {way}"
    return words


def _classes(survey: Survey) -> str:
    rows = sorted(zip(survey.class_rows, survey.classes, strict=True), reverse=True)
    count, names = f"{len(rows):,} classes", set(survey.classes)
    if spaced := [name for name in survey.classes if name != name.strip() and name.strip() in names]:
        count += f" ({spaced[0]!r} differs from {spaced[0].strip()!r} only in spaces)"
    if len(rows) > _SHOWN:
        least, most = rows[-1][0], rows[0][0]
        words = f"{count} of {least:,}{f' to {most:,}' if most > least else ''} rows"
        few = survey.rows < _FEW_ROWS * len(rows)
        return f"{words}: a model learns little from few rows a class" if few else words
    # Quotes show outer spaces, because ` yes` differs from `yes`.
    shown = {name: name if name == name.strip() and name else repr(name) for name in survey.classes}
    shares = ", ".join(f"{shown[name]} ({number / survey.rows:.1%})" for number, name in rows)
    rare = [f"{shown[name]} has {number} row{'s' * (number > 1)}" for number, name in rows if number < _RARE]
    missed = f"; {', '.join(rare)}: training or evaluation may miss such a rare class" if rare else ""
    return f"{count}: {shares}{missed}"


def _remark(column: ColumnSurvey) -> str:
    """Return a warning about a used column that may have another meaning."""
    if column.type == "bytes" and column.advice:
        return f"read as words; {column.advice}"
    if column.distinct == 1 and not column.missing:
        return f"every row has the same value, {column.sample}, which carries no information: leave it out"
    low = column.statistics.minimum if column.statistics else None
    # Most numbers are far below the largest, as in a population and unlike row numbers.
    is_skewed = low is not None and low >= 0 and column.std > column.mean
    is_name = column.type == "int" and column.rows >= _MIN_NAMED and column.distinct == column.rows - column.missing
    return (
        "every row has a distinct number. If it only identifies the row, leave it out"
        if is_name and not is_skewed
        else ""
    )


def _grouped(about: str, words: Mapping[str, str]) -> Iterator[Note]:
    """Yield one note for all columns with the same text."""
    columns: dict[str, list[str]] = {}
    for name, said in words.items():
        columns.setdefault(said, []).append(name)
    yield from ((about, f"{_listed(names)}: {said}") for said, names in columns.items() if said)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def why(survey: Survey, blessing: Blessing) -> str:
    """Describe the criterion of the blessing, with the reason for the metric."""
    of = f" of {blessing.positive!r}" if blessing.positive else ""
    of += f" for {blessing.output}" if blessing.output else ""
    limit = f"{'at least' if blessing.higher_is_better else 'at most'} {significant(blessing.bound)}"
    words = f"{blessing.metric}{of}, {limit}"
    if blessing.metric in SEE_CLASSES and is_imbalanced(survey):
        commonest = survey.classes[survey.class_rows.index(max(survey.class_rows))]
        return f"{words}: always predicting {commonest!r} has an accuracy of {survey.guess:.1%}"
    return words


Leaks = Sequence[tuple[ColumnSurvey, Leak]]


def leaks_in_use(survey: Survey, features: Sequence[Feature], function: str | None) -> Leaks:
    """Return the columns in use that give, or may give, the label away.

    A `function` is the user's preprocessing_fn, which receives all columns.
    """
    used = {column for feature in features for column in feature.inputs}
    columns = survey.columns if isinstance(survey, TableSurvey) else ()
    return [(one, one.leak) for one in columns if one.leak and (one.name in used or function or one.is_withheld)]


def check_leaks(leaks: Leaks, keep: Collection[str], data: str, *, by_survey: bool) -> None:
    """Raise InfeedError if columns that are not kept give the label away. The error lists them.

    `by_survey` is whether a function chooses the features from the survey.
    """
    found = [(column, leak) for column, leak in leaks if leak.sure and column.name not in keep]
    if not found:
        return
    reasons = ", ".join(f"{column.name} ({leak.why})" for column, leak in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    flags = " ".join(f"--keep {quote(column.name)}" for column, _ in found[:_SHOWN])
    withheld = "; without --strict, the other columns are excluded" if by_survey else ""
    what = f"{len(found):,} column{'s give' if len(found) > 1 else ' gives'} the label away: {reasons}{more}"
    raise InfeedError(what, where=data, do=f"keep the columns that are known at prediction time: {flags}{withheld}")


def leak_notes(leaks: Leaks, keep: Collection[str], function: str | None, *, by_survey: bool) -> Iterator[Note]:
    """Yield a note per column. For the arguments, see `leaks_in_use` and `check_leaks`."""
    for column, leak in leaks:
        gives = leak.reason.removeprefix("it ") if leak.sure else f"may give {leak.subject} away: {leak.why}"
        if column.name in keep:
            words = f"is kept: {leak.why}"
        elif column.is_withheld and not function:
            known = f"If it is known at prediction time, keep it with --keep {quote(column.name)}"
            words = f"is excluded: {leak.reason}. {known}"
        elif leak.sure and column.features and by_survey:
            words = f"{gives}; it is used because no other column is left"
        else:
            place = f"do not use it in {function}" if function else "remove it from the features"
            place = f"exclude it with --drop {quote(column.name)}" if by_survey else place
            words = f"{gives}; unless it is known at prediction time, {place}"
        yield "label leak", f"{column.name} {words}"


def spread_notes(survey: Survey, rule: SplitBy | None, keep: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield notes (topic, text) about groups of rows and repeated rows that splits divide.

    Without a split rule, rows are split by their hash. Columns to `keep` have the same values at prediction time.
    """
    if isinstance(survey, TableSurvey):
        yield from (("groups", f"{_finding(group)}; {_remedy(group)}") for group in _groups(survey, rule, keep))
        if words := _repeated(survey, rule):
            yield "repeated rows", words
    else:
        if survey.repeats.contrary:
            words = f"{survey.repeats.contrary:,} are in several classes with the same content{_example(survey)}"
            yield "repeated images", words
        if survey.repeats.divided:
            yield "repeated images", f"{_copies(survey)}; remove the copies"


def check_spread(survey: Survey, rule: SplitBy | None, keep: Collection[str], data: str) -> None:
    """Raise InfeedError if splits divide groups of rows, or files of another split contain rows of train."""
    if not isinstance(survey, TableSurvey):
        if survey.patterns and survey.repeats.divided:
            raise InfeedError(_copies(survey), where=data, do="remove the copies from all splits but one")
        return
    found = _groups(survey, rule, keep)
    if found:
        do = f"{_remedy(found[0])}; if the same ones come at prediction time: --keep {quote(found[0].column)}"
        raise InfeedError(_finding(found[0]), where=data, do=do)
    if survey.repeats.shared:
        raise InfeedError(_shared(survey), where=data, do="remove these rows from one of the files")


def _copies(survey: ImageSurvey) -> str:
    place = "the folders of several splits" if survey.patterns else "train and in the other splits"
    may = "are" if survey.patterns else "may be"
    return f"{survey.repeats.divided:,} images with the same content {may} in {place}{_example(survey)}"


def _example(survey: ImageSurvey) -> str:
    return f", such as {' and '.join(survey.repeats.example)}"


def _groups(survey: TableSurvey, rule: SplitBy | None, keep: Collection[str]) -> list[Group]:
    """Return the groups that splits divide. Splits by time or name divide groups on purpose."""
    if isinstance(rule, ByColumns | ByTime | ByName):
        return []
    return [group for group in survey.groups if group.column not in keep and group.shared != 0][:_SHOWN_GROUPS]


def _finding(group: Group) -> str:
    agree = ", and their labels agree more than those of other rows" if group.agreement >= _AGREES else ""
    agree = ", and their rows are so similar that a model recognizes them" if group.near and not agree else agree
    if group.shared is None:
        return f"rows with the same {group.column} are in train and in other splits{agree}"
    return f"{group.shared:.1%} of the values of {group.column} in the other splits are in train too{agree}"


def _remedy(group: Group) -> str:
    do = f"use --split-by {quote(group.column)}" if group.shared is None else f"divide the files by {group.column}"
    return f"to score values of {group.column} that training has not seen, {do}"


def _repeated(survey: TableSurvey, rule: SplitBy | None) -> str:
    repeats = survey.repeats
    if repeats.shared > _MATERIAL * repeats.scored:
        return f"{_shared(survey)}; remove these rows from one of the files"
    if isinstance(rule, ByColumns):
        return ""
    of_rows = f"of {_compared(repeats.rows, survey)} equal another row"
    spread = "and may be in train and in other splits. Unless they are different cases, remove the repeats"
    if rule and not isinstance(rule, ByRecord) and repeats.equal > _MATERIAL * repeats.rows:
        return f"{repeats.equal:,} {of_rows} {_learned(repeats)}, {spread}"
    # The hash assigns rows that are equal in all columns to one split.
    if repeats.alike > _MATERIAL * repeats.rows:
        return f"{repeats.alike:,} {of_rows} {_learned(repeats)}, but not in the others, {spread}"
    many = repeats.copies and repeats.copies >= _MANY_COPIES * repeats.rows
    return f"{repeats.copies:,} {of_rows} in all columns; equal rows are in one split" if many else ""


def spread_by_chance(survey: Survey) -> str:
    """Return how many rows equal others that may be in another split, if chance explains them."""
    if not isinstance(survey, TableSurvey) or survey.repeats.expected <= _MATERIAL * survey.repeats.rows:
        return ""
    repeats = survey.repeats
    return f", and {repeats.expected:,} of {_compared(repeats.rows, survey)} equal another row of any split"


def _shared(survey: TableSurvey) -> str:
    repeats = survey.repeats
    rows = f"{repeats.scored:,} rows in the files of the other splits"
    sampled = f"{rows} in {_compared(repeats.rows, survey)}" if repeats.rows < survey.rows else rows
    return f"{repeats.shared:,} of {sampled} equal a row of train {_learned(repeats)}"


def _compared(rows: int, survey: TableSurvey) -> str:
    return f"a sample of {rows:,} rows" if rows < survey.rows else f"{rows:,} rows"


def _learned(repeats: Repeats) -> str:
    but = f" except {', '.join(repeats.ignored[:_SHOWN])}" if repeats.ignored else ""
    return f"in the columns that are used{but}"
