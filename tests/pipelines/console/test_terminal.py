from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import infeed.pipelines.console.terminal
from infeed.pipelines.console.nodes import NodeReport, NodeState, show_nodes
from infeed.pipelines.console.terminal import Terminal, command_line, echo, plain, show_facts

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


@pytest.mark.parametrize(
    ("name", "value"), [("JPY_PARENT_PID", "7"), ("MPLBACKEND", "module://matplotlib_inline.backend_inline")]
)
def test_a_cell_of_a_notebook_gets_lines_and_no_live_table(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for known in ("JPY_PARENT_PID", "MPLBACKEND"):
        monkeypatch.delenv(known, raising=False)
    assert Terminal(file=io.StringIO(), force_terminal=True).is_interactive
    monkeypatch.setenv(name, value)
    console = Terminal(file=io.StringIO(), force_terminal=True)
    assert (console.is_terminal, console.is_interactive) == (True, False)
    with show_nodes(console, "run.log") as on_change:
        on_change([NodeReport("Trainer", NodeState.RUNNING)])
        on_change([NodeReport("Trainer", NodeState.DONE, 1.0)])
    assert console.file.getvalue().count("Trainer") == 2  # type: ignore[attr-defined]


_INTO_A_PIPE = """
import os, sys
from infeed.pipelines.console.terminal import escape_unencodable
os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR), 1)
sys.stdout = os.fdopen(1, "w", encoding="ascii", closefd=False)  # a stream that can seek
os.dup2(2, 1)
escape_unencodable()
print("größe")
"""


def test_a_stdout_that_became_a_pipe_escapes_what_it_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTO_A_PIPE, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "gr\\xf6\\xdfe\n")


def test_long_facts_are_wrapped_between_words_in_a_pipe() -> None:
    console = Terminal(file=io.StringIO())
    path = "/a-folder/" + "x" * 150
    show_facts(console, [("data", f"rows of {path} and {'words ' * 60}"), ("label", "y")])
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any(line.strip() == path for line in lines)
    assert all(len(line) <= 120 for line in lines if path not in line)
    assert lines[0].startswith("data                rows of")
    assert lines[-1] == "label               y"


def test_styles_stay() -> None:
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, color_system="standard").print(Text("red", "red"))
    assert "\x1b[31mred\x1b[0m" in file.getvalue()


def test_nothing_else_writes_to_a_terminal() -> None:
    here = Path(infeed.pipelines.console.terminal.__file__)
    for file in here.parent.rglob("*.py"):
        if file != here:
            assert not re.search(r"click\.s?echo\(|\bConsole\(|^\s*print\(f", file.read_text(), re.MULTILINE), file


# Run in a process of its own: descriptors 1 and 2 of the test process belong to pytest.
NOISE = """
import atexit, ctypes, logging, os, subprocess, sys, warnings
atexit.register(lambda: os.write(2, b"exit hook\\n"))
def noise():
    os.write(1, b"C level stdout\\n")
    os.write(2, b"C level stderr\\n")
    ctypes.CDLL(None).dprintf(2, b"libc itself\\n")
    subprocess.run("echo child stdout; echo child stderr >&2", shell=True)
    print("python stdout"); print("python stderr", file=sys.stderr)
    logging.getLogger("apache_beam").info("python logging")
    warnings.warn("python warning")
"""
MESSAGES = [
    "C level stdout",
    "C level stderr",
    "libc itself",
    "child stdout",
    "child stderr",
    "python stdout",
    "python stderr",
    "python logging",
    "python warning",
    "exit hook",
]
OPEN = """
from infeed.pipelines.console.terminal import quiet
with quiet(sys.argv[1]) as console:
"""


def run(body: str, log: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", NOISE + body, str(log)], capture_output=True, text=True, check=False)


def test_the_screen_shows_the_console_and_nothing_else(tmp_path: Path) -> None:
    done = run(OPEN + "    noise(); console.print('for the user'); noise()", tmp_path / "run.log")
    assert (done.stdout, done.stderr) == ("for the user\n", "")


def test_the_log_has_everything_once_and_python_lines_carry_the_time(tmp_path: Path) -> None:
    run(OPEN + "    noise()", tmp_path / "run.log")
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert {text: sum(text in line for line in lines) for text in MESSAGES} == dict.fromkeys(MESSAGES, 1)
    (logged,) = [line for line in lines if "python logging" in line]
    assert re.fullmatch(r"20\d\d-.* INFO apache_beam: python logging", logged)


def test_the_log_leaves_out_beams_reports_of_its_type_hints_but_not_warnings(tmp_path: Path) -> None:
    hints = "logging.getLogger('apache_beam.typehints.native_type_compatibility')"
    run(OPEN + f"    {hints}.info('any type'); {hints}.warning('wrong type')", tmp_path / "run.log")
    log = (tmp_path / "run.log").read_text()
    assert ("any type" in log, "wrong type" in log) == (False, True)


def test_the_lines_of_loggers_hold_no_control_characters(tmp_path: Path) -> None:
    run(OPEN + r"    logging.getLogger('a').warning('column \x1b[31mred\x07')", tmp_path / "run.log")
    assert r"column \x1b[31mred\x07" in (tmp_path / "run.log").read_text()


def test_the_log_makes_its_folder_and_keeps_earlier_runs(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "deep" / "run.log"
    for _ in range(2):
        run(OPEN + "    print('a run')", log)
    assert log.read_text().count("a run") == 2


def test_the_streams_are_given_back(tmp_path: Path) -> None:
    done = run(OPEN + "    noise()\nprint('back'); os.system('echo child back >&2')", tmp_path / "run.log")
    assert (done.stdout, done.stderr) == ("back\n", "child back\n")


def test_the_streams_are_given_back_after_an_exception(tmp_path: Path) -> None:
    done = run(OPEN + "    noise(); raise ValueError('for the user to see')", tmp_path / "run.log")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: for the user to see\n")


def test_logging_is_as_before_afterwards(tmp_path: Path) -> None:
    body = "\nroot = logging.getLogger(); print(root.handlers, root.level == logging.WARNING)"
    assert run(OPEN + "    noise()" + body, tmp_path / "run.log").stdout == "[] True\n"


@pytest.mark.parametrize("stdin_is_terminal", [True, False])
def test_the_console_keeps_the_terminal_its_width_and_its_colours(tmp_path: Path, stdin_is_terminal: bool) -> None:
    body = "    noise(); console.file.write(f'{console.is_terminal} {console.width} {console.color_system}')"
    master, terminal = pty.openpty()
    subprocess.run(["stty", "cols", "97", "rows", "30"], stdin=terminal, check=True)
    subprocess.run(
        [sys.executable, "-c", NOISE + OPEN + body, str(tmp_path / "run.log")],
        stdin=terminal if stdin_is_terminal else subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color"},
        check=True,
    )
    os.close(terminal)
    assert os.read(master, 1000).decode() == "True 97 256"
    os.close(master)


def test_verbose_shows_what_is_appended_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("earlier\n")
    body = (
        OPEN.replace("quiet(sys.argv[1])", "quiet(sys.argv[1], verbose=True)")
        + "    print('hello'); console.print('ready')"
    )
    done = run(body, tmp_path / "run.log")
    assert (done.stdout, done.stderr) == ("ready\n", "hello\n")
    assert (tmp_path / "run.log").read_text().startswith("earlier\nhello\n")


@pytest.mark.tfx
def test_importing_and_starting_tensorflow_and_tfx_leaks_nothing(tmp_path: Path) -> None:
    body = OPEN + "    import tfx.components, tensorflow as tf; tf.print('from the graph'); console.print('ready')"
    done = run(body, tmp_path / "run.log")
    assert (done.stdout, done.stderr) == ("ready\n", "")
    assert "from the graph" in (tmp_path / "run.log").read_text()
