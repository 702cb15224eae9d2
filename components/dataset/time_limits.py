"""Comparison of a time column with limits as instants: the cuts of a split, and `time()` in a filter.

Values and limits that are not times are errors. So is a comparison of times with and without a UTC offset.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.time_formats import EPOCHS, ISO, formats_of
from infeed.components.dataset.times import Instants, is_text, parse, times_of

_FINER = re.compile(r"[.,]\d{6}0*[1-9]")  # a fraction with digits below a microsecond
_SHOWN = 3  # formats in an error
_SAMPLE = 100  # values used to narrow down the formats


@dataclass(frozen=True)
class Limit:
    """A time to compare with.

    Attributes:
      text: the limit as the user wrote it.
      micros: microseconds since 1970-01-01T00:00 UTC.
      has_offset: whether the text has an offset from UTC.
    """

    text: str
    micros: int
    has_offset: bool


def read_limit(text: str, form: str, where: str) -> Limit | None:
    """Read a limit in the format `form`, or else in ISO 8601. None if neither matches."""
    for known in dict.fromkeys([form, ISO]):
        times = None if known in EPOCHS else parse(pa.array([text]), known)
        if times and times.valid[0]:
            if _FINER.search(text):
                raise InfeedError(f"{text!r} is finer than a microsecond", where=where, do="leave out further digits")
            return Limit(text, int(times.micros[0]), bool(times.has_offset[0]))
    return None


def read_column(values: pa.Array, form: str, limits: Sequence[Limit], where: str, usage: str) -> Instants:
    """Read a time column to compare it with limits; see `times_of`.

    Args:
      usage: how to set a format here, with {} for the format.

    Raises InfeedError if a value is not a time, or only one of a value and a limit has a UTC offset. Nulls are invalid
    but not errors.
    """
    times = times_of(values, form)
    wrong = np.flatnonzero(~times.valid & ~np.asarray(values.is_null(), bool))
    if len(wrong):
        examples = [shown(values, row) for row in wrong[:_SAMPLE].tolist()]
        known = "an ISO 8601 time" if form == ISO else f"a time of format {form!r}"
        what = f"{examples[0]!r} is not {known}{''.join(f', but {limit.text!r} is' for limit in limits[:1])}"
        raise InfeedError(what, where=where, do=format_advice(examples, usage, form))
    for limit in limits:
        _check_offsets(values, times, limit, where)
    return times


def _check_offsets(values: pa.Array, times: Instants, limit: Limit, where: str) -> None:
    unlike = np.flatnonzero(times.valid & (times.has_offset != limit.has_offset))
    if len(unlike):
        have = ("no offset from UTC", "an offset from UTC")
        example = repr(shown(values, int(unlike[0]))) + ("" if is_text(values.type) else f", of type {values.type},")
        what = f"{example} has {have[not limit.has_offset]}, but {limit.text!r} has {have[limit.has_offset]}"
        raise InfeedError(what, where=where, do=f"write both in the same form, such as {_rewritten(limit)!r}")


def _rewritten(limit: Limit) -> str:
    """Return the same instant in UTC, with an offset if the limit has none, or without if it has one."""
    text = str(np.datetime64(limit.micros, "us").astype("datetime64[s]"))
    return text if limit.has_offset else f"{text}Z"


def format_advice(examples: Sequence[str], usage: str, failed: str = "") -> str:
    """Return advice on the format of some texts, with the usual formats that fit them, but not the one that failed."""
    fitting = [form for form in formats_of(examples) or formats_of(examples[:1]) if form not in (ISO, failed)]
    if not fitting:
        do = f"give the format of the column as {usage.format('FORMAT')}, with directives of strptime that read"
        return f"{do} {examples[0]!r}, or correct such values"
    return (
        f"give the format of the column, such as {' or '.join(usage.format(repr(form)) for form in fitting[:_SHOWN])}"
    )


def shown(values: pa.Array, row: int) -> str:
    """Return a value as text."""
    if is_text(values.type):
        text = values[row].as_py()
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return str(values.slice(row, 1).cast(pa.string())[0].as_py())
