"""Features that scale numbers: float32, 0 for a missing value, [batch, 1] or lists as in `Prepared`.

Constants come from all training rows. With `key`, they come from the training rows with the same key; an unseen key
uses all rows. With `values="by_position"`, each position of a list has separate constants. If all training values of a
column or key are equal, the output is 0, with a warning.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import require
from infeed.components.transform.analyses import Analysis, ByKey, Moments, Quantiles
from infeed.components.transform.feature import FlatColumn, Tables, each_output, is_finite, tf
from infeed.components.transform.kinds.clean import FillWith, Prepared

# A standard deviation below this share of the mean is rounding error.
_CONSTANT = 1e-12
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scaled(Prepared):
    """Base of (value - center) / width, with two constants from the training rows."""

    column: str
    output: str | None = None
    key: str | None = field(default=None, kw_only=True)
    shared = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_key(self.key)

    def constants(self, found: Any) -> tuple[float, ...]:
        """Return center and width. Width is 0 if all values are equal."""
        raise NotImplementedError

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        if not isinstance(found[0], ByKey):
            return self._scaled(column, *(tf.constant(number, tf.float64) for number in self._checked(found[0])))
        of_values = tables.constants_by_key(found[0], self.constants, column.keys)
        return self._scaled(column, *tf.unstack(of_values, axis=1))

    def apply_together(
        self, features: Sequence[Scaled], column: FlatColumn, found: Sequence[Any], tables: Tables
    ) -> Any:
        rows = [feature._checked(of_feature[0]) for feature, of_feature in zip(features, found, strict=True)]
        constants = [tf.constant(numbers, tf.float64)[:, tf.newaxis] for numbers in zip(*rows, strict=True)]
        return each_output(self._scaled(column, *constants))

    def _scaled(self, column: FlatColumn, center: Any, width: Any) -> Any:
        """Scale by constants: float64 [] each, with keys [n], or for k columns [k, 1]."""
        values = tf.cast(column.values, tf.float64)
        known = column.present & (width > 0)
        return tf.cast(tf.where(known, (values - center) / tf.where(width > 0, width, 1.0), 0.0), tf.float32)

    def _checked(self, found: Analysis) -> tuple[float, ...]:
        constants = self.constants(found)
        if not constants[1] > 0:
            what = f"always {found.sample[0]}" if found.sample else "missing in every row"
            _log.warning("%s is always 0, because column %r is %s: remove the feature", self, self.column, what)
        return constants


@dataclass(frozen=True)
class ZScore(Scaled):
    """Scale to (value - mean) / standard deviation over the training rows.

    The deviation is the population deviation, as in `tft.scale_to_z_score`. A missing value becomes the mean, which is
    0 after scaling, and does not affect mean and deviation. With a number as `fill`, in the column's unit, missing
    values are replaced by it before mean and deviation are computed.
    """

    fill: float | Literal["mean"] = "mean"
    kind: Literal["z_score"] = field(default="z_score", kw_only=True, repr=False)
    needs = (Moments,)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fill == "mean" or is_finite(self.fill), self, "fill", 'use "mean" or a finite number')

    @property
    def steps(self) -> tuple[Any, ...]:
        return self.clean if self.fill == "mean" else (*self.clean, FillWith(self.fill))

    def constants(self, found: Moments) -> tuple[float, ...]:
        varies = found.deviation > _CONSTANT * abs(found.mean)
        return found.mean, found.deviation if varies else 0.0


@dataclass(frozen=True)
class MinMax(Scaled):
    """Scale to low + (value - min) / (max - min) * (high - low), as in `tft.scale_by_min_max`.

    Values outside the range of the training rows exceed `low` and `high`. A step `Clip` prevents this.
    """

    low: float = 0.0
    high: float = 1.0
    kind: Literal["min_max"] = field(default="min_max", kw_only=True, repr=False)
    needs = (Moments,)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_finite(self.low), self, "low", "use a finite number")
        require(is_finite(self.high) and self.high > self.low, self, "high", "use a number greater than low")

    def constants(self, found: Moments) -> tuple[float, ...]:
        if not found.most > found.least:
            return 0.0, 0.0
        width = (found.most - found.least) / (self.high - self.low)
        return found.least - self.low * width, width


@dataclass(frozen=True)
class Robust(Scaled):
    """Scale to (value - median) / interquartile range, robust to outliers, as in scikit-learn's `RobustScaler`.

    Quantiles are data values with a rank error of at most 1 %.
    """

    kind: Literal["robust"] = field(default="robust", kw_only=True, repr=False)
    needs = (Quantiles,)

    def constants(self, found: Quantiles) -> tuple[float, ...]:
        lower, median, upper = found.at([0.25, 0.5, 0.75])
        return median, upper - lower


@dataclass(frozen=True)
class Log(Prepared):
    """Compute ln(value + `offset`), float32. A value of -`offset` or less counts as missing.

    The default, ln(1 + value), keeps 0 at 0 and suits counts and amounts.
    """

    column: str
    output: str | None = None
    offset: float = 1.0
    kind: Literal["log"] = field(default="log", kw_only=True, repr=False)
    shared = ("offset",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_finite(self.offset), self, "offset", "use a finite number")

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        shifted = tf.cast(column.values, tf.float64) + self.offset
        known = column.present & (shifted > 0)
        return tf.cast(tf.where(known, tf.math.log(tf.where(known, shifted, 1.0)), 0.0), tf.float32)


@dataclass(frozen=True)
class Cycle(Prepared):
    """Encode a cyclic value as (sin a, cos a) of a = 2 pi value / `period`, float32 [batch, 2].

    Periods are 24 for hours, 7 for weekdays, 12 for months, 360 for degrees. A missing value is (0, 0).
    """

    column: str
    period: float
    output: str | None = None
    kind: Literal["cycle"] = field(default="cycle", kw_only=True, repr=False)
    shared = ("period",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_finite(self.period) and self.period > 0, self, "period", "use a number above 0")

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        turns = tf.math.floormod(tf.cast(column.values, tf.float64), self.period) / self.period
        circle = tf.stack([tf.sin(2 * math.pi * turns), tf.cos(2 * math.pi * turns)], -1)
        return tf.cast(tf.where(column.present[..., tf.newaxis], circle, 0.0), tf.float32)
