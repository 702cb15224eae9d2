"""Checks for the `__post_init__` of option dataclasses. The value None passes every check.

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(self, 1, "epochs", "patience")
        require(0 < self.threshold < 1, self, "threshold", "use a probability between 0 and 1")

Each error names its option. If options are created directly, the error names the class. If `schema.read` reads them
from a file, the error names the place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np

from infeed.components.base.annotations import bare, choices_of, hints_of, is_optional, range_of
from infeed.components.base.errors import InfeedError, OptionError
from infeed.components.base.schema import shown

_SCALARS: Mapping[Any, tuple[Any, str]] = {
    int: (Integral, "use an integer"),
    float: (Real, "use a number"),
    str: (str, "use text"),
    bool: ((bool, np.bool_), "use true or false"),
}


def check_fields(options: Any) -> None:
    """Raise OptionError if a scalar violates its annotation: its type, the choices of a `Literal`, or its `Range`."""
    kind: Any = type(options)
    for name, hint in hints_of(kind).items():
        value, choices, bounds = getattr(options, name), choices_of(hint), range_of(hint)
        if value is None and is_optional(hint):
            continue
        if choices and value not in choices:
            raise refused(options, name, f"use one of {', '.join(map(str, choices))}")
        if bounds:
            at_least(options, bounds.least, name)
            require(value <= bounds.most, options, name, f"use a number of at most {bounds.most}")
        if (scalar := bare(hint)) in _SCALARS:
            kinds, do = _SCALARS[scalar]
            require(isinstance(value, kinds) and _is_bool(value) == (scalar is bool), options, name, do)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or NumPy."""
    return isinstance(value, Integral) and not _is_bool(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def at_least(options: Any, least: int, *names: str) -> None:
    """Raise OptionError if one of these options is below `least` or not a number."""
    for name in names:
        value = getattr(options, name)
        is_number = isinstance(value, Real) and not _is_bool(value)
        if value is not None and not (is_number and value >= least):
            raise refused(options, name, f"use a number of at least {least}")


def require(holds: Any, options: Any, name: str, do: str) -> None:
    """Raise OptionError about the option `name` unless `holds`."""
    if not holds:
        raise refused(options, name, do)


def refused(options: Any, name: str, do: str, what: str = "") -> OptionError:
    """Return the error of an invalid option. `what` replaces the default description."""
    what = what or f"{name} is {shown(getattr(options, name))}"
    return OptionError(what, where=type(options).__name__, option=name, do=do)


@contextmanager
def about(options: Any, name: str) -> Iterator[None]:
    """Convert an InfeedError of the body to an error about the option `name`."""
    try:
        yield
    except InfeedError as error:
        raise OptionError(error.what, where=error.where, do=error.do, option=name) from error


def as_tuples(options: Any, *names: str) -> None:
    for name in names:
        if isinstance(value := getattr(options, name), list):
            object.__setattr__(options, name, tuple(value))
