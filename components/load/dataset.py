"""`infeed.load`: TFRecords of tf.Examples or SequenceExamples for any training loop. It requires no framework.

    data = infeed.load("data", split="train", batch_size=256)
    for batch in data.numpy(epochs=3):
        step(batch["fare"], batch["tips"])

The first call decodes the records into memory-mapped columns, which are cached on this machine. Batches are gathered
from the columns by row number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.cache import CACHE_DIR
from infeed.components.feed.options import SINGLE_WORKER, Augment, WorkerContext
from infeed.components.load.batches import Batches, BatchSampler, numpy_batches
from infeed.components.load.columns import Features, FeatureSpec
from infeed.components.load.delivery import PRESENT, Delivery, Label, Lengths, Recipe, Rule, Targets
from infeed.components.load.entries import features_of, no_column
from infeed.components.load.find import SplitFiles, find_split
from infeed.components.load.frameworks import to_jax, to_numpy, to_tensorflow, to_torch
from infeed.components.load.options import LoadOptions, LoadPlan, arguments
from infeed.components.load.order import BatchOrder
from infeed.components.load.pictures import PictureOptions, Pictures
from infeed.components.load.reading import BatchMap, BatchReader
from infeed.components.load.resize import Resize
from infeed.components.load.shapes import Shape, check_shapes, declared_tensors, with_schema

if TYPE_CHECKING:
    import tensorflow as tf


def load(
    where: str | os.PathLike[str],
    split: str | None = None,
    *,
    batch_size: int = 128,
    seed: int = 0,
    shuffle: bool = True,
    workers: WorkerContext | tuple[int, int] = SINGLE_WORKER,
    columns: Sequence[str] | None = None,
    start_step: int = 0,
    on_missing: Rule | Mapping[str, str | bytes | float] = "mark",
    cache_dir: str | os.PathLike[str] = CACHE_DIR,
    drop_remainder: bool = False,
    pad_remainder: bool = False,
    length: Lengths = None,
    schema: str | os.PathLike[str] | None = None,
    decode: str | None = None,
    size: int | tuple[int, int] | None = None,
    resize: Resize = "stretch",
    augment: Augment | None = None,
    threads: int | None = None,
) -> LoadedDataset:
    """Load one split of a dataset.

    Args:
      where: folder of an infeed dataset or a TFX Examples artifact, flat folder of TFRecords with TFDS names, single
        file, or pattern such as `mnist/mnist-train*`.
      split: name of the split; by default `train`, or the only split.
      batch_size, seed, shuffle, workers, columns, start_step, on_missing, cache_dir, drop_remainder,
        pad_remainder, length: as in LoadOptions.
      schema: `schema.pbtxt` of TFX, or an artifact of SchemaGen or Transform, whose shapes the batches get.
      decode, size, resize, augment, threads: as in PictureOptions: encoded pictures as pixels of one size.

    Raises:
      InfeedError: an option is invalid, the dataset, split or column does not exist, a file is damaged, or a record is
        neither a tf.Example nor a SequenceExample. Or the rows do not fit `schema`.
    """
    place = files.path_text(where, "infeed.load, where")
    with arguments():
        pictures = PictureOptions(decode, size, resize, augment, threads)
        order = batch_size, seed, shuffle, workers, columns, start_step, on_missing, cache_dir
        options = LoadOptions(*order, drop_remainder, pad_remainder, length, pictures)
    found = find_split(place, split)
    declared = {} if schema is None else declared_tensors(schema)
    found = with_schema(found, declared)
    loaded = LoadedDataset(found, features_of(found, options), options)
    if schema is not None:
        check_shapes(_without(loaded._reader.pictures, declared), loaded._delivery, len(loaded), schema)
    if options.on_missing != "ragged":
        loaded._delivery.warn(found.place)
    return loaded


class LoadedDataset:
    """Split with random access to rows, and batches for each framework. Returned by `load`.

    The class is a map-style dataset of PyTorch and a random-access data source of Grain. After unpickling, other
    processes map the same files.
    """

    def __init__(
        self, found: SplitFiles, features: Features, options: LoadOptions, maps: tuple[BatchMap, ...] = ()
    ) -> None:
        self._found, self._features, self._options, self._maps = found, features, options, maps
        options.order(features.rows)  # raise errors of the options now, not at the first batch
        self._delivery = Delivery.of(features.placed, options.on_missing, found.place).padded(options.length)
        pictures = options.pictures.stage(features.placed, found.place)
        self._delivery = self._delivery.shaped(_without(pictures, found.shapes))
        self._recipe = self._delivery.recipe()
        self._reader = BatchReader(features, pictures, maps)

    def __reduce__(self) -> tuple[Any, ...]:
        return LoadedDataset, (self._found, self._features, self._options, self._maps)

    def __len__(self) -> int:
        return self._features.rows

    def __getitem__(self, rows: int | slice | Sequence[int] | npt.NDArray[Any]) -> dict[str, Any]:
        """Return one row, {name: value}, or a batch of rows, {name: [rows, ...]}, in the given order.

        Raises IndexError if a row does not exist. Raises TypeError if `rows` does not hold row numbers.
        """
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        return self._taken(rows) if np.ndim(rows) else _row(self._taken([rows]), 0)

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return a list of rows, as PyTorch's DataLoader requests the rows of a batch."""
        batch = self._taken(rows)
        return [_row(batch, number) for number in range(len(rows))]

    def __repr__(self) -> str:
        return f"<infeed.load of split {self._found.split!r} in {self._found.place}: {len(self):,} rows>"

    def map(self, function: str | Callable[..., Any], threads: int = 1, processes: int = 0) -> LoadedDataset:
        """Return this dataset with a NumPy function applied to each batch of `numpy`, `torch` and `jax`.

        The function does not affect `data[rows]`, `schema` and `packed_columns`.

        Args:
          function: the function, or its name `package.module:function` or `path/file.py:function`, called as
            `function(batch)`, or as `function(batch, seed)` if it has a parameter `seed`. `batch` is {name: array}
            with the label. The seed, int64 [2], equals that of FeedOptions.map_batches for the same step.
          threads: number of threads that gather and map batches ahead of the loop, in order. With more than 1, the
              function must be thread-safe. Several maps share one pool with the largest of their numbers.
          processes: number of processes instead of threads, for a function that holds the GIL. Each prepares whole
              batches. The function must be at the top level of a module or file. 0 uses no processes.

        Raises:
          InfeedError: the function does not exist, another process cannot import it, or a number is not suitable.
        """
        maps = (*self._maps, BatchMap.of(function, threads, processes))
        if any(one.processes for one in maps):
            maps = tuple(one.importable() for one in maps)
        return LoadedDataset(self._found, self._features, self._options, maps)

    @property
    def schema(self) -> Mapping[str, FeatureSpec]:
        """Type and shape of each feature, by name."""
        schema, pictures = self._delivery.schema, self._reader.pictures
        return schema if pictures is None else pictures.renamed(schema, pictures.spec)

    def packed_columns(self, label: Label = None, weight: str | None = None) -> dict[str, tuple[str, ...]]:
        """Return the column names in batches with `pack=True`: {type: a name for each place of [batch, places]}.

        The label and the weight are not packed.
        """
        return self._delivery.packed_columns(self._targets(label, weight))

    @property
    def plan(self) -> LoadPlan:
        """Plan of the batches. `print(data.plan)` shows each decision and its reason.

        After the first batches, it also names the stage that decodes or maps at the highest cost.
        """
        found, features, options, reader = self._found, self._features, self._options, self._reader
        return LoadPlan(
            place=found.place,
            split=found.split,
            files=len(found.files),
            file_bytes=found.bytes,
            records=features.rows,
            features=len(features.placed),
            lists=features.lists,
            column_bytes=features.bytes,
            folder=str(Path(features.entry).parent),
            batch_size=options.batch_size,
            seed=options.seed,
            shuffle=options.shuffle,
            steps_per_epoch=self.steps_per_epoch,
            maps=tuple(one.name for one in self._maps),
            pictures=reader.pictures.name if reader.pictures else "",
            remainder=self._order().remainder,
            threads=reader.threads,
            processes=reader.processes,
            limit=reader.costs.limit(self._order().batch.part, reader.threads),
        )

    @property
    def steps_per_epoch(self) -> int:
        """Number of global batches in an epoch."""
        return self._order().steps_per_epoch

    def rows(self, epochs: int | None = None) -> BatchSampler:
        """Return the row numbers of each batch as a batch sampler for PyTorch: lists of integers.

        The sampler is re-iterable. Each iteration continues with the next epoch; `set_epoch` selects one.

        Args:
          epochs: number of epochs in an iteration. The first iteration counts them from the beginning of training.
              None repeats forever, or reads one epoch if `shuffle` is False.

        Raises:
          InfeedError: no batch remains after `start_step`.
        """
        return BatchSampler(self._order(epochs))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the batches of the first epoch, from `start_step` on."""
        return iter(self.numpy(epochs=1))

    def numpy(
        self,
        label: Label = None,
        epochs: int | None = None,
        ahead: int = 0,
        *,
        weight: str | None = None,
        pack: bool = False,
    ) -> Batches[Any]:
        """Return batches of NumPy arrays: {name: [batch, ...]}.

        The batches are re-iterable. Each iteration continues with the next epoch. Rows of different lengths become
        `Ragged`, and bytes become object arrays. If this process has imported Keras 3, the batches are also a
        `keras.utils.PyDataset`.

        Args:
          label: feature to return separately. Batches are then (features, label), as Keras's `fit` expects. A list
            gives labels by name: {name: [batch, ...]}.
          weight: feature to return as weights of rows, float32 [batch]: (features, label, weight).
          epochs: as for `rows`.
          ahead: number of batches that a thread prepares in advance. With 0, the loop's thread prepares each batch,
              apart from the work of the threads of `map`.
          pack: whether to join features with a fixed number of values into one array per type (float32, int64, bytes):
            {type: [batch, places]}. `packed_columns` names the places.

        Raises:
          InfeedError: a label or the weight does not exist, `ahead` is not an integer of 0 or more, or no batch remains
            after `start_step`.
        """
        recipe = self._packed_or_not(self._targets(label, weight), pack)
        take = partial(self._reader.batch, recipe=recipe)
        return numpy_batches(self._order(epochs), self._reader.batches(to_numpy(ahead), recipe), take)

    def torch(
        self,
        label: Label = None,
        epochs: int | None = None,
        device: Any = None,
        ahead: int | None = None,
        *,
        weight: str | None = None,
        pack: bool = False,
        nested: bool = False,
    ) -> Batches[Any]:
        """Return batches of contiguous PyTorch tensors. Bytes stay object arrays.

        A batch is copied to a CUDA device from pinned memory in one copy, on a separate stream. The tensors of the
        batch share that memory on the device.

        Args:
          label, epochs, weight, pack: as for `numpy`.
          device: device of the tensors; None for the CPU.
          ahead: number of batches that a thread prepares and copies in advance. Defaults to 2 for a CUDA device, and
              otherwise to 0.
          nested: whether ragged numbers become nested tensors of the layout `torch.jagged`.

        Raises:
          InfeedError: as for `numpy`.
        """
        recipe = self._packed_or_not(self._targets(label, weight), pack)
        return Batches(self._order(epochs), self._reader.batches(to_torch(device, ahead, nested=nested), recipe))

    def jax(
        self,
        label: Label = None,
        epochs: int | None = None,
        device: Any = None,
        ahead: int = 2,
        *,
        weight: str | None = None,
        pack: bool = False,
    ) -> Batches[Any]:
        """Return batches of JAX arrays. A thread copies them to the device in advance.

        Many arrays of one type and shape are copied to a single device as one array, which the device splits. Several
        small batches are copied to a device or a NamedSharding at once, if the number of values in a row is fixed.

        Args:
          label, epochs, weight, pack: as for `numpy`.
          device: JAX device or sharding. None is the default device. An array that the sharding cannot divide, such as
              a short last batch, is copied to each device.
          ahead: number of batches to prepare and copy in advance. With 0, the loop's thread does so.

        Raises:
          InfeedError: as for `numpy`, or if an integer exceeds 32 bits and JAX's 64-bit types are disabled.
        """
        recipe = self._packed_or_not(self._targets(label, weight), pack)
        return Batches(self._order(epochs), self._reader.batches(to_jax(device, ahead), recipe))

    def tf(
        self, label: Label = None, epochs: int | None = None, *, weight: str | None = None, pack: bool = False
    ) -> tf.data.Dataset:
        """Return a `tf.data.Dataset` of the batches, for Keras's `fit`. Rows of different lengths are RaggedTensors.

        Args:
          label, epochs, weight: as for `numpy`. With an endless dataset, pass `steps_per_epoch=data.steps_per_epoch` to
            `fit`.
          pack: as for `numpy`. Passing twenty tensors costs several times as much as passing one.
        """
        targets = self._targets(label, weight)
        if not self._reader.is_gathering_only:
            do = "map the dataset with TensorFlow: data.tf().map(function)"
            stage, where = ("decode", "") if self._reader.pictures else ("the mapped function", ".map(...)")
            what = f"{stage} is Python, which the threads of tf.data do not call"
            raise InfeedError(what, where=f"infeed.load(...){where}.tf()", do=do)
        if self._options.pad_remainder:
            do = "use drop_remainder, or batches of NumPy"
            raise InfeedError("tf.data does not pad the last batch", where="infeed.load(...).tf()", do=do)
        self._delivery.warn_of_empty_text(self._found.place)
        return to_tensorflow(self._features, self._order(epochs), self._delivery.recipe(targets, pack=pack))

    def _taken(self, rows: Any) -> dict[str, Any]:
        """Return the rows with these numbers, counted from 0. Negative numbers count from the end."""
        numbers = np.asarray(rows)
        # NumPy would convert a mask to rows 0 and 1.
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise TypeError(f"{rows!r} are no numbers of rows: give 7, [7, 0] or 2:9; a column is data[7]['name']")
        numbers = numbers.astype(np.int64, copy=False)
        if len(numbers) and not (-len(self) <= numbers.min() and numbers.max() < len(self)):
            wrong = numbers[(numbers < -len(self)) | (numbers >= len(self))][0]
            raise IndexError(f"row {wrong} is out of range: there are {len(self):,} rows")
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return self._reader.rows(numbers, self._recipe)

    def _order(self, epochs: int | None = None) -> BatchOrder:
        return self._options.order(len(self), epochs)

    def _packed_or_not(self, targets: Targets, pack: bool) -> Recipe:
        if pack and not self._reader.is_gathering_only:
            do = "leave out pack, or the map and decode"
            raise InfeedError("mapped batches have features by name", where="pack", do=do)
        return self._delivery.recipe(targets, pack=pack)

    def _targets(self, label: Label, weight: str | None) -> Targets:
        targets = Targets.of(label, weight, self.schema)
        for name in targets.names:
            if not (isinstance(name, str) and name in self.schema):
                raise no_column(name, self.schema, self._found.place)
        if self._options.pad_remainder and targets.label is None and PRESENT in self.schema:
            do = "set label, or rename the column"
            raise InfeedError(f"a column has the name {PRESENT!r}", where="infeed.load, pad_remainder", do=do)
        return targets


def _row(batch: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {name: values.row(number) if hasattr(values, "row") else values[number] for name, values in batch.items()}


def _without(pictures: Pictures | None, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of features, except that of pictures to decode: each row is the bytes of one file."""
    return {name: shape for name, shape in shapes.items() if pictures is None or name != pictures.column}
