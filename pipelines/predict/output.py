"""Write predictions, beside the rows of tables or the paths of images, to a CSV, Parquet or JSON Lines file.

    prediction          class or number
    probability         probability of the class, for a classification
    prediction_error    why there is no prediction; empty in most rows

A row that may have several classes has lists of classes and of their probabilities. If the model has several outputs,
their names come first, as in `price_prediction`.

A line that cannot be parsed as a row is not written, only counted.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import csv as pa_csv
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import check_known
from infeed.components.dataset import files
from infeed.components.evaluation.predictor import of_output
from infeed.pipelines.predict.inputs import Batch
from infeed.pipelines.predict.tables import JSON

PREDICTION, PROBABILITY, ERROR = "prediction", "probability", "prediction_error"
PATH = "path"  # column with the paths of images
# Prediction, probability and error of a row. Predictions and probabilities of several outputs are dicts by output.
Answer = tuple[Any, Any, str | None]
Answered = Iterator[tuple[Batch, list[Answer]]]
Write = Callable[[pa.Table], None]


@dataclass(frozen=True)
class Columns:
    """Columns of a table to write beside the predictions."""

    keys: tuple[str, ...] = ()  # first columns
    others: tuple[str, ...] | None = None  # following columns; None for all others of the table

    def of(
        self, names: Sequence[str], where: str, predicted: Collection[str] = (PREDICTION, PROBABILITY, ERROR)
    ) -> list[str]:
        """Return the columns to write. Raises InfeedError if one is missing, or has the name of a `predicted` one."""
        check_known((*self.keys, *(self.others or ())), names, where, "column")
        others = [name for name in names if name not in self.keys] if self.others is None else self.others
        chosen = list(dict.fromkeys([*self.keys, *others]))
        taken = [name for name in chosen if name in predicted]
        if taken:
            do = "rename the column, or name the columns to write with --keys and --columns"
            raise InfeedError(f"the table already has a column {taken[0]!r}", where=where, do=do)
        return chosen


@dataclass(frozen=True)
class Written:
    """Numbers of written rows, of written rows without a prediction, and of unreadable rows that are not written."""

    rows: int
    without_answer: int
    left_out: int


def suffix_of(output: str) -> str | None:
    """Return the suffix of the output: `.csv`, `.parquet` or `.jsonl`. None for other names."""
    return next((suffix for suffix in _WRITERS if output.lower().endswith(suffix)), None)


def check_output(output: str, overwrite: bool) -> str:
    """Return the suffix of a valid output file. Raises InfeedError if it is unknown, or the path exists."""
    suffix = suffix_of(output)
    if suffix is None:
        do = f"name a file that ends in {', '.join(_WRITERS)}; a folder is for inputs that are datasets"
        raise InfeedError("the suffix of the output is not a known format", where=output, do=do)
    if files.exists(output) and (files.is_folder(output) or not overwrite):
        what = "a folder is there" if files.is_folder(output) else "a file is there"
        raise InfeedError(what, where=output, do="give another name, or --overwrite for a file")
    return suffix


def columns_of(output: str) -> tuple[str, str]:
    """Return the names of the columns with the predictions and probabilities of an output. The only output is ""."""
    return (f"{output}_{PREDICTION}", f"{output}_{PROBABILITY}") if output else (PREDICTION, PROBABILITY)


def parts_of(outputs: Mapping[str, Any], output: str) -> Mapping[str, Any]:
    """Return the predictions of one output as those of a model with a single output."""
    return {PREDICTION: outputs[output]} if output in outputs else of_output(outputs, output)


def prediction_types(outputs: Mapping[str, Any], tasks: Mapping[str, str] | None = None) -> dict[str, pa.DataType]:
    """Return the types of the prediction columns.

    Args:
      outputs: TensorSpecs of the model's outputs.
      tasks: task of each output. None if unknown.
    """
    found: dict[str, pa.DataType] = {}
    for output, task in (tasks or {"": ""}).items():
        prediction, probability = columns_of(output)
        types = _types_of(parts_of(outputs, output), several=task == "multilabel")
        found |= {prediction: types[0], **({probability: types[1]} if len(types) > 1 else {})}
    return {**found, ERROR: pa.string()}


def _types_of(outputs: Mapping[str, Any], *, several: bool) -> list[pa.DataType]:
    """Return the types of the prediction, and of the probability if the output has one."""
    if "class" in outputs:
        spec = outputs["class"]
        kind = pa.string() if spec.dtype.name == "string" else pa.int64()
        if several:
            return [pa.list_(kind), pa.list_(pa.float64())]
        if has_parts(spec.shape):
            return [_nested(kind, spec.shape.rank - 1)]
        return [kind, pa.float64()] if "probabilities" in outputs else [kind]
    spec = outputs[next(name for name in ("prediction", "scores", *outputs) if name in outputs)]
    number = pa.int64() if spec.dtype.is_integer else pa.float64()
    return [_nested(number, (spec.shape.rank or 1) - 1)]


def has_parts(shape: Iterable[int | None]) -> bool:
    """Report whether an output, [batch, ...], has a class for each part of an input, such as a pixel."""
    parts = list(shape)[1:]
    return len(parts) > 1 or any(size not in (1, None) for size in parts)


def _nested(kind: pa.DataType, depth: int) -> pa.DataType:
    return _nested(pa.list_(kind), depth - 1) if depth > 0 else kind


def write_answers(
    answered: Answered, types: Mapping[str, pa.DataType], columns: Columns, output: str, overwrite: bool = False
) -> Written:
    """Write all predictions in the order of the inputs, with columns of the `types` of `prediction_types`.

    The suffix of `output` names the format. The file appears once it is complete. Raises InfeedError if the output is
    not writable, a column is missing, or the columns of two tables differ.
    """
    suffix = check_output(output, overwrite)
    count = Counter[str]()
    batches = (_table(batch, answers, types, columns, count) for batch, answers in answered)
    # The first rows define the schema of the file, which CSV and Parquet writers need before they write.
    first = next((table for table in batches if table.num_rows), None)
    if first is None:
        raise InfeedError("no row can be read", where=output, do="correct the input, or give the options of its format")
    with files.open_output(output) as file, _WRITERS[suffix](file, first.schema) as write:
        for table in itertools.chain([first], batches):
            if table.schema.names != first.schema.names:
                what = f"a table has columns {table.schema.names}, but the first table has {first.schema.names}"
                do = "write tables with other columns to another file, or select common columns with --columns"
                raise InfeedError(what, where=output, do=do)
            write(table.cast(first.schema) if table.schema != first.schema else table)
    return Written(count["rows"], count["without_answer"], count["left_out"])


def _table(
    batch: Batch, answers: Sequence[Answer], types: Mapping[str, pa.DataType], columns: Columns, count: Counter[str]
) -> pa.Table:
    """Return the readable rows of a batch with their answers, and count them by the fields of `Written`."""
    kept = [answer for place, answer in enumerate(answers) if place not in batch.unread]
    without = sum(error is not None for _, _, error in kept)
    count.update(rows=len(kept), without_answer=without, left_out=len(batch.unread))
    said = []
    for value, sure, error in kept:
        values, probabilities = (value, sure) if isinstance(value, dict) else ({"": value}, {"": sure})
        row: dict[str, Any] = {ERROR: error}
        for output_name, one in values.items():
            row |= zip(columns_of(output_name), (one, probabilities[output_name]), strict=True)
        said.append(row)
    arrays = {name: pa.array([row.get(name) for row in said], kind) for name, kind in types.items()}
    if batch.rows is None:
        return pa.table({PATH: pa.array(batch.names, pa.string()), **arrays})
    place = batch.names[0].rpartition(", row ")[0] if batch.names else "the table"
    there = pa.Table.from_batches([batch.rows]).select(columns.of(batch.rows.schema.names, place, types))
    fields = [*there.schema, *(pa.field(name, kind) for name, kind in types.items())]
    return pa.Table.from_arrays([*there.columns, *arrays.values()], schema=pa.schema(fields))


@contextmanager
def _csv_file(file: Any, schema: pa.Schema) -> Iterator[Write]:
    """Yield a function that writes tables as CSV; lists become JSON."""

    def as_cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_nested(column.type):
            texts = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
        return column.cast(pa.string()) if pa.types.is_binary(column.type) else column

    def cells(table: pa.Table) -> pa.Table:
        plain = _without_json(table)
        return pa.table(
            {name: as_cells(column) for name, column in zip(plain.column_names, plain.columns, strict=True)}
        )

    with pa_csv.CSVWriter(file, cells(schema.empty_table()).schema) as writer:
        yield lambda table: writer.write_table(cells(table))


@contextmanager
def _parquet_file(file: Any, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(file, _without_json(schema.empty_table()).schema) as writer:
        yield lambda table: writer.write_table(_without_json(table))


@contextmanager
def _jsonl_file(file: Any, schema: pa.Schema) -> Iterator[Write]:
    heads = [f"{json.dumps(name, ensure_ascii=False)}: " for name in schema.names]

    def texts(field: pa.Field, column: pa.ChunkedArray) -> list[str]:
        if _is_json(field):
            return ["null" if text is None else text for text in column.to_pylist()]
        return [json.dumps(value, ensure_ascii=False, default=_plain) for value in column.to_pylist()]

    def write(table: pa.Table) -> None:
        columns = [
            [head + text for text in texts(field, column)]
            for head, field, column in zip(heads, table.schema, table.columns, strict=True)
        ]
        file.write("".join(f"{{{', '.join(row)}}}\n" for row in zip(*columns, strict=True)).encode())

    yield write


def _is_json(field: pa.Field) -> bool:
    return bool(field.metadata and field.metadata.items() >= JSON.items())


def _without_json(table: pa.Table) -> pa.Table:
    """Return the table with JSON strings as text. Other JSON values keep their JSON text."""
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    for name in (field.name for field in table.schema if _is_json(field)):
        texts = (
            json.loads(one) if one is not None and one.startswith('"') else one for one in columns[name].to_pylist()
        )
        columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def _plain(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


_WRITERS: Mapping[str, Callable[[Any, pa.Schema], Any]] = {
    ".csv": _csv_file,
    ".parquet": _parquet_file,
    ".jsonl": _jsonl_file,
}
