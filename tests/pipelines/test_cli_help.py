"""Examples in the help, and completion of commands, options and paths."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import click
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from infeed.pipelines.cli import _COMMANDS, main
from infeed.pipelines.console.exit_codes import EXIT_CODES, Command


def command_of(name: str) -> Command:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, Command)
    return command


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_help_of_a_command_ends_with_examples_that_parse(name: str) -> None:
    command = command_of(name)
    assert 2 <= len(command.examples) <= 3
    for example in command.examples:
        program, of_command, *arguments = shlex.split(example)
        assert (program, of_command) == ("infeed", name)
        command.make_context(name, arguments)
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=60).stdout
    assert [line.strip() for line in shown.splitlines()[-len(command.examples) :]] == list(command.examples)


def test_the_help_lists_the_exit_codes() -> None:
    lines = CliRunner().invoke(main, ["--help"]).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines[-len(EXIT_CODES) :]] == list(EXIT_CODES)


def completions(*words: str) -> list[tuple[str, str]]:
    shell = get_completion_class("bash")
    assert shell
    *before, last = words
    found = shell(main, {}, "infeed", "_INFEED_COMPLETE").get_completions(before, last)
    return [(item.type, item.value) for item in found]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ru",), [("plain", "run"), ("plain", "runs")]),
        (("run", "--ep"), [("plain", "--epochs")]),
        (("run", "ta"), [("plain", "tabular")]),
        (("run", "my"), [("file", "my")]),
        (("run", "--root", "r"), [("dir", "r")]),
        (("compile", "--target", "ver"), [("plain", "vertex")]),
        (("inspect", "da"), [("file", "da")]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_options_choices_and_paths_are_completed(words: tuple[str, ...], found: list[tuple[str, str]]) -> None:
    assert completions(*words) == found


def test_completion_loads_nothing_heavy() -> None:
    program = (
        "import atexit, sys\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'keras', 'ml_metadata', 'kfp', 'sklearn', 'matplotlib'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))\n"
        "from infeed.pipelines.cli import main\n"
        "main(prog_name='infeed')"
    )
    asked = {"_INFEED_COMPLETE": "bash_complete", "COMP_WORDS": "infeed re", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["plain,report", "plain,rehearse", "[]"]
