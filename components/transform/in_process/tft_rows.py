"""Rows read like tfx_bsl does, range by range, and transformed by a graph of tft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import impl_helper
from tfx_bsl.coders import example_coder
from tfx_bsl.tfxio import tensor_adapter, tensor_representation_util, tf_example_record

from infeed.components.dataset import encode
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.ranges import ShardRange
from infeed.components.dataset.record_blocks import RecordBlock, read_blocks, regroup
from infeed.components.transform.in_process.failures import FailedBatchError
from infeed.components.transform.rows import BATCH_BYTES, MOST_ROWS, Tensors, load_graph


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
