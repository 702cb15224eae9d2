"""Transformed training rows of a project, and explanations of features, for `infeed transform`.

The constants equal the constants of a run. `explain` shows their inputs and the distribution of the outputs.
"""

from __future__ import annotations

import heapq
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.base.schema import nearest
from infeed.components.dataset.example_types import kind_of
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.chosen import choose_columns, choose_rows, place_of
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.spills import process_batch
from infeed.components.example_gen.stratified import stratified_rows
from infeed.components.transform.analyses import Analysis, ByKey, Frequencies, Moments, Quantiles
from infeed.components.transform.columns import Found, analyze, cleaned_stream, reading
from infeed.components.transform.feature import Feature, Tables
from infeed.components.transform.groups import outputs_of
from infeed.components.transform.kinds.encode import Bucketize, Looked
from infeed.components.transform.kinds.label import Label
from infeed.pipelines.config import TRAIN, PipelineConfig
from infeed.pipelines.project.sources import open_data

_DTYPES = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}
_HEAD = 10  # entries shown of a vocabulary, or of keys
_ROWS = 3  # shown rows without a value
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
Fact = tuple[str, str]


class Block(NamedTuple):
    """Some training rows: row numbers in the data, from 1, columns, and tensors by column."""

    numbers: list[int]
    columns: pa.RecordBatch
    tensors: Mapping[str, tf.SparseTensor]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of the split train. Each iteration reads the data again."""

    source: OpenedSource
    ingest: IngestOptions
    buckets: Buckets | None  # shares of the splits; None if files name the splits
    splits: int  # number of splits

    @classmethod
    def of(cls, config: PipelineConfig) -> TrainingRows:
        """Open the data of a project."""
        buckets = Buckets(tuple(config.splits.items())) if config.splits else None
        return cls(open_data(config, every=True), config.ingest, buckets, len({*config.patterns, *config.splits}))

    def __iter__(self) -> Iterator[Mapping[str, tf.SparseTensor]]:
        """Yield batches of all columns for an analysis."""
        return (block.tensors for block in self.blocks())

    def blocks(self) -> Iterator[Block]:
        """Yield training rows in the order of the data."""
        read, bad_rows = 0, BadRows(self.ingest.on_bad_row, self.ingest.bad_row_limit)
        kinds = {field.name: kind_of(field.type) for field in self.source.schema}
        spec = {name: tf.io.VarLenFeature(_DTYPES[kind]) for name, kind in kinds.items() if kind}
        for task in self.source.tasks:
            for number, batch in enumerate(self.source.read(task.payload, bad_rows=bad_rows), start=1):
                chosen = choose_rows(batch, self.ingest, place_of(task.payload), bad_rows)
                made = process_batch(
                    chosen, task.split, buckets=self.buckets, options=self.ingest, serialized=self.source.serialized
                )
                rows = made.rows.get(TRAIN)
                if None in made.rows:
                    rows = self._stratified.get((task.order, number))
                if rows is not None and len(rows):
                    taken = pa.array(rows)
                    parsed = tf.io.parse_example(made.examples.take(taken).to_pylist(), spec)
                    yield Block((rows + read + 1).tolist(), choose_columns(chosen, self.ingest).take(taken), parsed)
                read += batch.num_rows

    @cached_property
    def _stratified(self) -> Mapping[tuple[int, int], npt.NDArray[np.int64]]:
        """Training rows of each block, by task and batch, if the splits are stratified."""
        assert self.buckets, "stratified rows need shares"
        return stratified_rows(self.source, self.splits, self.buckets, self.ingest, TRAIN)


@dataclass(frozen=True)
class ShownRow:
    """Row number in the data, from 1, raw values by column, and transformed values by feature."""

    number: int
    raw: Mapping[str, Any]
    transformed: Mapping[str, Any]


@dataclass(frozen=True)
class Analyzed:
    """Features of a project, and the analyses of its training rows."""

    features: Sequence[Feature]
    rows: TrainingRows
    found: Found

    @classmethod
    def of(cls, config: PipelineConfig) -> Analyzed:
        """Analyze the training rows. Raises InfeedError if the rows cannot be read, or do not fit a feature."""
        if not config.features:
            what = "the project declares no features"
            do = "run the project, and look at the outputs of the function in the statistics of Transform"
            raise InfeedError(what, where=config.preprocessing_fn or "setting features", do=do)
        rows = TrainingRows.of(config)
        return cls(config.features, rows, analyze(config.features, reading(rows), {}))

    def feature(self, name: str) -> Feature:
        """Return the feature of this name, or the first feature of the column of this name."""
        named = [feature for feature in self.features if name == feature.output_name]
        if found := named or [feature for feature in self.features if name in feature.columns]:
            return found[0]
        names = [feature.output_name for feature in self.features]
        do = f"name one of {', '.join(names)}"
        raise InfeedError(f"there is no feature {name!r}{nearest(name, names)}", where="--why", do=do)

    def outputs(self, features: Sequence[Feature]) -> Iterator[Mapping[str, Any]]:
        """Yield the outputs of features for all rows, batch by batch."""
        with tempfile.TemporaryDirectory() as folder:
            for raw in self.rows:
                yield outputs_of(features, raw, self.found, Tables(folder))

    def first(self, count: int) -> list[ShownRow]:
        """Return the first training rows."""
        shown: list[ShownRow] = []
        with tempfile.TemporaryDirectory() as folder:
            for block in self.rows.blocks():
                some = min(count - len(shown), len(block.numbers))
                raw = {
                    name: tf.sparse.slice(tensor, [0, 0], [some, tensor.shape[1]])
                    for name, tensor in block.tensors.items()
                }
                made = outputs_of(self.features, raw, self.found, Tables(folder))
                values = {name: plain(tensor) for name, tensor in made.items()}
                rows = zip(block.numbers[:some], block.columns.slice(0, some).to_pylist(), strict=True)
                shown += [
                    ShownRow(number, row, {name: of_rows[place] for name, of_rows in values.items()})
                    for place, (number, row) in enumerate(rows)
                ]
                if len(shown) == count:
                    break
        return shown


def plain(tensor: Any) -> list[Any]:
    """Return the rows of a feature: single values, or lists if a row may have several."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_list()  # type: ignore[no-any-return]
    values = tensor.numpy()
    one = values.ndim == 2 and values.shape[1] == 1
    return (values[:, 0] if one else values).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Share:
    """Number of training rows, or values of lists, with an index; `of` is the meaning of the index."""

    index: int
    of: str
    count: int
    share: float


@dataclass(frozen=True)
class Why:
    """Explanation of a feature: facts as (name, text), and the shares of its indices, if any."""

    feature: str
    facts: Sequence[Fact]
    shares: Sequence[Share]


def explain(analyzed: Analyzed, name: str) -> Why:
    """Explain a feature. Reads the rows twice: for extreme values, and for the outputs.

    Raises InfeedError if there is no such feature.
    """
    feature = analyzed.feature(name)
    found = [analyzed.found[feature.stream, need] for need in feature.needs]
    facts: list[Fact] = []
    for number, step in enumerate(feature.steps):  # of cleaning, which precedes the feature's own analyses
        facts.append((f"step {number + 1}", str(step)))
        for column, need in itertools.product(feature.columns, step.needs):
            stream = cleaned_stream(column, feature.steps[:number], feature.values != "one")
            facts += _of_analysis(analyzed.found[stream, need])
    for analysis in found:
        facts += _of_analysis(analysis)
    if hasattr(feature, "constants") and found and not isinstance(found[0], ByKey):
        center, width, *_ = feature.constants(found[0])
        facts.append(("scaled by", f"(value - {center:.6g}) / {width:.6g}" if width else "nothing: it is always 0"))
    facts += [fact for column in feature.columns for fact in _rows_of(analyzed, column)]
    result, shares = _of_outputs(analyzed, feature, found)
    return Why(f"{feature.output_name}: {feature}", [*facts, *result], shares)


def _of_analysis(analysis: Any) -> Iterator[Fact]:
    if isinstance(analysis, ByKey):
        yield from _of_analysis(analysis.overall)
        yield "keys", f"{len(analysis.of):,}"
        largest = heapq.nsmallest(_HEAD, analysis.of.items(), key=lambda pair: (-pair[1].count, pair[0]))
        for key, one in largest:
            constants = ", ".join(f"{name} {words}" for name, words in _details(one))
            yield f"  {key.decode('utf-8', 'replace')}", f"{one.count:,} values; {constants}"
        return
    rows = f"{analysis.count:,} values of {analysis.rows:,} training rows"
    share = analysis.missing / max(1, analysis.count + analysis.missing)
    yield "made of", f"{rows}; {analysis.missing:,} missing ({share:.1%})"
    yield from _details(analysis)


def _details(analysis: Analysis) -> Iterator[Fact]:
    if isinstance(analysis, Moments):
        yield "mean", f"{analysis.mean:.6g}"
        yield "standard deviation", f"{analysis.deviation:.6g}"
        yield "range", f"{analysis.least:.6g} to {analysis.most:.6g}" if analysis.count else "none"
    elif isinstance(analysis, Quantiles):
        names = ("least", "lower quartile", "median", "upper quartile", "greatest")
        yield from ((name, f"{value:.6g}") for name, value in zip(names, analysis.at(_QUARTERS), strict=True))
    elif isinstance(analysis, Frequencies):
        yield "different values", f"{len(analysis.counts):,}"


def _rows_of(analyzed: Analyzed, column: str) -> Iterator[Fact]:
    """Yield the rows with the least and the greatest number, and the first rows without a value."""
    least: tuple[float, int] | None = None
    most: tuple[float, int] | None = None
    missing: list[int] = []
    for block in analyzed.rows.blocks():
        values = block.columns.column(block.columns.schema.get_field_index(column))
        missing += [block.numbers[place] for place in np.flatnonzero(values.is_null())[: _ROWS - len(missing)]]
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            numbers = values.cast(pa.float64()).fill_null(float("nan")).to_numpy()
            if np.isfinite(numbers).any():
                finite = np.where(np.isfinite(numbers), numbers, np.nan)
                low, high = int(np.nanargmin(finite)), int(np.nanargmax(finite))
                least = min(least or (np.inf, 0), (float(numbers[low]), block.numbers[low]))
                most = max(most or (-np.inf, 0), (float(numbers[high]), block.numbers[high]))
    if least and most:
        yield "least in", f"row {least[1]:,}: {least[0]:.6g}"
        yield "greatest in", f"row {most[1]:,}: {most[0]:.6g}"
    if missing:
        yield "first missing in", f"row {', '.join(f'{number:,}' for number in missing)}"


def _of_outputs(analyzed: Analyzed, feature: Feature, found: Sequence[Any]) -> tuple[list[Fact], list[Share]]:
    counts: Counter[int] = Counter()
    moments = Moments()
    for outputs in analyzed.outputs([feature]):
        tensor = outputs[feature.output_name]
        values = tf.reshape(getattr(tensor, "flat_values", tensor), [-1]).numpy()
        if values.dtype == np.int64:
            counts.update(dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True)))
        elif values.dtype == np.float32:
            moments.add(values[np.isfinite(values)])
    if not counts:
        becomes = f"mean {moments.mean:.6g}, standard deviation {moments.deviation:.6g}"
        return [("becomes", f"{becomes}, {moments.least:.6g} to {moments.most:.6g}")] if moments.count else [], []
    total, meanings = counts.total(), _meanings(feature, found)
    ordered = sorted(counts.items()) if isinstance(feature, Bucketize) else counts.most_common(_HEAD)
    shares = [Share(index, meanings.get(index, ""), count, count / total) for index, count in ordered]
    return [("becomes", f"{len(counts):,} different indices")], shares


def _meanings(feature: Feature, found: Sequence[Any]) -> dict[int, str]:
    """Map each index to its meaning."""
    words: Sequence[bytes]
    if isinstance(feature, Bucketize):
        if not feature.edges and isinstance(found[0], ByKey):
            return {0: "missing"}
        buckets = feature.cardinality() - 1
        edges = feature.edges or found[0].at([number / buckets for number in range(1, buckets)])
        shown = [f"{edge:.6g}" for edge in edges]
        between = [f"{low} to {high}" for low, high in itertools.pairwise(shown)]
        ranges = [f"below {shown[0]}", *between, f"{shown[-1]} and above"]
        return {0: "missing"} | dict(enumerate(ranges, 1))
    if isinstance(feature, Label) and feature.task == "classification":
        none, start, words = {-1: "none of the classes"}, 0, feature.classes(found[0])
    elif isinstance(feature, Looked) and isinstance(found[0], Frequencies):
        none, start, words = {0: "missing"}, 1, feature.words(found[0])
    else:
        return {}
    return none | {place: word.decode("utf-8", "replace") for place, word in enumerate(words, start)}
