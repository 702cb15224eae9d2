"""What a pipeline author imports: `from infeed.components import CsvExampleGen, Transform, Trainer, InputReport`.

A name is imported when it is first asked for: the components need TFX, which takes many seconds to load, the options,
features and errors do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infeed.components.dataset.options import Balance as Balance
    from infeed.components.dataset.options import IngestOptions as IngestOptions
    from infeed.components.dataset.shards import ShardOptions as ShardOptions
    from infeed.components.dataset.splits import ByColumns as ByColumns
    from infeed.components.dataset.splits import ByLabel as ByLabel
    from infeed.components.dataset.splits import ByName as ByName
    from infeed.components.dataset.splits import ByTime as ByTime
    from infeed.components.errors import InfeedError as InfeedError
    from infeed.components.example_gen.columnar import AvroExampleGen as AvroExampleGen
    from infeed.components.example_gen.columnar import ParquetExampleGen as ParquetExampleGen
    from infeed.components.example_gen.columnar import TFRecordExampleGen as TFRecordExampleGen
    from infeed.components.example_gen.component import BinaryExampleGen as BinaryExampleGen
    from infeed.components.example_gen.component import CsvExampleGen as CsvExampleGen
    from infeed.components.example_gen.component import FileExampleGen as FileExampleGen
    from infeed.components.example_gen.component import ImageExampleGen as ImageExampleGen
    from infeed.components.example_gen.component import JsonlExampleGen as JsonlExampleGen
    from infeed.components.example_gen.component import TextExampleGen as TextExampleGen
    from infeed.components.example_gen.databases import BigQueryExampleGen as BigQueryExampleGen
    from infeed.components.example_gen.databases import SqlExampleGen as SqlExampleGen
    from infeed.components.example_gen.executor import FileExecutor as FileExecutor
    from infeed.components.example_gen.sources.bigquery import BigQueryOptions as BigQueryOptions
    from infeed.components.example_gen.sources.csv import CsvOptions as CsvOptions
    from infeed.components.example_gen.sources.images import ImageOptions as ImageOptions
    from infeed.components.example_gen.sources.jsonl import JsonlOptions as JsonlOptions
    from infeed.components.example_gen.sources.parquet import ParquetOptions as ParquetOptions
    from infeed.components.example_gen.sources.text import TextOptions as TextOptions
    from infeed.components.feed.inputs import Input as Input
    from infeed.components.feed.inputs import InputSpec as InputSpec
    from infeed.components.feed.options import Augment as Augment
    from infeed.components.feed.options import FeedOptions as FeedOptions
    from infeed.components.feed.options import Normalise as Normalise
    from infeed.components.input_report.component import InputReport as InputReport
    from infeed.components.trainer.callbacks import CallbackSpec as CallbackSpec
    from infeed.components.trainer.component import Trainer as Trainer
    from infeed.components.trainer.model import ModelSpec as ModelSpec
    from infeed.components.trainer.options import TrainOptions as TrainOptions
    from infeed.components.trainer.tuner import SearchOptions as SearchOptions
    from infeed.components.trainer.tuner import Tuner as Tuner
    from infeed.components.transform.component import Transform as Transform
    from infeed.components.transform.features import Bucketize as Bucketize
    from infeed.components.transform.features import DecodeImage as DecodeImage
    from infeed.components.transform.features import Feature as Feature
    from infeed.components.transform.features import Fill as Fill
    from infeed.components.transform.features import Label as Label
    from infeed.components.transform.features import Vocabulary as Vocabulary
    from infeed.components.transform.features import ZScore as ZScore

_NAMES = {
    "dataset.options": ("Balance", "IngestOptions"),
    "dataset.shards": ("ShardOptions",),
    "dataset.splits": ("ByColumns", "ByLabel", "ByName", "ByTime"),
    "errors": ("InfeedError",),
    "example_gen.columnar": ("AvroExampleGen", "ParquetExampleGen", "TFRecordExampleGen"),
    "example_gen.component": (
        "BinaryExampleGen",
        "CsvExampleGen",
        "FileExampleGen",
        "ImageExampleGen",
        "JsonlExampleGen",
        "TextExampleGen",
    ),
    "example_gen.databases": ("BigQueryExampleGen", "SqlExampleGen"),
    "example_gen.sources.bigquery": ("BigQueryOptions",),
    "example_gen.executor": ("FileExecutor",),
    "example_gen.sources.csv": ("CsvOptions",),
    "example_gen.sources.images": ("ImageOptions",),
    "example_gen.sources.jsonl": ("JsonlOptions",),
    "example_gen.sources.parquet": ("ParquetOptions",),
    "example_gen.sources.text": ("TextOptions",),
    "feed.inputs": ("Input", "InputSpec"),
    "feed.options": ("Augment", "FeedOptions", "Normalise"),
    "input_report.component": ("InputReport",),
    "trainer.callbacks": ("CallbackSpec",),
    "trainer.component": ("Trainer",),
    "trainer.model": ("ModelSpec",),
    "trainer.options": ("TrainOptions",),
    "trainer.tuner": ("SearchOptions", "Tuner"),
    "transform.component": ("Transform",),
    "transform.features": ("Bucketize", "DecodeImage", "Feature", "Fill", "Label", "Vocabulary", "ZScore"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
