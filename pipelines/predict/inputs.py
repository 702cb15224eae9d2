"""Inputs of a prediction: pictures, rows of tables, or examples, in batches of cells that fit the model's types."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from infeed.components.dataset import example_types, files, names
from infeed.components.dataset.options import MAX_ROW_MB, IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.evaluation.predictions.batches import batches_of, input_shards, known_columns
from infeed.components.evaluation.predictions.saved_model import Signature, check_inputs, features_of
from infeed.components.example_gen.formats import default_settings, kind_of_name, table_kind
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource, is_companion
from infeed.components.example_gen.sources.numbers import NumberFormat
from infeed.pipelines.config import Source
from infeed.pipelines.project.sources import is_picture, open_table, source_of

IMAGE = "image/encoded"
_BATCH = 256
_BATCH_BYTES = 64 << 20  # of encoded pictures
_DEPTH = 8  # folders below a folder of pictures
_PICTURES = ("PNG", "JPEG", "BMP", "GIF")  # what an exported model decodes


class Batch(NamedTuple):
    """Consecutive inputs."""

    names: list[str]
    cells: Mapping[str, Any]  # cells of the inputs that fit the model, by column
    wrong: dict[int, str]  # error of each other input, by position
    rows: pa.RecordBatch | None = None  # all columns of the readable rows of a table; None for other inputs
    unread: frozenset[int] = frozenset()  # positions of inputs without a row in `rows`
    notes: Mapping[int, str] = MappingProxyType({})  # changes made to an input, by position


def are_datasets(inputs: Sequence[str]) -> bool:
    """Return whether the inputs are datasets: folders of TFRecords, as ingest and TFX's ExampleGens write them.

    Raises InfeedError if some inputs are datasets, and some are not.
    """
    kinds = {
        path: files.is_folder(path) and any(name.startswith(names.SPLIT_FOLDER) for name in files.list_folders(path))
        for path in inputs
    }
    if len(set(kinds.values())) > 1:
        other = next(path for path, is_dataset in kinds.items() if not is_dataset)
        what = "this is not a dataset of tf.Examples, but another input is"
        raise InfeedError(what, where=other, do="predict for datasets and for files in two commands")
    return any(kinds.values())


def examples(roots: Sequence[str], signature: Signature) -> Iterator[Batch]:
    """Yield batches of the records of all splits of datasets, as `signature` takes them."""
    shards = input_shards(roots, None)
    if not signature.takes_examples:
        check_inputs(signature, known_columns(shards), ", ".join(roots))
    for shard in shards:
        for batch in batches_of(shard, _BATCH):
            labels = [batch.where(row) for row in range(len(batch.records))]
            yield Batch(labels, features_of(batch, signature), {})


def pictures(inputs: Sequence[str]) -> Iterator[Batch]:
    """Yield batches of the column `image/encoded`."""
    paths = [path for given in inputs for path in _pictures_of(given)]
    names, read, size = list[str](), list[bytes | str](), 0
    for path in paths:
        names.append(path)
        read.append(_read(path))
        size += len(read[-1])
        if len(names) == _BATCH or size > _BATCH_BYTES:
            yield _of_pictures(names, read)
            names, read, size = [], [], 0
    if names:
        yield _of_pictures(names, read)


def _of_pictures(names: list[str], read: Sequence[bytes | str]) -> Batch:
    wrong = {place: one for place, one in enumerate(read) if isinstance(one, str)}
    return Batch(names, {IMAGE: [one for one in read if isinstance(one, bytes)]}, wrong)


def _pictures_of(given: str) -> list[str]:
    """Return the file itself, or all files below a folder that are named like pictures."""
    if not files.is_folder(given):
        if not is_picture(given) and kind_of_name(given):
            what = f"the model takes pictures, but this file is named like {kind_of_name(given)}"
            raise InfeedError(what, where=given, do="give PNG or JPEG files, or a folder of them")
        return [given]
    below = [file.path for file in files.list_files(given, depth=_DEPTH) if not files.is_hidden(file.path)]
    dangling = [one.path for one in files.find_irregular(given, "/".join("*" * (_DEPTH + 1))) if one.is_link]
    found = sorted(path for path in [*below, *dangling] if is_picture(path))
    if not found:
        raise InfeedError("the folder has no pictures", where=given, do="give a folder of PNG or JPEG files")
    return found


def _read(path: str) -> bytes | str:
    """Return the bytes of a picture, or the error text."""
    from PIL import UnidentifiedImageError

    from infeed.components.example_gen.sources.images.codec import open_image

    try:
        data = files.read_bytes(path)
        with open_image(io.BytesIO(data)) as image:
            kind = image.format
            size = image.width * image.height * len(image.getbands()) >> 20
    except UnidentifiedImageError:
        return "it is not a picture"
    except InfeedError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        return f"it cannot be read: {error}"
    if size >= MAX_ROW_MB:
        return f"its pixels take {size:,} MB, more than {MAX_ROW_MB}; scale it down"
    return data if kind in _PICTURES else f"it is a {kind} picture; convert it to PNG or JPEG"


def _tables_of(given: str) -> list[str]:
    """Return the file itself, the table that a folder is, or all files in the folder."""
    if not files.is_folder(given) or table_kind(given):
        return [given]
    found = [file.path for file in files.glob(given, "*") if not is_companion(file.path)]
    if not found:
        raise InfeedError("the folder has no files", where=given, do="give files, or a folder of them")
    return found


def rows(
    inputs: Sequence[str],
    specs: Mapping[str, Any],
    settings: Mapping[str, Any],
    trained: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Iterator[Batch]:
    """Yield batches of the columns of `specs`, converted to their types.

    `inputs` are files and folders of files. For the options see `open_as_trained`.
    """
    for path in (path for given in inputs for path in _tables_of(given)):
        if is_picture(path):
            do = f"give a table, such as a CSV or Parquet file, with the columns {', '.join(sorted(specs))}"
            raise InfeedError("the model takes the rows of a table, but this is a picture", where=path, do=do)
        yield from _rows_of_table(path, specs, settings, trained)


def _rows_of_table(
    path: str, specs: Mapping[str, Any], settings: Mapping[str, Any], trained: Mapping[str, Mapping[str, Any]]
) -> Iterator[Batch]:
    source = source_of(path, "csv")
    table, read_with = open_as_trained(path, source, settings, trained, specs)
    missing = [name for name in specs if name not in table.schema.names]
    if missing:
        what = f"the model needs a column {missing[0]!r}"
        raise InfeedError(what, where=path, do=f"add it; the model needs {', '.join(sorted(specs))}")
    header = int(source == "csv" and read_with.get("header", True))
    rows = 0
    for block, bad in _blocks(table):
        numbers = range(rows + 1, rows + block.num_rows + len(bad) + 1)
        rows = numbers.stop - 1
        wrong = _placed(bad, numbers, header)
        for start in range(0, len(numbers), _BATCH):
            some = numbers[start : start + _BATCH]
            there = [number for number in some if number not in wrong]
            part, block = block.slice(0, len(there)), block.slice(len(there))
            cells, unfit, rounded = _cells(part, specs)
            reasons = {n: wrong[n] for n in some if n in wrong} | {there[place]: why for place, why in unfit.items()}
            notes = {there[place] - some.start: words for place, words in rounded.items()}
            labels = [f"{path}, row {number}" for number in some]
            unread = frozenset(number - some.start for number in some if number in wrong)
            yield Batch(
                labels, cells, {number - some.start: why for number, why in reasons.items()}, part, unread, notes
            )


def open_as_trained(
    path: str,
    source: Source,
    settings: Mapping[str, Any],
    trained: Mapping[str, Mapping[str, Any]],
    specs: Mapping[str, Any],
) -> tuple[OpenedSource, Mapping[str, Any]]:
    """Open a table, and return it with the options that it is read with.

    The options of the training files, `trained` by format, apply, so that `$3,356.21` is parsed as in training. If the
    file cannot be read with them, for example because its delimiter differs, it is read without them. `settings` take
    precedence.
    """
    reject = IngestOptions(on_bad_row="reject")
    known = {**_known(source, trained, specs), **default_settings(path, source)}
    if known:
        with contextlib.suppress(InfeedError):  # the next call reports errors of the file itself
            return open_table(path, source, {**known, **settings}, reject), {**known, **settings}
    return open_table(path, source, settings, reject), settings


def _known(source: Source, trained: Mapping[str, Mapping[str, Any]], specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the training files for the model's columns; for another format, only `numbers`."""
    numbers = {name: example for options in trained.values() for name, example in options.get("numbers", {}).items()}
    known = {name: value for name, value in trained.get(source, {}).items() if name != "columns"}
    if known.get("thousands") or known.get("decimal"):
        # Otherwise one cell that is not a number would turn its whole column into text.
        signs = str(NumberFormat(known.get("thousands") or "", known.get("decimal", ".")))
        numbers = {**{name: signs for name, spec in specs.items() if spec.dtype.is_floating}, **numbers}
    for option, columns in (("numbers", numbers), ("types", known.get("types", {}))):
        known[option] = {name: value for name, value in columns.items() if name in specs}
    return {name: value for name, value in known.items() if value != {}}


def _blocks(table: OpenedSource) -> Iterator[tuple[pa.RecordBatch, list[BadRow]]]:
    """Yield the rows of a table with the bad rows among them."""
    for task in table.tasks:
        bad_rows = BadRows("reject", sys.maxsize)
        for block in table.read(task.payload, bad_rows=bad_rows):
            yield block, list(bad_rows.take())
        if bad := bad_rows.take():
            yield pa.RecordBatch.from_pylist([], table.schema), list(bad)


def _placed(bad: Sequence[BadRow], numbers: range, header: int) -> dict[int, str]:
    """Map row numbers to errors. The row number follows from the line; line breaks in cells make it approximate."""
    placed: dict[int, str] = {}
    for row in bad:
        number = min(max((row.line or 0) - header, numbers.start), numbers[-1])
        while number in placed:
            number = number + 1 if number + 1 in numbers else numbers.start
        placed[number] = f"line {row.line}: {row.reason}"
    return placed


def _cells(
    rows: pa.RecordBatch, specs: Mapping[str, Any]
) -> tuple[dict[str, list[Any]], dict[int, str], dict[int, str]]:
    """Return the cells of the rows that fit the model's types, by column, the errors of other rows, and the notes."""
    wrong: dict[int, str] = {}
    notes: dict[int, str] = {}
    cells = {
        name: _fitted(name, rows.column(rows.schema.get_field_index(name)), spec, wrong, notes)
        for name, spec in specs.items()
    }
    right = [place for place in range(rows.num_rows) if place not in wrong]
    return {name: [column[place] for place in right] for name, column in cells.items()}, wrong, notes


def _fitted(name: str, column: pa.Array, spec: Any, wrong: dict[int, str], notes: dict[int, str]) -> list[Any]:
    fit = _as_float if spec.dtype.is_floating else _as_int if spec.dtype.is_integer else _as_text
    is_text, is_list = example_types.kind_of(column.type) in ("bytes", None), example_types.is_list(column.type)
    has_words = fit is _as_text and pa.types.is_boolean(column.type)
    as_it_is = is_text or is_list or has_words or spec.shape.rank != 1
    values = (column if as_it_is else example_types.to_values(column)).to_pylist()
    fitted = [None if is_list and value is None else _try(fit, value) for value in values]
    for place, (value, one) in enumerate(zip(values, fitted, strict=True)):
        if isinstance(one, ValueError):
            shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            wrong.setdefault(place, f"column {name!r}: {shown!r} is not {_WORDS[fit]}")
        elif isinstance(one, int) and isinstance(value, float) and one != value:
            notes[place] = f"column {name!r}: {value} is rounded to {one}, because the model takes whole numbers"
    return fitted


def _try(fit: Callable[[Any], Any], value: Any) -> Any:
    """Return the converted value, or the ValueError of the conversion."""
    try:
        return [fit(one) for one in value] if isinstance(value, list) else fit(value)
    except ValueError as error:
        return error


def _as_float(value: Any) -> float:
    return math.nan if value is None else float(_truth(value))


def _as_int(value: Any) -> int | None:
    """Convert a value to an integer, rounding fractions."""
    value = _truth(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    return None if value is None else round(value) if isinstance(value, float) else int(value)


def _truth(value: Any) -> Any:
    """Convert the words true and false of a CSV to the numbers of the training data."""
    return _TRUTH.get(value.lower(), value) if isinstance(value, str) else value


def _as_text(value: Any) -> str | bytes:
    return "" if value is None else value if isinstance(value, bytes) else str(value)


_TRUTH = {"true": 1, "false": 0}
_WORDS: dict[Any, str] = {_as_float: "a number", _as_int: "a whole number", _as_text: "text"}
