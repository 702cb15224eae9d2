"""Why a feature has the values that it has: its constants, what they were made of, and what becomes of all rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from infeed.components import schema
from infeed.components.transform.analyses import Analysis, ByKey, Frequencies, Moments, Quantiles
from infeed.components.transform.columns import cleaned_stream
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.encode import Bucketize, Looked
from infeed.components.transform.kinds.label import Label
from infeed.pipelines.transform.preview import Analysed

_HEAD = 10  # of a vocabulary, of keys
_ROWS = 3  # without a value
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
Fact = tuple[str, str]


@dataclass(frozen=True)
class Share:
    """How many training rows, or values of lists, become an index; `of` says what that stands for."""

    index: int
    of: str
    count: int
    share: float


@dataclass(frozen=True)
class Why:
    """Of one feature: facts as (name, words), and the shares of its indices where it makes some."""

    feature: str
    facts: Sequence[Fact]
    shares: Sequence[Share]


def explain(analysed: Analysed, name: str) -> Why:
    """Reads the rows twice more: for those that stand out, and for what becomes of all.

    Raises:
      InfeedError: there is no such feature.
    """
    feature = analysed.feature(name)
    found = [analysed.found[feature.stream, need] for need in feature.needs]
    facts = [*_of_steps(analysed, feature), *itertools.chain.from_iterable(map(_of_analysis, found))]
    if hasattr(feature, "constants") and found and not isinstance(found[0], ByKey):
        centre, width, *_ = feature.constants(found[0])
        facts.append(("scaled by", f"(value - {centre:.6g}) / {width:.6g}" if width else "nothing: it is always 0"))
    facts += [fact for column in feature.columns for fact in _rows_of(analysed, column)]
    result, shares = _of_outputs(analysed, feature, found)
    return Why(f"{feature.output_name}: {_in_words(feature)}", [*facts, *result], shares)


def _in_words(step: Any) -> str:
    """`ZScore(column='age', fill=0.0)`: what it is told, without what it would be anyway."""
    told = {name: value for name, value in schema.to_plain(step, defaults=False).items() if name != "kind"}
    return f"{type(step).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


def _of_steps(analysed: Analysed, feature: Feature) -> Iterator[Fact]:
    """What the steps of cleaning had to know, in front of the feature's own."""
    for number, step in enumerate(feature.steps):
        yield f"step {number + 1}", _in_words(step)
        stream = cleaned_stream(feature.column, feature.steps[:number], feature.values != "one")
        for need in step.needs:
            yield from _of_analysis(analysed.found[stream, need])


def _of_analysis(analysis: Any) -> Iterator[Fact]:
    if isinstance(analysis, ByKey):
        yield from _of_analysis(analysis.overall)
        yield "keys", f"{len(analysis.of):,}"
        largest = sorted(analysis.of.items(), key=lambda pair: (-pair[1].count, pair[0]))[:_HEAD]
        for key, one in largest:
            yield f"  {key.decode('utf-8', 'replace')}", f"{one.count:,} values; {_constants(one)}"
        return
    yield "made of", _counted(analysis)
    yield from _details(analysis)


def _counted(analysis: Analysis) -> str:
    rows = f"{analysis.count:,} values of {analysis.rows:,} training rows"
    share = analysis.missing / max(1, analysis.count + analysis.missing)
    return f"{rows}; {analysis.missing:,} missing ({share:.1%})"


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


def _constants(analysis: Analysis) -> str:
    return ", ".join(f"{name} {words}" for name, words in _details(analysis))


def _rows_of(analysed: Analysed, column: str) -> Iterator[Fact]:
    """The rows that hold the least and the greatest number, and the first without any value."""
    least: tuple[float, int] | None = None
    most: tuple[float, int] | None = None
    missing: list[int] = []
    for block in analysed.rows.blocks():
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


def _of_outputs(analysed: Analysed, feature: Feature, found: Sequence[Any]) -> tuple[list[Fact], list[Share]]:
    counts: Counter[int] = Counter()
    moments = Moments()
    for outputs in analysed.outputs([feature]):
        tensor = outputs[feature.output_name]
        values = tf.reshape(getattr(tensor, "flat_values", tensor), [-1]).numpy()
        if values.dtype == np.int64:
            counts.update(dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True)))
        elif values.dtype == np.float32:
            moments.add(values[np.isfinite(values)])
    if not counts:
        becomes = f"mean {moments.mean:.6g}, standard deviation {moments.deviation:.6g}"
        return [("becomes", f"{becomes}, {moments.least:.6g} to {moments.most:.6g}")] if moments.count else [], []
    total = sum(counts.values())
    meanings = _meanings(feature, found)
    ordered = sorted(counts.items()) if isinstance(feature, Bucketize) else counts.most_common(_HEAD)
    shares = [Share(index, meanings.get(index, ""), count, count / total) for index, count in ordered]
    return [("becomes", f"{len(counts):,} different indices")], shares


def _meanings(feature: Feature, found: Sequence[Any]) -> dict[int, str]:
    """Index -> what it stands for."""
    if isinstance(feature, Bucketize):
        return _ranges(feature, found)
    if isinstance(feature, Label) and feature.task == "classification":
        return {-1: "none of the classes"} | _numbered(feature.classes(found[0]), 0)
    if isinstance(feature, Looked) and isinstance(found[0], Frequencies):
        words = feature.words(found[0])
        return {0: "missing"} | _numbered(words, 1)
    return {}


def _numbered(words: Sequence[bytes], start: int) -> dict[int, str]:
    return {place: word.decode("utf-8", "replace") for place, word in enumerate(words, start)}


def _ranges(feature: Bucketize, found: Sequence[Any]) -> dict[int, str]:
    buckets = feature.cardinality() - 1
    if not feature.edges and isinstance(found[0], ByKey):
        return {0: "missing"}
    edges = feature.edges or found[0].at([number / buckets for number in range(1, buckets)])
    words = [f"{edge:.6g}" for edge in edges]
    ranges = [f"below {words[0]}", *(f"{low} to {high}" for low, high in itertools.pairwise(words))]
    ranges.append(f"{words[-1]} and above")
    return {0: "missing"} | dict(enumerate(ranges, 1))
