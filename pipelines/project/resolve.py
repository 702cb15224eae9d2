"""Resolution of a project to a `PipelineConfig`: survey the data, and decide all settings that the file leaves open.

Errors are reported here, before any work starts.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from infeed.components.base import schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function
from infeed.components.dataset.spans import Spans, has_spans, split_path
from infeed.components.dataset.time_formats import EPOCHS, named_regex
from infeed.components.dataset.time_limits import format_advice
from infeed.components.example_gen.formats import FORMATS, default_settings, options_of
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.options import TrainOptions, check_strategy
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import check_features, check_types, features_from_json
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.image import DecodeImage, Resize
from infeed.components.transform.kinds.label import Label
from infeed.pipelines.config import Blessing, PipelineConfig, Source, local_root
from infeed.pipelines.project.config_file import LabelSettings, Project, Settings
from infeed.pipelines.project.decisions import choose_blessing, choose_schedule, notes, nothing_to_learn_from
from infeed.pipelines.project.ingest_settings import IngestSettings, over, read_ingest
from infeed.pipelines.project.leak_notes import LeaksInUse, check_spread, spread_notes
from infeed.pipelines.project.sources import BUNDLED, materialise, source_of
from infeed.pipelines.project.splits import shares_of, splits_note, stratified, trained_on, with_seed
from infeed.pipelines.project.survey import survey_images, survey_table, with_label
from infeed.pipelines.project.train_names import check_train_names
from infeed.pipelines.surveys import (
    IMAGE_COLUMNS,
    LABEL_OF_PICTURES,
    ColumnSurvey,
    Survey,
    TableSurvey,
    Task,
    with_sample,
)

Part = TypeVar("Part")
_WHOLE_IN_FLOAT32 = 1 << 24  # float32 represents all integers up to here

# With 20 rows, one hash in 150 leaves a split empty.
_MIN_ROWS = 20
_DATES = 100  # different texts to look for a date in


def _names(kind: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(kind)]


# Settings of the pipeline config that are decided here. Others, such as `deploy`, are copied unchanged.
_DECIDED = {
    *("name", "root", "source", "data", "source_options"),
    *("ingest", "features", "preprocessing_fn", "train", "blessing"),
}
_AS_GIVEN = {*_names(PipelineConfig)} & {*_names(Settings)} - _DECIDED


@dataclass(frozen=True)
class Overrides:
    """Command-line options that override the file. None keeps the value of the file."""

    data: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)
    label: str | Sequence[str] | None = None
    task: Task | None = None
    keep: tuple[str, ...] = ()
    strict: bool | None = None
    resize: Resize | None = None
    root: str | None = None
    seed: int | None = None  # seed of splits, shuffles and training
    train: Mapping[str, Any] = field(default_factory=dict)
    ingest: Mapping[str, Any] = field(default_factory=dict)


def resolve(project: Project, overrides: Overrides | None = None) -> PipelineConfig:
    """Decide the settings that the file leaves open. Raise InfeedError for invalid data, options or functions."""
    given, settings = overrides or Overrides(), project.settings
    # Check what needs no data first, because the survey of large data takes minutes.
    check_strategy({**settings.train, **given.train}.get("strategy", "auto"))
    user_code.resolve(project.reference(settings.model), "model")
    # Each data set has a separate pipeline, because models of different data cannot be compared.
    name = f"{project.name}-{Path(os.path.realpath(given.data)).stem}" if given.data else project.name
    root = files.absolute(given.root or settings.root or os.path.join("runs", name))
    data = given.data or settings.data
    if FORMATS[settings.source].is_query and not given.data:
        data, source = project.reference(data), settings.source
    else:
        data = files.absolute(
            str(materialise(data, Path(local_root(root, name)) / "data")) if data in BUNDLED else data
        )
        source = source_of(data, settings.source) if given.data else settings.source
    span_data = data if has_spans(data) else ""
    if span_data:  # files of the latest spans, such as `taxi/{span-1/*.csv,span-2/*.csv}`
        folder, pattern = split_path(data)
        data = files.join(folder, Spans(pattern, settings.spans).pattern_of_window(folder))
    # The label of a template applies only to the template's own data.
    own = settings.labels if not project.package or given.data in (None, settings.data) else {}
    named = _labels(own, given)
    source_options = _source_options(settings, given, source)
    asked = _ingest_settings(project, given)
    ingest, keep = asked.options, (*settings.keep, *given.keep)
    by_survey = isinstance(settings.features, str)
    survey = _survey(source, data, named, given, settings, source_options, ingest)
    if isinstance(survey, TableSurvey):
        labels = [one.column.name for one in survey.labels]
        ingest = dataclasses.replace(with_label(ingest, labels), words=survey.words)
        if numbers := {**source_options.get("numbers", {}), **survey.numbers}:
            source_options = {**source_options, "numbers": numbers}
        if survey.nulls:
            source_options = {**source_options, "nulls": ["", *survey.nulls]}
        if survey.codes:
            types = {**dict.fromkeys(survey.codes, "bytes"), **source_options.get("types", {})}
            source_options = {**source_options, "types": types}
    else:
        labels = [*named] or [LABEL_OF_PICTURES]
        ingest = with_label(ingest, [LABEL_OF_PICTURES], "label")
    function = settings.preprocessing_fn
    if function is not None:
        function = project.reference(f"{function}:preprocessing_fn" if function.endswith(".py") else function)
        user_code.resolve(function, "preprocessing_fn")
    features = _features(project, survey, labels, data) if settings.features is not None else ()
    if isinstance(survey, TableSurvey) and function is None and source != "tfrecord":  # records are written unchanged
        ingest = dataclasses.replace(ingest, fractions=_fractions(survey, features, of_spans=bool(span_data)))
    blessing = choose_blessing(survey, project.value(settings.blessing, survey, "blessing") or {})
    if isinstance(survey, TableSurvey) and blessing.output:
        survey = survey.about(blessing.output)
    _check_labels(features, labels, blessing, own=function is not None)
    schema.check_known(settings.train, [*_names(TrainOptions), *_names(FeedOptions)], "train")
    shares = shares_of(survey, asked, ingest)
    # After the blessing, because rows are stratified by the label that decides.
    ingest = with_seed(stratified(survey, blessing.output or labels[0], shares, ingest), given.seed or 0, shares)
    leaks = LeaksInUse(survey, features, function, by_survey, keep)
    if settings.strict if given.strict is None else given.strict:
        leaks.check(data)
        check_spread(survey, ingest.split_by, keep, data)
    # The seed of the command line must not hide a seed in the file, so it is only set if it is given.
    seed = {} if given.seed is None else {"seed": given.seed}
    formats = {source: source_options} if source_options else {}
    said = {"source_options": formats, **settings.train, **seed, **given.train}
    train, schedule = choose_schedule(survey, trained_on(survey, shares), said)
    thresholds = {name: one.threshold for name, one in named.items()}
    options = _train_options(project, train, survey, labels, thresholds, features)
    check_train_names(options, survey, features, own=function is not None)
    return PipelineConfig(
        name=name,
        root=root,
        source=source,
        data=data,
        span_data=span_data,
        source_options={**default_settings(data, source), **source_options},
        features=features,
        train=options,
        blessing=blessing,
        survey=survey,
        ingest=ingest,
        preprocessing_fn=function,
        patterns=survey.patterns,
        splits=shares,
        notes=(
            *notes(survey, data, features, blessing, function),
            splits_note(survey, shares, ingest),
            *leaks.notes(),
            *spread_notes(survey, ingest.split_by, keep),
            ("training", schedule),
        ),
        **{name: getattr(settings, name) for name in _AS_GIVEN},
    )


def _labels(own: Mapping[str, LabelSettings], given: Overrides) -> dict[str, LabelSettings]:
    """Return the labels with their settings. Empty if none is set.

    The command line replaces those of the file, and sets the task of the only one.
    """
    given_names = (given.label,) if isinstance(given.label, str) else given.label or ()
    named = {name: own.get(name, LabelSettings()) for name in given_names} or dict(own)
    if given.task is None:
        return named
    if len(named) > 1:
        what = f"task is {given.task!r}, but there are {len(named)} labels"
        do = "set the task of each label in a config: label: {price: {task: regression}, sold: {}}"
        raise InfeedError(what, where="--task", do=do)
    return {name: dataclasses.replace(one, task=given.task) for name, one in named.items()}


def _source_options(settings: Settings, given: Overrides, source: Source) -> dict[str, Any]:
    """Return the options of the file, which apply only to the format of the data that it names."""
    options = dict(given.source_options)
    if source == settings.source:
        delimiter = {"delimiter": settings.delimiter} if settings.delimiter else {}
        options = {**settings.source_options, **delimiter, **options}
    if source == "images" and options:
        what = f"images have no option {min(options)!r}"
        raise InfeedError(what, where="source_options", do="leave it out: it is for tables")
    try:
        options_of(source, options, "--set" if options == given.source_options else "source_options")
    except InfeedError as error:
        at_top = settings.delimiter and error.where == "source_options.delimiter"
        raise InfeedError(error.what, where="delimiter" if at_top else error.where, do=error.do) from error
    return options


def _fractions(survey: TableSurvey, features: Sequence[Feature], *, of_spans: bool) -> tuple[str, ...]:
    """Return integer columns used as quantities, so that the model also accepts 0.5.

    A column with integers beyond 2^24 is unchanged, because float32 cannot represent them. With spans, float columns
    are included, because all values of one span may be integers.
    """
    found = [(one.name, one.statistics) for one in survey.columns if one.type == "int"]
    names = [name for name, of in found if of and max(abs(of.minimum or 0), abs(of.maximum or 0)) <= _WHOLE_IN_FLOAT32]
    names += [one.name for one in survey.columns if one.type == "float" and of_spans]
    takers = {name: [feature.takes for feature in features if name in feature.inputs] for name in names}
    return tuple(name for name, takes in takers.items() if takes and all("float" in kinds for kinds in takes))


def _ingest_settings(project: Project, given: Overrides) -> IngestSettings:
    in_file, at_top = dict(project.settings.ingest), project.settings.at_top
    if twice := [name for name in at_top if name in in_file]:
        what = f"{twice[0]} is set at the top of the file and under ingest"
        raise InfeedError(what, where=f"ingest.{twice[0]}", do="keep one")
    if is_function(str(in_file.get("filter", ""))):
        in_file["filter"] = project.reference(in_file["filter"])
    read_ingest({**at_top, **in_file}, "ingest")
    read_ingest(given.ingest)
    return read_ingest(over({**at_top, **in_file}, given.ingest), "ingest" if in_file else "")


def _survey(
    source: Source,
    data: str,
    labels: Mapping[str, LabelSettings],
    given: Overrides,
    settings: Settings,
    source_options: Mapping[str, Any],
    ingest: IngestOptions,
) -> Survey:
    keep, resize = (*settings.keep, *given.keep), given.resize or settings.resize
    if source == "images":
        if keep:
            raise InfeedError(f"images have no column {keep[0]!r}", where="keep", do="leave it out: it is for tables")
        if len(labels) > 1:
            do = "leave it out: the class folders are the labels"
            raise InfeedError(f"images have no {len(labels)} labels", where="label", do=do)
        survey: Survey = survey_images(data, ingest, resize or "stretch")
    else:
        if resize:
            what = f"a table has no images to {resize}"
            raise InfeedError(what, where="resize", do="leave it out: it is for images")
        tasks, by_survey = {name: one.task for name, one in labels.items()}, isinstance(settings.features, str)
        survey = survey_table(data, [*labels], tasks, source, source_options, ingest, keep, withhold=by_survey)
    if survey.rows < _MIN_ROWS:
        there = "is only 1 row" if survey.rows == 1 else f"are only {survey.rows} rows"
        what = f"there {there}: too few for training and evaluation"
        raise InfeedError(what, where=data, do=f"use at least {_MIN_ROWS}")
    return survey


def _features(project: Project, survey: Survey, labels: Sequence[str], data: str) -> tuple[Feature, ...]:
    """Return the features, checked against the survey, so that Transform does not fail after ingesting all rows."""
    features = project.value(project.settings.features, survey, "features")
    if not isinstance(features, list | tuple) or not all(
        isinstance(feature, Mapping | Feature) for feature in features
    ):
        do = f"write a list of features there, such as [{{kind: label, column: {labels[0]}}}], or file.py:function"
        raise InfeedError(f"features is {features!r}", where="setting features", do=do)
    if all(isinstance(feature, Mapping) for feature in features):
        kinds = [str(one.get("kind")) for one in features]
        own = [{"kind": project.reference(kind)} if ":" in kind else {} for kind in kinds]
        features = features_from_json([{**one, **of_file} for one, of_file in zip(features, own, strict=True)])
    if isinstance(survey, TableSurvey):
        types: Mapping[str, str] = {column.name: column.type for column in survey.all_columns}
    else:
        types = {name: IMAGE_COLUMNS[name] for name in survey.written}
    check_features(features, types)
    columns = {column.name: column for column in survey.columns} if isinstance(survey, TableSurvey) else {}
    _check_values(features, columns, data)
    _check_dates(features, columns, data)
    try:
        check_types(features, types)
    except InfeedError as error:
        raise with_sample(error, survey) from None
    for feature in features:  # a feature may be impossible, such as an empty vocabulary
        column = columns.get(feature.column)
        if column and column.statistics and feature.needs and feature.analyses_raw:
            found = [need.of(column.statistics) for need in feature.needs]
            if all(answer is not None for answer in found):
                feature.domain(found)
    alone = project.settings.preprocessing_fn is None and bool(features)
    if alone and isinstance(survey, TableSurvey) and all(isinstance(feature, Label) for feature in features):
        raise nothing_to_learn_from(survey, data)
    return tuple(features)


def _check_labels(features: Sequence[Feature], labels: Sequence[str], blessing: Blessing, *, own: bool) -> None:
    """Check that declared labels order the classes like the survey. A user's function cannot be checked."""
    declared = {feature.column for feature in features if isinstance(feature, Label)}
    label = next((name for name in labels if name not in declared), None)
    if label is None:
        return
    add = f"add {{kind: label, column: {label}}}, which is Label({label!r}), to the features"
    if not own:
        raise InfeedError(f"no feature is a label of {label!r}", where="setting features", do=add)
    if blessing.positive is not None and (blessing.output or label) not in declared:
        what = f"{blessing.metric} is of the class {blessing.positive!r}, but only preprocessing_fn knows its number"
        do = f"{add}, and remove it from the function. Or judge by accuracy: blessing: {{metric: accuracy}}"
        raise InfeedError(what, where="setting blessing", do=do)


def _check_values(features: Sequence[Feature], columns: Mapping[str, ColumnSurvey], data: str) -> None:
    """Check that features of one value per row do not receive lists, and that no column is empty."""
    for feature, name in ((one, name) for one in features for name in one.columns):
        column = columns.get(name)
        if not column:
            continue
        found = column.statistics
        if column.missing == column.rows:
            what, do = "it is empty", "remove the feature"
        # A tf.Example does not distinguish lists of one value.
        elif column.is_list and feature.values == "one" and (not found or found.lengths.maximum > 1):
            what, do = "its rows hold lists", 'set values="all" on it, or write one value per row'
        else:
            continue
        raise InfeedError(f"{type(feature).__name__} cannot take column {column.name!r}: {what}", where=data, do=do)


def _check_dates(features: Sequence[Feature], columns: Mapping[str, ColumnSurvey], data: str) -> None:
    """Check that a date reads some of the counted values. It takes others as missing, here the whole column."""
    for feature, name in ((one, name) for one in features for name in one.columns):
        step, found = next(iter(feature.steps), None), columns[name].statistics if name in columns else None
        if not isinstance(step, DatePart) or step.format in EPOCHS or not found or found.type != "bytes":
            continue
        texts = [value.decode("utf-8", "replace") for value, _ in itertools.islice(found.counts.items(), _DATES)]
        if texts and not any(re.search(named_regex(step.format), text) for text in texts):
            what = f"column {name!r} has no date of format {step.format!r}, but values such as {texts[0]!r}"
            raise InfeedError(what, where=data, do=format_advice(texts, f"DatePart({step.part!r}, {{}})"))


def _train_options(
    project: Project,
    train: dict[str, Any],
    survey: Survey,
    labels: Sequence[str],
    thresholds: Mapping[str, float],
    features: Sequence[Feature],
) -> TrainOptions:
    settings = project.settings
    feed = {name: train.pop(name) for name in _names(FeedOptions) if name in train}
    for option in ("map_examples", "map_batches"):
        if isinstance(given := feed.get(option), str):
            feed[option] = project.reference(given)
        elif isinstance(given, Mapping) and isinstance(given.get("function"), str):
            feed[option] = {**given, "function": project.reference(given["function"])}
    for function in ("callbacks_fn", "input_fn"):
        if train.get(function):
            train[function] = project.reference(train[function])
    options = schema.read(
        TrainOptions,
        {
            "model_fn": project.reference(settings.model),
            **_targets(survey, labels, thresholds),
            "hparams": project.value(settings.hparams, survey, "hparams"),
            "feed": schema.read(FeedOptions, feed, "train"),
            "augment": _read_part(Augment, project.value(settings.augment, survey, "augment"), "augment"),
            "normalise": _read_part(Normalise, settings.normalise, "normalise"),
            # A table column may be named "image".
            "images": [f.output_name for f in features if isinstance(f, DecodeImage) and f.scale == "bytes"],
            **train,
        },
        "train",
    )
    if "label" in train and (len(labels) > 1 or not isinstance(options.label, str)):
        do = "name the labels at the top of the file: label: [price, sold]"
        raise InfeedError("train names the label of a config with several", where="train.label", do=do)
    if options.task == "multilabel" and survey.task != "multilabel":
        what = f"train.task is {options.task!r}, but the label {labels[0]!r} is a {survey.task}"
        raise InfeedError(what, where="train.task", do="set task: multilabel at the top of the file, or remove it")
    return options


def _targets(survey: Survey, labels: Sequence[str], thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return label, task and threshold of the options: of the only label, or an output for each."""
    if not isinstance(survey, TableSurvey) or len(labels) == 1:
        own = {"threshold": thresholds[labels[0]]} if labels[0] in thresholds else {}
        return {"label": labels[0], "task": survey.task, **own}
    tasks = {one.column.name: one.task for one in survey.labels}
    return {"label": {name: {"task": tasks[name], "threshold": thresholds[name]} for name in labels}}


def _read_part(kind: type[Part], given: Any, where: str) -> Part | None:
    """Read a training option that is outside `train` in the file."""
    return None if given is None else schema.read(kind, given, where)
