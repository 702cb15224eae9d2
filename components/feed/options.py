"""What a user may say about feeding; everything left at its default is decided by `plan`, with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infeed.components.checks import at_least, check_choices, refused, require
from infeed.components.errors import InfeedError

Tier = Literal["auto", "device", "columns", "disk", "stream"]
Flip = Literal["none", "horizontal"]


@dataclass(frozen=True)
class FeedOptions:
    """How batches are made.

    Attributes:
      batch_size: records in a global batch, over all replicas.
      seed: orders shards and records and drives augmentation; the same seed gives the same run.
      tier: `columns` decodes a split once and holds it in memory, `disk` holds it in files, `stream` reads it again
        each epoch; `device` copies the columns of training to the accelerators, where each step gathers its own rows.
        `auto` takes the first in which the decoded split fits, `device` only where accelerators train, and for one
        epoch of much data `stream`.
      cache_records: whether `stream` keeps the serialized records in memory; None where they fit.
      shuffle_records: records that `stream` shuffles together; None fits them to the split and the memory there is.
      readers: shards read at a time; None means one per CPU core, at most one per shard.
      memory_fraction: share of the machine's (or the cgroup's) memory that columns, held records and windows may take.
        A third leaves room for the model, TensorFlow's own buffers and the page cache.
      device_fraction: share of an accelerator's free memory that the columns of `device` may take. A quarter leaves
        room for the model, its gradients and its activations.
      disk_fraction: share of the free disk under `cache_dir` that `disk` may take.
      cache_dir: local folder where `disk` keeps its files, for later trainings too, and where the counts of datasets
        without a manifest are kept; every host has its own. What no training has used for thirty days is removed, and
        what was used longest ago where room is needed.
      skip_corrupt: corrupt records that may be left out, at most; all files are then read once beforehand to find them.
        0 stops at the first one.
      mix: share of each split that is trained on, by its name, where there are several; of several datasets, by what
        `shards.dataset_names` calls them, such as the id of the component that wrote one. Shares need not add up to 1.
      class_shares: share of each class in training, by its name, or `equal`; classes left out are not trained on.
      weight: a transformed feature that says how much an example counts in the loss; the model does not see it.
      static_shapes: fills the last short batch of evaluation with rows of weight 0, so that all are of one shape; None
        does so under the strategy `tpu`.
    """

    batch_size: int = 128
    seed: int = 0
    tier: Tier = "auto"
    cache_records: bool | None = None
    shuffle_records: int | None = None
    readers: int | None = None
    memory_fraction: float = 1 / 3
    device_fraction: float = 1 / 4
    disk_fraction: float = 1 / 2
    cache_dir: str = "~/.cache/tfx-infeed"
    skip_corrupt: int = 0
    mix: Mapping[str, float] = field(default_factory=dict)
    class_shares: Mapping[str, float] | Literal["equal"] = field(default_factory=dict)
    weight: str | None = None
    static_shapes: bool | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        at_least(self, 1, "batch_size", "shuffle_records", "readers")
        at_least(self, 0, "skip_corrupt")
        self._check_weights("mix")
        if self.class_shares != "equal":
            self._check_weights("class_shares")
        if self.mix and self.class_shares:
            raise refused(self, "class_shares", "choose one of them", "mix and class_shares are given both")
        for name in ("memory_fraction", "device_fraction", "disk_fraction"):
            require(0 < getattr(self, name) < 1, self, name, "use a share between 0 and 1")

    def _check_weights(self, name: str) -> None:
        weights = getattr(self, name)
        require(isinstance(weights, Mapping), self, name, 'map names to shares: {"a": 0.7, "b": 0.3}')
        if weights:
            are_shares = all(weight >= 0 and math.isfinite(weight) for weight in weights.values())
            is_any = any(weights.values())
            require(are_shares and is_any, self, name, "use shares of at least 0, one of them above it")


@dataclass(frozen=True)
class WorkerContext:
    """Which worker this process is, and of how many; each makes its own part of every global batch."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InfeedError(
                f"worker {self.index} of {self.count}",
                where="WorkerContext",
                do="number the workers from 0 to count - 1",
            )

    def per_worker_batch_size(self, batch_size: int) -> int:
        """Records of a global batch that fall to each worker.

        Raises:
          InfeedError: the workers cannot share a batch evenly.
        """
        if batch_size % self.count:
            raise InfeedError(
                f"a global batch of {batch_size:,} records cannot be shared evenly by {self.count:,} workers",
                where="FeedOptions.batch_size",
                do=f"use a multiple of {self.count:,}",
            )
        return batch_size // self.count


SINGLE_WORKER = WorkerContext()


@dataclass(frozen=True)
class Normalise:
    """`(pixel / 255 - mean) / std`, pixels 0 to 255; the defaults map them to -1 ... 1."""

    mean: float = 0.5
    std: float = 0.5

    def __post_init__(self) -> None:
        require(self.std > 0, self, "std", "use a number above 0")

    def describe(self) -> str:
        """In words, for the plan."""
        return f"normalises by mean {self.mean:g} and deviation {self.std:g}"


@dataclass(frozen=True)
class Augment:
    """The classic recipe for small pictures.

    Attributes:
      shift: pads by so many pixels with reflection and crops at random: a shift of up to `shift` pixels each way.
      flip: `horizontal` mirrors half of the pictures, left to right.
      rotate: up to so many degrees either way, bilinear, edges reflected.
      crop: takes a window of a random share, from `crop` to 1, of the picture's area, at a random place, and resizes it
        to the size of the whole picture (Szegedy 2015, `RandomResizedCrop`).
      stretch: changes that window's width to height by up to this factor either way; 4/3 is usual.
      cutout: side in pixels of one square a picture that is set to the mean; it may stick out at the border.
      brightness: adds up to this share of the full range to all of a picture's pixels, or takes it away.
      contrast: multiplies what each pixel differs from its picture's and channel's mean by a factor of 1 - contrast to
        1 + contrast. After both, pixels are cut off at 0 and 255.
    """

    shift: int = 0
    flip: Flip = "none"
    rotate: float = 0.0
    crop: float = 1.0
    stretch: float = 1.0
    cutout: int = 0
    brightness: float = 0.0
    contrast: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self)
        at_least(self, 0, "shift", "rotate", "cutout")
        require(0 < self.crop <= 1, self, "crop", "use a share of the area above 0, at most 1")
        at_least(self, 1, "stretch")
        for name in ("brightness", "contrast"):
            require(0 <= getattr(self, name) <= 1, self, name, "use a share from 0 to 1")

    def describe(self) -> str:
        """In words, for the plan; empty where nothing is changed."""
        parts = [
            f"shifts by up to {self.shift} px with reflected edges" if self.shift else "",
            "mirrors half of them" if self.flip == "horizontal" else "",
            f"rotates by up to {self.rotate:g} degrees" if self.rotate else "",
            f"crops to no less than {self.crop:.0%} of the area and resizes" if self.crop < 1 else "",
            f"stretches by up to {self.stretch:.3g}" if self.stretch > 1 else "",
            f"changes brightness by up to {self.brightness:.0%}" if self.brightness else "",
            f"changes contrast by up to {self.contrast:.0%}" if self.contrast else "",
            f"cuts out {self.cutout} x {self.cutout} px" if self.cutout else "",
        ]
        return ", ".join(part for part in parts if part)
