"""Rows of a split as the tensors that tft feeds, batch by batch, and what its graph makes of them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import tensorflow_transform as tft
from tensorflow_transform import impl_helper
from tensorflow_transform.saved import saved_transform_io_v2
from tfx_bsl.coders import example_coder
from tfx_bsl.tfxio import tensor_adapter, tensor_representation_util

from infeed.components.dataset import encode, example_types, files, records

_ROWS = 4096  # of a batch
_BYTES = 32 << 20  # of a batch's records; more only if one record alone has more
Tensors = Mapping[str, Any]


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
    for payload in payloads:
        some.append(payload)
        size += len(payload)
        if len(some) == _ROWS or size >= _BYTES:
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
