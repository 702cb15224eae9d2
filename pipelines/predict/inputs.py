"""Inputs of a prediction: images, rows of tables, or examples, in batches of cells that fit the model's types."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.options import MAX_ROW_MB
from infeed.components.evaluation.batches import batches_of, input_shards, known_columns
from infeed.components.evaluation.predictor import UNKNOWN, RawColumns, Signature, check_inputs, features_of
from infeed.components.example_gen.formats import kind_of_name
from infeed.components.example_gen.inputs import is_companion
from infeed.components.example_gen.sources.file_kinds import check_no_table
from infeed.pipelines.predict.cells import Column, fit_cells
from infeed.pipelines.predict.tables import InputTable, RowBlock, open_as_trained
from infeed.pipelines.project.sources import is_picture

IMAGE = "image/encoded"
_BATCH = 256
_BATCH_BYTES = 64 << 20  # of encoded images
_DEPTH = 8  # nested folders below a folder of images
_PICTURES = ("PNG", "JPEG", "BMP", "GIF")  # formats that an exported model decodes


class Batch(NamedTuple):
    """Consecutive inputs."""

    names: list[str]
    cells: Mapping[str, Any]  # cells of the inputs that fit the model, by column
    wrong: dict[int, str]  # error of each input that does not fit, by position
    rows: pa.RecordBatch | None = None  # all columns of the readable rows of a table; None for other inputs
    unread: frozenset[int] = frozenset()  # positions of inputs without a row in `rows`
    notes: Mapping[int, str] = MappingProxyType({})  # changes made to an input, by position


def check_exist(inputs: Iterable[str]) -> None:
    """Raise InfeedError if an input does not exist. Further inputs may be meant as the output."""
    for number, path in enumerate(inputs):
        if not files.exists(path):
            do = f"check the path{', or add --output before it, to write the predictions there' if number else ''}"
            raise InfeedError("there is no such file or folder", where=path, do=do)


def are_datasets(inputs: Sequence[str]) -> bool:
    """Report whether the inputs are datasets: folders of TFRecords, as ingest and TFX's ExampleGens write them.

    Raises InfeedError if only some of the inputs are datasets.
    """
    kinds = {
        path: files.is_folder(path) and any(name.startswith(names.SPLIT_FOLDER) for name in files.list_folders(path))
        for path in inputs
    }
    if len(set(kinds.values())) > 1:
        other = next(path for path, is_dataset in kinds.items() if not is_dataset)
        what = "this input is not a dataset of tf.Examples, but another input is"
        raise InfeedError(what, where=other, do="predict for datasets and for files in two commands")
    return any(kinds.values())


def examples(roots: Sequence[str], signature: Signature) -> Iterator[Batch]:
    """Yield the records of all splits of datasets in batches that fit `signature`."""
    shards = input_shards(roots, None)
    if not signature.takes_examples:
        check_inputs(signature, known_columns(shards), ", ".join(roots))
    for shard in shards:
        for batch in batches_of(shard, _BATCH):
            labels = [batch.where(row) for row in range(len(batch.records))]
            yield Batch(labels, features_of(batch, signature), {})


def pictures(inputs: Sequence[str]) -> Iterator[Batch]:
    """Yield images in batches of the column `image/encoded`."""
    # All inputs are checked before the first image is read.
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
    """Return the file itself, or all files below a folder that have the suffix of an image."""
    if not files.is_folder(given):
        if not is_picture(given) and kind_of_name(given):
            what = f"the model takes images, but this file is named like {kind_of_name(given)}"
            raise InfeedError(what, where=given, do="give PNG or JPEG files, or a folder of them")
        return [given]
    below = [file.path for file in files.list_files(given, depth=_DEPTH) if not files.is_hidden(file.path)]
    dangling = [one.path for one in files.find_irregular(given, "/".join("*" * (_DEPTH + 1))) if one.is_link]
    found = sorted(path for path in [*below, *dangling] if is_picture(path))
    if not found:
        raise InfeedError("the folder has no images", where=given, do="give a folder of PNG or JPEG files")
    return found


def _read(path: str) -> bytes | str:
    """Return the bytes of an image, or the text of the error."""
    from PIL import UnidentifiedImageError

    from infeed.components.example_gen.sources.image_codec import open_image

    try:
        data = files.read_bytes(path)
        with open_image(io.BytesIO(data)) as image:
            kind = image.format
            size = image.width * image.height * len(image.getbands()) >> 20
    except UnidentifiedImageError:
        return "it is not an image"
    except InfeedError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        return f"it cannot be read: {error}"
    if size >= MAX_ROW_MB:
        return f"its pixels take {size:,} MB, more than {MAX_ROW_MB}; scale it down"
    return data if kind in _PICTURES else f"it is a {kind} image; convert it to PNG or JPEG"


def tables_of(given: str) -> list[str]:
    """Return the file itself, or all files in the folder."""
    if not files.is_folder(given):
        return [given]
    check_no_table(given)
    found = [file.path for file in files.glob(given, "*") if not is_companion(file.path)]
    if not found:
        raise InfeedError("the folder has no files", where=given, do="give files, or a folder of them")
    return found


def open_tables(
    inputs: Sequence[str],
    features: Iterable[str],
    settings: Mapping[str, Any],
    trained: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[InputTable]:
    """Open files and folders of files; for the options see `open_as_trained`.

    Raises InfeedError if an input is an image, cannot be opened, or has no column that the model needs.
    """
    needed = sorted(features)
    tables = []
    for path in (path for given in inputs for path in tables_of(given)):
        if is_picture(path):
            do = f"give a table, such as a CSV or Parquet file, with the columns {', '.join(needed)}"
            raise InfeedError("the model takes the rows of a table, but this is an image", where=path, do=do)
        tables.append(open_as_trained(path, settings, trained, needed))
        tables[-1].check_columns(needed)
    return tables


def rows(
    tables: Iterable[InputTable],
    specs: Mapping[str, Any],
    exact: Collection[str] = (),
    known: RawColumns = UNKNOWN,
) -> Iterator[Batch]:
    """Yield batches of the columns of `specs`, which are TensorSpecs, converted as `fit_cells` does.

    Raises InfeedError if a table has no rows.
    """
    for table in tables:
        start = 1  # number of the block's first row
        for block in table.blocks():
            numbers = range(start, start + block.rows.num_rows + len(block.bad))
            yield from _batches(table, block, numbers, specs, exact, known)
            start = numbers.stop
        if start == 1:
            raise InfeedError("the table has no rows", where=table.path, do="give a file with at least one row")


def _batches(
    table: InputTable,
    block: RowBlock,
    numbers: range,
    specs: Mapping[str, Any],
    exact: Collection[str],
    known: RawColumns,
) -> Iterator[Batch]:
    good = 0
    for start in range(0, len(numbers), _BATCH):
        some = range(start, min(start + _BATCH, len(numbers)))
        bad = {place - start: f"line {row.line}: {row.reason}" for place in some if (row := block.bad.get(place))}
        there = [place for place in range(len(some)) if place not in bad]
        whole = ((name, block.cells[name]) for name in specs)
        columns: dict[str, Column] = {
            name: one[good : good + len(there)] if isinstance(one, list) else one.slice(good, len(there))
            for name, one in whole
        }
        cells = fit_cells(columns, len(there), specs, table.texts, exact, known)
        yield Batch(
            [f"{table.path}, row {number}" for number in numbers[start : some.stop]],
            cells.columns,
            bad | {there[place]: why for place, why in cells.wrong.items()},
            block.rows.slice(good, len(there)),
            frozenset(bad),
            {there[place]: note for place, note in cells.notes.items()},
        )
        good += len(there)
