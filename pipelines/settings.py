"""Options read from a mapping of a YAML file: frozen dataclasses, with an error for a setting that does not exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from infeed.components.errors import InfeedError

_Options = TypeVar("_Options")


def read_settings(
    kind: type[_Options], given: Any, where: str, nested: Mapping[str, Callable[[Any, str], Any]] | None = None
) -> _Options:
    """`kind(**given)`.

    Args:
      kind: a dataclass.
      given: the mapping, as YAML gives it.
      where: path of the setting in the file, for errors.
      nested: for settings that hold options themselves, what makes them from their value and their path.

    Raises:
      InfeedError: no mapping, a setting that does not exist, or a required one that is missing.
    """
    if not isinstance(given, Mapping):
        raise InfeedError(f"{given!r} holds no settings", where=where, do="Write a mapping there: name: value.")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = [str(name) for name in given if name not in fields]
    if unknown:
        raise InfeedError(f"there is no setting {unknown[0]!r}", where=where, do=f"Use one of {', '.join(fields)}.")
    required = [n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]
    missing = [name for name in required if name not in given]
    if missing:
        raise InfeedError(f"the setting {missing[0]!r} is missing", where=where, do="Add it.")
    makers = nested or {}
    values = {
        name: makers[name](value, f"{where}.{name}") if name in makers and value is not None else value
        for name, value in given.items()
    }
    return kind(**values)
