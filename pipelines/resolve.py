"""From a project to a `PipelineConfig`: looks at the data and decides everything that the file leaves to it.

Everything that can be told to be wrong is told here, before anything is started.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.strategy import check_name
from infeed.components.transform.features import Feature, Label, check_features, features_from_json
from infeed.pipelines import bundled
from infeed.pipelines.config import Blessing, PipelineConfig, local_root
from infeed.pipelines.project import Project
from infeed.pipelines.settings import check_known, read_settings
from infeed.pipelines.sources import Source, source_of
from infeed.pipelines.survey import Survey, TableSurvey, Task, survey_images, survey_table

# One row in three is evaluated on. With 20 rows, one hash in three thousand leaves none of them for that.
_MIN_ROWS = 20

# Columns that ImageExampleGen writes; features name them.
IMAGE_COLUMNS = (
    "image/encoded",
    "image/format",
    "image/height",
    "image/width",
    "image/channels",
    "image/filename",
    "label",
    "label/text",
)


@dataclass(frozen=True)
class Overrides:
    """What the command line may say on top of the file; None leaves the file's own."""

    data: str | None = None
    delimiter: str | None = None
    label: str | None = None
    task: Task | None = None
    root: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    strategy: str | None = None


def resolve(project: Project, overrides: Overrides | None = None) -> PipelineConfig:
    """Decides everything that the file leaves to the data.

    Raises:
      InfeedError: the data, an option or a named function is wrong. Nothing has been started by then.
    """
    given, settings = overrides or Overrides(), project.settings
    check_name(given.strategy or settings.train.get("strategy", "auto"))
    user_code.resolve(project.reference(settings.model), "model")
    name, root = _name_and_root(project, given)
    data = _data(given.data or settings.data, local_root(root, name))
    source = source_of(data, settings.source) if given.data else settings.source
    label, delimiter = given.label or settings.label, given.delimiter or settings.delimiter
    survey = _survey(source, data, label, given.task or settings.task, delimiter)
    _check_enough(survey, data)
    return PipelineConfig(
        name=name,
        root=root,
        source=source,
        data=data,
        delimiter=delimiter,
        features=_features(project, survey, label),
        train=_train_options(project, given, survey, label),
        blessing=_blessing(project, survey),
        max_wait_fraction=settings.max_wait_fraction,
        beam_pipeline_args=settings.beam_pipeline_args,
        deploy=settings.deploy,
    )


def _name_and_root(project: Project, given: Overrides) -> tuple[str, str]:
    """Each data set gets a pipeline of its own: a model of other data is nothing to compare with."""
    name = f"{project.name}-{Path(given.data).resolve().stem}" if given.data else project.name
    return name, _absolute(given.root or project.settings.root or os.path.join("runs", name))


def _data(data: str, root: str) -> str:
    if data in bundled.NAMES:
        return _absolute(str(bundled.materialise(data, Path(root) / "data")))
    return _absolute(data)


def _absolute(path: str) -> str:
    """gs://bucket/folder is absolute as it stands."""
    return path if "://" in path else os.path.abspath(path)


def _survey(source: Source, data: str, label: str, task: Task | None, delimiter: str) -> Survey:
    if source == "images":
        return survey_images(data)
    return survey_table(data, label, task, source, {"delimiter": delimiter} if source == "csv" else {})


def _check_enough(survey: Survey, data: str) -> None:
    if survey.rows < _MIN_ROWS:
        raise InfeedError(
            f"there are only {survey.rows} rows: too few to train on some and evaluate on others",
            where=data,
            do=f"Give at least {_MIN_ROWS}.",
        )


def _features(project: Project, survey: Survey, label: str) -> tuple[Feature, ...]:
    features = project.value(project.settings.features, survey, "features")
    if not isinstance(features, list | tuple) or not all(
        isinstance(feature, Mapping | Feature) for feature in features
    ):
        raise InfeedError(
            f"features is {features!r}",
            where="setting features",
            do=f"Write a list of features there, such as [{{kind: label, column: {label}}}], or file.py:function.",
        )
    if all(isinstance(feature, Mapping) for feature in features):
        features = features_from_json(features)
    check_features(features, _columns(survey))
    if not any(isinstance(feature, Label) and feature.column == label for feature in features):
        raise InfeedError(
            f"no feature makes a label of {label!r}",
            where="setting features",
            do=f"Add Label({label!r}) to the features.",
        )
    return tuple(features)


def _columns(survey: Survey) -> list[str]:
    if isinstance(survey, TableSurvey):
        return [column.name for column in (*survey.columns, survey.label)]
    return list(IMAGE_COLUMNS)


def _train_options(project: Project, given: Overrides, survey: Survey, label: str) -> TrainOptions:
    settings, train = project.settings, dict(project.settings.train)
    of_feed = [f.name for f in dataclasses.fields(FeedOptions)]
    check_known(train, [*(f.name for f in dataclasses.fields(TrainOptions)), *of_feed], "train")
    for name in ("epochs", "batch_size", "strategy"):
        if getattr(given, name) is not None:
            train[name] = getattr(given, name)
    feed = {name: train.pop(name) for name in of_feed if name in train}
    for function in ("callbacks_fn", "input_fn"):
        if train.get(function):
            train[function] = project.reference(train[function])
    return read_settings(
        TrainOptions,
        {
            "model_fn": project.reference(settings.model),
            "label": label,
            "task": survey.task,
            "hparams": project.value(settings.hparams, survey, "hparams"),
            "feed": read_settings(FeedOptions, feed, "train"),
            "augment": project.value(settings.augment, survey, "augment"),
            "normalise": settings.normalise,
            **train,
        },
        "train",
    )


def _blessing(project: Project, survey: Survey) -> Blessing:
    guess: dict[str, Any] = {
        "metric": "accuracy" if survey.task == "classification" else "mse",
        "bound": survey.guess,
    }
    given = project.value(project.settings.blessing, survey, "blessing") or {}
    return read_settings(Blessing, {**guess, **given} if isinstance(given, Mapping) else given, "blessing")
