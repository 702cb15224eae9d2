"""Declarative features: what becomes of each column, as data that travels in JSON and YAML.

Nothing here computes anything: `preprocessing.py` turns these into a transform graph. This module needs neither TFX nor
TensorFlow, so a configuration can be checked before anything heavy starts.

What each feature gives, for a batch of rows:

    ZScore, Fill            [batch, 1]   float32 (Fill: the column's own type)
    Vocabulary, Bucketize   [batch, 1]   int64, where 0 always means "missing"
    DecodeImage             [batch, height, width, channels] float32, whole numbers 0 to 255
    Label                   [batch]      int64 (classification) or float32 (regression)

A value is missing where the row has none, and where it is NaN or infinite.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from infeed.components.errors import InfeedError

Task = Literal["classification", "regression"]
Missing = Literal["error", "mark"]


class Feature:
    """One column in, one transformed feature out. The subclasses below are the features there are."""

    kind: ClassVar[str]
    column: str
    output: str | None

    @property
    def output_name(self) -> str:
        """Name of the transformed feature: `output`, or the column's own name."""
        return self.output or self.column

    def to_dict(self) -> dict[str, Any]:
        """{"kind": "z_score", "column": "age"}: only what differs from the defaults."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = {f.name: getattr(self, f.name) for f in fields if getattr(self, f.name) != f.default}
        return {"kind": self.kind, **given}

    def __post_init__(self) -> None:
        self._require(isinstance(self.column, str) and bool(self.column), "column", "the name of a column")
        self._require(
            self.output is None or (isinstance(self.output, str) and bool(self.output)), "output", "a name, or None"
        )

    def _require(self, holds: bool, field: str, expected: str) -> None:
        if not holds:
            raise InfeedError(
                f"{type(self).__name__}: {field} is {getattr(self, field)!r}",
                where=f"feature of column {self.column!r}",
                do=f"give {field} as {expected}",
            )


@dataclass(frozen=True)
class ZScore(Feature):
    """(value - mean) / standard deviation over the training rows, float32 [batch, 1].

    A missing value becomes the mean, which is 0 once scaled, and takes no part in mean and deviation. With a number as
    `fill`, in the column's own unit, it counts as that number in all three. A column that is constant over the training
    rows becomes 0.
    """

    kind: ClassVar[str] = "z_score"
    column: str
    output: str | None = None
    fill: float | Literal["mean"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.fill == "mean" or _is_finite(self.fill), "fill", '"mean" or a finite number')


@dataclass(frozen=True)
class Vocabulary(Feature):
    """String or integer categories to their index, int64 [batch, 1].

    0 is a missing value, 1 to n are the n values of the training rows, most frequent first (ties: later in byte order
    first), and n + 1 to n + `oov` are shared by values never seen in training. With `oov=0` those count as missing.
    `size` keeps only the most frequent values. The empty string is never in the vocabulary. The values in index order
    are the transform graph's vocabulary asset named like the output.
    """

    kind: ClassVar[str] = "vocabulary"
    column: str
    output: str | None = None
    size: int | None = None
    oov: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.size is None or _is_int(self.size, at_least=1), "size", "a whole number from 1, or None")
        self._require(_is_int(self.oov, at_least=0), "oov", "a whole number from 0")

    def cardinality(self, values: int) -> int:
        """Number of different indices where the vocabulary holds `values` values: the rows of an embedding table."""
        return 1 + values + self.oov


@dataclass(frozen=True)
class Bucketize(Feature):
    """Numbers to the quantile they fall in, int64 [batch, 1]: 0 is missing, 1 to `buckets` the rest.

    Boundaries are approximate quantiles of the training rows (1 % of rank); a value on a boundary belongs above it.
    """

    kind: ClassVar[str] = "bucketize"
    column: str
    buckets: int
    output: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(_is_int(self.buckets, at_least=2), "buckets", "a whole number from 2")

    def cardinality(self) -> int:
        """Number of different indices: the rows of an embedding table."""
        return 1 + self.buckets


@dataclass(frozen=True)
class Fill(Feature):
    """The column as it is, [batch, 1] of its own type, with `value` where a row has none."""

    kind: ClassVar[str] = "fill"
    column: str
    value: float | str
    output: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(isinstance(self.value, str) or _is_finite(self.value), "value", "a finite number or a string")


@dataclass(frozen=True)
class DecodeImage(Feature):
    """PNG, JPEG, BMP or the first frame of a GIF to pixels, float32 [batch, height, width, channels].

    Pixels are whole numbers from 0 to 255: a cast to uint8 loses nothing. (A transform graph can give only int64,
    float32 and strings.)

    Images of another size are resized (bilinear, antialiased, aspect ratio not kept); those of the right size are left
    alone. `channels` is 1 (grey), 3 (RGB; an alpha channel is dropped) or 4 (RGBA, from PNG only). 16 bits a channel
    become 8. The orientation tag of cameras is not applied. A row without an image is an error.
    """

    kind: ClassVar[str] = "decode_image"
    height: int
    width: int
    channels: int = 3
    column: str = "image/encoded"
    output: str | None = "image"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(_is_int(self.height, at_least=1), "height", "a whole number of pixels from 1")
        self._require(_is_int(self.width, at_least=1), "width", "a whole number of pixels from 1")
        self._require(self.channels in (1, 3, 4), "channels", "1 (grey), 3 (RGB) or 4 (RGBA)")


@dataclass(frozen=True)
class Label(Feature):
    """What the model learns to tell, [batch], under the column's own name.

    classification: int64 index into the classes of the training rows; the transform graph's vocabulary asset named like
      the column lists them in index order.
    regression: float32.

    A row without a label (NaN, infinity and the empty string included) becomes -1 or NaN, and so does a class that no
    training row has. Neither may reach a loss: whoever reads such rows must leave them out, as a transform cannot drop
    a row. With `missing="error"` Transform itself stops where a *training* row has no label, with their number; "mark"
    lets them pass. Serving, where the label is absent, is not affected.
    """

    kind: ClassVar[str] = "label"
    column: str
    task: Task = "classification"
    missing: Missing = "error"
    output: ClassVar[None] = None  # type: ignore[misc]  # it keeps the column's name

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.task in get_args(Task), "task", _one_of(get_args(Task)))
        self._require(self.missing in get_args(Missing), "missing", _one_of(get_args(Missing)))


_KINDS: dict[str, type[Feature]] = {
    feature.kind: feature for feature in (ZScore, Vocabulary, Bucketize, Fill, DecodeImage, Label)
}


def features_to_json(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Features as plain data for JSON and YAML; `features_from_json` gives equal features back."""
    check_outputs(features)
    return [feature.to_dict() for feature in features]


def features_from_json(items: Iterable[Mapping[str, Any]]) -> list[Feature]:
    """Features from plain data, each item with its "kind": {"kind": "z_score", "column": "age"}.

    Raises:
      InfeedError: a kind or an option that does not exist, an option that is missing or out of range, or two features
        with one output name.
    """
    features = [_feature_from_dict(item) for item in items]
    check_outputs(features)
    return features


def check_features(features: Sequence[Feature], columns: Iterable[str]) -> None:
    """Checks that every feature's column is among the data's `columns` and that no two features share an output name.

    Raises:
      InfeedError: names the column, the nearest name there is and all the names there are.
    """
    check_outputs(features)
    known = sorted(columns)
    for feature in features:
        if feature.column not in known:
            raise InfeedError(
                f"no column {feature.column!r} in the data{_nearest(feature.column, known)}",
                where=f"{type(feature).__name__} of column {feature.column!r}; the columns are: {', '.join(known)}",
                do="name one of these columns in the feature, or take the feature out",
            )


def check_outputs(features: Sequence[Feature]) -> None:
    """Raises InfeedError where two features give the same output name."""
    seen: dict[str, Feature] = {}
    for feature in features:
        first = seen.setdefault(feature.output_name, feature)
        if first is not feature:
            raise InfeedError(
                f"two features are both called {feature.output_name!r}",
                where=f"{first} and {feature}",
                do="give one of them another name with output=",
            )


def _feature_from_dict(item: Mapping[str, Any]) -> Feature:
    if not isinstance(item, Mapping):
        raise InfeedError(
            f"{item!r} is no feature", where="features", do="give each as {kind: z_score, column: age} or the like"
        )
    options = dict(item)
    kind = str(options.pop("kind", None))
    if kind not in _KINDS:
        raise InfeedError(
            f"no kind of feature is called {kind!r}{_nearest(kind, list(_KINDS))}",
            where=f"feature {dict(item)}",
            do=f"give its kind as {_one_of(list(_KINDS))}",
        )
    _check_options(kind, options)
    return _KINDS[kind](**options)


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    fields = {f.name: f for f in dataclasses.fields(_KINDS[kind])}  # type: ignore[arg-type]
    required = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    for name in options:
        if name not in fields:
            raise InfeedError(
                f"a feature of kind {kind} has no option {name!r}{_nearest(name, list(fields))}",
                where=f"feature {dict(options)}",
                do=f"use only its options: {', '.join(fields)}",
            )
    for name in required:
        if name not in options:
            raise InfeedError(
                f"a feature of kind {kind} lacks its option {name!r}",
                where=f"feature {dict(options)}",
                do=f"give {name}",
            )


def _is_int(value: object, *, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _one_of(names: Sequence[str]) -> str:
    return "one of " + ", ".join(names)


def _nearest(name: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
