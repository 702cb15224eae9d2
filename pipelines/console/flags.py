"""Flags of the command line, made from the options of dataclasses: name, type, bounds, help and default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_origin

import click

from infeed.components.annotations import Placeholder, bare, choices_of, help_of, hints_of, notes_of, range_of

_Command = Callable[..., Any]
_MOST_SHOWN = 1 << 62  # larger bounds are those of int64


def flag(kind: Any, name: str, help: str = "", *, default: bool = True) -> Callable[[_Command], _Command]:
    """Return the click option of a dataclass's option. The value is None, or empty for lists, if it is not given.

    Args:
      kind: the dataclass.
      help: description, by default the one in the docstring of the dataclass. Its first sentence is shown.
      default: whether to show the default of the dataclass.
    """
    hint = hints_of(kind)[name]
    text = (help or help_of(kind)[name]).partition(". ")[0].rstrip(".").replace("`", "")
    given: dict[str, Any] = {"help": f"{text[0].upper()}{text[1:]}."}
    if default and (shown := _default(kind, name)):
        given["help"] += f"  [default: {shown}]"
    word = next((note.word for note in notes_of(hint) if isinstance(note, Placeholder)), None)
    if bare(hint) is bool:
        given |= {"is_flag": True, "default": None}
    else:
        given |= {"type": _type(hint), "metavar": word or ("N" if range_of(hint) else None)}
    if get_origin(bare(hint)) is tuple and "," not in (word or ""):
        given["multiple"] = True
        given["help"] += "  [repeatable]"
    return click.option(f"--{name.replace('_', '-')}", name, **given)


def _type(hint: Any) -> Any:
    if choices := choices_of(hint):
        return click.Choice(choices)
    if bounds := range_of(hint):
        return click.IntRange(bounds.least, bounds.most if bounds.most < _MOST_SHOWN else None)
    return str


def _default(kind: Any, name: str) -> str:
    value = next(f.default for f in dataclasses.fields(kind) if f.name == name)
    values = value if isinstance(value, tuple) else [value]
    return ", ".join(str(one) for one in values if one not in (None, "", dataclasses.MISSING) and one is not False)
