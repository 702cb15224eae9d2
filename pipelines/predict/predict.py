"""Asks an exported model: pictures, rows or examples in, predictions out, an error for each that has no answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.encode import encode_examples
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.options import PredictOptions
from infeed.components.evaluation.predictions.predict import write_predictions
from infeed.components.evaluation.predictions.saved_model import (
    Arrays,
    SavedModel,
    Signature,
    model_folder,
)
from infeed.pipelines.predict.inputs import IMAGE, Batch, are_datasets, examples, pictures, rows


@dataclass(frozen=True)
class Prediction:
    """What the model says of one input, or why it says nothing.

    Attributes:
      input: a picture's path, or a table's path and the number of the row in it, from 1.
      value: a class, a number, or the numbers of a model whose output is neither.
      probability: of that class, where the model gives one.
      error: why there is no answer; None where there is one.
    """

    input: str
    value: str | int | float | list[float] | None
    probability: float | None = None
    error: str | None = None


def predict(model_path: str, inputs: Sequence[str], settings: Mapping[str, Any] | None = None) -> Iterator[Prediction]:
    """Predictions in the order of the inputs, computed in batches of 256; an input that is wrong has an `error`.

    Args:
      model_path: a SavedModel that the Trainer exported, or the folder of versions that Pusher fills: then the newest.
      inputs: for a model of pictures, files or folders of them; else CSV, JSON Lines, Parquet or Avro files, or folders
        of one of these. For any model, folders of datasets: TFRecords of tf.Examples in Split-* folders.
      settings: options of a table's format, such as the delimiter of a CSV.

    Raises:
      InfeedError: no such model or input, a table that lacks a column the model needs, or inputs of the wrong kind.
    """
    folder = model_folder(model_path)  # before TensorFlow, which takes seconds to load
    missing = next((path for path in inputs if not files.exists(path)), None)
    if missing is not None:
        raise InfeedError("there is no such file or folder", where=missing, do="check the path")
    call, batches = _question(folder, inputs, settings or {})
    for names, cells, wrong in batches:
        answers = iter(ask(call, cells))
        for place, name in enumerate(names):
            answer = (None, None, wrong[place]) if place in wrong else next(answers)
            yield Prediction(name, *answer)


def write(model_path: str, inputs: Sequence[str], output: str, options: PredictOptions) -> list[str]:
    """Writes what the model says of datasets, and returns the paths of the files; see `write_predictions`.

    Raises:
      InfeedError: as there; or an input is no dataset.
    """
    missing = next((path for path in inputs if not are_datasets([path])), None)
    if missing is not None:
        do = "give folders of TFRecords in Split-* folders; `infeed ingest` makes them of tables and pictures"
        raise InfeedError("this is no dataset of tf.Examples", where=missing, do=do)
    return write_predictions(inputs, model_path, output, options)


def _question(folder: str, inputs: Sequence[str], settings: Mapping[str, Any]) -> tuple[Call, Iterator[Batch]]:
    """How the model is asked, and about what."""
    by_example = are_datasets(inputs)
    model = SavedModel.load(folder)
    if by_example:
        signature = model.signature("serving_default")
        return signature, examples(inputs, signature)
    both = RawSignature.of(model)
    specs = both.raw.inputs
    if set(specs) == {IMAGE}:
        return both, pictures(inputs)
    return both, rows(inputs, specs, settings, model.source_options)


_Answer = tuple[Any, float | None, str | None]


@dataclass(frozen=True)
class RawSignature:
    """The signature of raw features, which infeed's Trainer exports, and the one of tf.Examples beside it."""

    raw: Signature
    examples: Signature

    @classmethod
    def of(cls, model: SavedModel) -> RawSignature:
        """
        Raises:
          InfeedError: somebody else has exported the model.
        """
        do = "give a model that infeed's Trainer exported; ask this one about a dataset, as `infeed ingest` writes it"
        return cls(model.signature("raw", do), model.signature("serving_default", do))

    def __call__(self, cells: Mapping[str, Any]) -> Arrays:
        """Only a tf.Example can leave out a whole number, and hold a list where the raw signature takes one value."""
        if not any(_needs_example(column, self.raw.inputs[name]) for name, column in cells.items()):
            return self.raw(cells)
        known = {name: [None if value == "" else value for value in column] for name, column in cells.items()}
        [argument] = self.examples.inputs
        return self.examples({argument: encode_examples(pa.RecordBatch.from_pydict(known)).to_pylist()})


def _needs_example(column: Sequence[Any], spec: Any) -> bool:
    return any(cell is None or (isinstance(cell, list) and spec.shape.rank == 1) for cell in column)


Call = Signature | RawSignature


def ask(call: Call, cells: Mapping[str, Any]) -> list[_Answer]:
    """An answer for each row; rows that TensorFlow refuses are found by halves."""
    count = len(next(iter(cells.values()), []))
    if not count:
        return []
    try:
        return _answers(call(cells))
    except InfeedError as error:
        if count == 1:
            return [(None, None, error.what)]
        return [*ask(call, _part(cells, 0, count // 2)), *ask(call, _part(cells, count // 2, count))]


def _part(cells: Mapping[str, Any], start: int, stop: int) -> dict[str, list[Any]]:
    return {name: column[start:stop] for name, column in cells.items()}


def _answers(output: Arrays) -> list[_Answer]:
    """By what is there: a class with its probability, a class alone, scores, or a number."""
    if "class" in output:
        words = [
            word.decode("utf-8", "replace") if isinstance(word, bytes) else int(word)
            for word in output["class"].ravel().tolist()
        ]
        sure = [float(max(row)) for row in output["probabilities"].tolist()] if "probabilities" in output else None
        return [(word, sure[place] if sure else None, None) for place, word in enumerate(words)]
    name = next(name for name in ("prediction", "scores", *output) if name in output)
    return [(value, None, None) for value in output[name].tolist()]
