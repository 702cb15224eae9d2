from __future__ import annotations

import io
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import infeed.pipelines.console.terminal
from infeed.pipelines.console.terminal import Terminal, command_line, echo, plain

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


WORDS = [
    "my file.csv",
    "it's",
    'nulls=["", "NA"]',
    "a\nb",
    "$HOME",
    "*.csv",
    "~",
    "",
    "a;b",
    "\\",
    "größe",
    Path("a b/c"),
]


def test_a_shell_reads_the_words_of_a_command_line_as_they_were() -> None:
    line = command_line(*WORDS, program="my printf")
    assert shlex.split(line) == ["my printf", *map(str, WORDS)]
    shown = subprocess.run(["sh", "-c", line.replace("'my printf'", "printf '%s\\0'")], capture_output=True, check=True)
    assert shown.stdout.decode().split("\0")[:-1] == [str(word) for word in WORDS]


def test_the_program_of_a_command_line_is_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [str(Path.cwd() / "my env" / "bin" / "infeed"), "run"])
    assert shlex.split(command_line("doctor")) == ["my env/bin/infeed", "doctor"]


def test_styles_stay() -> None:
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, color_system="standard").print(Text("red", "red"))
    assert "\x1b[31mred\x1b[0m" in file.getvalue()


def test_nothing_else_writes_to_a_terminal() -> None:
    here = Path(infeed.pipelines.console.terminal.__file__)
    for file in here.parent.rglob("*.py"):
        if file != here:
            assert not re.search(r"click\.s?echo\(|\bConsole\(|^\s*print\(f", file.read_text(), re.MULTILINE), file
