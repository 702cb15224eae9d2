"""The rows of TFRecord files, batch by batch: parsed for a graph, transformed by one, and written file by file."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import impl_helper
from tensorflow_transform.saved import saved_transform_io_v2
from tfx_bsl.coders import example_coder
from tfx_bsl.tfxio import tensor_adapter, tensor_representation_util

from infeed.components import progress
from infeed.components.dataset import encode, example_types, files, names, records
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import ColumnType
from infeed.components.dataset.records import frame_records, read_records, write_records
from infeed.components.transform.columns import Raw

MOST_ROWS = 4096  # of a batch
_BATCH_BYTES = 32 << 20  # of the records of a batch
_READ_BUFFER_BYTES = 8 << 20
PREFIX = "transformed_examples"  # of the names of files, as TFX has it
_GZIP_LEVEL = 1  # a sixteenth of the time of zlib's 6, for hardly more bytes
_ITEMS = {tf.float32: pa.float32(), tf.int64: pa.int64(), tf.string: pa.large_binary()}
KINDS: Mapping[int, ColumnType] = {schema_pb2.INT: "int", schema_pb2.FLOAT: "float", schema_pb2.BYTES: "bytes"}
Tensors = Mapping[str, Any]
Transformed = Callable[[str], Iterable[pa.RecordBatch]]  # path of a file of raw rows -> a column for each feature
See = Callable[[pa.RecordBatch], None]
Encode = Callable[[pa.RecordBatch], pa.Array]  # a tf.Example for each row


@dataclass(frozen=True)
class Rows:
    """Rows of serialized tf.Examples.

    Attributes:
      paths: TFRecord files; `.gz` in the name means gzip.
      spec: how each is parsed.
    """

    paths: Sequence[str]
    spec: Mapping[str, Any]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Batches: name -> [batch, ...]."""
        return iter(self.mapped(dict))

    def mapped(self, function: Callable[[Mapping[str, Any]], Any]) -> tf.data.Dataset:
        """What `function` makes of each batch, in the order of the rows."""

        @tf.autograph.experimental.do_not_convert
        def parse(records: tf.Tensor) -> Any:
            return function(tf.io.parse_example(records, dict(self.spec)))

        return self._records().batch(self._batch).map(parse, tf.data.AUTOTUNE).prefetch(2)

    def only(self, columns: Collection[str]) -> Rows:
        """The same rows, of which fewer columns are parsed."""
        return Rows(self.paths, {name: spec for name, spec in self.spec.items() if name in columns})

    def _records(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(list(self.paths)).flat_map(_records_of)

    @property
    def _batch(self) -> int:
        # Going by the first record.
        first = next((len(record) for path in self.paths for record in read_records(path)), 0)
        return max(1, min(MOST_ROWS, _BATCH_BYTES // max(1, first)))


def paths_of(roots: Sequence[str], splits: Sequence[str]) -> list[str]:
    """The files of some splits of one or several Examples, in their order."""
    folders = [files.join(root, f"Split-{split}") for root in roots for split in splits]
    return [file.path for folder in folders for file in files.list_files(folder) if not files.is_hidden(file.path)]


def _records_of(path: tf.Tensor) -> tf.data.Dataset:
    is_gzip = tf.strings.regex_full_match(path, r".*\.gz")
    return tf.data.TFRecordDataset(path, tf.where(is_gzip, "GZIP", ""), _READ_BUFFER_BYTES)


@dataclass(frozen=True)
class SplitRows:
    """The tf.Examples of one split.

    Attributes:
      pattern: of its files, as TFX has it: `.../Split-train/*`.
      schema: of all their columns.
      tfxio: tfx_bsl's view of them, which says which tensor is made of which columns.
    """

    pattern: str
    schema: Any
    tfxio: Any

    def files(self) -> list[str]:
        """Sorted."""
        folder, pattern = posixpath.split(self.pattern)
        return [file.path for file in files.glob(folder, pattern)]

    def batches(self, columns: Sequence[str]) -> Iterator[Tensors]:
        """All rows, as tensors of these columns.

        Raises:
          InfeedError: a file is truncated or corrupt; names it and the record.
        """
        for file in self.files():
            yield from self.batches_of(file, columns)

    def batches_of(self, file: str, columns: Sequence[str]) -> Iterator[Tensors]:
        """The rows of one file."""
        columns = list(columns) or list(self.tfxio.TensorRepresentations())
        schema = tensor_representation_util.ProjectTensorRepresentationsInSchema(self.schema, columns)
        decoder = example_coder.ExamplesToRecordBatchDecoder(schema.SerializeToString())
        adapter = tensor_adapter.TensorAdapter(self.tfxio.Project(columns).TensorAdapterConfig())
        for some in _batched(records.read_records(file)):
            yield adapter.ToBatchTensors(decoder.DecodeBatch(some), produce_eager_tensors=True)


def _batched(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    # More bytes only if one record alone has more.
    for payload in payloads:
        some.append(payload)
        size += len(payload)
        if len(some) == MOST_ROWS or size >= _BATCH_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


class Transformer:
    """The transform graph as a function of batches.

    Args:
      graph: folder of the transform graph.
      columns: those that it takes.
    """

    def __init__(self, graph: str, columns: Sequence[str]) -> None:
        self._columns = columns
        folder = posixpath.join(graph, tft.TFTransformOutput.TRANSFORM_FN_DIR)
        self._model = saved_transform_io_v2.SavedModelLoader(folder)
        self._model.finalize(columns, sorted(self._model.structured_outputs))
        schema = tft.TFTransformOutput(graph).transformed_metadata.schema
        self._converter = impl_helper.make_tensor_to_arrow_converter(schema)
        self._tfx_encoder = example_coder.RecordBatchToExamplesEncoder(schema)

    def batches_of(self, rows: SplitRows, file: str) -> Iterator[pa.RecordBatch]:
        """What it makes of the rows of one file."""
        for batch in rows.batches_of(file, self._columns):
            yield self._converter.convert(self._model.apply_transform_model(batch))

    def encode(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """A tf.Example for each row."""
        if any(example_types.is_list(example_types.item_type(field.type)) for field in batch.schema):
            # Lists of lists have columns of their own.
            return pa.array(self._tfx_encoder.encode(batch), pa.large_binary())
        return encode.encode_examples(batch)


def materialise(
    paths: Sequence[str],
    transformed: Transformed,
    folder: str | None,
    see: See | None,
    encode: Encode = encode_examples,
) -> None:
    """Goes through the transformed rows of `paths`, in their order, where they are to be written or seen.

    Args:
      folder: of the split, for `transformed_examples-00000-of-00012.gz` and so on; None: write nothing.
      see: is shown each batch on the way.
      encode: where there are lists of lists, which `encode_examples` does not take.
    """
    if folder is None and see is None:
        return
    for number, path in enumerate(paths):
        batches = _shown(transformed(path), see)
        if folder is None:
            for _ in batches:
                pass
        else:
            shard = files.join(folder, names.shard_name(number, len(paths), gzip=True, prefix=PREFIX))
            write_records(shard, (frame_records(encode(one)) for one in batches), gzip_level=_GZIP_LEVEL)


def _shown(batches: Iterable[pa.RecordBatch], see: See | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if see:
            see(batch)
        progress.count("examples transformed", batch.num_rows)
        yield batch


def arrow_of(features: Mapping[str, Raw]) -> pa.RecordBatch:
    """Transformed features as Arrow columns: lists, but where each row has a single value."""
    return pa.RecordBatch.from_pydict({name: _column(tensor) for name, tensor in features.items()})


def _column(tensor: Raw) -> pa.Array:
    if isinstance(tensor, tf.RaggedTensor):
        items = tensor.flat_values
        return _lists(items, tensor.row_splits.numpy() * int(np.prod(items.shape[1:], dtype=np.int64)))
    width = int(np.prod(tensor.shape[1:], dtype=np.int64))
    if width == 1:
        return _items(tensor)
    return _lists(tensor, np.arange(tensor.shape[0] + 1, dtype=np.int64) * width)


def _lists(items: tf.Tensor, offsets: Any) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), _items(items))


def _items(tensor: tf.Tensor) -> pa.Array:
    return pa.array(tensor.numpy().reshape(-1), _ITEMS[tensor.dtype])
