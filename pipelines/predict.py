"""Asks an exported model: image files or the rows of a CSV in, predictions out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.components.dataset import columns
from infeed.components.errors import InfeedError
from infeed.pipelines.sources import blocks, open_table, source_of

_IMAGE = "image/encoded"
_BATCH = 256


@dataclass(frozen=True)
class Prediction:
    """What the model says of one input: a class with its probability, or a number."""

    input: str
    value: str | float
    probability: float | None


def predict(model_path: str, inputs: Sequence[str], delimiter: str = ",") -> Iterator[Prediction]:
    """Predictions in the order of the inputs, computed in batches of 256.

    Args:
      model_path: a SavedModel that the Trainer exported, or the folder of versions that Pusher fills: then the newest.
      inputs: image files for a model of images; CSV, JSON Lines, Parquet or Avro files for a model of a table.
      delimiter: between the cells of a CSV.

    Raises:
      InfeedError: no such model or input, or a table that lacks a column the model needs.
    """
    folder = _model_folder(model_path)  # before TensorFlow, which takes seconds to load
    import tensorflow as tf

    model = tf.saved_model.load(folder)
    signature = model.signatures["raw"]
    features, arguments = (
        [name.decode() for name in names.numpy()] for names in (model.raw_features, model.raw_arguments)
    )
    argument_of = dict(zip(features, arguments, strict=True))
    by_argument = signature.structured_input_signature[1]
    specs = {feature: by_argument[argument] for feature, argument in argument_of.items()}
    batches = _image_batches(inputs) if set(specs) == {_IMAGE} else _table_batches(inputs, specs, delimiter)
    for names, cells in batches:
        tensors = {argument_of[name]: tf.constant(column, specs[name].dtype) for name, column in cells.items()}
        yield from _predictions(names, signature(**tensors))


def _model_folder(path: str) -> str:
    folder = Path(path)
    versions = [child for child in folder.glob("*") if child.name.isdigit()] if folder.is_dir() else []
    if not (folder / "saved_model.pb").is_file() and versions:
        folder = max(versions, key=lambda child: int(child.name))
    if not (folder / "saved_model.pb").is_file():
        raise InfeedError(
            "there is no saved model",
            where=path,
            do="Give the folder that the run's last lines name as the pushed model.",
        )
    return str(folder)


def _image_batches(inputs: Sequence[str]) -> Iterator[tuple[list[str], dict[str, list[Any]]]]:
    for start in range(0, len(inputs), _BATCH):
        names = list(inputs[start : start + _BATCH])
        yield names, {_IMAGE: [_read(name) for name in names]}


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InfeedError(f"cannot read the picture: {error.strerror}", where=path, do="Check the path.") from error


def _table_batches(
    inputs: Sequence[str], specs: Mapping[str, Any], delimiter: str
) -> Iterator[tuple[list[str], dict[str, list[Any]]]]:
    for path in inputs:
        source = source_of(path, "csv")
        table = open_table(path, source, {"delimiter": delimiter} if source == "csv" else {})
        missing = [name for name in specs if name not in table.schema.names]
        if missing:
            raise InfeedError(
                f"the model needs a column {missing[0]!r}",
                where=path,
                do=f"Add it. The model needs: {', '.join(sorted(specs))}.",
            )
        row = 0
        for block in blocks(table):
            for start in range(0, block.num_rows, _BATCH):
                part = block.slice(start, _BATCH)
                names = [f"{path}, row {row + i + 1}" for i in range(part.num_rows)]
                row += part.num_rows
                cells = dict(zip(part.schema.names, part.columns, strict=True))
                yield names, {name: _filled(cells[name], spec) for name, spec in specs.items()}


def _filled(column: Any, spec: Any) -> list[Any]:
    """The cells as the signature wants them: NaN and "" stand for missing values."""
    if not (spec.dtype.is_floating or spec.dtype.is_integer):
        texts = ("" if value is None else value for value in column.to_pylist())
        return [text if isinstance(text, bytes) else str(text) for text in texts]
    present = column.null_count < len(column)  # a column without any value may be of any type
    values = columns.to_values(column).to_pylist() if present else [None] * len(column)
    if spec.dtype.is_floating:
        return [float("nan") if value is None else float(value) for value in values]
    return [0 if value is None else int(value) for value in values]


def _predictions(names: Sequence[str], output: Mapping[str, Any]) -> Iterator[Prediction]:
    if "prediction" in output:
        for name, number in zip(names, output["prediction"].numpy(), strict=True):
            yield Prediction(name, float(number), None)
        return
    for name, word, row in zip(names, output["class"].numpy(), output["probabilities"].numpy(), strict=True):
        yield Prediction(name, word.decode("utf-8", "replace"), float(row.max()))
