"""Options of the feed. `plan` chooses every option with its default value, and gives a reason.

`Draws` are the random numbers of the augmentation of an image, in the order in which they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from infeed.components.base import user_code
from infeed.components.base.annotations import Count, Positive
from infeed.components.base.checks import about, at_least, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.cache import CACHE_DIR

Tier = Literal["auto", "device", "columns", "disk", "stream"]
Flip = Literal["none", "horizontal"]
MapKind = Literal["tensorflow", "numpy"]


@dataclass(frozen=True)
class MapFunction:
    """A user's function on a dict of features. The feed calls it on each example or batch.

    Attributes:
      function: `package.module:function` or `path/file.py:function`, called as `function(features)`, or as
        `function(features, seed)` if it has a parameter `seed`. In Python, a top-level function of a module is also
        accepted.
      kind: `tensorflow` compiles the function into the graph. `numpy` calls it on arrays in other processes.
      processes: number of processes that call a NumPy function.
      evaluation: whether to apply the function to evaluation batches, too. Serving never calls it.
    """

    function: str | Callable[..., Any]
    kind: MapKind = "tensorflow"
    processes: int = 1
    evaluation: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(self, 1, "processes")
        if not isinstance(self.function, str):
            with about(self, "function"):
                object.__setattr__(self, "function", user_code.name_of(self.function))

    @property
    def name(self) -> str:
        return str(self.function)


@dataclass(frozen=True)
class FeedOptions:
    """Options of the batches.

    Attributes:
      batch_size: number of examples in a global batch, over all replicas.
      seed: seed of shuffling and augmentation. The same seed gives the same run.
      tier: where the split is kept. `columns` decodes it once into memory. `disk` decodes it once into files. `stream`
          reads it again in each epoch. `device` copies the training columns to the accelerators, where each step
          gathers its rows. `auto` chooses the first tier that fits the decoded split: `device` only on accelerators,
          and `stream` for a single epoch of a large split.
      cache_records: whether `stream` caches the serialized records in memory. None caches them if they fit.
      shuffle_records: records that `stream` shuffles together. None adapts to the split and the memory.
      readers: shards read in parallel. None uses one per CPU core, at most one per shard.
      memory_fraction: share of the memory of the machine or the cgroup for columns, records and windows. A third leaves
        room for the model, TensorFlow's buffers and the page cache.
      device_fraction: share of an accelerator's free memory for the columns of `device`. A quarter leaves room for the
        model, its gradients and its activations.
      disk_fraction: share of the free disk under `cache_dir` for the columns of `disk`.
      cache_dir: local folder of each host for the columns of `disk` and the record counts of datasets without a
        manifest. Later trainings reuse them. The feed removes entries unused for thirty days, and the least recently
        used entries if it needs space.
      skip_corrupt: number of corrupt records to skip, at most. The feed then scans all files before training. 0 stops
        at the first corrupt record.
      mix: share of each training split by name. With several datasets, `shards.dataset_names` names them, for example
        by the id of the component that wrote them. Shares are relative weights and need not add up to 1.
      class_shares: share of each class in training by name, or `equal`. Classes without a share are excluded.
      bucket_by: transformed feature with rows of varying length. Each training batch then has rows of similar length,
          which reduces padding.
      weight: transformed feature that holds the weight of each example in the loss. It is not an input of the model.
      static_shapes: whether to pad the last evaluation batch with rows of weight 0, so that all batches have one
          shape. None pads only under the strategy `tpu`.
      map_examples: function on the features of each example, {name: [...]}; its name is short for
        `MapFunction(name)`.
      map_batches: function on the features of each batch, {name: [batch, ...]}, after `map_examples`.
    """

    batch_size: Positive = 128
    seed: int = 0
    tier: Tier = "auto"
    cache_records: bool | None = None
    shuffle_records: Positive | None = None
    readers: Positive | None = None
    memory_fraction: float = 1 / 3
    device_fraction: float = 1 / 4
    disk_fraction: float = 1 / 2
    cache_dir: str = CACHE_DIR
    skip_corrupt: Count = 0
    mix: Mapping[str, float] = field(default_factory=dict)
    class_shares: Mapping[str, float] | Literal["equal"] = field(default_factory=dict)
    bucket_by: str | None = None
    weight: str | None = None
    static_shapes: bool | None = None
    map_examples: MapFunction | str | Callable[..., Any] | None = None
    map_batches: MapFunction | str | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("map_examples", "map_batches"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, MapFunction):
                object.__setattr__(self, name, MapFunction(given))
        self._check_weights("mix")
        if self.class_shares != "equal":
            self._check_weights("class_shares")
        if self.mix and self.class_shares:
            raise refused(self, "class_shares", "choose one of them", "mix and class_shares are both set")
        for name in ("memory_fraction", "device_fraction", "disk_fraction"):
            require(0 < getattr(self, name) < 1, self, name, "use a share between 0 and 1")

    def batch(self, workers: WorkerContext | None = None) -> GlobalBatch:
        """Return the global batch of these options. Without `workers`, there is a single worker."""
        return GlobalBatch(self.batch_size, self.seed, workers or SINGLE_WORKER)

    @property
    def maps(self) -> dict[str, MapFunction]:
        """User functions on features by option, in call order."""
        given = {"map_examples": self.map_examples, "map_batches": self.map_batches}
        return {option: one for option, one in given.items() if isinstance(one, MapFunction)}

    def _check_weights(self, name: str) -> None:
        weights = getattr(self, name)
        require(isinstance(weights, Mapping), self, name, 'map names to shares: {"a": 0.7, "b": 0.3}')
        if weights:
            are_shares = all(weight >= 0 and math.isfinite(weight) for weight in weights.values())
            is_any = any(weights.values())
            require(are_shares and is_any, self, name, "use shares of at least 0, at least one above 0")


@dataclass(frozen=True)
class WorkerContext:
    """Index of this worker, and number of workers. Each worker prepares its part of every global batch."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            what = f"worker index is {self.index}, but there are {self.count} workers"
            raise InfeedError(what, where="WorkerContext", do="number the workers from 0 to count - 1")


def share_of_batch(batch_size: int, count: int, of: str, where: str = "FeedOptions.batch_size") -> int:
    """Return the number of examples of a global batch for each worker, replica or machine.

    `of` is their name in the error, such as "replicas". Raises InfeedError if they cannot share a batch equally.
    """
    if batch_size % count:
        what = f"batch_size is {batch_size}, which {count} {of} cannot share equally"
        do = f"use a multiple of {count}, such as {-(-batch_size // count) * count}"
        raise InfeedError(what, where=where, do=do)
    return batch_size // count


SINGLE_WORKER = WorkerContext()


@dataclass(frozen=True)
class GlobalBatch:
    """Global batch, which the workers share equally."""

    size: int  # number of examples, over all workers
    seed: int = 0  # seed of example order and augmentation
    workers: WorkerContext = SINGLE_WORKER  # this worker, and the number of workers

    @property
    def part(self) -> int:
        """Number of examples of this worker. Raises InfeedError if the workers cannot share a batch equally."""
        return share_of_batch(self.size, self.workers.count, "workers")

    def steps(self, rows: int) -> int:
        """Return the number of full batches in an epoch, at least 1."""
        return max(1, rows // self.size)


@dataclass(frozen=True)
class Normalise:
    """Normalization of pixels: `(pixel / 255 - mean) / std`. The defaults map 0 to 255 to -1 to 1."""

    mean: float = 0.5
    std: float = 0.5

    def __post_init__(self) -> None:
        require(self.std > 0, self, "std", "use a number above 0")

    def describe(self) -> str:
        """Describe the normalization for the plan."""
        return f"normalizes by mean {self.mean:g} and deviation {self.std:g}"


@dataclass(frozen=True)
class Augment:
    """Options of image augmentation, a standard recipe for small images.

    Attributes:
      shift: maximum shift in pixels, in each direction. Edges are reflected.
      flip: `horizontal` mirrors half of the images left to right.
      rotate: maximum rotation in degrees, in both directions; bilinear, with reflected edges.
      crop: minimum share of the image area that a random crop keeps. The crop is resized to the image size (Szegedy
          2015,
        `RandomResizedCrop`).
      stretch: maximum change of the crop's aspect ratio, as a factor; 4/3 is usual.
      cutout: side in pixels of one random square per image that is set to the mean. It may extend beyond the border.
      brightness: maximum change of brightness, as a share of the full range.
      contrast: maximum change of contrast: the deviation from the mean of each image and channel is multiplied by
        1 - contrast to 1 + contrast. After both changes, pixels are clipped to 0 to 255.
      mask_fill: value of mask pixels from outside the image, 0 to 255, such as the class that the loss ignores. None
          reflects masks like their images.
    """

    shift: int = 0
    flip: Flip = "none"
    rotate: float = 0.0
    crop: float = 1.0
    stretch: float = 1.0
    cutout: int = 0
    brightness: float = 0.0
    contrast: float = 0.0
    mask_fill: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(self, 0, "shift", "rotate", "cutout")
        require(0 < self.crop <= 1, self, "crop", "use a share of the area above 0, at most 1")
        at_least(self, 1, "stretch")
        for name in ("brightness", "contrast"):
            require(0 <= getattr(self, name) <= 1, self, name, "use a share from 0 to 1")
        require(0 <= (self.mask_fill or 0) <= 255, self, "mask_fill", "use a class from 0 to 255, or None")

    @property
    def resamples(self) -> bool:
        """Whether pixels move by fractions of a pixel."""
        return bool(self.rotate) or self.crop < 1 or self.stretch > 1

    @property
    def moves(self) -> bool:
        """Whether the options move pixels."""
        return self.resamples or bool(self.shift) or self.flip != "none"

    def describe(self) -> str:
        """Describe the changes for the plan; empty if there are none."""
        parts = [
            f"shifts by up to {self.shift} px with reflected edges" if self.shift else "",
            "mirrors half of them" if self.flip == "horizontal" else "",
            f"rotates by up to {self.rotate:g} degrees" if self.rotate else "",
            f"crops to at least {self.crop:.0%} of the area and resizes" if self.crop < 1 else "",
            f"stretches by a factor of up to {self.stretch:.3g}" if self.stretch > 1 else "",
            f"changes brightness by up to {self.brightness:.0%}" if self.brightness else "",
            f"changes contrast by up to {self.contrast:.0%}" if self.contrast else "",
            f"cuts out {self.cutout} x {self.cutout} px" if self.cutout else "",
        ]
        return ", ".join(part for part in parts if part)


class Draws(NamedTuple):
    """Random numbers of each image, 0 to 1, float32 [batch] each."""

    angle: Any
    mirror: Any
    shift_x: Any
    shift_y: Any
    brightness: Any
    contrast: Any
    cutout_x: Any
    cutout_y: Any
    area: Any
    aspect: Any
    window_x: Any
    window_y: Any


# Philox (Salmon 2011) turns a key and a counter into four numbers. Each image uses three counters.
COUNTERS = len(Draws._fields) // 4
