"""What a pipeline is made of: a frozen `PipelineConfig`, and the YAML file and survey it is read from.

    project = read_project("image")                 # a template's name, or the path of a config.yaml
    config = resolve(project, Overrides(data="photos"))

In the file, `features`, `augment`, `hparams` and `blessing` may be given as they are, or as `file.py:function`, which
is called with the survey of the data. Files are looked for beside the config.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources.csv import CsvOptions
from infeed.components.feed.options import Augment, FeedOptions
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.strategy import check_name
from infeed.components.transform.features import Feature, Label, check_features, features_from_json
from infeed.pipelines import bundled
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.survey import Survey, TableSurvey, Task, survey_images, survey_table

Source = Literal["csv", "images"]
TEMPLATES = ("image", "tabular")

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
class Blessing:
    """What a model must reach on the evaluation split to be pushed.

    Attributes:
      metric: "accuracy" (at least `bound`) or "mse" (at most `bound`).
      bound: by default what guessing reaches: the share of the commonest class, or the variance of the label.
      slack: how much worse than the last blessed model it may be: absolute for accuracy, relative for mse.
    """

    metric: Literal["accuracy", "mse"]
    bound: float
    slack: float = 0.01


@dataclass(frozen=True)
class PipelineConfig:
    """Everything `create_pipeline` needs.

    Attributes:
      name: of the pipeline, in metadata and folders.
      root: folder of everything the pipeline writes.
      source: kind of input.
      data: its file or folder.
      delimiter: between the cells of a CSV.
      features: what becomes of each column, the label among them.
      train: how to train.
      blessing: what a model must reach to be pushed.
      max_wait_fraction: withhold InputReport's blessing where training waited for a larger share of its time.
      enable_cache: take a node's earlier outputs where its inputs and options are the same.
      beam_pipeline_args: Beam's own, such as `--runner=DataflowRunner`.
      deploy: how and where the compiled pipeline runs; nothing for a run on this machine.
    """

    name: str
    root: str
    source: Source
    data: str
    delimiter: str
    features: tuple[Feature, ...]
    train: TrainOptions
    blessing: Blessing
    max_wait_fraction: float | None = None
    enable_cache: bool = True
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Deploy = field(default_factory=Deploy)

    @property
    def artifacts(self) -> str:
        """Folder of the artifacts."""
        return os.path.join(self.root, "artifacts")

    @property
    def metadata(self) -> str:
        """The SQLite file of ML Metadata."""
        return os.path.join(self.root, "metadata.sqlite")

    @property
    def serving(self) -> str:
        """Folder that blessed models are pushed to, one folder a version."""
        return os.path.join(self.root, "serving")


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


@dataclass(frozen=True)
class Project:
    """A config file as read, with the folder that its own files are in."""

    name: str
    folder: Path
    package: str | None  # of a template that is part of this package: its functions are imported, not loaded from files
    source: Source
    data: str
    label: str
    features: Any
    model: str
    delimiter: str = ","
    task: Task | None = None
    root: str | None = None
    hparams: Any = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    augment: Any = None
    normalise: Mapping[str, float] | None = None
    blessing: Any = None
    max_wait_fraction: float | None = None
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Any = field(default_factory=dict)

    def reference(self, text: str) -> str:
        """`model.py:build_model` as something that can be loaded from anywhere."""
        module, colon, function = text.partition(":")
        if not module.endswith(".py"):
            return text
        if self.package:
            return f"{self.package}.{module.removesuffix('.py')}{colon}{function}"
        return f"{self.folder / module}{colon}{function}"

    def value(self, given: Any, survey: Survey, option: str) -> Any:
        """What stands in the file, or what the function named there makes of the survey."""
        if not isinstance(given, str):
            return given
        return user_code.load(self.reference(given), option)(survey)


def read_project(name_or_path: str) -> Project:
    """Reads a template by name, or a config file by path.

    Raises:
      InfeedError: neither a template nor a file, not YAML, or a key that does not exist or is missing.
    """
    if name_or_path in TEMPLATES:
        package = f"infeed.templates.{name_or_path}"
        path, name = Path(str(resources.files(package) / "config.yaml")), name_or_path
    else:
        package, path = None, Path(name_or_path).resolve()
        path = path / "config.yaml" if path.is_dir() else path
        name = path.parent.name
    if not path.is_file():
        raise InfeedError(
            f"there is no template or config file {name_or_path!r}",
            do=f"Use one of the templates ({', '.join(TEMPLATES)}), or the path of a config.yaml.",
        )
    settings = {"name": name, **_read_yaml(path)}
    _check_keys(settings, path)
    return Project(folder=path.parent, package=package, **settings)


def resolve(project: Project, overrides: Overrides | None = None) -> PipelineConfig:
    """Looks at the data and decides everything that the file leaves to it.

    Raises:
      InfeedError: the data, an option or a named function is wrong. Nothing has been started by then.
    """
    given = overrides or Overrides()
    check_name(given.strategy or project.train.get("strategy", "auto"))
    user_code.resolve(project.reference(project.model), "model")
    name, root = _name_and_root(project, given)
    data = _data(given.data or project.data, root)
    survey = _survey(project, given, data)
    _check_enough(survey, data)
    label = given.label or project.label
    features = _features(project, survey, label)
    return PipelineConfig(
        name=name,
        root=root,
        source=project.source,
        data=data,
        delimiter=given.delimiter or project.delimiter,
        features=features,
        train=_train_options(project, given, survey, label),
        blessing=_blessing(project, survey),
        max_wait_fraction=project.max_wait_fraction,
        beam_pipeline_args=tuple(project.beam_pipeline_args),
        deploy=Deploy.from_dict(project.deploy),
    )


def resumable(config: PipelineConfig) -> PipelineConfig:
    """With checkpoints where the next attempt finds them: each run of the Trainer has output folders of its own."""
    folder = config.train.checkpoint_dir or os.path.join(config.root, "checkpoints")
    return dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_dir=folder))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InfeedError(f"not valid YAML: {error}", where=str(path), do="Mend the file at that line.") from error
    if not isinstance(settings, dict):
        raise InfeedError(
            "the file holds no settings", where=str(path), do="Copy a template's config.yaml to start from."
        )
    return settings


def _check_keys(settings: Mapping[str, Any], path: Path) -> None:
    fields = {f.name: f for f in dataclasses.fields(Project) if f.name not in ("folder", "package")}
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise InfeedError(
            f"there is no setting {unknown[0]!r}", where=str(path), do=f"The settings are: {', '.join(sorted(fields))}."
        )
    required = [n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]
    missing = [n for n in required if n not in settings]
    if missing:
        raise InfeedError(f"the setting {missing[0]!r} is missing", where=str(path), do="Add it.")
    if settings["source"] not in get_args(Source):
        raise InfeedError(
            f"source is {settings['source']!r}", where=str(path), do=f"Use one of {', '.join(get_args(Source))}."
        )


def _name_and_root(project: Project, given: Overrides) -> tuple[str, str]:
    """Each data set gets a pipeline of its own: a model of other data is nothing to compare with."""
    name = f"{project.name}-{Path(given.data).resolve().stem}" if given.data else project.name
    return name, _absolute(given.root or project.root or os.path.join("runs", name))


def _data(data: str, root: str) -> str:
    if data in bundled.NAMES:
        return str(bundled.materialise(data, Path(root) / "data"))
    return _absolute(data)


def _absolute(path: str) -> str:
    """gs://bucket/folder is absolute as it stands."""
    return path if "://" in path else os.path.abspath(path)


def _survey(project: Project, given: Overrides, data: str) -> Survey:
    if project.source == "images":
        return survey_images(data)
    options = CsvOptions(delimiter=given.delimiter or project.delimiter)
    return survey_table(data, given.label or project.label, given.task or project.task, options)


def _check_enough(survey: Survey, data: str) -> None:
    if survey.rows < _MIN_ROWS:
        raise InfeedError(
            f"there are only {survey.rows} rows: too few to train on some and evaluate on others",
            where=data,
            do=f"Give at least {_MIN_ROWS}.",
        )


def _features(project: Project, survey: Survey, label: str) -> tuple[Feature, ...]:
    features = project.value(project.features, survey, "features")
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
    settings = dict(project.train)
    for name in ("epochs", "batch_size", "strategy"):
        if getattr(given, name) is not None:
            settings[name] = getattr(given, name)
    feed = {f.name: settings.pop(f.name) for f in dataclasses.fields(FeedOptions) if f.name in settings}
    for function in ("callbacks_fn", "input_fn"):
        if settings.get(function):
            settings[function] = project.reference(settings[function])
    augment = project.value(project.augment, survey, "augment")
    return TrainOptions.from_dict(
        {
            "model_fn": project.reference(project.model),
            "label": label,
            "task": survey.task,
            "hparams": project.value(project.hparams, survey, "hparams"),
            "feed": feed,
            "augment": dataclasses.asdict(augment) if isinstance(augment, Augment) else augment,
            "normalise": project.normalise,
            **settings,
        }
    )


def _blessing(project: Project, survey: Survey) -> Blessing:
    guess: dict[str, Any] = {
        "metric": "accuracy" if survey.task == "classification" else "mse",
        "bound": survey.guess,
    }
    return Blessing(**{**guess, **(project.value(project.blessing, survey, "blessing") or {})})
