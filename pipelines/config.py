"""What a pipeline is made of, all of it decided: a frozen `PipelineConfig`.

    config = resolve(read_project("image"), Overrides(data="photos"))

`project` reads a YAML file, `resolve` looks at the data and decides what the file leaves to it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from infeed.components.checks import require
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.row_filter import is_function
from infeed.components.example_gen.formats import FORMATS
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.feature import Feature
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.surveys import Survey

Source = Literal["csv", "jsonl", "parquet", "avro", "images"]  # of the formats that `infeed ingest --format` knows

EXAMPLE_GENS: Mapping[Source, str] = {kind: FORMATS[kind].component for kind in get_args(Source)}
TRAIN, EVAL, TEST = SPLITS = ("train", "eval", "test")
Metric = Literal["accuracy", "auc", "recall", "precision", "f1", "mse"]


@dataclass(frozen=True)
class Blessing:
    """What a model must reach on the split that it is scored on, to be pushed.

    Attributes:
      metric: "accuracy", "auc" (of two classes), "recall", "precision", "f1" (at least `bound`), or "mse" (at most).
      bound: by default what guessing reaches, such as the share of the commonest class, or the variance of the label.
      slack: how much worse than the last blessed model it may be: absolute, relative for mse.
      positive: the class that recall, precision, F1 and AUC are of; by default the rarer of two, the mean over more.
    """

    metric: Metric
    bound: float
    slack: float = 0.01
    positive: str | None = None

    @property
    def higher_is_better(self) -> bool:
        return self.metric != "mse"


@dataclass(frozen=True)
class PipelineConfig:
    """Everything `create_pipeline` needs.

    Attributes:
      name: of the pipeline, in metadata and folders.
      root: folder of everything the pipeline writes.
      source: kind of input.
      data: its file or folder.
      source_options: how the files are written, by the names of the format's own options, such as CsvOptions.
      ingest: what becomes of bad rows, and how the others become shards.
      patterns: split -> pattern of its files below `data`; empty if all files are divided.
      splits: split -> share, of all rows, or of the pattern that is named train; empty if every split has a pattern.
      features: what becomes of each column, the label among them.
      preprocessing_fn: the user's function that makes features, of all columns, besides them; None for none.
      train: how to train.
      blessing: what a model must reach to be pushed.
      warm_start: begin training with the weights of the latest blessed model, where there is one.
      max_wait_fraction: withhold InputReport's blessing where training waited for a larger share of its time.
      enable_cache: take a node's earlier outputs where its inputs and options are the same.
      beam_pipeline_args: Beam's own, such as `--runner=FlinkRunner`; Beam runs in the step's process by default.
      deploy: how and where the compiled pipeline runs; nothing for a run on this machine.
      survey: what was found in the data.
      notes: what was decided from the data, for people: (about what, in words).
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
    warm_start: bool = False
    max_wait_fraction: float | None = None
    enable_cache: bool = True
    beam_pipeline_args: tuple[str, ...] = ()
    deploy: Deploy = field(default_factory=Deploy)
    notes: tuple[tuple[str, str], ...] = ()
    ingest: IngestOptions = field(default_factory=IngestOptions)
    patterns: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=lambda: {TRAIN: 2, EVAL: 1})
    preprocessing_fn: str | None = None

    def __post_init__(self) -> None:
        check_wait_fraction(self)

    @property
    def user_functions(self) -> dict[str, str]:
        """The user's own functions that the pipeline calls, by the option that names them."""
        own = {"preprocessing_fn": self.preprocessing_fn} if self.preprocessing_fn else {}
        if self.ingest.filter and is_function(self.ingest.filter):
            own["filter"] = self.ingest.filter
        return {**own, **self.train.user_functions}

    @property
    def judged_on(self) -> str:
        """Split that the Evaluator scores the model on: one that has not decided when training stops, if any."""
        return TEST if TEST in {*self.patterns, *self.splits} else EVAL

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

    @property
    def logs(self) -> str:
        """Folder of the logs of commands; it is on this machine wherever the root is."""
        return os.path.join(local_root(self.root, self.name), "logs")


def check_wait_fraction(options: Any) -> None:
    """Raises OptionError unless `max_wait_fraction` of these options is a share."""
    share = options.max_wait_fraction
    require(share is None or 0 <= share <= 1, options, "max_wait_fraction", "use a share from 0 to 1")


def local_root(root: str, name: str) -> str:
    """`root`, or the folder that would be it by default where `root` is in an object store."""
    return os.path.join("runs", name) if "://" in root else root


def resumable(config: PipelineConfig) -> PipelineConfig:
    """With checkpoints where the next attempt finds them: each run of the Trainer has output folders of its own."""
    folder = config.train.checkpoint_dir or os.path.join(config.root, "checkpoints")
    return dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_dir=folder))


def split_data(data: str) -> tuple[str, str | None]:
    """The folder and the name of a file, as TFX takes them; a folder has no name. `data` may be gs://..."""
    if files.is_folder(data):
        return data, None
    folder, name = os.path.split(data)
    return folder, name
