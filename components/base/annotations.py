"""Annotations of options: types, choices, bounds, help texts and union tags.

Annotated[ByColumns | ByLabel, Tagged("how")]    one of these classes, selected by the value of `how`
Count                                            an integer >= 0
Annotated[str, Placeholder("COLUMN")]            shown as `--split-label COLUMN` in the help of a command
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Tagged:
    """Field whose value selects the dataclass of a tagged union.

    Each class has a field such as `how: Literal["label"] = field(default="label", kw_only=True)`.
    """

    tag: str

    def classes(self, union: Any) -> dict[str, Any]:
        return {getattr(one, self.tag): one for one in get_args(union)}

    def __get_pydantic_core_schema__(self, union: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        choices = {tag: handler.generate_schema(one) for tag, one in self.classes(union).items()}
        return core_schema.tagged_union_schema(choices, self.tag)


@dataclass(frozen=True)
class Range:
    least: int
    most: int

    def __get_pydantic_core_schema__(self, number: Any, handler: Any) -> Any:
        return {**handler(number), "ge": self.least, "le": self.most}


@dataclass(frozen=True)
class Placeholder:
    """Metavar of an option in the help of a command. A metavar with a comma, such as `A,B,...`, marks a list."""

    word: str


_MOST = (1 << 63) - 1  # fits into int64
Count = Annotated[int, Range(0, _MOST)]
Positive = Annotated[int, Range(1, _MOST)]

# `name, name: text` under `Attributes:`, with its continuation lines.
_ATTRIBUTE = re.compile(r"^  (\w+(?:, \w+)*): (.*(?:\n    .*)*)", re.MULTILINE)


@functools.cache
def help_of(kind: Any) -> Mapping[str, str]:
    """Return the description of each option, from `Attributes:` in the docstring of its dataclass.

    Empty in `python -OO`, which drops docstrings.
    """
    _, _, attributes = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    found = _ATTRIBUTE.findall(attributes)
    return {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def choices_of(hint: Any) -> tuple[Any, ...]:
    """Return the values of a `Literal`, optional or not. Empty for other types."""
    return get_args(bare(hint)) if get_origin(bare(hint)) is Literal else ()


def notes_of(hint: Any) -> list[Any]:
    """Return the metadata that `Annotated` adds to a type, optional or not."""
    notes = list(get_args(hint)[1:]) if get_origin(hint) is Annotated else []
    inner = [get_args(hint)[0]] if notes else _but_none(hint)
    return [*notes, *chain.from_iterable(map(notes_of, inner))]


def range_of(hint: Any) -> Range | None:
    """Return the bounds of a number, optional or not."""
    return next((note for note in notes_of(hint) if isinstance(note, Range)), None)


def tags_of(hint: Any) -> dict[str, Any]:
    """Map the tags of a tagged union, optional or not, to classes. Empty for other types."""
    if get_origin(hint) is Annotated:
        union, *notes = get_args(hint)
        return {tag: one for note in notes if isinstance(note, Tagged) for tag, one in note.classes(union).items()}
    return {tag: one for member in _but_none(hint) for tag, one in tags_of(member).items()}


def tag_name(hint: Any) -> str:
    """Return the field that selects the class of a tagged union."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    names = [*(note.tag for note in notes if isinstance(note, Tagged)), *map(tag_name, _but_none(hint))]
    return next(filter(None, names), "")


def is_tag(hint: Any) -> bool:
    """Return whether a type has a single value, which selects a class."""
    return len(choices_of(hint)) == 1


def is_optional(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return is_optional(get_args(hint)[0])
    return _is_union(hint) and type(None) in get_args(hint)


def follow(hint: Any, steps: Iterable[Any]) -> tuple[tuple[Any, ...], Any, Any]:
    """Descend from a type along the names and indices in the location of a pydantic error.

    The location also names the member of each union, which is not part of the path. Return the path, the type that
    contains its end, and the type of its end.
    """
    path: list[Any] = []
    holder: Any = None
    for step in steps:
        if members := _but_none(bare(hint)):
            hint = tags_of(hint).get(step, members[0])
            continue
        holder, is_options = bare(hint), dataclasses.is_dataclass(bare(hint))
        path.append(step)
        if is_options:
            hint = hints_of(holder).get(step, Any)
        else:
            of = get_args(holder) or (Any,)
            hint = of[-1] if get_origin(holder) is Mapping else of[0]
    return tuple(path), holder, hint


def bare(hint: Any) -> Any:
    """Remove `Annotated`, and `| None` if a single type remains."""
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    given = _but_none(hint)
    return bare(given[0]) if len(given) == 1 else hint


def _but_none(hint: Any) -> list[Any]:
    return [one for one in get_args(hint) if one is not type(None)] if _is_union(hint) else []


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)
