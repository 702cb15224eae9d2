from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import click
import pytest
from click.testing import CliRunner

from infeed.components.base.annotations import Placeholder, Positive
from infeed.pipelines.commands.options import as_flags, flag


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"delimiter": ";"}, ["--delimiter", ";"]),
        ({"delimiter": "\t", "encoding": "latin-1"}, ["--delimiter", "tab", "--set", "encoding=latin-1"]),
        ({"nulls": ["", "NA"]}, ["--set", 'nulls=["", "NA"]']),
    ],
)
def test_options_as_words_of_a_command_line(options, flags):
    assert as_flags(options) == flags


@dataclass(frozen=True)
class Options:
    """Options.

    Attributes:
      level, depth: how far to go. More
        on that.
      columns: column to keep; see `level`.
      names: names to write.
      quick: skip the rest.
    """

    level: Literal["low", "high"] = "low"
    depth: Positive | None = None
    columns: Annotated[tuple[str, ...], Placeholder("COLUMN")] = ()
    names: Annotated[tuple[str, ...] | None, Placeholder("A,B")] = None
    quick: bool = False


def run(*arguments: str) -> tuple[dict[str, Any], str]:
    given: dict[str, Any] = {}
    command: Any = lambda **values: given.update(values)  # noqa: E731
    for name in Options.__annotations__:
        command = flag(Options, name)(command)
    done = CliRunner().invoke(click.command()(command), arguments)
    return given, done.output


def test_a_flag_that_is_not_given_has_no_value() -> None:
    assert run()[0] == {"level": None, "depth": None, "columns": (), "names": None, "quick": None}


def test_the_annotation_is_the_type() -> None:
    given, _ = run("--level", "high", "--depth", "3", "--columns", "a", "--columns", "b", "--names", "x,y", "--quick")
    assert given == {"level": "high", "depth": 3, "columns": ("a", "b"), "names": "x,y", "quick": True}


@pytest.mark.parametrize("arguments", [("--depth", "0"), ("--level", "none")])
def test_a_value_out_of_bounds_is_refused(arguments: tuple[str, str]) -> None:
    given, output = run(*arguments)
    assert not given
    assert arguments[1] in output


def test_the_docstring_is_the_help() -> None:
    _, output = run("--help")
    assert "--depth N " in output
    assert "How far to go.  [default: low]" in " ".join(output.split("\n")).replace("  [", "  [")
    assert "--columns COLUMN" in output
    assert "see level." in output
    assert "More" not in output
