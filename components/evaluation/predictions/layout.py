"""Options and output of predictions: the columns in Arrow, and the files of each format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from infeed.components.base.checks import as_tuples, at_least, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import check_known
from infeed.components.dataset import files, names
from infeed.components.dataset.reading import ShardRange
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.evaluation.batches import Batch, KnownColumn
from infeed.components.evaluation.predictor import Arrays, Signature

OutputFormat = Literal["parquet", "tfrecord", "examples", "prediction_log"]


@dataclass(frozen=True)
class PredictOptions:
    """Options of predictions.

    Attributes:
      signature: signature of the model to call.
      keys: columns of the examples that identify rows. They come first.
      columns: additional columns of the examples to copy, after the keys.
      output_format: "parquet" has a column for each key, column and output. "tfrecord" has tf.Examples with the same
          columns, with multidimensional outputs flattened. "examples" are the examples with the outputs as additional
          features. "prediction_log" is the proto of TFX's BulkInferrer, with the whole example and all outputs.
      outputs: column -> output of the model. Empty for all outputs under their own names.
      batch_size: maximum number of rows of a batch. A batch is also limited to 4 MiB.
      splits: splits of the examples. None for all.
      tags: tags of the graph in the saved model. Empty if it has only one graph.
    """

    signature: str = "serving_default"
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    output_format: OutputFormat = "parquet"
    outputs: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 1024
    splits: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self, "keys", "columns", "splits", "tags")
        for name in ("keys", "columns", "splits", "tags"):
            require(not isinstance(getattr(self, name), str), self, name, "use a list of names")
        check_fields(self)
        at_least(self, 1, "batch_size")
        require(self.signature, self, "signature", "use a name such as serving_default")
        require(self.splits is None or self.splits, self, "splits", "use one or more names, or None for all")
        repeated = [name for name in self.carried if self.carried.count(name) > 1]
        if repeated:
            what = f"column {repeated[0]!r} occurs twice"
            raise refused(self, "columns", "use each column once, in keys or in columns", what)
        if self.carried and self.output_format in ("examples", "prediction_log"):
            what = f"keys or columns are set, but {self.output_format} contains the whole example"
            raise refused(self, "output_format", "leave them out, or write parquet or tfrecord", what)
        if self.outputs and self.output_format == "prediction_log":
            what = "outputs is set, but prediction_log contains all outputs"
            raise refused(self, "outputs", "leave them out, or write another format", what)

    @property
    def carried(self) -> tuple[str, ...]:
        """Return the columns of the examples to copy, in order."""
        return (*self.keys, *self.columns)


_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 64 << 20  # limits of a row group of Parquet
# Fields of a TensorProto for numbers without a protobuf type.
_STORED_AS: Mapping[str, Any] = {"half_val": np.uint16, "scomplex_val": np.float32, "dcomplex_val": np.float64}
_NUMBERS: Mapping[str, pa.DataType] = {"int": pa.int64(), "float": pa.float32()}


class Answer(NamedTuple):
    """Outputs of a model for a batch: output -> array [records, ...]."""

    batch: Batch
    outputs: Arrays


@dataclass(frozen=True)
class AnswerColumns:
    """Names and types of the output columns: `carried` from the examples, and column -> output of the model."""

    carried: Mapping[str, pa.DataType]
    outputs: Mapping[str, str]
    types: Mapping[str, pa.DataType]

    @classmethod
    def of(
        cls, options: PredictOptions, known: Mapping[str, KnownColumn], signature: Signature, probe: Arrays | None
    ) -> AnswerColumns:
        """Determine the columns. Raise InfeedError if Arrow columns do not support the type of an output.

        `probe` contains outputs for sample rows, which show shapes that the signature does not define.
        """
        nested = options.output_format == "parquet"
        outputs = dict(options.outputs or {name: name for name in signature.outputs})
        carried: dict[str, pa.DataType] = {}
        for name in options.carried:
            text = pa.large_string() if nested and known[name].is_text else pa.large_binary()
            item = _NUMBERS.get(known[name].type, text)
            carried[name] = pa.large_list(item) if known[name].is_list else item
        types = {
            column: _output_type(name, signature, (probe or {}).get(name), nested) for column, name in outputs.items()
        }
        return cls(carried, outputs, types)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({**self.carried, **self.types})

    def table(self, batch: Batch, found: Arrays) -> pa.RecordBatch:
        """Return a row for each record, in order. Raise InfeedError if bytes to convert to text are not UTF-8."""
        carried = [_carry(batch, name, kind) for name, kind in self.carried.items()]
        answers = [_arrow(batch, name, found[self.outputs[name]], kind) for name, kind in self.types.items()]
        return pa.RecordBatch.from_arrays([*carried, *answers], schema=self.schema)


def check_names(options: PredictOptions, known: Mapping[str, KnownColumn], signature: Signature, where: str) -> None:
    """Raise InfeedError for a missing column or output, and for a column and an output with the same name."""
    check_known(options.carried, sorted(known), where, "column")
    there = f"{signature.where}, signature {signature.name!r}"
    check_known(options.outputs.values(), signature.outputs, there, "output")
    taken = known if options.output_format == "examples" else options.carried
    for column in options.outputs or signature.outputs:
        if column in taken:
            what = f"{column!r} is a column of the examples and one of the predictions"
            do = "rename the output with `outputs`, such as {'predicted': " + repr(column) + "}"
            raise InfeedError(what, where=where, do=do)


def _carry(batch: Batch, name: str, kind: pa.DataType) -> pa.Array:
    """Convert lists of at most one value to single values. Other lists are unchanged."""
    column = batch.columns.get(name)
    if column is None:
        return pa.nulls(len(batch.records), kind)
    if pa.types.is_large_list(kind):
        return column.cast(kind)
    first, stop = column.offsets[:-1].to_numpy(), column.offsets[1:].to_numpy()
    return column.values.take(pa.array(first, mask=first == stop)).cast(kind)


def _output_type(name: str, signature: Signature, found: npt.NDArray[Any] | None, nested: bool) -> pa.DataType:
    spec = signature.outputs[name]
    item = _item_type(name, signature, nested)
    rank = spec.shape.rank or (1 if found is None else found.ndim)
    dims: list[int | None] = list(spec.shape[1:]) if spec.shape.rank else [None] * (rank - 1)
    # One value a row is no list, as of a Keras model whose last axis is 1.
    if dims in ([], [1]):
        return item
    if not nested:
        return pa.list_(item)
    for dim in reversed(dims):
        item = pa.list_(item, dim) if dim else pa.list_(item)
    return item


def _item_type(name: str, signature: Signature, nested: bool) -> pa.DataType:
    dtype = signature.outputs[name].dtype
    if dtype.name == "string":
        return pa.string() if nested else pa.binary()
    if dtype.name in ("float16", "bfloat16"):
        return pa.float32()
    try:
        return pa.from_numpy_dtype(dtype.as_numpy_dtype)
    except (pa.ArrowException, TypeError) as error:
        what = f"output {name!r} has type {dtype.name}, which columns do not support"
        do = "select other outputs, or export it as numbers or text"
        raise InfeedError(what, where=f"{signature.where}, signature {signature.name!r}", do=do) from error


def _arrow(batch: Batch, name: str, found: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Convert [batch, ...] to values, lists, or lists of lists. Dimensions beyond those of `kind` are flattened."""
    kinds = [kind]
    while pa.types.is_list(kinds[-1]) or pa.types.is_fixed_size_list(kinds[-1]):
        kinds.append(kinds[-1].value_type)
    *lists, item = kinds
    shape = [*found.shape[: len(lists)], math.prod(found.shape[len(lists) :])]
    values = _items(batch, name, found.reshape(-1), item)
    for axis in range(len(lists), 0, -1):
        if pa.types.is_fixed_size_list(lists[axis - 1]):
            values = pa.FixedSizeListArray.from_arrays(values, shape[axis])
        else:
            offsets = np.arange(math.prod(shape[:axis]) + 1) * shape[axis]
            values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return values


def _items(batch: Batch, name: str, found: npt.NDArray[Any], item: pa.DataType) -> pa.Array:
    if found.dtype != object:
        return pa.array(found.astype(item.to_pandas_dtype(), copy=False), item)
    try:
        return pa.array(found.tolist(), pa.binary()).cast(item)
    except pa.ArrowInvalid as error:
        do = "write tfrecord or prediction_log, which store bytes unchanged"
        raise InfeedError(f"{name!r} holds bytes that are not UTF-8 text", where=batch.where(), do=do) from error


Write = Callable[[str, Iterable[Answer]], None]


@dataclass(frozen=True)
class OutputFiles:
    """Names and writer of the files of a format."""

    write: Write
    prefix: str = "predictions"
    suffix: str = ""  # suffix of the files. "" is that of compressed TFRecords
    by_split: bool = True  # whether each split has a folder

    def paths(self, output: str, shards: list[ShardRange]) -> list[str]:
        """Return one path for each shard of the examples, numbered within its folder."""
        folders = [names.split_dir(output, shard.split) if self.by_split else output for shard in shards]
        paths = []
        for place, folder in enumerate(folders):
            index, count = folders[:place].count(folder), folders.count(folder)
            name = names.shard_name(index, count, not self.suffix, self.prefix) + self.suffix
            paths.append(files.join(folder, name))
        return paths


def parquet_files(layout: AnswerColumns) -> OutputFiles:
    """Write Parquet with row groups of up to 65,536 rows."""

    def write(path: str, answers: Iterable[Answer]) -> None:
        with files.open_output(path) as file, parquet.ParquetWriter(file, layout.schema) as writer:
            group, rows, size = list[pa.RecordBatch](), 0, 0
            for answer in answers:
                group.append(table := layout.table(*answer))
                rows, size = rows + table.num_rows, size + table.nbytes
                # Tables are written together, because small row groups are slow to read.
                if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(group, layout.schema))
                    group, rows, size = [], 0, 0
            if group:
                writer.write_table(pa.Table.from_batches(group, layout.schema))

    return OutputFiles(write, suffix=".parquet")


def log_files(signature: Signature) -> OutputFiles:
    """Write compressed TFRecords of TFX's PredictionLog, all splits in one folder, as TFX's BulkInferrer does.

    Raise InfeedError if the signature does not take serialized tf.Examples, or the protos are not installed.
    """
    if not signature.takes_examples:
        what = f"signature {signature.name!r} takes features, but a prediction_log contains serialized tf.Examples"
        do = "use a signature that takes serialized tf.Examples, such as serving_default, or write parquet or tfrecord"
        raise InfeedError(what, where=signature.where, do=do)
    try:
        from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    except ImportError as error:
        do = "pip install tensorflow-serving-api, or write parquet or tfrecord"
        raise InfeedError("prediction_log requires a proto of TensorFlow Serving", do=do) from error
    import tensorflow as tf

    log = PredictionLog()  # log of one example
    log.predict_log.request.model_spec.signature_name = signature.name
    log.predict_log.response.model_spec.signature_name = signature.name
    for argument in signature.inputs:
        log.predict_log.request.inputs[argument].CopyFrom(tf.make_tensor_proto([b""]))
    for name in signature.outputs:
        log.predict_log.response.outputs[name].Clear()
    return OutputFiles(records_of(lambda answer: _logs(log, answer)), "prediction_logs", by_split=False)


def records_of(payloads: Callable[[Answer], pa.LargeBinaryArray]) -> Write:
    """Write TFRecords of the payloads of each answer."""

    def write(path: str, answers: Iterable[Answer]) -> None:
        write_records(path, (frame_records(payloads(answer)) for answer in answers), gzip_level=1)

    return write


def _logs(log: Any, answer: Answer) -> pa.LargeBinaryArray:
    """Return one log for each row. Reusing a message is cheaper than creating one."""
    [given] = log.predict_log.request.inputs.values()
    fill = [_filler(log.predict_log.response.outputs[name], array) for name, array in answer.outputs.items()]
    serialized = []
    for row, record in enumerate(answer.batch.records):
        given.string_val[0] = record
        for one in fill:
            one(row)
        serialized.append(log.SerializeToString(deterministic=True))
    return pa.array(serialized, pa.large_binary())


def _filler(proto: Any, array: npt.NDArray[Any]) -> Callable[[int], None]:
    """Return a function that sets `proto` to the TensorProto [1, ...] of a row, like `tf.make_tensor_proto`."""
    import tensorflow as tf

    proto.CopyFrom(tf.make_tensor_proto(array[:1]))
    [field, *_] = [field.name for field, _ in proto.ListFields() if field.name not in ("dtype", "tensor_shape")] or [""]
    if field == "tensor_content":  # the value has several numbers
        return lambda row: setattr(proto, field, array[row].tobytes())
    if not field:  # there are no values
        return lambda row: None
    stored = array.view(_STORED_AS[field]) if field in _STORED_AS else array
    rows = stored.reshape(len(array), -1).tolist()

    def fill(row: int) -> None:
        getattr(proto, field)[:] = rows[row]

    return fill
