"""What declared features make of a project's first training rows, without a run: constants of all rows, then a few.

The rows are read, encoded and split as ExampleGen does it, and never written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import tensorflow as tf

from infeed.components.dataset.example_types import kind_of
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.errors import InfeedError
from infeed.components.example_gen.formats import open_patterns, open_source
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.spills import process_batch
from infeed.components.schema import nearest
from infeed.components.transform.analysis import analyse
from infeed.components.transform.columns import Found, outputs_of
from infeed.components.transform.feature import Feature
from infeed.components.transform.tables import GraphTables
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.sources import open_table

TRAIN = "train"
_BUCKETS = Buckets(((TRAIN, 2), ("eval", 1)))  # as TFX splits where nobody says otherwise
_DTYPES = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}


class Block(NamedTuple):
    """Some training rows: their numbers in the data from 1, their columns, and the same as tensors by column."""

    numbers: list[int]
    columns: pa.RecordBatch
    tensors: Mapping[str, tf.SparseTensor]


@dataclass(frozen=True)
class TrainingRows:
    """The rows of the split train; going through them reads the data again."""

    source: OpenedSource
    ingest: IngestOptions

    @classmethod
    def of(cls, config: PipelineConfig) -> TrainingRows:
        """Opens the data that a project names."""
        if config.splits:
            patterns: dict[str | None, str] = {split: pattern for split, pattern in config.splits.items()}  # noqa: C416 - wider keys
            source = open_patterns(config.source, config.data, patterns, config.ingest, config.source_options)
        elif config.source == "images":
            source = open_source(config.data, config.source, config.ingest, config.source_options)
        else:
            source = open_table(config.data, config.source, config.source_options, config.ingest)
        return cls(source, config.ingest)

    def __iter__(self) -> Iterator[Mapping[str, tf.SparseTensor]]:
        """Batches of all columns, as an analysis takes them."""
        return (block.tensors for block in self.blocks())

    def blocks(self) -> Iterator[Block]:
        """Training rows in the order of the data."""
        read, bad_rows = 0, BadRows(self.ingest.on_bad_row, self.ingest.bad_row_limit)
        for task in self.source.tasks:
            for batch in self.source.read(task.payload, bad_rows=bad_rows):
                made = process_batch(
                    batch, task.split, buckets=_BUCKETS, options=self.ingest, serialized=self.source.serialized
                )
                rows = made.rows.get(TRAIN)
                if rows is not None and len(rows):
                    parsed = tf.io.parse_example(made.examples.take(pa.array(rows)).to_pylist(), self._spec)
                    yield Block((rows + read + 1).tolist(), made.written.take(pa.array(rows)), parsed)
                read += batch.num_rows

    @property
    def _spec(self) -> dict[str, Any]:
        kinds = {field.name: kind_of(field.type) for field in self.source.schema}
        return {name: tf.io.VarLenFeature(_DTYPES[kind]) for name, kind in kinds.items() if kind}


@dataclass(frozen=True)
class ShownRow:
    """A row: its number in the data from 1, the raw values by column, and the transformed ones by feature."""

    number: int
    raw: Mapping[str, Any]
    transformed: Mapping[str, Any]


@dataclass(frozen=True)
class Analysed:
    """The features of a project, and what they had to know of its training rows."""

    features: Sequence[Feature]
    rows: TrainingRows
    found: Found

    @classmethod
    def of(cls, config: PipelineConfig) -> Analysed:
        """Reads the data.

        Raises:
          InfeedError: a feature cannot be made of the rows, or they cannot be read.
        """
        if not config.features:
            raise InfeedError(
                "the project declares no features",
                where=config.preprocessing_fn or "setting features",
                do="run it, and look at what the function makes in the statistics of Transform",
            )
        rows = TrainingRows.of(config)
        return cls(config.features, rows, analyse(config.features, rows, {}))

    def feature(self, name: str) -> Feature:
        """The feature of that name; or, of several of a column, the first."""
        for feature in self.features:
            if name == feature.output_name:
                return feature
        for feature in self.features:
            if name in feature.columns:
                return feature
        names = [feature.output_name for feature in self.features]
        raise InfeedError(
            f"there is no feature {name!r}{nearest(name, names)}",
            where="--why",
            do=f"name one of {', '.join(names)}",
        )

    def outputs(self, features: Sequence[Feature]) -> Iterator[Mapping[str, Any]]:
        """What some of the features make of all rows, batch by batch."""
        with tempfile.TemporaryDirectory() as folder:
            for raw in self.rows:
                yield outputs_of(features, raw, self.found, GraphTables(folder))

    def first(self, count: int) -> list[ShownRow]:
        """The first training rows."""
        shown: list[ShownRow] = []
        with tempfile.TemporaryDirectory() as folder:
            for block in self.rows.blocks():
                some = min(count - len(shown), len(block.numbers))
                raw = {
                    name: tf.sparse.slice(tensor, [0, 0], [some, tensor.shape[1]])
                    for name, tensor in block.tensors.items()
                }
                made = outputs_of(self.features, raw, self.found, GraphTables(folder))
                columns = block.columns.slice(0, some).to_pydict()
                values = {name: plain(tensor) for name, tensor in made.items()}
                shown += [
                    ShownRow(number, _row(columns, place), _row(values, place))
                    for place, number in enumerate(block.numbers[:some])
                ]
                if len(shown) == count:
                    break
        return shown


def _row(columns: Mapping[str, Sequence[Any]], place: int) -> dict[str, Any]:
    return {name: values[place] for name, values in columns.items()}


def plain(tensor: Any) -> list[Any]:
    """The rows of a feature: the value where each has one, else the list."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_list()  # type: ignore[no-any-return]
    values = tensor.numpy()
    one = values.ndim == 2 and values.shape[1] == 1
    rows: list[Any] = (values[:, 0] if one else values).tolist()
    return rows
