"""The table of docs/exit-codes.md has the codes that the commands use."""

from __future__ import annotations

import re
from pathlib import Path

from infeed import pipelines
from infeed.pipelines.console.exit_codes import EXIT_CODES, EXIT_FAILED, EXIT_LOST, EXIT_NOT_BLESSED

PIPELINES = Path(pipelines.__file__).parent
PAGE = (Path(__file__).parents[3] / "docs" / "exit-codes.md").read_text()
TABLE = {int(code): commands for code, commands in re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)}
NAMES = {EXIT_FAILED: "EXIT_FAILED", EXIT_NOT_BLESSED: "EXIT_NOT_BLESSED", EXIT_LOST: "EXIT_LOST"}


def users(name: str) -> set[str]:
    """Commands whose module, or the folder of the same name, uses an exit code."""
    modules = {path.stem: [path] for path in (PIPELINES / "commands").glob("*.py")}
    return {
        command
        for command, paths in modules.items()
        if any(re.search(rf"\b{name}\b", path.read_text()) for path in (*paths, *(PIPELINES / command).glob("*.py")))
    }


def test_the_table_has_the_codes_of_the_help() -> None:
    assert list(TABLE) == list(EXIT_CODES)


def test_a_code_of_some_commands_stands_with_those_that_use_it() -> None:
    for code, name in NAMES.items():
        assert set(re.findall(r"`(\w+)`", TABLE[code])) == users(name) - {"run_summary"}
    assert {TABLE[code] for code in EXIT_CODES.keys() - NAMES.keys()} == {"all"}


def test_each_command_that_ends_with_1_has_its_cause() -> None:
    causes = re.findall(r"^\| `(\w+)[^|]*\|[^|]*\|$", PAGE.partition("Causes of exit code 1")[2], re.MULTILINE)
    assert set(causes) == users("EXIT_FAILED")
