"""Complete configuration of a pipeline: a frozen `PipelineConfig`.

    config = resolve(read_project("image"), Overrides(data="photos"))

`project` reads a YAML file; `resolve` surveys the data and decides the settings that the file leaves open.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from infeed.components.base import schema
from infeed.components.base.checks import about, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions, Spans, split_path
from infeed.components.dataset.row_filter import is_function
from infeed.components.dataset.splits import DEFAULT_SHARES
from infeed.components.engine.beam_runner import Named
from infeed.components.example_gen.formats import FORMATS
from infeed.components.kubeflow.message import is_packed, unpack
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.components.transform.features import features_from_json, features_to_json, own_kinds
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.surveys import ColumnSurvey, LabelSurvey, Survey, TableSurvey, Task

EXAMPLE_GENS: Mapping[str, str] = {kind: one.component for kind, one in FORMATS.items() if one.in_projects}
if TYPE_CHECKING:
    Source: TypeAlias = str
else:
    Source = Literal[tuple(EXAMPLE_GENS)]
TRAIN, EVAL, TEST = SPLITS = ("train", "eval", "test")
Metric = Literal["accuracy", "auc", "recall", "precision", "f1", "mse"]


@dataclass(frozen=True)
class Blessing:
    """Score that a model must reach on the scored split to be pushed.

    Attributes:
      metric: "accuracy", "auc" (two classes), "recall", "precision" or "f1", for which `bound` is a minimum; or "mse",
        for which it is a maximum. Sets of classes have "recall", "precision" and "f1", over all classes of all rows.
      bound: required score. Defaults to the score of guessing, for example the share of the commonest class.
      beat_guess: also require that the 95 % interval of the score is better than guessing on the scored rows. Defaults
        to true without a `bound`, and to false with one.
      slack: allowed loss against the last blessed model: absolute, or relative for mse.
      positive: class for recall, precision, F1 and AUC. Defaults to the rarer of two classes, or to the mean over all
        classes if there are more.
      output: label that the metric is about, if there are several. Defaults to the first.
    """

    metric: Metric
    bound: float
    slack: float = 0.01
    positive: str | None = None
    beat_guess: bool = False
    output: str = ""

    @property
    def higher_is_better(self) -> bool:
        return self.metric != "mse"


@dataclass(frozen=True)
class PipelineConfig:
    """Input of `create_pipeline`.

    Attributes:
      name: name of the pipeline, in metadata and folders.
      root: folder for all outputs.
      span_data: path of the data with placeholders such as {SPAN}, or empty. If set, `data` has the spans to read.
      spans: number of the latest spans to read. None for all.
      source_options: options of the format by name, for example those of `CsvOptions`.
      ingest: options for bad rows and shards.
      patterns: split -> file pattern below `data`. Empty if `splits` divides all files.
      splits: split -> share of all rows, or of the rows of the pattern train. Empty if every split has a pattern.
      features: features of the columns, including the label.
      preprocessing_fn: the user's function that adds features from all columns, or None.
      blessing: score that a model must reach to be pushed.
      warm_start: start training from the weights of the latest blessed model, if there is one.
      max_wait_fraction: withhold InputReport's blessing if training waited for a larger share of its time.
      enable_cache: reuse the outputs of a node if its inputs and options are the same.
      beam_pipeline_args: Beam options of local runs. Compiled pipelines use those of `deploy`.
      deploy: settings of the compiled pipeline. Local runs ignore them.
      notes: decisions made from the data, as texts for users: (subject, text).
    """

    name: str
    root: str
    source: Source
    data: str
    source_options: Mapping[str, Any]
    features: tuple[Feature, ...]
    train: TrainOptions
    blessing: Blessing
    survey: Survey
    span_data: str = ""
    spans: int | None = None
    warm_start: bool = False
    max_wait_fraction: float | None = None
    enable_cache: bool = True
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Deploy = field(default_factory=Deploy)
    notes: tuple[tuple[str, str], ...] = ()
    ingest: IngestOptions = field(default_factory=IngestOptions)
    patterns: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_SHARES)
    preprocessing_fn: str | None = None

    def __post_init__(self) -> None:
        check_wait_fraction(self)
        with about(self, "beam_pipeline_args"):
            Named.of(self.beam_pipeline_args)

    @property
    def ingest_options(self) -> IngestOptions:
        """Options of the ExampleGen: `ingest`, with the spans to read, if any."""
        if not self.span_data:
            return self.ingest
        _, pattern = split_path(self.span_data)
        return dataclasses.replace(
            self.ingest, spans=Spans(pattern, self.spans, os.path.join(folder_of(self.root), "spans"))
        )

    @property
    def place(self) -> str:
        """Path of the data. Empty if a function returns them."""
        return "" if FORMATS[self.source].is_query else self.data

    @property
    def user_functions(self) -> dict[str, str]:
        """Names of the user's functions that the pipeline calls, by option."""
        own = {"preprocessing_fn": self.preprocessing_fn} if self.preprocessing_fn else {}
        if self.ingest.filter and is_function(self.ingest.filter):
            own["filter"] = self.ingest.filter
        if not self.place:
            own["reader"] = self.data
        own |= {f"features: {kind}": kind for kind in own_kinds(self.features)}
        return {**own, **self.train.user_functions}

    @property
    def matrix_classes(self) -> tuple[str, ...]:
        """Classes of the confusion matrix. Empty unless the model has one output, for one class of each row."""
        is_one = isinstance(self.train.label, str) and self.survey.task == "classification"
        return tuple(self.survey.classes) if is_one else ()

    @property
    def judged_on(self) -> str:
        """Split that the Evaluator scores: test if it exists, because eval decides when training stops."""
        return TEST if TEST in {*self.patterns, *self.splits} else EVAL

    @property
    def artifacts(self) -> str:
        folder = folder_of(self.root)
        return os.path.join(folder, "artifacts") + self.root[len(folder) :]

    @property
    def metadata(self) -> str:
        """SQLite file of ML Metadata."""
        return os.path.join(self.root, "metadata.sqlite")

    @property
    def serving(self) -> str:
        """Folder of the pushed models, with a folder per version."""
        return os.path.join(folder_of(self.root), "serving")

    @property
    def logs(self) -> str:
        """Local folder of the logs of commands, even if the root is remote."""
        return os.path.join(local_root(self.root, self.name), "logs")


def check_wait_fraction(options: Any) -> None:
    """Raise OptionError unless `max_wait_fraction` is None or from 0 to 1."""
    share = options.max_wait_fraction
    require(share is None or 0 <= share <= 1, options, "max_wait_fraction", "use a share from 0 to 1")


def folder_of(root: str) -> str:
    """Return a root without the query that only Kubeflow's launcher understands: s3://bucket/x?endpoint=HOST."""
    return root.partition("?")[0] if "://" in root else root


def local_root(root: str, name: str) -> str:
    """Return `root`, or the default local root if `root` is in an object store."""
    return os.path.join("runs", name) if "://" in root else root


def resumable(config: PipelineConfig) -> PipelineConfig:
    """Return the config with a fixed checkpoint folder, so that the next attempt of the Trainer can resume."""
    folder = config.train.checkpoint_dir or os.path.join(folder_of(config.root), "checkpoints")
    return dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_dir=folder))


def split_data(data: str) -> tuple[str, str | None]:
    """Split a local or remote path into folder and file name, as TFX requires. The name is None for a folder."""
    if files.is_folder(data):
        return data, None
    folder, name = os.path.split(data)
    return folder, name


@dataclass(frozen=True)
class LabelFacts:
    """What evaluation needs of the survey of a label."""

    name: str
    task: Task
    classes: tuple[str, ...] = ()
    class_rows: tuple[int, ...] = ()
    mean: float = 0.0

    def survey(self, rows: int) -> LabelSurvey:
        most = max(self.class_rows, default=0)
        column = ColumnSurvey(self.name, "bytes", rows, 0, None, self.mean, 0.0, most)
        return LabelSurvey(column, self.task, self.classes, self.class_rows)


@dataclass(frozen=True)
class Resolved:
    """Settings of a `PipelineConfig` that steps need, and the part of the survey that evaluation needs.

    The steps of a compiled job have neither the survey nor the config file. They get this as packed text, in place of
    the project on their command line.
    """

    name: str
    source: Source
    source_options: Mapping[str, Any]
    features: tuple[Mapping[str, Any], ...]
    train: TrainOptions
    blessing: Blessing
    ingest: IngestOptions
    patterns: Mapping[str, str]
    splits: Mapping[str, int]
    preprocessing_fn: str | None
    rows: int  # as in the survey
    labels: tuple[LabelFacts, ...]  # the label that decides about the blessing is the first
    # Digests of the user's functions by option. An edited function has another digest, so its step runs again.
    code: Mapping[str, str] = field(default_factory=dict)
    data: str = field(default="", kw_only=True)

    @classmethod
    def of(cls, config: PipelineConfig) -> Resolved:
        """Return the resolved part of `config`, without its root and files, which a platform determines."""
        survey = config.survey
        labels: tuple[LabelFacts, ...] = (
            (LabelFacts(config.train.only_label, survey.task, survey.classes, survey.class_rows),)
            if not isinstance(survey, TableSurvey)
            else tuple(
                LabelFacts(one.column.name, one.task, one.classes, one.class_rows, one.column.mean)
                for one in survey.labels
            )
        )
        own = {f.name: getattr(config, f.name) for f in dataclasses.fields(cls) if hasattr(config, f.name)}
        own |= {
            "train": dataclasses.replace(config.train, checkpoint_dir=None),
            "data": "" if config.place else config.data,
        }
        own |= {"features": tuple(features_to_json(config.features))}
        return cls(**own, rows=survey.rows, labels=labels)

    def to_json(self) -> str:
        """Return the config as JSON. `read_resolved` restores an equal one. The order of the splits matters."""
        return json.dumps(schema.to_plain(self, defaults=False))

    def config(self) -> PipelineConfig:
        """Return a config for a step. Its survey has no columns."""
        first, *others = (one.survey(self.rows) for one in self.labels)
        facts = first.column, first.task, self.rows, first.classes, first.class_rows
        survey = TableSurvey((), *facts, others=tuple(others))
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(PipelineConfig) if hasattr(self, f.name)}
        kept["features"] = tuple(features_from_json(self.features))
        return PipelineConfig(**kept, root="", survey=survey)


def read_resolved(text: str, given: Mapping[str, Any]) -> PipelineConfig | None:
    """Return the config of a packed text, with the overrides of the command line. None for other text.

    Raises InfeedError for an override that only a project supports.
    """
    if not is_packed(text):
        return None
    said = {name: value for name, value in given.items() if value}
    if unknown := sorted(said.keys() - {"data", "train"}):
        where = f"--{unknown[0].replace('_', '-')}"
        raise InfeedError(
            "the compiled job fixes this setting", where=where, do="leave it out, or compile the job again"
        )
    config = schema.read_json(Resolved, unpack(text).encode()).config()
    train = config.train.override(said.get("train", {}))
    return dataclasses.replace(config, train=train, data=said.get("data", config.data))
