"""What a pipeline is made of, all of it decided: a frozen `PipelineConfig`.

    config = resolve(read_project("image"), Overrides(data="photos"))

`project` reads a YAML file, `resolve` looks at the data and decides what the file leaves to it.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.errors import InfeedError
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.features import Feature
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.sources import Source


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

    def __post_init__(self) -> None:
        if self.max_wait_fraction is not None and not 0 <= self.max_wait_fraction <= 1:
            raise InfeedError(
                f"max_wait_fraction is {self.max_wait_fraction}",
                where="max_wait_fraction",
                do="Use a share from 0 to 1.",
            )

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


def local_root(root: str, name: str) -> str:
    """`root`, or the folder that would be it by default where `root` is in an object store."""
    return os.path.join("runs", name) if "://" in root else root


def resumable(config: PipelineConfig) -> PipelineConfig:
    """With checkpoints where the next attempt finds them: each run of the Trainer has output folders of its own."""
    folder = config.train.checkpoint_dir or os.path.join(config.root, "checkpoints")
    return dataclasses.replace(config, train=dataclasses.replace(config.train, checkpoint_dir=folder))
