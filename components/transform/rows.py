"""Reading, transformation and writing of the rows of TFRecord files, range by range."""

from __future__ import annotations

import operator
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.saved import saved_transform_io_v2

from infeed.components.base import limits, progress
from infeed.components.dataset import files, names, records
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.ranges import ShardRange, record_ranges
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics
from infeed.components.engine.choice import Cluster, HasBytes, Work, choose, counting
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.feed.tfrecords import stored_blocks
from infeed.components.seams.tensorflow import untuned
from infeed.components.transform.columns import Raw

MOST_ROWS = 16384  # maximum rows of a batch
BATCH_BYTES = 32 << 20  # maximum bytes of the records of a batch
_READ_BUFFER_BYTES = 8 << 20
PREFIX = "transformed_examples"  # prefix of file names, as in TFX
_GZIP_LEVEL = 1  # sixteen times as fast as zlib's level 6, for slightly larger files
_ITEMS = {tf.float32: pa.float32(), tf.int64: pa.int64(), tf.string: pa.large_binary()}
KINDS: Mapping[int, ColumnType] = {schema_pb2.INT: "int", schema_pb2.FLOAT: "float", schema_pb2.BYTES: "bytes"}
Tensors = Mapping[str, Any]


class RowReader:
    """Reader of ranges of serialized tf.Examples in batches, name -> [batch, ...], which `function` maps.

    The function is traced once for all ranges.
    """

    def __init__(self, spec: Mapping[str, Any], function: Callable[[Mapping[str, Any]], Any] = dict) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def parse(records: tf.Tensor) -> Any:
            return function(tf.io.parse_example(records, dict(spec)))

        self._parse = parse

    def batches(self, shard: ShardRange) -> tf.data.Dataset:
        """Return the function's results for each batch, in row order."""
        first = next((len(record) for record in records.read_records(shard.path)), 0)
        # Estimate the size of a batch from the first record, which costs one read.
        rows = max(1, min(MOST_ROWS, BATCH_BYTES // max(1, first)))
        if files.tensorflow_opens(shard.path):
            compression = "GZIP" if records.is_gzip(shard.path) else ""
            found = tf.data.TFRecordDataset(shard.path, compression, _READ_BUFFER_BYTES).skip(shard.start)
            batches = (found if shard.stop is None else found.take(shard.stop - shard.start)).batch(rows)
        else:
            batches = stored_blocks(shard.path, shard.start, -1 if shard.stop is None else shard.stop).rebatch(rows)
        return untuned(batches.map(self._parse, tf.data.AUTOTUNE).prefetch(2))


class RowTransformer(Protocol):
    """Loaded transform graph."""

    def transformed(self, shard: ShardRange) -> Iterator[pa.RecordBatch]:
        """Yield batches with a column for each feature."""

    def encode(self, batch: pa.RecordBatch) -> pa.Array: ...


def load_graph(folder: str) -> saved_transform_io_v2.SavedModelLoader:
    return saved_transform_io_v2.SavedModelLoader(posixpath.join(folder, tft.TFTransformOutput.TRANSFORM_FN_DIR))


@dataclass(frozen=True)
class TransformedShard:
    """Raw rows and their output file. None for no output."""

    rows: ShardRange
    path: str | None

    @property
    def place(self) -> str:
        return self.rows.place

    @property
    def bytes(self) -> int:
        return self.rows.bytes


def transformed_shards(source: str, folder: str | None, cluster: Cluster | None) -> list[TransformedShard]:
    """Return the rows of a split with their files in `folder`: `transformed_examples-00000-of-00012.gz` etc."""
    rows = record_ranges([source], counting(cluster))
    names_of = (names.shard_name(number, len(rows), gzip=True, prefix=PREFIX) for number in range(len(rows)))
    paths = (None if folder is None else files.join(folder, name) for name in names_of)
    return [TransformedShard(one, path) for one, path in zip(rows, paths, strict=True)]


def chosen(does: str, items: Sequence[HasBytes], cluster: Cluster | None) -> Engine:
    """Choose the engine for all passes over the rows, because loading TensorFlow takes seconds in each process."""
    read = sum(item.bytes for item in items)
    imports = ["infeed.components.seams.tensorflow_alone", "tensorflow_transform"]
    work = Work(does, len(items), read, limits.TRANSFORM_BYTES, limits.TENSORFLOW_MEMORY, imports=imports)
    return choose(work, cluster)


def materialise(
    load: Callable[[], RowTransformer], shards: Sequence[TransformedShard], engine: Engine, *, described: bool
) -> TableStatistics:
    """Transform rows to write or describe them. Return their statistics, which are empty unless requested.

    Each worker calls `load` once. Raise InfeedError if a file is damaged, or the graph rejects rows.
    """
    wanted = rows_to_read(shards, described=described)
    if not wanted:
        return TableStatistics()
    task = WithSetUp(partial(_write_shard, described=described), load)
    found: TableStatistics = engine.reduce(task, wanted, operator.add)
    files.remove_unfinished(shard.path for shard in wanted if shard.path)  # partial files of lost workers
    return found


def rows_to_read(shards: Sequence[TransformedShard], *, described: bool) -> list[TransformedShard]:
    """Return the rows that `materialise` reads."""
    return [shard for shard in shards if described or shard.path]


def _write_shard(transformer: RowTransformer, shard: TransformedShard, *, described: bool) -> TableStatistics:
    gatherer = Gatherer()

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in transformer.transformed(shard.rows):
            if described:
                gatherer.add(batch.num_rows, {name: Cells.of(batch.column(name)) for name in batch.schema.names})
            progress.count("example transformed", batch.num_rows)
            yield batch

    if shard.path is None:
        for _ in batches():
            pass
    else:
        encoded = (records.frame_records(transformer.encode(batch)) for batch in batches())
        records.write_records(shard.path, encoded, gzip_level=_GZIP_LEVEL)
    return gatherer.statistics().collapse()


def arrow_of(features: Mapping[str, Raw]) -> pa.RecordBatch:
    """Convert transformed features to Arrow columns: lists, or single values if each row has exactly one."""
    columns: dict[str, pa.Array] = {}
    for name, tensor in features.items():
        is_ragged = isinstance(tensor, tf.RaggedTensor)
        items = tensor.flat_values if is_ragged else tensor
        column = pa.array(items.numpy().reshape(-1), _ITEMS[items.dtype])
        width = int(np.prod(items.shape[1:], dtype=np.int64))
        if is_ragged or width != 1:
            splits = tensor.row_splits.numpy() if is_ragged else np.arange(tensor.shape[0] + 1, dtype=np.int64)
            column = pa.LargeListArray.from_arrays(pa.array(splits * width, pa.int64()), column)
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)
