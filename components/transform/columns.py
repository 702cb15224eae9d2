"""Features from raw columns: analyses of the training rows, and the graph that transforms a batch.

Raw tensors, sparse, ragged or dense as in the schema, become columns, which are cleaned and passed to features.
Constants come from the statistics of the dataset, or else from passes over the rows, which all features share. A pass
analyzes ranges of rows and merges the results in order. It cleans columns with the same functions as the graph. A
feature needs one pass, and one more for each cleaning step with constants. Statistics provide the constants of a first
cleaning step.

TensorFlow takes about 0.1 ms to trace, save and load an operation, so a graph of a thousand columns must not have
twenty operations per column. Values of similar columns are stacked to [columns, rows], computed at once, and split
again.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.transform.analyses import Analysis, ByKey
from infeed.components.transform.feature import Clean, Feature, FlatColumn, Tables, as_strings

Raw: TypeAlias = tf.Tensor | tf.SparseTensor | tf.RaggedTensor
Need: TypeAlias = tuple[Hashable, type[Analysis]]  # key of the values, and the analysis that they need
Found: TypeAlias = Mapping[Need, Any]  # -> an analysis, or `ByKey` if the values have keys
Filled: TypeAlias = dict[Need, Any]  # the analyses of some rows
Batches: TypeAlias = Iterable[Mapping[str, Raw]]  # parsed raw examples
_Make: TypeAlias = partial[FlatColumn]  # of the columns of a batch

# In the graph, features that are computed together depend on all of their columns. Small groups are computed
# separately, because grouping them saves no time.
FEWEST = 32
MOST = 128  # maximum number of columns, because tft traverses all inputs of every output
# As TensorFlow escapes the message of `several_values`.
_TOO_MANY = "rows have several values, but one is expected"
_SEVERAL = re.compile(_TOO_MANY + r"[\s\S]*? on the features of column \\*'(.*?)\\*'")


class BatchColumns:
    """Columns of a batch and their derived columns, each computed once from the completed analyses."""

    def __init__(self, raw: Mapping[str, Raw], found: Found) -> None:
        self._raw = raw
        self._found = found
        self._made: dict[Hashable, FlatColumn] = {}

    def cleaned(self, column: str, steps: tuple[Clean, ...], many: bool) -> FlatColumn:
        """Return a column after some steps. `many` means that rows hold lists."""
        key = cleaned_stream(column, steps, many)
        if key not in self._made:
            if steps:
                stream = cleaned_stream(column, steps[:-1], many)
                found = [self._found[stream, need] for need in steps[-1].needs]
                self._made[key] = steps[-1].apply(self.cleaned(column, steps[:-1], many), found)
            else:
                self._made[key] = as_column(column, self._raw[column], many)
        return self._made[key]

    def analyzed(self, feature: Feature) -> FlatColumn:
        return feature.analyzed(self._prepared(feature))

    def output(self, feature: Feature, tables: Tables) -> Raw:
        column = self._prepared(feature)
        return feature.shape(column, feature.apply(column, self.found(feature), tables))

    def found(self, feature: Feature) -> list[Any]:
        return [self._found[feature.stream, need] for need in feature.needs]

    def _prepared(self, feature: Feature) -> FlatColumn:
        key = ("prepared", feature.stream)
        if key not in self._made:
            many = feature.values != "one"
            column = feature.prepare([self.cleaned(column, feature.steps, many) for column in feature.columns])
            keys, splits = None, column.splits
            if feature.values == "by_position":
                keys = tf.strings.as_string(tf.ragged.range(tf.experimental.numpy.diff(splits)).flat_values)
            elif feature.key:
                keys = as_strings(as_column(feature.key, self._raw[feature.key], many=False))
                keys = keys if splits is None else tf.gather(keys, tf.ragged.row_splits_to_segment_ids(splits))
            self._made[key] = column._replace(keys=keys)
        return self._made[key]


def cleaned_stream(column: str, steps: tuple[Clean, ...], many: bool) -> Hashable:
    """Return the key of a partly cleaned column, like `Feature.stream`.

    Steps analyze all positions of lists together.
    """
    return ((column,), steps, "all" if many else "one")


def as_column(name: str, raw: Raw, many: bool) -> FlatColumn:
    """Convert a raw column to one value per row or, with `many`, to lists.

    If a row has several values but one is expected, raise InfeedError if the schema shows it, or
    tf.errors.InvalidArgumentError at run time.
    """
    if isinstance(raw, tf.RaggedTensor) and not many:
        raw = raw.to_sparse()
    return without_infinite(_list_of(name, raw) if many else _single_of(name, raw))


def without_infinite(column: FlatColumn) -> FlatColumn:
    """Mark NaN and infinite values as missing."""
    if not column.values.dtype.is_floating:
        return column
    present = column.present & tf.math.is_finite(column.values)
    return column._replace(values=tf.where(present, column.values, tf.zeros_like(column.values)), present=present)


def _single_of(name: str, raw: tf.Tensor | tf.SparseTensor) -> FlatColumn:
    if isinstance(raw, tf.SparseTensor):
        # Not `tf.debugging.Assert`, which adds a conditional of three functions for each column.
        tf.raw_ops.Assert(condition=raw.dense_shape[1] <= 1, data=[several_values(name)])
        return scattered(name, raw.indices[:, :1], raw.values, raw.dense_shape[0])
    if raw.shape[1:].num_elements() != 1:
        do = 'set values="all" or values="by_position" on its features'
        raise InfeedError(f"column {name!r} has {raw.shape[1:]} values per row, not one", where="the schema", do=do)
    values = tf.reshape(raw, [-1])  # shape [batch] or [batch, 1]: TFX's schemas have the dimension 1, others none
    return FlatColumn(name, values, tf.ones_like(values, tf.bool))


def several_values(name: str) -> str:
    """Return the graph's message about rows with several values, which `explained` parses."""
    return f'{_TOO_MANY}; set values="all" on the features of column {name!r}'


def scattered(name: str, places: tf.Tensor, values: tf.Tensor, size: tf.Tensor) -> FlatColumn:
    """Return a column of `size` values from present values and their places [n, 1]."""
    present = tf.scatter_nd(places, tf.ones_like(values, tf.bool), [size])
    if values.dtype != tf.string:
        return FlatColumn(name, tf.scatter_nd(places, values, [size]), present)
    strings = tf.raw_ops.SparseToDense(
        sparse_indices=places, output_shape=[size], sparse_values=values, default_value="", validate_indices=False
    )
    return FlatColumn(name, strings, present)


@contextmanager
def explained() -> Iterator[None]:
    """Convert the graph's error about rows with several values to an InfeedError."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _SEVERAL.search(str(error))
        if not found:
            raise
        do = 'set values="all" or values="by_position" on its features'
        raise InfeedError(_TOO_MANY, where=f"column {found[1]!r}", do=do) from None


def _list_of(name: str, raw: Raw) -> FlatColumn:
    if isinstance(raw, tf.SparseTensor):
        raw = tf.RaggedTensor.from_value_rowids(raw.values, raw.indices[:, 0], raw.dense_shape[0], validate=False)
    if isinstance(raw, tf.RaggedTensor):
        values, splits = raw.flat_values, raw.row_splits
        while isinstance(raw.values, tf.RaggedTensor):  # a list of lists counts as one list
            raw = raw.values
            splits = tf.gather(raw.row_splits, splits)
    else:
        values = tf.reshape(raw, [-1])
        width = tf.size(raw, tf.int64) // tf.maximum(tf.shape(raw, tf.int64)[0], 1)
        splits = tf.range(tf.shape(raw, tf.int64)[0] + 1) * width
    return FlatColumn(name, values, tf.ones_like(values, tf.bool), splits)


def analyze(
    features: Sequence[Feature], read: Callable[[AnalysisPass], Filled], known: Mapping[Need, Any], folder: str = ""
) -> dict[Need, Any]:
    """Run all analyses that the features need.

    Args:
      read: reads all rows once. Called once for each pass, and never if statistics suffice.
      known: analyses from the statistics of the dataset.
      folder: shared folder for counts that exceed memory. Empty keeps counts in memory.

    Raises:
      InfeedError: there are no rows, or rows have several values but a feature expects one.
    """
    found = dict(known)
    while following := [one for feature in features for one in _next(feature, found)]:
        pending = {need: make for need, make, _ in following}
        needed = {need: found[need] for _, _, before in following for need in before}
        filled = read(AnalysisPass(pending, needed, folder))
        if not filled:
            where = "the split that Transform analyzes"
            raise InfeedError("there are no rows to analyze", where=where, do="check the dataset")
        found |= filled
    return found


def raw_needs(features: Sequence[Feature]) -> dict[Need, str]:
    """Return the analyses of raw columns, with the column."""
    needs: dict[Need, str] = {}
    for feature in features:
        if feature.analyses_raw:
            needs |= {(feature.stream, need): feature.column for need in feature.needs}
        for column in feature.columns if feature.steps else ():
            stream = cleaned_stream(column, (), feature.values != "one")
            needs |= {(stream, need): column for need in feature.steps[0].needs}
    return needs


def _next(feature: Feature, found: Mapping[Need, Any]) -> Iterator[tuple[Need, _Make, list[Need]]]:
    """Yield the analyses that can run next, how to compute their values from a batch, and what these depend on."""
    many = feature.values != "one"
    done: list[Need] = []
    for number, step in enumerate(feature.steps):
        steps = feature.steps[:number]
        streams = {column: cleaned_stream(column, steps, many) for column in feature.columns}
        needs: dict[Need, str] = {(stream, kind): column for column, stream in streams.items() for kind in step.needs}
        if unknown := {need: column for need, column in needs.items() if need not in found}:
            for need, column in unknown.items():
                yield need, partial(BatchColumns.cleaned, column=column, steps=steps, many=many), done
            return
        done += needs
    for kind in feature.needs:
        if (feature.stream, kind) not in found:
            yield (feature.stream, kind), partial(BatchColumns.analyzed, feature=feature), done


@dataclass(frozen=True)
class AnalysisPass:
    """One pass over the rows, which is sent to workers."""

    pending: Mapping[Need, _Make]  # analyses to run, and how to compute their values from a batch
    found: Mapping[Need, Any]  # completed analyses that the values depend on. No others, because vocabularies are large
    folder: str  # folder for counts that exceed memory
    # Key that signs files in that folder.
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)


class TracedPass:
    """A graph that computes all values of a pass from a batch. Values of one stream are computed once."""

    def __init__(self, of: AnalysisPass) -> None:
        self._of = of
        self._makes = {stream: make for (stream, _), make in of.pending.items()}
        self._graph: Callable[[Mapping[str, Raw]], list[dict[str, tf.Tensor]]] | None = None
        self._lock = threading.Lock()

    def _streams(self, raw: Mapping[str, Raw]) -> list[dict[str, tf.Tensor]]:
        with self._lock:  # threads of a worker share the graph
            if self._graph is None:  # traced only once, not again for batches of other sizes
                forms = {name: _of_any_size(one) for name, one in raw.items()}
                # A method would create a reference cycle, which keeps the constants until garbage collection.
                compute = partial(_computed, self._of.found, [*self._makes.values()])
                self._graph = tf.function(compute, [forms], autograph=False)
        return self._graph(dict(raw))

    def over(self, batches: Batches) -> Filled:
        """Return the analyses of the rows, if there are any. Raise InfeedError if rows have several values, not one."""
        filled: Filled = {}
        with explained():
            for raw in batches:
                self._add(raw, filled)
        return filled

    def _add(self, raw: Mapping[str, Raw], filled: Filled) -> None:
        made = zip(self._makes, self._streams(raw), strict=True)
        parts = {stream: {name: tensor.numpy() for name, tensor in part.items()} for stream, part in made}
        for stream, need in self._of.pending:
            if (stream, need) not in filled:
                by_key = "keys" in parts[stream]
                folder, secret = self._of.folder, self._of.secret
                filled[stream, need] = ByKey(need, folder, secret) if by_key else need(folder)
            try:
                filled[stream, need].add(**parts[stream])
            except InfeedError as error:
                given = self._makes[stream].keywords
                of = given.get("feature") or f"column {given['column']!r}"
                raise InfeedError(error.what, where=f"{of}; {error.where}", do=error.do) from error


def _computed(found: Mapping[Need, Any], makes: Sequence[_Make], raw: Mapping[str, Raw]) -> list[dict[str, tf.Tensor]]:
    columns = BatchColumns(raw, found)
    return [_present(make(columns)) for make in makes]


def _of_any_size(raw: Raw) -> tf.TypeSpec:
    """Generalize the type of a column to batches with any number of rows and lists of any length."""
    if isinstance(raw, tf.SparseTensor):
        return tf.SparseTensorSpec([None] * raw.shape.rank, raw.dtype)
    if isinstance(raw, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, *raw.shape[1:]], raw.dtype, raw.ragged_rank, raw.row_splits.dtype)
    return tf.TensorSpec([None, *raw.shape[1:]], raw.dtype)


def merge_filled(one: Filled, other: Filled) -> Filled:
    """Merge the analyses of two adjacent ranges. Each has all pending analyses, or none."""
    return {need: one[need].merge(analysis) for need, analysis in other.items()} if one and other else one or other


def _present(column: FlatColumn) -> dict[str, tf.Tensor]:
    """Return the arguments of `add`: the present values, their keys, and the number of missing values."""
    parts = {"values": column.values} | ({} if column.keys is None else {"keys": column.keys})
    parts = {name: tf.boolean_mask(tensor, column.present) for name, tensor in parts.items()}
    rows = tf.size(column.values) if column.splits is None else tf.size(column.splits) - 1
    return {**parts, "missing": tf.reduce_sum(tf.cast(~column.present, tf.int64)), "rows": rows}


def outputs_of(
    features: Sequence[Feature], raw: Mapping[str, Raw], found: Found, tables: Tables, *, alone: bool = False
) -> dict[str, Raw]:
    """Return the transformed features by name.

    `alone` computes each separately, so that the graph shows its columns.
    """
    columns = BatchColumns(raw, found)
    outputs: dict[str, Raw] = {}
    for group in groups_of(features, raw):
        if alone or len(group) < FEWEST:
            outputs |= {feature.output_name: columns.output(feature, tables) for feature in group}
        else:
            outputs |= _together(group, raw, columns, tables)
    return {feature.output_name: outputs[feature.output_name] for feature in features}


def groups_of(features: Sequence[Feature], raw: Mapping[str, Raw]) -> Iterator[list[Feature]]:
    """Yield groups of at most `MOST` features to compute together. All other features are groups of one."""
    alike: dict[Hashable, list[Feature]] = {}
    for feature in features:
        column = raw[feature.column]
        if isinstance(column, tf.SparseTensor):
            stacks = column.shape.rank == 2
        else:
            stacks = not isinstance(column, tf.RaggedTensor) and column.shape[1:].num_elements() == 1
        form = (type(column), column.dtype, column.shape.rank)
        key = (feature.alike, form) if feature.alike and stacks else feature.output_name
        alike.setdefault(key, []).append(feature)
    for group in alike.values():
        size = math.ceil(len(group) / math.ceil(len(group) / MOST))
        yield from (group[start : start + size] for start in range(0, len(group), size))


def _together(
    features: Sequence[Feature], raw: Mapping[str, Raw], columns: BatchColumns, tables: Tables
) -> dict[str, Raw]:
    first = features[0]
    names = [feature.column for feature in features]
    column = without_infinite(_stacked(names, [raw[name] for name in names]))
    for step in first.steps:
        column = step.apply(column, ())
    shape = [len(names), -1]
    column = column._replace(values=tf.reshape(column.values, shape), present=tf.reshape(column.present, shape))
    outputs = first.apply_together(features, column, [columns.found(feature) for feature in features], tables)
    return {feature.output_name: output for feature, output in zip(features, outputs, strict=True)}


def _stacked(names: Sequence[str], raws: Sequence[Raw]) -> FlatColumn:
    name = ", ".join(names[:2])
    if not isinstance(raws[0], tf.SparseTensor):
        values = tf.reshape(tf.stack(raws), [-1])
        return FlatColumn(name, values, tf.ones_like(values, tf.bool))
    shapes = tf.stack([raw.dense_shape for raw in raws])
    several = tf.boolean_mask([several_values(column) for column in names], shapes[:, 1] > 1)
    tf.raw_ops.Assert(condition=tf.equal(tf.size(several), 0), data=[several[:1]])
    rows, values = shapes[0, 0], tf.concat([raw.values for raw in raws], 0)
    counts = tf.stack(tf.raw_ops.ShapeN(input=[raw.values for raw in raws], out_type=tf.int64))[:, 0]
    before = tf.repeat(tf.range(len(raws), dtype=tf.int64) * rows, counts)
    places = (before + tf.concat([raw.indices for raw in raws], 0)[:, 0])[:, tf.newaxis]
    return scattered(name, places, values, len(raws) * rows)
