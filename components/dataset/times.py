"""Parsing of times as instants: dates, timestamps, text in ISO 8601 or a `strptime` format, and numbers since 1970.

Splits by time and the filter's `time()` read their columns and their limits here. Formats are those of `DatePart`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.time_formats import DAY, EPOCHS, FIRST, ISO, LAST, MONTHS, formats_of, named_regex

_SECOND = 1_000_000
_INT64 = np.iinfo(np.int64)
_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class Instants(NamedTuple):
    """Times of a column. Text without a UTC offset is read as UTC, and text without a time as midnight."""

    micros: _Numbers  # int64 [values], microseconds since 1970-01-01T00:00 UTC; meaningless if not `valid`
    valid: _Flags  # bool [values], False for nulls and for text that is not a time
    has_offset: _Flags  # bool [values], whether the value, or the type of the column, has a UTC offset or a zone


def is_text(type_: pa.DataType) -> bool:
    types = pa.types
    return any(is_(type_) for is_ in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


def holds_times(type_: pa.DataType, form: str) -> bool:
    """Return whether `times_of` reads columns of this type. Numbers need a format other than ISO 8601."""
    if form != ISO and (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        return form in EPOCHS or pa.types.is_integer(type_)
    return is_text(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_)


def times_of(values: pa.Array, form: str = ISO) -> Instants:
    """Read a column, see `holds_times`. `form` is "iso", a format of `strptime`, or "epoch_s" to "epoch_ns"."""
    type_ = values.type
    if pa.types.is_date(type_):
        type_ = pa.timestamp("s" if pa.types.is_date32(type_) else "ms")
        values = values.cast(type_)
    if pa.types.is_timestamp(type_):
        times = _of_numbers(values.cast(pa.int64()), f"epoch_{type_.unit}")
        return times._replace(has_offset=np.full(len(values), type_.tz is not None))
    if form in EPOCHS and not is_text(type_):
        return _of_numbers(values, form)
    return parse(values if is_text(type_) else values.cast(pa.string()), form)


def _of_numbers(values: pa.Array, form: str) -> Instants:
    multiply, divide = EPOCHS[form]
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    least, beyond = max(FIRST * divide // multiply, _INT64.min), min(LAST * divide // multiply, _INT64.max)
    valid = (numbers >= least) & (numbers < beyond)  # False for NaN
    kept = np.where(valid, numbers, 0)
    if kept.dtype.kind == "f":
        micros = np.floor(kept.astype(np.float64) * multiply / divide).astype(np.int64)
    else:
        micros = kept.astype(np.int64) * multiply // divide
    return Instants(micros, valid & _flags(values.is_valid()), np.zeros(len(values), bool))


def parse(texts: pa.Array, form: str) -> Instants:
    """Parse text. Case and surrounding white space are ignored; digits of a fraction beyond the sixth are dropped."""
    found = pc.extract_regex(texts, named_regex(form))
    held = {field.name: found.field(field.name).cast(pa.string()) for field in found.type}
    days, exists = _days(held)
    offset, has_offset = _offset(held)
    micros = days * DAY + _time_of_day(held) - offset
    valid = _flags(found.is_valid()) & exists & (micros >= FIRST) & (micros < LAST)
    return Instants(micros, valid, has_offset)


def _days(held: dict[str, pa.Array]) -> tuple[_Numbers, _Flags]:
    """Return days since 1970, and whether the dates exist."""
    year = _number(held, "Y" if "Y" in held else "y", 1970)
    if "Y" not in held:
        year = year + np.where(year >= 69, 1900, 2000)  # as POSIX requires
    if "j" in held:
        first, after = _first_day(year, 1), _first_day(year + 1, 1)
        place = _number(held, "j", 1)
    else:
        month = _number(held, "m", 1)
        if name := next((name for name in ("b", "B") if name in held), None):
            short = pc.utf8_slice_codeunits(pc.utf8_lower(held[name]), 0, 3)
            month = _numbers(pc.index_in(short, value_set=pa.array(MONTHS))) + 1
        first, after = _first_day(year, month), _first_day(year, month + 1)
        place = _number(held, "d", 1)
    return first + place - 1, (first + place <= after) & (year >= 1)


def _first_day(year: _Numbers, month: _Numbers | int) -> _Numbers:
    """Return days from 1970 to the first day of a month; month 13 is the next January."""
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    return months.astype("datetime64[D]").astype(np.int64)


def _time_of_day(held: dict[str, pa.Array]) -> _Numbers:
    hours = _number(held, "H", 0)
    if "I" in held:
        hours = _number(held, "I", 12) % 12
        if "p" in held:
            hours = hours + 12 * _flags(pc.equal(pc.utf8_lower(held["p"]), "pm"))
    seconds = (hours * 60 + _number(held, "M", 0)) * 60 + _number(held, "S", 0)
    fraction = {"f": pc.utf8_slice_codeunits(pc.utf8_rpad(held["f"], 6, "0"), 0, 6)} if "f" in held else {}
    return seconds * _SECOND + (_number(fraction, "f", 0) if fraction else 0)


def _offset(held: dict[str, pa.Array]) -> tuple[_Numbers | int, _Flags]:
    """Return the offset from UTC in microseconds, and whether the text has one."""
    if "z" not in held:
        return 0, np.zeros(len(next(iter(held.values()))), bool)
    text = held["z"]
    digits = pc.utf8_rpad(pc.replace_substring_regex(text, pattern="[^0-9]", replacement=""), 4, "0")  # hhmm
    number = _number({"z": digits}, "z", 0)
    minutes = number // 100 * 60 + number % 100
    sign = np.where(_flags(pc.starts_with(text, pattern="-")), -1, 1)
    return sign * minutes * 60 * _SECOND, _flags(pc.not_equal(text, ""))


def _number(held: dict[str, pa.Array], directive: str, default: int) -> _Numbers:
    """Return the numbers of a group. `default` if the group is empty or the format does not have the directive."""
    if directive not in held:
        return np.full(len(next(iter(held.values()))), default, np.int64)
    text = held[directive]
    return _numbers(pc.if_else(pc.equal(text, ""), str(default), text).cast(pa.int64()), default)


def _numbers(values: pa.Array, default: int = 0) -> _Numbers:
    return np.asarray(values.fill_null(default), np.int64)


def _flags(values: pa.Array) -> _Flags:
    return np.asarray(values.fill_null(False), bool)


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
        # The advice is the same instant in UTC, with an offset if the limit has none, or without if it has one.
        text = str(np.datetime64(limit.micros, "us").astype("datetime64[s]")) + ("" if limit.has_offset else "Z")
        raise InfeedError(what, where=where, do=f"write both in the same form, such as {text!r}")


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
