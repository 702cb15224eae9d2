"""Rows in, sharded TFRecords out.

`CsvExampleGen` and `ImageExampleGen` load TFX on first use; `sources` and `ingest` never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.example_gen.sources.csv import CsvOptions

if TYPE_CHECKING:
    from infeed.components.example_gen.component import CsvExampleGen, ImageExampleGen

__all__ = ["CsvExampleGen", "CsvOptions", "ImageExampleGen", "IngestOptions", "ShardOptions"]


def __getattr__(name: str) -> Any:
    if name in ("CsvExampleGen", "ImageExampleGen"):
        from infeed.components.example_gen import component

        return getattr(component, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
