"""Predictions of a saved model for all examples of a dataset, batch by batch, with one output file per shard.

Output files are Parquet, tf.Examples of the columns, whole examples with added outputs, or TFX's protos.
"""

from __future__ import annotations

import hashlib
import logging
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from infeed.components.base import machine, progress
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.reading import ShardRange
from infeed.components.engine.choice import ChosenMap, Cluster, choose
from infeed.components.engine.engine import WithSetUp
from infeed.components.evaluation.batches import Batch, batches_of, input_shards, known_columns, root_of
from infeed.components.evaluation.predictions.layout import (
    Answer,
    AnswerColumns,
    OutputFiles,
    PredictOptions,
    check_names,
    log_files,
    parquet_files,
    records_of,
)
from infeed.components.evaluation.predictor import (
    Arrays,
    Predictor,
    RefusedBatchError,
    Signature,
    check_inputs,
    features_of,
    model_work,
)

_log = logging.getLogger(__name__)


def predict(
    examples: str | Sequence[str], model: str, options: PredictOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield keys, columns and outputs of all examples in order, one record batch for each batch of the model.

    All arguments are checked before the first batch, as in `write_predictions`.

    Args:
      examples: folders of datasets of any writer: TFRecords of tf.Examples in Split-* folders.
      model: folder of a SavedModel, or of numbered versions. The newest version is used.
      options: signature, columns and splits. The output format only determines the types.
    """
    options = options or PredictOptions()
    shards = input_shards(_roots(examples), options.splits)
    question = Question.of(shards, model, options)
    for shard in shards:
        for answer in question.answers(question.load(), shard):
            yield question.layout.table(*answer)


def write_predictions(
    examples: str | Sequence[str],
    model: str,
    output: str,
    options: PredictOptions | None = None,
    cluster: Cluster | None = None,
    processes: int | None = None,
) -> list[str]:
    """Write one file per shard of the examples, or per range of a large shard. Return the paths.

    Files are written atomically. A repeated run after a kill keeps finished files of the same model and examples,
    unless it uses a Beam runner.

    Args:
      examples, model, options: see `predict`.
      output: local or remote folder without other files.
      cluster: access to a Beam runner.
      processes: number of processes. Chosen from the size of the data by default.

    Raises:
      InfeedError: before writing: a dataset, split, model, signature, column or output does not exist, a column and an
        output share a name, an output does not have the batch's rows, or `output` has other files. While writing: a
        shard is damaged, or the model rejects a record, which the error names.
    """
    options = options or PredictOptions()
    reading = ChosenMap("describes", machine.PREDICT_BYTES, cluster, processes)
    shards = input_shards(_roots(examples), options.splits, reading)
    question = Question.of(shards, model, options, reading)
    writer = question.writer(question.load())
    paths = writer.paths(output, shards)
    _clear(output, paths)
    progress_file = ProgressFile.of(output, model, shards, options)
    finished = progress_file.read(paths)
    items = [OutputShard(*pair) for pair in zip(shards, paths, strict=True)][finished:]
    work = model_work("predicts", [item.records for item in items], machine.PREDICT_BYTES, ["tensorflow"])
    with choose(work, cluster, processes) as engine:
        write = WithSetUp(partial(_write, question), question.load)
        for number, path in enumerate(engine.map(write, items), finished + 1):
            _log.info("predictions: %s, file %d of %d", path, number, len(paths))
            progress_file.write(number)
    files.remove_unfinished(paths)  # partial files of lost workers
    files.remove(progress_file.path)
    return paths


@dataclass(frozen=True)
class ProgressFile:
    """Hidden file in the output folder with the number of finished files of a job, until all are finished.

    `job` is the digest of the examples, the model and the options.
    """

    path: str
    job: str

    @classmethod
    def of(cls, output: str, model: str, shards: Sequence[ShardRange], options: PredictOptions) -> ProgressFile:
        folders = sorted({posixpath.dirname(shard.path) for shard in shards})
        inputs = [*files.list_files(model, depth=3), *(one for folder in folders for one in files.list_files(folder))]
        job = repr((options, shards, sorted((one.path, one.size, one.mtime_ns) for one in inputs)))
        return cls(files.join(output, ".unfinished-predictions"), hashlib.sha256(job.encode()).hexdigest())

    def read(self, paths: Sequence[str]) -> int:
        """Return how many files an unfinished run of this job has written. If none, start over."""
        job, _, count = files.read_bytes(self.path).decode().partition(" ") if files.exists(self.path) else ("", "", "")
        finished = int(count) if job == self.job else 0
        if finished and all(map(files.exists, paths[:finished])):
            _log.warning("predictions: %d of %d files exist from an unfinished run", finished, len(paths))
            return finished
        self.write(0)  # before this job replaces files that another job counts
        return 0

    def write(self, finished: int) -> None:
        files.write_bytes(self.path, f"{self.job} {finished}".encode())


def _roots(examples: str | Sequence[str]) -> list[str]:
    return [examples] if isinstance(examples, str) else list(examples)


@dataclass(frozen=True)
class OutputShard:
    """Records, and the file of their predictions."""

    records: ShardRange
    path: str

    @property
    def place(self) -> str:
        return self.records.place


def _write(question: Question, signature: Signature, shard: OutputShard) -> str:
    question.writer(signature).write(shard.path, question.answers(signature, shard.records))
    return shard.path


@dataclass(frozen=True)
class Question:
    """A checked prediction job. Workers receive it without the loaded model."""

    model: str
    options: PredictOptions
    layout: AnswerColumns
    _loaded: Signature | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, shards: Sequence[ShardRange], model: str, options: PredictOptions, map_fn: ChosenMap | None = None
    ) -> Question:
        """Check all arguments. Apply the model to the first batch; on a cluster, only if necessary.

        `map_fn` reads the examples, by default in this process. Raises the errors of `write_predictions`.
        """
        where = ", ".join(dict.fromkeys(root_of(shard) for shard in shards))
        signature = load_signature(model, options)
        signature.check_outputs()
        # Types of columns need statistics, so they are read only if a column is asked for.
        needed = options.carried or options.output_format == "examples" or not signature.takes_examples
        known = known_columns(shards, map_fn) if needed else {}
        check_names(options, known, signature, where)
        if not signature.takes_examples:
            check_inputs(signature, known, where)
        probe: Arrays | None = None
        on_cluster = map_fn is not None and map_fn.is_on_cluster
        if not on_cluster or any(spec.shape.rank is None for spec in signature.outputs.values()):
            first = partial(_first_answer, model, options)
            ask_first = map_fn if map_fn is not None and on_cluster else map
            probe = next((found for shard in shards for found in ask_first(first, [shard]) if found), None)
        return cls(model, options, AnswerColumns.of(options, known, signature, probe), signature)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def load(self) -> Signature:
        """Load the signature, once in each worker."""
        return self._loaded or load_signature(self.model, self.options)

    def answers(self, signature: Signature, shard: ShardRange) -> Iterator[Answer]:
        for batch in batches_of(shard, self.options.batch_size):
            yield ask(signature, batch)
            progress.count("example predicted", len(batch.records))

    def writer(self, signature: Signature) -> OutputFiles:
        """Return the writer of the output format. Raise InfeedError if the signature does not fit."""
        layout = self.layout
        if self.options.output_format == "prediction_log":
            return log_files(signature)
        if self.options.output_format == "parquet":
            return parquet_files(layout)
        if self.options.output_format == "tfrecord":  # one feature per column
            return OutputFiles(records_of(lambda answer: encode_examples(layout.table(*answer))))
        import tensorflow as tf

        def merged(answer: Answer) -> pa.LargeBinaryArray:
            examples = [tf.train.Example.FromString(record) for record in answer.batch.records]
            for example, added in zip(examples, encode_examples(layout.table(*answer)).to_pylist(), strict=True):
                example.MergeFromString(added)
            return pa.array([one.SerializeToString(deterministic=True) for one in examples], pa.large_binary())

        return OutputFiles(records_of(merged), "examples")


def load_signature(model: str, options: PredictOptions) -> Signature:
    return Predictor.load(model, options.tags).signature(options.signature)


def _first_answer(model: str, options: PredictOptions, shard: ShardRange) -> Arrays | None:
    """Return the outputs for the first batch of a shard. None if the shard is empty."""
    signature = load_signature(model, options)
    return next((ask(signature, batch).outputs for batch in batches_of(shard, options.batch_size)), None)


def ask(signature: Signature, batch: Batch) -> Answer:
    """Return the outputs for a batch. Raise InfeedError for the first record that the model rejects on its own."""
    features = features_of(batch, signature)
    try:
        return Answer(batch, signature(features))
    except RefusedBatchError as error:
        if len(batch.records) == 1:
            raise InfeedError(error.what, where=batch.where(0), do=f"{error.do}; or leave the record out") from error
        middle = len(batch.records) // 2
        ask(signature, batch.part(0, middle))
        ask(signature, batch.part(middle, len(batch.records)))
        raise  # both halves succeed, so only the whole batch fails


def _clear(output: str, paths: Sequence[str]) -> None:
    """Remove unfinished files of a killed run. Raise InfeedError if the folder has other files."""
    there = [file.path for file in files.list_files(output, depth=1)]
    strange = [path for path in there if path not in paths and not files.is_hidden(path)]
    if strange:
        what = f"the folder for predictions contains another file, {files.relative(strange[0], output)}"
        raise InfeedError(what, where=output, do="use an empty folder, or the output folder of the same predictions")
    files.remove_unfinished(paths)
