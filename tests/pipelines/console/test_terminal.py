from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import infeed.pipelines.console.terminal
from infeed.pipelines.console.terminal import Terminal, echo, plain

SEQUENCES = ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\rover", "\x08", "\x00", "\x7f", "\u202etxt.exe", "\udcff"]


@pytest.mark.parametrize("text", SEQUENCES)
def test_what_a_terminal_would_obey_is_written_as_python_writes_it(text: str) -> None:
    shown = plain(f"a{text}b")
    assert re.fullmatch(r"a\\[xur][\x20-\x7e]*b", shown)
    assert plain(shown) == shown


def test_text_of_all_languages_stays() -> None:
    text = "Größe\t日本 עברית 👩‍🚀\nsecond line"
    assert plain(text) == text


@pytest.mark.parametrize("text", SEQUENCES)
def test_tables_and_lines_hold_no_control_characters(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, width=200, markup=False)
    table = Table(text, title=text)
    table.add_row(text, Text(text, "bold"))
    terminal.print(text, Text(text), table)
    echo(text)
    echo(text, err=True)
    said = capsys.readouterr()
    for shown in (file.getvalue(), said.out, said.err):
        assert shown.replace("\n", "").isprintable()


def test_styles_stay() -> None:
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, color_system="standard").print(Text("red", "red"))
    assert "\x1b[31mred\x1b[0m" in file.getvalue()


def test_nothing_else_writes_to_a_terminal() -> None:
    here = Path(infeed.pipelines.console.terminal.__file__)
    for file in here.parent.rglob("*.py"):
        if file != here:
            assert not re.search(r"click\.s?echo\(|\bConsole\(|^\s*print\(f", file.read_text(), re.MULTILINE), file
