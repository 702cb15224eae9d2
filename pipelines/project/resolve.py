"""Resolution of a project to a `PipelineConfig`: survey the data, and decide all settings that the file leaves open.

A setting comes from the file, or from the command line, which overrides the file in `_with_overrides`, or from the
survey. `resolve` hands each to the config. Errors are reported here, before any work starts.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.components.base import schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions, Spans, has_spans, split_path
from infeed.components.dataset.row_filter import is_function
from infeed.components.dataset.time_formats import EPOCHS, named_regex
from infeed.components.dataset.times import format_advice
from infeed.components.example_gen.formats import FORMATS, default_settings, options_of
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions, check_strategy
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import check_features, check_types, features_from_json
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.image import Resize
from infeed.components.transform.kinds.label import Label
from infeed.pipelines.config import Blessing, PipelineConfig, Source, local_root
from infeed.pipelines.project.config_file import LabelSettings, Project, Settings
from infeed.pipelines.project.decisions import choose_blessing, choose_schedule, train_options
from infeed.pipelines.project.ingest_settings import IngestSettings, over, read_ingest
from infeed.pipelines.project.notes import (
    check_leaks,
    check_spread,
    leak_notes,
    leaks_in_use,
    notes,
    nothing_to_learn_from,
    spread_notes,
)
from infeed.pipelines.project.sources import BUNDLED, materialise, source_of
from infeed.pipelines.project.splits import shares_of, splits_note, stratified, trained_on, with_seed
from infeed.pipelines.project.survey import survey_images, survey_table, with_label
from infeed.pipelines.surveys import (
    IMAGE_COLUMNS,
    LABEL_OF_PICTURES,
    ColumnSurvey,
    Survey,
    TableSurvey,
    Task,
    with_sample,
)

_WHOLE_IN_FLOAT32 = 1 << 24  # float32 represents all integers up to here
_MIN_ROWS = 20  # with fewer, one hash in 150 leaves a split empty
_DATES = 100  # different texts to look for a date in


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
    given = overrides or Overrides()
    # Check what needs no data first, because the survey of large data takes minutes.
    check_strategy({**project.settings.train, **given.train}.get("strategy", "auto"))
    names = [one.name for kind in (TrainOptions, FeedOptions) for one in dataclasses.fields(kind)]
    schema.check_known(project.settings.train, names, "train")
    user_code.resolve(project.reference(project.settings.model), "model")
    asked = _ingest_settings(project, given)
    project = _with_overrides(project, given)
    settings = project.settings
    data, span_data, ingest = settings.data, "", asked.options
    if has_spans(data):  # read the files of the latest spans, such as `taxi/{span-1/*.csv,span-2/*.csv}`
        folder, pattern = split_path(data)
        data, span_data = files.join(folder, Spans(pattern, settings.spans).pattern_of_window(folder)), data
    survey = _survey(settings, data, ingest)
    source_options = dict(settings.source_options)
    if isinstance(survey, TableSurvey):
        labels = [one.column.name for one in survey.labels]
        ingest = dataclasses.replace(with_label(ingest, labels), words=survey.words)
        if numbers := {**source_options.get("numbers", {}), **survey.numbers}:
            source_options["numbers"] = numbers
        if survey.nulls:
            source_options["nulls"] = ["", *survey.nulls]
        if survey.codes:
            source_options["types"] = {**dict.fromkeys(survey.codes, "bytes"), **source_options.get("types", {})}
    else:
        labels = [*settings.labels] or [LABEL_OF_PICTURES]
        ingest = with_label(ingest, [LABEL_OF_PICTURES], "label")
    if function := settings.preprocessing_fn:
        user_code.resolve(function, "preprocessing_fn")
    features = _features(project, survey, labels, data) if settings.features is not None else ()
    if isinstance(survey, TableSurvey) and not function and settings.source != "tfrecord":  # written unchanged
        ingest = dataclasses.replace(ingest, fractions=_fractions(survey, features, of_spans=bool(span_data)))
    blessing = choose_blessing(survey, project.value(settings.blessing, survey, "blessing") or {})
    if isinstance(survey, TableSurvey) and blessing.output:
        survey = survey.about(blessing.output)
    _check_labels(features, labels, blessing, own=function is not None)
    shares = shares_of(survey, asked, ingest)
    # After the blessing, because rows are stratified by the label that decides.
    ingest = with_seed(stratified(survey, blessing.output or labels[0], shares, ingest), given.seed or 0, shares)
    leaks, by_survey = leaks_in_use(survey, features, function), isinstance(settings.features, str)
    if settings.strict:
        check_leaks(leaks, settings.keep, data, by_survey=by_survey)
        check_spread(survey, ingest.split_by, settings.keep, data)
    said = {"source_options": {settings.source: source_options} if source_options else {}, **settings.train}
    train, schedule = choose_schedule(survey, trained_on(survey, shares), said)
    return PipelineConfig(
        name=project.name,
        root=settings.root or "",
        source=settings.source,
        data=data,
        span_data=span_data,
        spans=settings.spans,
        source_options={**default_settings(data, settings.source), **source_options},
        features=features,
        train=train_options(project, train, survey, labels, features),
        blessing=blessing,
        survey=survey,
        ingest=ingest,
        preprocessing_fn=function,
        patterns=survey.patterns,
        splits=shares,
        warm_start=settings.warm_start,
        max_wait_fraction=settings.max_wait_fraction,
        beam_pipeline_args=settings.beam_pipeline_args,
        deploy=settings.deploy,
        notes=(
            *notes(survey, data, features, blessing, function),
            splits_note(survey, shares, ingest),
            *leak_notes(leaks, settings.keep, function, by_survey=by_survey),
            *spread_notes(survey, ingest.split_by, settings.keep),
            ("training", schedule),
        ),
    )


def _with_overrides(project: Project, given: Overrides) -> Project:
    """Return the project with the settings of the command line. Its data, functions and root are absolute."""
    settings = project.settings
    # Each data set has a separate pipeline, because models of different data cannot be compared.
    name = f"{project.name}-{Path(os.path.realpath(given.data)).stem}" if given.data else project.name
    root = files.absolute(given.root or settings.root or os.path.join("runs", name))
    data, source = given.data or settings.data, settings.source
    if FORMATS[source].is_query and not given.data:
        data = project.reference(data)
    else:
        if data in BUNDLED:
            data = str(materialise(data, Path(local_root(root, name)) / "data"))
        data = files.absolute(data)
        source = source_of(data, source) if given.data else source
    # The label of a template applies only to the template's own data.
    labels = settings.labels if not project.package or given.data in (None, settings.data) else {}
    given_names = (given.label,) if isinstance(given.label, str) else given.label or ()
    labels = {name: labels.get(name, LabelSettings()) for name in given_names} or labels
    if given.task is not None and len(labels) > 1:
        what = f"task is {given.task!r}, but there are {len(labels)} labels"
        do = "set the task of each label in a config: label: {price: {task: regression}, sold: {}}"
        raise InfeedError(what, where="--task", do=do)
    function = settings.preprocessing_fn
    if function is not None:
        function = project.reference(f"{function}:preprocessing_fn" if function.endswith(".py") else function)
    # The seed of the command line must not hide a seed in the file, so it is only set if it is given.
    seed = {} if given.seed is None else {"seed": given.seed}
    settings = dataclasses.replace(
        settings,
        source=source,
        data=data,
        spans=settings.spans if has_spans(data) else None,
        label={name: dataclasses.replace(one, task=given.task or one.task) for name, one in labels.items()},
        task=None,
        preprocessing_fn=function,
        source_options=_source_options(settings, given, source),
        keep=(*settings.keep, *given.keep),
        strict=settings.strict if given.strict is None else given.strict,
        resize=given.resize or settings.resize,
        root=root,
        train={**settings.train, **seed, **given.train},
    )
    return dataclasses.replace(project, name=name, settings=settings)


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


def _ingest_settings(project: Project, given: Overrides) -> IngestSettings:
    in_file, settings = dict(project.settings.ingest), project.settings
    at_top = {"on_bad_row": settings.on_bad_row, "bad_row_limit": settings.bad_row_limit}
    at_top = {name: value for name, value in at_top.items() if value is not None}
    if twice := [name for name in at_top if name in in_file]:
        what = f"{twice[0]} is set at the top of the file and under ingest"
        raise InfeedError(what, where=f"ingest.{twice[0]}", do="keep one")
    if is_function(str(in_file.get("filter", ""))):
        in_file["filter"] = project.reference(in_file["filter"])
    read_ingest({**at_top, **in_file}, "ingest")
    read_ingest(given.ingest)
    return read_ingest(over({**at_top, **in_file}, given.ingest), "ingest" if in_file else "")


def _survey(settings: Settings, data: str, ingest: IngestOptions) -> Survey:
    keep, labels = settings.keep, settings.labels
    if settings.source == "images":
        if keep:
            raise InfeedError(f"images have no column {keep[0]!r}", where="keep", do="leave it out: it is for tables")
        if len(labels) > 1:
            do = "leave it out: the class folders are the labels"
            raise InfeedError(f"images have no {len(labels)} labels", where="label", do=do)
        survey: Survey = survey_images(data, ingest, settings.resize or "stretch")
    else:
        if settings.resize:
            what = f"a table has no images to {settings.resize}"
            raise InfeedError(what, where="resize", do="leave it out: it is for images")
        tasks, withhold = {name: one.task for name, one in labels.items()}, isinstance(settings.features, str)
        how = settings.source, settings.source_options, ingest, keep
        survey = survey_table(data, [*labels], tasks, *how, withhold=withhold)
    if survey.rows < _MIN_ROWS:
        there = "is only 1 row" if survey.rows == 1 else f"are only {survey.rows} rows"
        what = f"there {there}: too few for training and evaluation"
        raise InfeedError(what, where=data, do=f"use at least {_MIN_ROWS}")
    return survey


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
    _check_columns(features, columns, data)
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


def _check_columns(features: Sequence[Feature], columns: Mapping[str, ColumnSurvey], data: str) -> None:
    """Check that no column is empty, and that features of one value per row, and of dates, fit the values."""
    for feature, name in ((one, name) for one in features for name in one.columns if name in columns):
        column, step = columns[name], next(iter(feature.steps), None)
        found, cannot = column.statistics, f"{type(feature).__name__} cannot take column {name!r}"
        if column.missing == column.rows:
            raise InfeedError(f"{cannot}: it is empty", where=data, do="remove the feature")
        # A tf.Example does not distinguish lists of one value.
        if column.is_list and feature.values == "one" and (not found or found.lengths.maximum > 1):
            do = 'set values="all" on it, or write one value per row'
            raise InfeedError(f"{cannot}: its rows hold lists", where=data, do=do)
        if not isinstance(step, DatePart) or step.format in EPOCHS or not found or found.type != "bytes":
            continue
        # A date takes values that it cannot read as missing, here the whole column.
        texts = [value.decode("utf-8", "replace") for value, _ in itertools.islice(found.counts.items(), _DATES)]
        if texts and not any(re.search(named_regex(step.format), text) for text in texts):
            what = f"column {name!r} has no date of format {step.format!r}, but values such as {texts[0]!r}"
            raise InfeedError(what, where=data, do=format_advice(texts, f"DatePart({step.part!r}, {{}})"))
