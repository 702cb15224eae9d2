"""Rows in, sharded TFRecords out.

The ExampleGens load TFX on first use; `sources` and `ingest` never do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.example_gen.sources.csv import CsvOptions
from infeed.components.example_gen.sources.images import ImageOptions
from infeed.components.example_gen.sources.jsonl import JsonlOptions
from infeed.components.example_gen.sources.parquet import ParquetOptions
from infeed.components.example_gen.sources.text import TextOptions

if TYPE_CHECKING:
    from infeed.components.example_gen.columnar import AvroExampleGen, ParquetExampleGen, TFRecordExampleGen
    from infeed.components.example_gen.component import (
        BinaryExampleGen,
        CsvExampleGen,
        FileExampleGen,
        ImageExampleGen,
        JsonlExampleGen,
        TextExampleGen,
    )
    from infeed.components.example_gen.databases import BigQueryExampleGen, SqlExampleGen
    from infeed.components.example_gen.executor import FileExecutor
    from infeed.components.example_gen.sources.bigquery import BigQueryOptions

__all__ = [
    "AvroExampleGen",
    "BigQueryExampleGen",
    "BigQueryOptions",
    "BinaryExampleGen",
    "CsvExampleGen",
    "CsvOptions",
    "FileExampleGen",
    "FileExecutor",
    "ImageExampleGen",
    "ImageOptions",
    "IngestOptions",
    "JsonlExampleGen",
    "JsonlOptions",
    "ParquetExampleGen",
    "ParquetOptions",
    "ShardOptions",
    "SqlExampleGen",
    "TFRecordExampleGen",
    "TextExampleGen",
    "TextOptions",
]

_MODULES = {
    "AvroExampleGen": "columnar",
    "BigQueryExampleGen": "databases",
    "BigQueryOptions": "sources.bigquery",
    "BinaryExampleGen": "component",
    "CsvExampleGen": "component",
    "FileExampleGen": "component",
    "FileExecutor": "executor",
    "ImageExampleGen": "component",
    "JsonlExampleGen": "component",
    "TextExampleGen": "component",
    "ParquetExampleGen": "columnar",
    "SqlExampleGen": "databases",
    "TFRecordExampleGen": "columnar",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
