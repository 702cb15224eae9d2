"""Asks a saved model about all examples of a dataset, batch by batch, and writes what it says, shard by shard."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions import output_files
from infeed.components.evaluation.predictions.batches import Batch, InputShard, batches_of, input_shards, known_columns
from infeed.components.evaluation.predictions.layout import AnswerColumns, check_names
from infeed.components.evaluation.predictions.options import PredictOptions
from infeed.components.evaluation.predictions.output_files import Answer, OutputFiles
from infeed.components.evaluation.predictions.saved_model import (
    RefusedBatchError,
    SavedModel,
    Signature,
    check_inputs,
    features_of,
)

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
        return (ask(self.signature, batch) for batch in batches_of(shard, self.options.batch_size))

    def writer(self) -> OutputFiles:
        """
        Raises:
          InfeedError: the signature does not go with the format.
        """
        if self.options.output_format == "prediction_log":
            return output_files.log_files(self.signature)
        makers = {
            "parquet": output_files.parquet_files,
            "tfrecord": output_files.example_files,
            "examples": output_files.whole_example_files,
        }
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
