from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from infeed import pipelines
from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_LOST,
    EXIT_NOT_BLESSED,
    Command,
    debugging,
    errors,
    importing,
)

# In the place of a library that `infeed run` imports: it takes long, and swallows whatever is raised meanwhile.
SWALLOWS = """
import threading
import time
from pathlib import Path

for name in ("first", "second"):
    try:
        Path(__file__).with_name(name).touch()
        time.sleep(60)
    except BaseException:
        pass
"""


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def test_a_ctrl_c_that_an_import_swallows_is_repeated() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), importing():  # noqa: PT012
        for wait in (interrupt, lambda: time.sleep(60), lambda: time.sleep(60)):
            with contextlib.suppress(BaseException):
                wait()
    assert time.monotonic() - began < 60
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == handlers


def test_a_timer_of_the_caller_goes_on_after_imports() -> None:
    rung = threading.Event()
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    before = signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with importing():
            time.sleep(0.2)
            assert not rung.is_set()
        assert rung.wait(10)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_what_a_half_imported_module_raises_after_ctrl_c_is_no_error_of_its_own() -> None:
    with pytest.raises(KeyboardInterrupt), importing():  # noqa: PT012
        try:
            interrupt()
        except BaseException:
            raise ImportError("cannot import name") from None
    with pytest.raises(ImportError), importing():
        raise ImportError("no such module")


def test_too_little_memory_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors(as_json=False, debug=False):
        raise MemoryError
    assert ended.value.code == EXIT_BAD_INPUT
    assert capsys.readouterr().err.startswith("error: there is not enough memory\n  do:    close other programs")
    with pytest.raises(MemoryError), errors(as_json=False, debug=True):
        raise MemoryError


def test_ctrl_c_ends_a_command_with_130_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, errors(as_json=False, debug=False):
        raise KeyboardInterrupt
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


@pytest.mark.slow
def test_a_run_is_interrupted_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "ml_metadata").mkdir()
    (tmp_path / "ml_metadata" / "__init__.py").write_text(SWALLOWS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [Path(sys.executable).with_name("infeed"), "run", "image"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    ) as running:
        while not (tmp_path / "ml_metadata" / "first").exists():
            assert running.poll() is None
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=50)[1]
    assert (running.returncode, said) == (130, "interrupted\n")
    assert (tmp_path / "ml_metadata" / "second").exists()


def test_under_nohup_a_command_outlives_its_terminal() -> None:
    handlers = []

    @click.command(cls=Command)
    def looking() -> None:
        handlers.append(signal.getsignal(signal.SIGHUP))

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        looking.main([], standalone_mode=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert handlers == [signal.SIG_IGN]


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True)
def refusing(as_json: bool) -> None:
    click.echo(f"debugging is {debugging()}, json is {as_json}")
    raise InfeedError("level is 12", do="use a number of at most 9")


@pytest.mark.parametrize(
    ("given", "shown"),
    [([], "error: level is 12\n  do:    use a number"), (["--json"], '{"error": {"what": "level is')],
)
def test_a_command_ends_by_itself_where_the_input_is_bad(given: list[str], shown: str) -> None:
    done = CliRunner().invoke(refusing, given)
    assert (done.exit_code, shown in done.output) == (EXIT_BAD_INPUT, True)


def test_a_command_shows_the_traceback_where_it_is_asked_to() -> None:
    done = CliRunner().invoke(refusing, ["--debug"])
    assert isinstance(done.exception, InfeedError)
    assert done.output == "debugging is True, json is False\n"


PIPELINES = Path(pipelines.__file__).parent
PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
TABLE = {int(code): commands for code, commands in re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)}
NAMES = {EXIT_FAILED: "EXIT_FAILED", EXIT_NOT_BLESSED: "EXIT_NOT_BLESSED", EXIT_LOST: "EXIT_LOST"}


def users(name: str) -> set[str]:
    """Commands whose module, or the folder of the same name, uses an exit code."""
    modules = {path.stem: [path] for path in (PIPELINES / "commands").glob("*.py")}
    return {
        command
        for command, paths in modules.items()
        if any(re.search(rf"\b{name}\b", path.read_text()) for path in (*paths, *PIPELINES.glob(f"**/{command}/*.py")))
    }


def test_the_table_has_the_codes_of_the_help() -> None:
    assert list(TABLE) == list(EXIT_CODES)


def test_a_code_of_some_commands_stands_with_those_that_use_it() -> None:
    for code, name in NAMES.items():
        assert set(re.findall(r"`(\w+)`", TABLE[code])) == users(name) - {"run_summary"}
    assert {TABLE[code] for code in EXIT_CODES.keys() - NAMES.keys()} == {"all"}


def test_each_command_that_ends_with_1_has_its_cause() -> None:
    table = PAGE.partition("| cause of exit code 1 |")[2].partition("\n\n")[0]
    causes = re.findall(r"^\| `(\w+)[^|]*\|[^|]*\|$", table, re.MULTILINE)
    assert set(causes) == users("EXIT_FAILED")


def test_a_current_folder_that_was_removed_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", refuse)
    with pytest.raises(SystemExit) as ended, errors(False, False):
        os.path.abspath("a.csv")
    assert ended.value.code == EXIT_BAD_INPUT
    assert "current folder" in capsys.readouterr().err


def test_passwords_are_in_no_report_of_a_defect(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), errors(False, False):
        raise RuntimeError("cannot open postgresql://user:SECRET@host/a")
    said = capsys.readouterr().err
    log = Path(re.search(r"traceback in (\S+)", said)[1])  # type: ignore[index]
    assert "postgresql://***@host/a" in said
    assert "postgresql://***@host/a" in log.read_text()
    log.unlink()


@pytest.mark.parametrize(("what", "is_shown"), [("can't start new thread", False), ("another reason", True)])
def test_a_pool_that_may_start_no_thread_is_told_by_the_error_alone(
    what: str, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = list[object]()
    monkeypatch.setattr(threading, "excepthook", shown.append)

    def starts_another() -> None:
        raise RuntimeError(what)

    def command() -> None:
        pool = threading.Thread(target=starts_another)
        pool.start()
        pool.join()

    assert CliRunner().invoke(Command("pooled", callback=command)).exit_code == 0
    assert bool(shown) is is_shown
    assert threading.excepthook == shown.append


@pytest.mark.parametrize("as_json", [False, True])
def test_passwords_are_in_no_error(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), errors(as_json=as_json, debug=False):
        raise InfeedError("no s3://KEY:hunter2@b", where="--reader s3://KEY:hunter2@b/x", do="use s3://KEY:hunter2@b")
    told = "".join(capsys.readouterr())
    assert told.count("***") == 3
    assert "hunter2" not in told


def test_a_package_that_needs_docstrings_is_no_defect(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.flags", SimpleNamespace(optimize=2))
    with pytest.raises(SystemExit) as ended, errors(as_json=False, debug=False):
        raise TypeError("expected string")
    assert ended.value.code == 2
    assert "python -O" in capsys.readouterr().err
