"""The questions are asked on a real pseudo-terminal, by a process of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys

import click
import pytest

from infeed.pipelines.commands.asking import choose
from infeed.pipelines.project.labels import Candidate

_CTRL_C = b"\x03"
_SECONDS = 0.5  # without an answer, after which Ctrl-C is pressed again
PROGRAM = """
import fcntl, os, signal, termios
signal.alarm(60)  # a test that waits for ever tells nothing
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C on the terminal interrupts this process
from infeed.pipelines.commands.asking import can_ask, choose
from infeed.pipelines.project.labels import Candidate
candidates = [Candidate("bought", "bytes", 2, "'yes', 'no'", ("its name",), 4), Candidate("3", "int", 7, "1", (), 0)]
try:
    print("CHOSEN", can_ask(), choose(candidates))
except KeyboardInterrupt:
    print("INTERRUPTED")
"""


def on_terminal(typed: bytes) -> str:
    """What a terminal shows when the question is asked and `typed` is the answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"name" not in shown.partition(b"Number")[2]:
            shown += os.read(ours, 4096)
        os.write(ours, typed)
        with contextlib.suppress(OSError):  # Linux raises it at the end of a pseudo-terminal
            while True:
                if typed == _CTRL_C and not select.select([ours], [], [], _SECONDS)[0]:
                    os.write(ours, typed)  # the first one may have come in the moment before the program reads
                elif piece := os.read(ours, 4096):
                    shown += piece
                else:
                    break
        process.wait(30)
    os.close(ours)
    return shown.decode()


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [(b"1\n", "bought"), (b"bought\n", "bought"), (b"\n", "bought"), (b"3\n", "3"), (b"2\n", "3"), (b"9\n2\n", "3")],
)
def test_a_number_a_name_or_enter_answers(typed: bytes, chosen: str) -> None:
    assert f"CHOSEN True {chosen}" in on_terminal(typed)


def test_the_choices_are_shown_with_examples_and_why_one_is_likely() -> None:
    shown = on_terminal(b"1\n")
    assert all(words in shown for words in ("bought", "text", "'yes', 'no'", "its name", "Which column"))


def test_a_wrong_answer_is_asked_again() -> None:
    assert "there is no 'sold'" in on_terminal(b"sold\n1\n")


def test_ctrl_c_interrupts() -> None:
    assert "INTERRUPTED" in on_terminal(_CTRL_C)


def test_without_a_likely_choice_enter_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(question: str, default: str | None, value_proc: object) -> str:
        assert default is None
        raise click.Abort

    monkeypatch.setattr(click, "prompt", prompt)
    with pytest.raises(KeyboardInterrupt):
        choose([Candidate("age", "int", 7, "30, 41", (), 0)])
