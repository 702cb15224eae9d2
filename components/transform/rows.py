"""Rows of TFRecord files, range by range: read by TensorFlow or like tfx_bsl, transformed by a graph, and written.

If a user's function fails on rows, the error names the line, the operation, and example values.
"""

from __future__ import annotations

import itertools
import operator
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import graph_tools, impl_helper
from tensorflow_transform.saved import saved_transform_io_v2
from tfx_bsl.coders import example_coder
from tfx_bsl.tfxio import tensor_adapter, tensor_representation_util

from infeed.components.base import machine, progress, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import encode, files, names, records
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.reading import ShardRange, record_ranges
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks, regroup
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.table_statistics import Gatherer, TableStatistics
from infeed.components.engine.choice import Cluster, HasBytes, Work, choose, counting
from infeed.components.engine.engine import Engine, WithSetUp
from infeed.components.feed.shards import stored_blocks
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.seams.tensorflow import untuned
from infeed.components.transform.columns import Raw

MOST_ROWS = 16384  # maximum rows of a batch
BATCH_BYTES = 32 << 20  # maximum bytes of the records of a batch
_READ_BUFFER_BYTES = 8 << 20
PREFIX = "transformed_examples"  # prefix of file names, as in TFX
_GZIP_LEVEL = 1  # sixteen times as fast as zlib's level 6, for slightly larger files
_ITEMS = {tf.float32: pa.float32(), tf.int64: pa.int64(), tf.string: pa.large_binary()}
KINDS: Mapping[int, ColumnType] = {schema_pb2.INT: "int", schema_pb2.FLOAT: "float", schema_pb2.BYTES: "bytes"}
_SHOWN = 3  # values of a column that an error shows
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
    work = Work(does, len(items), read, machine.TRANSFORM_BYTES, machine.TENSORFLOW_MEMORY, imports=imports)
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


class FailedBatchError(Exception):
    """A graph rejected a batch. Workers raise this error, and the process that traced the graph explains it."""

    def __init__(self, text: str, samples: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(text, samples)
        self.text, self.samples = text, samples

    @classmethod
    def of(cls, error: tf.errors.OpError, batch: Mapping[str, Any]) -> FailedBatchError:
        flat = {name: getattr(one, "flat_values", getattr(one, "values", one)) for name, one in batch.items()}
        shown = {name: tf.reshape(values, [-1])[:_SHOWN].numpy().tolist() for name, values in flat.items()}
        return cls(str(error), shown)


def explain(failed: FailedBatchError, graph: Any, inputs: Mapping[str, Any]) -> InfeedError:
    """Return an error with the user's line that created the failed operation, and the columns that it depends on."""
    # The traced operations record the lines of the user's code. Workers do not have this trace.
    operation = tensorflow_seam.failed_operation(failed.text, graph)
    place = user_code.users_line(operation.traceback) if operation is not None else None
    columns = graph_tools.get_dependent_inputs(graph, inputs, list(operation.inputs)) if operation is not None else {}
    told = [place or "preprocessing_fn"]
    if operation is not None:
        told.append(f"operation {operation.type} ({operation.name})")
    told += [_sample(name, failed.samples[name]) for name in columns or failed.samples if name in failed.samples]
    return InfeedError(
        f"preprocessing_fn fails on the data: {tensorflow_seam.message_of(failed.text)}",
        where="; ".join(told),
        do="correct the data, or replace such values in the function first",
    )


def with_sample(error: InfeedError, patterns: Sequence[str]) -> InfeedError:
    """Return a tracing error with example values, from `patterns`, of the columns that the user's line names."""
    first = _first_values(patterns).items()
    named = [(name, values) for name, values in first if f"'{name}'" in error.where or f'"{name}"' in error.where]
    told = [_sample(name, values) for name, values in named if f"column {name!r} holds" not in error.where]
    return InfeedError(error.what, where="; ".join([error.where, *told]), do=error.do)


def _first_values(patterns: Sequence[str]) -> dict[str, list[Any]]:
    """Return example values of each column. Empty if the records are not tf.Examples."""
    paths = (file.path for pattern in patterns for file in files.glob(*posixpath.split(pattern)))
    found: dict[str, list[Any]] = {}
    for record in itertools.islice(itertools.chain.from_iterable(map(records.read_records, paths)), _SHOWN):
        try:
            features = decode_example(record).features
        except ValueError:
            return {}
        for name, feature in features.items():
            found.setdefault(name, []).extend(feature.values[:_SHOWN])
    return found


def _sample(name: str, values: Iterable[Any]) -> str:
    words = [repr(value) for value in itertools.islice(values, _SHOWN)]
    shown = ", ".join(word if len(word) <= 40 else f"{word[:40]}..." for word in words)
    return f"column {name!r} holds {shown or 'nothing'}"


@dataclass(frozen=True)
class ColumnReader:
    """Reader of ranges of tf.Examples as tensors of some columns, by the rules of tfx_bsl.

    Can be pickled for workers.
    """

    columns: Sequence[str]  # names
    schema: bytes  # serialized schema of these columns
    config: tensor_adapter.TensorAdapterConfig  # mapping of tensors to their columns

    @classmethod
    def of(cls, schema: schema_pb2.Schema, tfxio: Any, columns: Sequence[str]) -> ColumnReader:
        """Create a reader of `columns` (all if empty) for rows that `tfxio` describes and `schema` types."""
        from tfx_bsl.tfxio import tf_example_record  # imports Beam, which takes a second

        tensors, whole = tfxio.TensorRepresentations(), schema_pb2.Schema()
        whole.CopyFrom(schema)
        # If a schema represents some of its features as tensors, tfx_bsl can project only these.
        tensor_representation_util.SetTensorRepresentationsInSchema(whole, tensors)
        columns = list(columns) or list(tensors)
        projected = tensor_representation_util.ProjectTensorRepresentationsInSchema(whole, columns)
        view = tf_example_record.TFExampleBeamRecord("tfrecord", schema=projected)
        return cls(columns, projected.SerializeToString(), view.TensorAdapterConfig())

    def batches(self, shard: ShardRange) -> Iterator[Tensors]:
        """Yield batches. Raise InfeedError with the record number if the file is truncated or corrupt."""
        adapter = tensor_adapter.TensorAdapter(self.config)
        for block in regroup(read_blocks(shard.path, shard.start, shard.stop), MOST_ROWS, BATCH_BYTES):
            yield adapter.ToBatchTensors(self._decode(block), produce_eager_tensors=True)

    def _decode(self, block: RecordBlock) -> pa.RecordBatch:
        """Decode records like tfx_bsl, three times as fast.

        If a record does not match the schema, tfx_bsl raises the error.
        """
        wanted: pa.Schema = self.config.arrow_schema
        with suppress(ValueError):
            found = decode_columns(block, set(wanted.names))
            columns = [found.get(one.name, pa.nulls(len(block), one.type)) for one in wanted]
            if [column.type for column in columns] == wanted.types:
                return pa.RecordBatch.from_arrays(columns, schema=wanted)
        decoder = example_coder.ExamplesToRecordBatchDecoder(self.schema)
        return decoder.DecodeBatch(block.payloads(np.arange(len(block))))


class TftTransformer:
    """Graph of tft, applied to rows that are read like tfx_bsl does."""

    def __init__(self, graph: str, columns: Sequence[str], reader: ColumnReader) -> None:
        self._model = load_graph(graph)
        self._model.finalize(columns, sorted(self._model.structured_outputs))
        self._reader = reader
        schema = tft.TFTransformOutput(graph).transformed_metadata.schema
        self._converter = impl_helper.make_tensor_to_arrow_converter(schema)
        self._tfx_encoder = example_coder.RecordBatchToExamplesEncoder(schema)
        # A ragged tensor with partitions is one column, and several features with the names of its representation.
        self._has_partitions = not {feature.name for feature in schema.feature}.issuperset(
            self._converter.arrow_schema().names
        )

    def transformed(self, shard: ShardRange) -> Iterator[pa.RecordBatch]:
        """Yield transformed batches. Raises FailedBatchError if the graph rejects values of a batch."""
        for batch in self._reader.batches(shard):
            try:
                made = self._model.apply_transform_model(batch)
            except tf.errors.OpError as error:
                raise FailedBatchError.of(error, batch) from error
            yield self._converter.convert(made)

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        if self._has_partitions:
            return pa.array(self._tfx_encoder.encode(batch), pa.large_binary())
        return encode.encode_examples(batch)
