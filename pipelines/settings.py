"""Options read from a mapping of a YAML file: frozen dataclasses, with an error for what does not fit their types."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from infeed.components.errors import InfeedError

_Options = TypeVar("_Options")

# What a value has to be, in words, by the type that the option is declared with.
_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def read_settings(kind: type[_Options], given: Any, where: str) -> _Options:
    """`kind(**given)`, what `kind` is made of read in the same way.

    A setting without a value, `name:`, is one that was not given, unless None is a value of it.

    Args:
      kind: a dataclass, whose annotations say what each setting has to be.
      given: the mapping, as YAML gives it.
      where: path of the mapping in the file, for errors; empty for the whole file.

    Raises:
      InfeedError: no mapping, a setting that does not exist, a required one that is missing, or a value of another type
        or out of range.
    """
    if not isinstance(given, Mapping):
        raise InfeedError(f"{given!r} holds no settings", where=where, do="Write a mapping there: name: value.")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    check_known(given, fields, where)
    hints = _hints(kind)  # type: ignore[arg-type]
    named = {name: value for name, value in given.items() if value is not None or _takes_none(hints[name])}
    required = [n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [name for name in required if name not in named]:
        raise InfeedError(f"the setting {missing[0]!r} is missing", where=where, do="Add it.")
    return kind(**{name: _value(hints[name], value, _inside(where, name)) for name, value in named.items()})


def check_known(given: Iterable[Any], known: Iterable[str], where: str) -> None:
    """Raises InfeedError for a name in `given` that is not among `known`, with the nearest one that is."""
    names = list(known)
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InfeedError(
            f"there is no setting {unknown[0]!r}{meant}", where=where, do=f"Use one of {', '.join(names)}."
        )


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _inside(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _takes_none(hint: Any) -> bool:
    return hint is Any or type(None) in get_args(hint)


def _value(hint: Any, given: Any, where: str) -> Any:
    """`given` as a value of the type `hint`."""
    if hint is Any or (given is None and _takes_none(hint)):
        return given
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _first_that_fits([arm for arm in get_args(hint) if arm is not type(None)], given, where)
    if origin is Literal:
        return _one_of(get_args(hint), given, where)
    if origin is Mapping:
        return _mapping(get_args(hint)[1], given, where)
    if origin in (Sequence, tuple):
        return _list(get_args(hint)[0], given, where)
    if dataclasses.is_dataclass(hint):
        return given if isinstance(given, hint) else read_settings(hint, given, where)  # type: ignore[arg-type]
    return _scalar(hint, given, where)


def _first_that_fits(arms: list[Any], given: Any, where: str) -> Any:
    """Where none fits, the error is that of the first arm."""
    *first, last = arms
    try:
        return _value(last, given, where)
    except InfeedError:
        if not first:
            raise
        return _first_that_fits(first, given, where)


def _one_of(allowed: tuple[Any, ...], given: Any, where: str) -> Any:
    if given not in allowed:
        raise _wrong(given, where, f"Use one of {', '.join(allowed)}.")
    return given


def _mapping(of: Any, given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(given, where, "Write a mapping there: {name: value}.")
    return {_scalar(str, name, where): _value(of, value, _inside(where, name)) for name, value in given.items()}


def _list(of: Any, given: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise _wrong(given, where, "Write a list there: [value, value].")
    return tuple(_value(of, value, where) for value in given)


def _scalar(kind: type, given: Any, where: str) -> Any:
    """A number is taken for text, since YAML reads `cpu: 4` and `project: 123` as numbers."""
    if kind is str and isinstance(given, int | float) and not isinstance(given, bool):
        return str(given)
    fits = isinstance(given, int | float if kind is float else kind) and (kind is bool or not isinstance(given, bool))
    if not fits:
        raise _wrong(given, where, f"Write {_WORDS[kind]} there.")
    return given


def _wrong(given: Any, where: str, do: str) -> InfeedError:
    return InfeedError(f"{where.rpartition('.')[2]} is {given!r}", where=where, do=do)
