"""Asks a saved model about all examples of a dataset, batch by batch, and writes what it says, shard by shard.

Files are Parquet, tf.Examples of the columns, whole examples with the outputs in them, or TFX's protos.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from infeed.components import progress
from infeed.components.dataset import files, names
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.batches import Batch, InputShard, batches_of, input_shards, known_columns
from infeed.components.evaluation.predictions.layout import AnswerColumns, check_names
from infeed.components.evaluation.predictions.options import PredictOptions
from infeed.components.evaluation.predictions.saved_model import (
    Arrays,
    RefusedBatchError,
    SavedModel,
    Signature,
    check_inputs,
    features_of,
)

_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 64 << 20  # of a row group of Parquet
_GZIP_LEVEL = 1
# Fields of a TensorProto: of several numbers, and of numbers that protobuf has no type for.
_BYTES_FIELD = "tensor_content"
_STORED_AS: Mapping[str, Any] = {"half_val": np.uint16, "scomplex_val": np.float32, "dcomplex_val": np.float64}
_log = logging.getLogger(__name__)


def predict(
    examples: str | Sequence[str], model: str, options: PredictOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Keys, columns and outputs of all examples, in their order; a record batch for each batch that the model is given.

    Everything is checked before the first, as in `write_predictions`.

    Args:
      examples: folders of datasets, whoever wrote them: TFRecords of tf.Examples in Split-* folders.
      model: folder of a SavedModel, or of the versions of one: then the newest.
      options: which signature, columns and splits; the format of files means nothing here but its types.
    """
    question = Question.of(examples, model, options or PredictOptions())
    for shard in question.shards:
        for answer in question.answers(shard):
            yield question.layout.table(*answer)


def write_predictions(
    examples: str | Sequence[str], model: str, output: str, options: PredictOptions | None = None
) -> list[str]:
    """Writes one file for each shard of the examples, and returns their paths.

    A file appears once it is whole. Whoever is killed can be run again: the same files are written anew.

    Args:
      examples, model, options: as for `predict`.
      output: a folder, local or remote, that holds nothing else.

    Raises:
      InfeedError: before anything is written, for no such dataset, split, model, signature, column or output, a name
        that a column and an output share, an output without the batch's rows, or other files in `output`; afterwards,
        for a damaged shard or a record that the model refuses, with its number.
    """
    question = Question.of(examples, model, options or PredictOptions())
    writer = question.writer()
    paths = writer.paths(output, question.shards)
    _clear(output, paths)
    for number, (shard, path) in enumerate(zip(question.shards, paths, strict=True), 1):
        writer.write(path, question.answers(shard))
        _log.info("predictions: %s, file %d of %d", path, number, len(paths))
    return paths


class Answer(NamedTuple):
    """What a model says of a batch: output -> array [records, ...]."""

    batch: Batch
    outputs: Arrays


@dataclass(frozen=True)
class Question:
    """What is asked, checked: a loaded signature, the shards of the examples, and the columns of the answer."""

    shards: list[InputShard]
    signature: Signature
    options: PredictOptions
    layout: AnswerColumns

    @classmethod
    def of(cls, examples: str | Sequence[str], model: str, options: PredictOptions) -> Question:
        """Raises InfeedError as `write_predictions` does; the model has been asked about the first batch by then."""
        roots = [examples] if isinstance(examples, str) else list(examples)
        where = ", ".join(roots)
        shards = input_shards(roots, options.splits)
        signature = SavedModel.load(model, options.tags).signature(options.signature)
        signature.check_outputs()
        needed = options.carried or options.output_format == "examples" or not signature.takes_examples
        known = known_columns(shards) if needed else {}
        check_names(options, known, signature, where)
        if not signature.takes_examples:
            check_inputs(signature, known, where)
        batches = (batch for shard in shards for batch in batches_of(shard, options.batch_size))
        probe = next((ask(signature, batch) for batch in batches), None)
        return cls(shards, signature, options, AnswerColumns.of(options, known, signature, probe and probe.outputs))

    def answers(self, shard: InputShard) -> Iterator[Answer]:
        """What the model says of a shard, batch by batch."""
        for batch in batches_of(shard, self.options.batch_size):
            yield ask(self.signature, batch)
            progress.count("examples predicted", len(batch.records))

    def writer(self) -> OutputFiles:
        """
        Raises:
          InfeedError: the signature does not go with the format.
        """
        if self.options.output_format == "prediction_log":
            return log_files(self.signature)
        makers = {"parquet": parquet_files, "tfrecord": example_files, "examples": whole_example_files}
        return makers[self.options.output_format](self.layout)


def ask(signature: Signature, batch: Batch) -> Answer:
    """What the model says of a batch.

    Raises:
      InfeedError: it refuses a record, with the number of the first that it refuses alone.
    """
    features = features_of(batch, signature)
    try:
        return Answer(batch, signature(features))
    except RefusedBatchError as error:
        if len(batch.records) == 1:
            raise InfeedError(error.what, where=batch.where(0), do=f"{error.do}; or leave the record out") from error
        middle = len(batch.records) // 2
        ask(signature, batch.part(0, middle))
        ask(signature, batch.part(middle, len(batch.records)))
        raise  # each half is answered: it is the batch as a whole


def _clear(output: str, paths: Sequence[str]) -> None:
    """Removes what a killed run has left unfinished.

    Raises:
      InfeedError: the folder holds what nobody has written here.
    """
    there = [file.path for file in files.list_files(output, depth=1)]
    strange = [path for path in there if path not in paths and not files.is_hidden(path)]
    if strange:
        what = f"the folder for predictions holds another file, {files.relative(strange[0], output)}"
        raise InfeedError(what, where=output, do="give an empty folder; of an earlier run of the same, files may stay")
    unfinished = tuple(f".{files.name(path)}." for path in paths)  # as `files.open_output` calls them
    for path in there:
        if files.name(path).startswith(unfinished):
            files.remove(path)


Write = Callable[[str, Iterable[Answer]], None]


@dataclass(frozen=True)
class OutputFiles:
    """How the files of a format are called and written.

    Attributes:
      write: makes the file of this path, whole or not at all.
      prefix, suffix: of the files' names; a suffix of "" is that of compressed TFRecords.
      by_split: whether each split has a folder.
    """

    write: Write
    prefix: str = "predictions"
    suffix: str = ""
    by_split: bool = True

    def paths(self, output: str, shards: list[InputShard]) -> list[str]:
        """One file for each shard of the examples, numbered within its folder."""
        folders = [names.split_dir(output, shard.split) if self.by_split else output for shard in shards]
        return [
            files.join(folder, self._name(folders[:place].count(folder), folders.count(folder)))
            for place, folder in enumerate(folders)
        ]

    def _name(self, index: int, count: int) -> str:
        return names.shard_name(index, count, not self.suffix, self.prefix) + self.suffix


def parquet_files(layout: AnswerColumns) -> OutputFiles:
    """Row groups of up to 65,536 rows."""

    def write(path: str, answers: Iterable[Answer]) -> None:
        with files.open_output(path) as file, parquet.ParquetWriter(file, layout.schema) as writer:
            for group in _groups(layout.table(*answer) for answer in answers):
                writer.write_table(pa.Table.from_batches(group, layout.schema))

    return OutputFiles(write, suffix=".parquet")


def example_files(layout: AnswerColumns) -> OutputFiles:
    """Compressed TFRecords of tf.Examples, a feature for each column."""
    return OutputFiles(_records(lambda answer: encode_examples(layout.table(*answer))))


def whole_example_files(layout: AnswerColumns) -> OutputFiles:
    """Compressed TFRecords of the examples, with the outputs as further features."""
    return OutputFiles(
        _records(lambda answer: _merged(answer.batch, encode_examples(layout.table(*answer)))), "examples"
    )


def log_files(signature: Signature) -> OutputFiles:
    """Compressed TFRecords of TFX's PredictionLog, of all splits in one folder, as TFX's BulkInferrer writes them.

    Raises:
      InfeedError: the signature takes no serialized tf.Examples, or TFX's protos are not installed.
    """
    if not signature.takes_examples:
        raise InfeedError(
            f"signature {signature.name!r} takes features, and a prediction_log holds serialized tf.Examples",
            where=signature.where,
            do="choose a signature that takes them, such as serving_default, or write parquet or tfrecord",
        )
    log = _new_log(signature)
    return OutputFiles(_records(lambda answer: _logs(log, answer)), "prediction_logs", by_split=False)


def _groups(tables: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Tables that are written together: small row groups are slow to read."""
    group, rows, size = list[pa.RecordBatch](), 0, 0
    for table in tables:
        group.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _records(payloads: Callable[[Answer], pa.LargeBinaryArray]) -> Write:
    def write(path: str, answers: Iterable[Answer]) -> None:
        write_records(path, (frame_records(payloads(answer)) for answer in answers), gzip_level=_GZIP_LEVEL)

    return write


def _merged(batch: Batch, added: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Each example with the features of another one."""
    import tensorflow as tf

    merged = []
    for record, more in zip(batch.records, added.to_pylist(), strict=True):
        example = tf.train.Example.FromString(record)
        example.MergeFromString(more)
        merged.append(example.SerializeToString(deterministic=True))
    return pa.array(merged, pa.large_binary())


def _new_log(signature: Signature) -> Any:
    """A PredictionLog that says which signature was asked, about one example."""
    try:
        from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    except ImportError as error:
        do = "pip install tensorflow-serving-api, or write parquet or tfrecord"
        raise InfeedError("prediction_log is a proto of TensorFlow Serving's", do=do) from error
    import tensorflow as tf

    log = PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature.name
    log.predict_log.response.model_spec.signature_name = signature.name
    for argument in signature.inputs:
        log.predict_log.request.inputs[argument].CopyFrom(tf.make_tensor_proto([b""]))
    for name in signature.outputs:
        log.predict_log.response.outputs[name].Clear()
    return log


def _logs(log: Any, answer: Answer) -> pa.LargeBinaryArray:
    """One log a row: the same, filled anew, for to make messages takes longer than to fill them."""
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
    """Makes `proto` the TensorProto [1, ...] of a row, in the field where `tf.make_tensor_proto` puts such values."""
    import tensorflow as tf

    proto.CopyFrom(tf.make_tensor_proto(array[:1]))
    [field, *_] = [field.name for field, _ in proto.ListFields() if field.name not in ("dtype", "tensor_shape")] or [""]
    if field == _BYTES_FIELD:
        return lambda row: setattr(proto, field, array[row].tobytes())
    if not field:  # there are no values
        return lambda row: None
    stored = array.view(_STORED_AS[field]) if field in _STORED_AS else array
    rows = stored.reshape(len(array), -1).tolist()

    def fill(row: int) -> None:
        getattr(proto, field)[:] = rows[row]

    return fill
