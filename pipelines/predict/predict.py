"""Predict with an exported model for images, rows or examples. Each input that fails gets an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.evaluation.predictions.layout import PredictOptions
from infeed.components.evaluation.predictions.predict import write_predictions
from infeed.components.evaluation.predictor import (
    UNKNOWN,
    Arrays,
    Predictor,
    RawColumns,
    RawSignature,
    Signature,
    model_folder,
    part,
)
from infeed.pipelines.predict.inputs import (
    IMAGE,
    Batch,
    are_datasets,
    check_exist,
    examples,
    open_tables,
    pictures,
    rows,
)
from infeed.pipelines.predict.output import (
    ERROR,
    Answer,
    Answered,
    Columns,
    Written,
    check_output,
    columns_of,
    has_parts,
    parts_of,
    prediction_types,
    write_answers,
)


@dataclass(frozen=True)
class Prediction:
    """Prediction for one input, or the reason why there is none."""

    input: str  # path of an image, or path of a table and the row number, from 1
    # A class, a number, or a list of numbers if the output is neither. If the model returns a class or a number for
    # each part of an input, such as a pixel, nested lists. If an input may have several classes, a list of them, the
    # most probable first. If the model has several outputs, a dict by output.
    value: Any
    # Probability of the class, or of each of several classes, if the model returns one for the whole input. Of several
    # outputs, a dict by output.
    probability: Any = None
    error: str | None = None  # why there is no prediction; None if there is one
    note: str | None = None  # change made to the input


def predict(model_path: str, inputs: Sequence[str], settings: Mapping[str, Any] | None = None) -> Iterator[Prediction]:
    """Yield predictions in the order of the inputs, computed in batches of 256. Invalid inputs have an `error`.

    Args:
      model_path: a SavedModel that the Trainer exported, or Pusher's folder of versions (the newest is used).
      inputs: images, or tables of the formats that `infeed run` reads, or folders of either. Any model also accepts
        datasets: folders with TFRecords of tf.Examples in Split-* folders.
      settings: options of the table format, for example the delimiter of a CSV.

    Raises:
      InfeedError: the model or an input does not exist, a column is missing, or the inputs are of the wrong kind.
    """
    call, batches, tasks = _question(model_path, inputs, settings or {})
    for batch, answers in _answered(call, batches, tasks):
        yield from _predictions(batch, answers)


def write_table(
    model_path: str,
    inputs: Sequence[str],
    settings: Mapping[str, Any],
    columns: Columns,
    output: str,
    overwrite: bool,
    on_remark: Callable[[Prediction], None],
) -> Written:
    """Write the predictions for tables or images to one file. Call `on_remark` for each with an error or a note.

    For the arguments and errors see `predict` and `write_answers`.
    """
    check_output(output, overwrite)
    call, batches, tasks = _question(model_path, inputs, settings, columns)
    outputs = (call if isinstance(call, Signature) else call.raw).outputs

    def watched() -> Answered:
        for batch, answers in _answered(call, batches, tasks):
            for prediction in _predictions(batch, answers):
                if prediction.error is not None or prediction.note is not None:
                    on_remark(prediction)
            yield batch, answers

    return write_answers(watched(), prediction_types(outputs, tasks), columns, output, overwrite)


def _predictions(batch: Batch, answers: Sequence[Answer]) -> Iterator[Prediction]:
    for place, (name, answer) in enumerate(zip(batch.names, answers, strict=True)):
        yield Prediction(name, *answer, note=batch.notes.get(place))


def _answered(call: Call, batches: Iterator[Batch], tasks: Tasks) -> Answered:
    for batch in batches:
        answers = iter(ask(call, batch.cells, tasks))
        places = range(len(batch.names))
        yield batch, [(None, None, batch.wrong[place]) if place in batch.wrong else next(answers) for place in places]


def write(
    model_path: str, inputs: Sequence[str], output: str, options: PredictOptions, processes: int | None = None
) -> list[str]:
    """Write the predictions for datasets, and return the paths of the files; see `write_predictions`.

    Raises:
      InfeedError: see `write_predictions`; or an input is not a dataset.
    """
    missing = next((path for path in inputs if not are_datasets([path])), None)
    if missing is not None:
        do = "give folders of TFRecords in Split-* folders; `infeed ingest` writes them from tables and images"
        raise InfeedError("this is not a dataset of tf.Examples", where=missing, do=do)
    return write_predictions(inputs, model_path, output, options, processes=processes)


def _question(
    model_path: str, inputs: Sequence[str], settings: Mapping[str, Any], written: Columns | None = None
) -> tuple[Call, Iterator[Batch], Tasks]:
    """Return the signature to call, the batches of inputs, and the task of each output.

    Check the `written` columns before loading the model.
    """
    folder = model_folder(model_path)  # before TensorFlow, which takes seconds to load
    check_exist(inputs)
    known = RawColumns.of(folder)
    tasks = (known.outputs if known else {}) or {"": ""}
    if are_datasets(inputs):
        signature = Predictor.load(folder).signature("serving_default")
        signature.check_outputs()
        return signature, examples(inputs, signature), tasks
    tables = (
        open_tables(inputs, known.columns, settings, known.source_options)
        if known and set(known.columns) != {IMAGE}
        else None
    )
    for table in tables or ():
        if written:
            written.of(table.names, table.path, [*chain.from_iterable(map(columns_of, tasks)), ERROR])
    both = RawSignature.of(Predictor.load(folder))
    specs = both.raw.inputs
    if set(specs) == {IMAGE}:
        return both, pictures(inputs), tasks
    return both, rows(tables or open_tables(inputs, specs, settings), specs, known=known or UNKNOWN), tasks


Call = Signature | RawSignature
Tasks = Mapping[str, str]  # output -> task. The only output of a model has the name ""


def ask(call: Call, cells: Mapping[str, Any], tasks: Tasks = MappingProxyType({"": ""})) -> list[Answer]:
    """Return an answer for each row. If TensorFlow rejects a batch, bisect the batch to find the bad rows."""
    count = len(next(iter(cells.values()), []))
    if not count:
        return []
    try:
        return _answers(call(cells), tasks)
    except InfeedError as error:
        if count == 1:
            return [(None, None, error.what)]
        # One bad row fails the whole batch, and TensorFlow does not say which.
        halves = range(count // 2), range(count // 2, count)
        return [answer for half in halves for answer in ask(call, part(cells, half), tasks)]


def _answers(outputs: Arrays, tasks: Tasks) -> list[Answer]:
    """Convert model outputs to answers, of several outputs by name."""
    found = {name: _answers_of(parts_of(outputs, name), task) for name, task in tasks.items()}
    if "" in found:
        return found[""]
    rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    return [
        ({name: value for name, (value, _, _) in row.items()}, {name: sure for name, (_, sure, _) in row.items()}, None)
        for row in rows
    ]


def _answers_of(output: Mapping[str, Any], task: str) -> list[Answer]:
    """Convert an output to answers: a class, with a probability if there is one, scores, or a number.

    Of the task "multilabel", the answer is the classes of a row, the most probable first, and their probabilities.
    """
    if "class" in output and task == "multilabel":
        rows = zip(output["class"].tolist(), output["probabilities"].tolist(), strict=True)
        sets = [sorted((-sure, word) for word, sure in zip(*row, strict=True) if word not in (b"", -1)) for row in rows]
        return [([_plain(word) for _, word in found], [-sure for sure, _ in found], None) for found in sets]
    if "class" in output:
        classes = output["class"]
        if has_parts(classes.shape):
            return [(_plain(row), None, None) for row in classes.tolist()]
        words = [_plain(word) for word in classes.ravel().tolist()]
        sure = [float(max(row)) for row in output["probabilities"].tolist()] if "probabilities" in output else None
        return [(word, sure[place] if sure else None, None) for place, word in enumerate(words)]
    name = next(name for name in ("prediction", "scores", *output) if name in output)
    return [(value, None, None) for value in output[name].tolist()]


def _plain(value: Any) -> Any:
    """Convert a class, or nested lists of classes, to text or numbers."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else int(value)
