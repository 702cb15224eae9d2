"""What the annotations of a dataclass say about its options: types, choices, bounds, and what tells a union apart.

Annotated[ByColumns | ByLabel, Tagged("how")]    one of these classes, each with a `how` of its own
Count                                            a whole number of 0 or more
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Tagged:
    """Which of the dataclasses of a union plain data is meant for: that whose field of this name has the same value.

    In each class it is a field such as `how: Literal["label"] = field(default="label", kw_only=True)`.
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
    """The least and the most that a number may be."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, number: Any, handler: Any) -> Any:
        return {**handler(number), "ge": self.least, "le": self.most}


Count = Annotated[int, Range(0, (1 << 63) - 1)]  # fits in every int64 there is


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Option -> type, of a dataclass."""
    return typing.get_type_hints(kind, include_extras=True)


def choices_of(hint: Any) -> tuple[Any, ...]:
    """The values of a `Literal`, which may be optional; empty for every other type."""
    bare = _bare(hint)
    return get_args(bare) if get_origin(bare) is Literal else ()


def tags_of(hint: Any) -> dict[str, Any]:
    """Tag -> class of a tagged union, which may be optional; empty for every other type."""
    if get_origin(hint) is Annotated:
        union, *notes = get_args(hint)
        return {tag: one for note in notes if isinstance(note, Tagged) for tag, one in note.classes(union).items()}
    return {tag: one for member in _but_none(hint) for tag, one in tags_of(member).items()}


def tag_name(hint: Any) -> str:
    """The field that tells the classes of a tagged union apart."""
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    names = [*(note.tag for note in notes if isinstance(note, Tagged)), *map(tag_name, _but_none(hint))]
    return next(filter(None, names), "")


def is_tag(hint: Any) -> bool:
    """Whether it has a single value, which tells one class from others."""
    return len(choices_of(hint)) == 1


def is_optional(hint: Any) -> bool:
    """Whether None is a value of it."""
    return _is_union(hint) and type(None) in get_args(hint)


def follow(hint: Any, steps: Iterable[Any]) -> tuple[tuple[Any, ...], Any, Any]:
    """Goes down from a type by the names and indexes of a value in it, as pydantic's errors have them.

    Those name the member of each union as well, which is no part of the path.

    Returns:
      (path, type of what holds its end, type of its end)
    """
    path: list[Any] = []
    holder = None
    for step in steps:
        if members := _members(hint):
            hint = tags_of(hint).get(step, members[0])
        else:
            holder, hint = _bare(hint), _inside(_bare(hint), step)
            path.append(step)
    return tuple(path), holder, hint


def _inside(hint: Any, step: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        kind: Any = hint
        return hints_of(kind).get(step, Any)
    of = get_args(hint) or (Any,)
    return of[-1] if get_origin(hint) is Mapping else of[0]


def _bare(hint: Any) -> Any:
    """Without `Annotated`, and without `| None` where a single type is left then."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    given = _but_none(hint)
    return _bare(given[0]) if len(given) == 1 else hint


def _members(hint: Any) -> list[Any]:
    """Of a union, without None; empty where that leaves a single type."""
    return _but_none(_bare(hint))


def _but_none(hint: Any) -> list[Any]:
    return [one for one in get_args(hint) if one is not type(None)] if _is_union(hint) else []


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)
