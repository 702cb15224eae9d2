"""Content of a batch: values for missing cells, features that share an array, and labels and weights apart from them.

NumPy and TensorFlow return the same values through different `Arrays`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from infeed.components.base.checks import is_whole
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import counted
from infeed.components.feed.user_maps import Ragged
from infeed.components.load.columns import FeatureSpec, PlacedFeature
from infeed.components.load.shapes import ANY_SIZE
from infeed.components.load.spill import Kind

Label = str | Sequence[str] | None
Rule = Literal["mark", "fill", "ragged", "error"]
ZERO: dict[Kind, Any] = {"bytes": b"", "float32": 0.0, "int64": 0}
Lengths = int | Mapping[str, int | Sequence[int]] | None  # of `LoadOptions.length`
PRESENT = "sample_weight"  # feature of the weights of a padded batch without a label
_INT64, _FLOAT32 = np.iinfo(np.int64), float(np.finfo(np.float32).max)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Targets:
    """Names of the label or labels, and of the weight. A batch is (features, label) or (features, label, weight)."""

    label: str | tuple[str, ...] | None = None
    weight: str | None = None

    @classmethod
    def of(cls, label: Label, weight: str | None, schema: Mapping[str, FeatureSpec]) -> Targets:
        """Check the arguments of a call. Raises InfeedError if `weight` does not name one number for each row.

        Its shape is `()` or `(1,)`.
        """
        labels = tuple(label) if isinstance(label, Collection) and not isinstance(label, str) else label
        if isinstance(labels, tuple) and (not labels or len(set(labels)) < len(labels)):
            raise InfeedError(f"label is {label!r}", where="label", do="name each label once")
        if weight is not None and (labels is None or weight in cls(labels).names):
            raise InfeedError(f"weight is {weight!r}, and label is {label!r}", where="weight", do="set label as well")
        spec = None if weight is None else schema.get(weight)
        if spec and (spec.shape not in ((), (1,)) or spec.type == "bytes"):
            what = f"feature {weight!r} is {spec.type} {spec.shape}"
            raise InfeedError(what, where="weight", do="name a feature of one number for each row")
        return cls(labels, weight)

    @property
    def names(self) -> Collection[str]:
        labels = self.label if isinstance(self.label, tuple) else () if self.label is None else (self.label,)
        return [*labels, *([] if self.weight is None else [self.weight])]

    def split(self, batch: dict[str, Any], as_weight: Any, present: Any = None) -> Any:
        """Take the targets out of a batch.

        Args:
          as_weight: converts the weights to float32 [batch].
          present: float32 [batch], 0 for rows that pad the batch, or None. Without a label, it is a feature.
        """
        if self.label is None:
            return batch if present is None else {**batch, PRESENT: present}
        if missing := [name for name in self.names if name not in batch]:
            do = "return the labels and the weight, too"
            raise InfeedError(f"the function returned no feature {missing[0]!r}", where="infeed.load(...).map", do=do)
        label = (
            {name: batch.pop(name) for name in self.label} if isinstance(self.label, tuple) else batch.pop(self.label)
        )
        weight = None if self.weight is None else as_weight(batch.pop(self.weight))
        if present is not None:
            weight = present if weight is None else weight * present
        return (batch, label) if weight is None else (batch, label, weight)


NO_TARGETS = Targets()


class Arrays(Protocol):
    """Operations on the arrays of a framework."""

    def fill(self, values: Any, kind: Kind, fill: Any) -> Any:
        """Fill missing values, as [batch]: NaN in float32 [batch], or empty rows of ragged values."""

    def join(self, parts: Sequence[Any]) -> Any:
        """Join parts [batch, ...] into [batch, n]."""

    def weight(self, values: Any) -> Any:
        """Convert numbers [batch] to float32."""

    def reshape(self, values: Any, shape: Sequence[int]) -> Any:
        """Reshape [batch, n] to [batch, *shape]."""

    def steps(self, values: Any, shape: Sequence[int]) -> Any:
        """Divide the values of ragged rows into steps, [steps, *shape]."""

    def pad(self, values: Any, kind: Kind, lengths: Sequence[int], step: Sequence[int]) -> Any:
        """Pad or cut ragged rows to the smallest length that holds the longest row, or to the last: [batch, length].

        Steps of a shape, or of up to `step` values, give [batch, length, *step].
        """


class NumpyArrays:
    def fill(self, values: Any, kind: Kind, fill: Any) -> Any:
        if kind == "float32":
            return np.where(np.isnan(values), np.float32(fill), values)
        present = np.diff(values.row_splits) > 0
        filled = np.full(len(present), fill, object if kind == "bytes" else kind)
        filled[present] = values.values
        return filled

    def join(self, parts: Sequence[Any]) -> Any:
        columns = [part if part.ndim == 2 else part[:, np.newaxis] for part in parts]
        return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)

    def weight(self, values: Any) -> Any:
        return np.asarray(values, np.float32)

    def reshape(self, values: Any, shape: Sequence[int]) -> Any:
        return values.reshape(-1, *shape)

    def steps(self, values: Any, shape: Sequence[int]) -> Any:
        return Ragged(values.values.reshape(-1, *shape), values.row_splits // math.prod(shape))

    def pad(self, values: Any, kind: Kind, lengths: Sequence[int], step: Sequence[int]) -> Any:
        if isinstance(values.values, Ragged):
            values = Ragged(self.pad(values.values, kind, step, ()), values.row_splits)
        starts, counts = values.row_splits[:-1], np.diff(values.row_splits)
        longest = counts.max(initial=0)
        width = next((length for length in lengths if length >= longest), lengths[-1])
        is_value = np.arange(width) < counts[:, np.newaxis]
        padded = np.full((*is_value.shape, *step), ZERO[kind], object if kind == "bytes" else kind)
        padded[is_value] = values.values[(starts[:, np.newaxis] + np.arange(width))[is_value]]
        return padded


@dataclass(frozen=True)
class Delivery:
    placed: Mapping[str, PlacedFeature]
    fills: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of lists that are padded
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors with several dimensions

    @classmethod
    def of(cls, placed: Mapping[str, PlacedFeature], rule: Rule | Mapping[str, Any], place: str) -> Delivery:
        """Choose the fill values. `rule` is LoadOptions.on_missing.

        Raises InfeedError if a fill value does not fit its column, or `rule` is "error" and a value is missing.
        """
        if not isinstance(rule, str):
            given = {name: _fill(name, value, placed) for name, value in rule.items()}
            marked = cls.of(placed, "mark", place).fills
            return cls(placed, {**marked, **{name: value for name, value in given.items() if placed[name].is_optional}})
        if rule == "error":
            for name, one in placed.items():
                if one.is_optional and one.spec.nulls:
                    what = f"{counted(one.spec.nulls, 'cell')} of column {name!r} are missing"
                    do = f"choose a value with on_missing={{{name!r}: ...}}, or leave out the column"
                    raise InfeedError(what, where=place, do=do)
        if rule == "ragged":
            return cls(placed)
        optional = {name: one.spec.type for name, one in placed.items() if one.is_optional}
        if rule == "mark":
            return cls(placed, {name: None for name, kind in optional.items() if kind == "bytes"})
        return cls(placed, {name: ZERO[kind] for name, kind in optional.items()})

    def padded(self, length: Lengths) -> Delivery:
        """Return this delivery with lists of fixed lengths. Raises InfeedError if a column or a length is not suitable.

        `length` is LoadOptions.length.
        """
        lists = [name for name, one in self.placed.items() if one.spec.shape is None and not one.is_optional]
        if not isinstance(length, Mapping):
            return self if length is None else self.padded(dict.fromkeys(lists, length))
        found = {}
        for name, given in length.items():
            where = f"infeed.load, length[{name!r}]"
            if name not in lists:
                what, names = f"there is no column {name!r} of lists", ", ".join(lists)
                raise InfeedError(what, where=where, do=f"use one of {names}" if lists else "leave out length")
            found[name] = tuple(given) if isinstance(given, list | tuple) else (given,)
            are_whole = all(is_whole(one) and one > 0 for one in found[name])
            if not (found[name] and are_whole and list(found[name]) == sorted(set(found[name]))):
                do = "use the number of values, or several in ascending order"
                raise InfeedError(f"length is {given!r}", where=where, do=do)
        return replace(self, lengths=found)

    def shaped(self, shapes: Mapping[str, tuple[int, ...]]) -> Delivery:
        """Return this delivery with the declared shapes of all features whose rows hold as many values.

        Single values that may be missing have their shape too, unless they are Ragged.
        """
        placed = {name: one.spec for name, one in self.placed.items()}
        dense = {name: spec for name, spec in placed.items() if spec.shape is not None or name in self.fills}
        fitting = {}
        for name in shapes.keys() & dense.keys():
            first, *inner = shapes[name]
            size = math.prod(inner)
            shape = (dense[name].width // size if first == ANY_SIZE else first, *inner)
            if math.prod(shape) == dense[name].width and shape != dense[name].shape:
                fitting[name] = shape
        own = {name: spec.shape for name, spec in dense.items() if spec.shape and len(spec.shape) > 1}
        return replace(self, shapes={**own, **fitting})

    @property
    def schema(self) -> dict[str, FeatureSpec]:
        """Type and shape of each feature in a batch, by name."""
        shapes: dict[str, tuple[int, ...]] = {**dict.fromkeys(self.fills, ()), **self.shapes}
        for name, lengths in self.lengths.items():
            if len(lengths) == 1:
                shapes[name] = (*lengths, *self.placed[name].spec.step)
        return {
            name: FeatureSpec(one.spec.type, shapes[name], one.spec.nulls) if name in shapes else one.spec
            for name, one in self.placed.items()
        }

    def warn(self, place: str) -> None:
        """Log the columns of single values that are ragged because some values are missing."""
        ragged = [name for name, one in self.placed.items() if one.is_optional and self.schema[name].shape is None]
        if ragged:
            names = ", ".join(map(repr, ragged))
            do = f"to fill the missing cells, set for example on_missing={{{ragged[0]!r}: -1}}"
            _log.warning("%s: columns %s have missing cells, so they are Ragged; %s", place, names, do)

    def warn_of_empty_text(self, place: str) -> None:
        """Log the columns whose missing values TensorFlow cannot represent."""
        marked = [name for name, fill in self.fills.items() if fill is None]
        if marked:
            names, do = ", ".join(map(repr, marked)), f"on_missing={{{marked[0]!r}: ...}} sets another value"
            _log.warning(
                "%s: TensorFlow has no None, so missing cells of %s become empty strings; %s", place, names, do
            )

    def packed_columns(self, targets: Targets) -> dict[str, tuple[str, ...]]:
        """Return the column name of each position in the packed arrays, by type. A row of n values has n positions."""
        groups: dict[str, list[str]] = {}
        schema = self.schema
        for name in sorted(self.placed, key=lambda name: (self.placed[name].column, self.placed[name].place)):
            if name not in targets.names and schema[name].shape is not None and name not in self.lengths:
                groups.setdefault(schema[name].type, []).extend([name] * schema[name].width)
        return {kind: tuple(names) for kind, names in groups.items()}

    def recipe(self, targets: Targets = NO_TARGETS, *, pack: bool = False) -> Recipe:
        """Return the recipe of the batches. With `pack`, features of one type share an array, except the targets.

        Raises InfeedError if, with `pack`, a separate feature has the name of a type.
        """
        names = self.packed_columns(targets) if pack else {}
        packed = {kind: tuple(self._parts(group)) for kind, group in names.items()}
        named = {part for parts in packed.values() for part in parts if isinstance(part, str)}
        sliced = {name for group in names.values() for name in group} - named
        alone = {name: one for name, one in self.placed.items() if name not in sliced}
        if taken := packed.keys() & (alone.keys() - named):
            what = f"the ragged column {min(taken)!r} has the same name as a packed array"
            raise InfeedError(what, where="pack", do="exclude it with columns=[...], or rename it in the dataset")
        fills = {name: fill for name, fill in self.fills.items() if name in alone}
        shapes = {name: shape for name, shape in self.shapes.items() if name in alone and name not in named}
        if targets.weight is not None and self.schema[targets.weight].shape == (1,):
            shapes[targets.weight] = ()
        return Recipe(alone, fills, packed, targets, self.lengths, shapes)

    def _parts(self, names: Iterable[str]) -> Iterable[str | PlaceRange]:
        """Return the features to join. Adjacent features of one column become a single slice."""
        parts: list[str | PlaceRange] = []
        for name in dict.fromkeys(names):
            one = self.placed[name]
            before, end = parts[-1] if parts else None, one.place + one.spec.width
            if name in self.fills or one.spec.type == "bytes":
                parts.append(name)
            elif isinstance(before, PlaceRange) and (before.column, before.stop) == (one.column, one.place):
                parts[-1] = before._replace(stop=end)
            else:
                parts.append(PlaceRange(one.column, one.place, end))
        return parts


class PlaceRange(NamedTuple):
    """Adjacent positions of a stored column: [batch, stop - start]."""

    column: int
    start: int
    stop: int


@dataclass(frozen=True)
class Recipe:
    """Recipe of a batch. `packed` are the features and slices to join, by type."""

    alone: Mapping[str, PlacedFeature]
    fills: Mapping[str, Any]
    packed: Mapping[str, tuple[str | PlaceRange, ...]]
    targets: Targets
    lengths: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    _picks: tuple[tuple[str, int, tuple[Any, ...]], ...] = field(init=False)
    _joins: Mapping[str, tuple[str | PlaceRange, ...]] = field(init=False)
    _steps: Mapping[str, tuple[int, ...]] = field(init=False)  # shapes of steps of one size

    def __post_init__(self) -> None:
        picks = [(name, one.column, one.pick) for name, one in self.alone.items()]
        joins = dict(self.packed)
        for kind, [part, *more] in self.packed.items():
            if isinstance(part, PlaceRange) and not more and kind not in self.alone:  # a single slice needs no join
                picks.append((kind, part.column, (slice(None), slice(part.start, part.stop))))
                del joins[kind]
        object.__setattr__(self, "_picks", tuple(picks))
        object.__setattr__(self, "_joins", joins)
        specs = {name: one.spec for name, one in self.alone.items()}
        steps = {name: spec.step for name, spec in specs.items() if spec.step and not spec.ragged_steps}
        object.__setattr__(self, "_steps", steps)

    @property
    def arrays(self) -> int:
        """Number of arrays in a batch."""
        joined = {part for parts in self.packed.values() for part in parts}
        return len(self.alone.keys() - joined) + len(self.packed)

    @property
    def is_dense(self) -> bool:
        """Whether all rows have the same number of values."""
        return all(one.spec.shape is not None or name in self.fills for name, one in self.alone.items())

    @property
    def is_by_row(self) -> bool:
        """Whether the values of a row do not depend on the other rows of its batch, and do not vary in number."""
        return self.is_dense and not self.lengths

    def batch(self, columns: Sequence[Any], arrays: Arrays) -> dict[str, Any]:
        """Build a batch, {name: [batch, ...]}, from the rows of each stored column."""
        found = {name: columns[column][pick] if pick else columns[column] for name, column, pick in self._picks}
        for name, fill in self.fills.items():
            found[name] = arrays.fill(found[name], self.alone[name].spec.type, fill)
        for name, step in self._steps.items():
            found[name] = arrays.steps(found[name], step)
        for name, lengths in self.lengths.items():
            found[name] = arrays.pad(found[name], self.alone[name].spec.type, lengths, self.alone[name].spec.step)
        for name, shape in self.shapes.items():
            found[name] = arrays.reshape(found[name], shape)
        joined = {}
        for kind, parts in self._joins.items():
            joined[kind] = arrays.join(
                [
                    found.pop(part) if isinstance(part, str) else columns[part.column][:, part.start : part.stop]
                    for part in parts
                ]
            )
        return found | joined if joined else found


def split(batch: Any, batches: int) -> list[Any]:
    """Split several batches that are one: dicts and tuples of arrays [batches * batch, ...], or of lists of arrays."""
    if isinstance(batch, dict):
        parts = zip(*[split(values, batches) for values in batch.values()], strict=True)
        return [dict(zip(batch, part, strict=True)) for part in parts] if batch else [{} for _ in range(batches)]
    if isinstance(batch, tuple):
        return list(zip(*[split(values, batches) for values in batch], strict=True))
    if isinstance(batch, list):
        return batch
    return list(batch.reshape(batches, len(batch) // batches, *batch.shape[1:]))


def _fill(name: str, value: Any, placed: Mapping[str, PlacedFeature]) -> Any:
    """Convert a fill value to the type of the column.

    Raises InfeedError if the column does not exist or holds lists, or the value has the wrong type.
    """
    where = f"infeed.load, on_missing[{name!r}]"
    if name not in placed:
        raise InfeedError(f"there is no column {name!r}", where=where, do=f"use one of {', '.join(sorted(placed))}")
    one = placed[name]
    if not (one.is_optional or one.spec.shape == ()):
        raise InfeedError(
            f"column {name!r} holds lists", where=where, do="leave it out: an empty list is a valid value"
        )
    if one.spec.type == "bytes" and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if one.spec.type == "float32" and is_number and not (math.isfinite(value) and abs(value) > _FLOAT32):
        return float(value)
    is_whole = is_number and math.isfinite(value) and value == int(value)
    if one.spec.type == "int64" and is_whole and _INT64.min <= value <= _INT64.max:
        return int(value)
    do = {"bytes": "use text or bytes", "float32": "use a number of 32 bits", "int64": "use an integer of 64 bits"}
    raise InfeedError(f"{value!r} does not fit into {one.spec.type}", where=where, do=do[one.spec.type])
