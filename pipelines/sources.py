"""The kinds of input that a pipeline is made for, and tables of any of them read here as its ExampleGen reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import pyarrow as pa

from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import BadRows
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.ingest import Input

Source = Literal["csv", "jsonl", "parquet", "avro", "images"]

# By the names that `infeed.components` and, for tables, `infeed ingest --format` know.
EXAMPLE_GENS: Mapping[Source, str] = {
    "csv": "CsvExampleGen",
    "jsonl": "JsonlExampleGen",
    "parquet": "ParquetExampleGen",
    "avro": "AvroExampleGen",
    "images": "ImageExampleGen",
}


def source_of(data: str, source: Source) -> Source:
    """The kind of table that the names of the files of `data` show; `source` where they show none, and for images."""
    if source == "images" or not files.exists(data):
        return source
    try:
        shown = guess_format(data)
    except InfeedError:
        return source
    return cast(Source, shown) if shown in EXAMPLE_GENS and shown != "images" else source


def split_data(data: str) -> tuple[str, str | None]:
    """The folder and the name of a file, as TFX takes them; a folder has no name. `data` may be gs://..."""
    if files.is_folder(data):
        return data, None
    folder, name = os.path.split(data)
    return folder, name


def open_table(path: str, source: Source, settings: Mapping[str, Any]) -> Input:
    """A file, or all files of a folder.

    Args:
      path: a local one, or gs://...
      source: kind of the files.
      settings: what the kind can be told of them, such as the delimiter of a CSV.

    Raises:
      InfeedError: no file, or one that is not of that kind.
    """
    there = files.exists(path)
    if not there or (files.is_folder(path) and not files.glob(path, "*")):
        raise InfeedError(
            "there is no file to read" if there else "there is no such file or folder",
            where=path,
            do=f"Give a file of the format {source}, or a folder of such files.",
        )
    return open_source(path, source, IngestOptions(), settings)


def blocks(table: Input) -> Iterator[pa.RecordBatch]:
    """All rows in order, some thousands at a time."""
    for task in table.tasks:
        yield from table.read(task.what, bad_rows=BadRows())
