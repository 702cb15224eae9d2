"""What features must know of the training rows: from the dataset's own statistics, else from passes over the rows.

All features share each pass, and every column is cleaned in it by the very functions that the graph uses. A feature
whose cleaning needs no constants takes one pass; each step that does takes one more, unless it stands first: that of a
raw column is known from the statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.transform.analyses import ByKey
from infeed.components.transform.columns import BatchColumns, Need, Raw, cleaned_stream
from infeed.components.transform.feature import Clean, Feature, FlatColumn

Batches: TypeAlias = Iterable[Mapping[str, Raw]]  # which can be gone through several times
_Make: TypeAlias = partial[FlatColumn]  # of the columns of a batch


def analyse(features: Sequence[Feature], batches: Batches, known: Mapping[Need, Any]) -> dict[Need, Any]:
    """All that the features need.

    Args:
      batches: parsed raw examples; gone through as often as is needed, not at all where everything is known.
      known: what the dataset's statistics say already.
    """
    found = dict(known)
    while pending := _pending(features, found):
        found |= _pass(pending, batches, found)
    return found


def raw_needs(features: Sequence[Feature]) -> dict[Need, str]:
    """What is to be known of raw columns as they are, with the column."""
    needs: dict[Need, str] = {}
    for feature in features:
        if feature.analyses_raw:
            needs |= {(feature.stream, need): feature.column for need in feature.needs}
        for column in feature.columns if feature.steps else ():
            stream = cleaned_stream(column, (), feature.values != "one")
            needs |= {(stream, need): column for need in feature.steps[0].needs}
    return needs


def _pending(features: Sequence[Feature], found: Mapping[Need, Any]) -> dict[Need, _Make]:
    """What can be analysed next, and how its values are made of a batch."""
    return {need: make for feature in features for need, make in _next(feature, found)}


def _next(feature: Feature, found: Mapping[Need, Any]) -> list[tuple[Need, _Make]]:
    many = feature.values != "one"
    for number, step in enumerate(feature.steps):
        before = feature.steps[:number]
        streams = {column: cleaned_stream(column, before, many) for column in feature.columns}
        needs = [(column, (streams[column], need)) for column in feature.columns for need in step.needs]
        if unknown := [(column, need) for column, need in needs if need not in found]:
            return [(need, partial(_cleaned, column=column, steps=before, many=many)) for column, need in unknown]
    return [
        ((feature.stream, need), partial(_analysed, feature=feature))
        for need in feature.needs
        if (feature.stream, need) not in found
    ]


def _cleaned(columns: BatchColumns, column: str, steps: tuple[Clean, ...], many: bool) -> FlatColumn:
    return columns.cleaned(column, steps, many)


def _analysed(columns: BatchColumns, feature: Feature) -> FlatColumn:
    return columns.analysed(feature)


def _pass(pending: Mapping[Need, _Make], batches: Batches, found: Mapping[Need, Any]) -> dict[Need, Any]:
    """One pass over the rows, for all that is pending: values of one stream are made once for all that count them."""
    makes = {stream: make for (stream, _), make in pending.items()}

    @tf.function(autograph=False, reduce_retracing=True)
    def streams(raw: Mapping[str, Raw]) -> list[dict[str, tf.Tensor]]:
        columns = BatchColumns(raw, found)
        return [_present(make(columns)) for make in makes.values()]

    filled: dict[Need, Any] = {}
    for raw in batches:
        made = zip(makes, streams(dict(raw)), strict=True)
        parts = {stream: {name: tensor.numpy() for name, tensor in part.items()} for stream, part in made}
        for stream, need in pending:
            analysis = filled.setdefault((stream, need), ByKey(need) if "keys" in parts[stream] else need())
            with _told_of(makes[stream]):
                analysis.add(**parts[stream])
    if not filled:
        raise InfeedError(
            "there are no rows to analyse", where="the split that Transform analyses", do="check what was ingested"
        )
    return filled


@contextmanager
def _told_of(make: _Make) -> Iterator[None]:
    """Adds to an error what the values were made for."""
    try:
        yield
    except InfeedError as error:
        of = make.keywords.get("feature") or f"column {make.keywords['column']!r}"
        raise InfeedError(error.what, where=f"{of}; {error.where}", do=error.do) from error


def _present(column: FlatColumn) -> dict[str, tf.Tensor]:
    """The arguments of `add`: the values that are not missing, their keys, and how many are."""
    parts = {"values": column.values} | ({} if column.keys is None else {"keys": column.keys})
    parts = {name: tf.boolean_mask(tensor, column.present) for name, tensor in parts.items()}
    rows = tf.size(column.values) if column.splits is None else tf.size(column.splits) - 1
    return {**parts, "missing": tf.reduce_sum(tf.cast(~column.present, tf.int64)), "rows": rows}
