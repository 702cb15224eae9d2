"""A command that is given a table without a label asks for it on a terminal, and names the likely columns elsewhere."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import click
import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.commands import asking
from infeed.pipelines.commands.asking import choose, decided
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.labels import Candidate


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "t.csv").write_text("age,bought\n" + "30,yes\n41,no\n52,no\n" * 10)
    monkeypatch.setattr(sys, "argv", ["infeed", "run", "tabular"])
    return {"data": str(tmp_path / "t.csv"), "root": str(tmp_path / "run")}


def asked(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[Candidate]:
    """Somebody is at the terminal; the choices that they see."""
    seen: list[Candidate] = []
    monkeypatch.setattr(asking, "can_ask", lambda: True)
    monkeypatch.setattr(asking, "choose", lambda candidates: seen.extend(candidates) or answer)
    return seen


@pytest.mark.parametrize("template", ["tabular", "text"])
def test_elsewhere_the_error_has_a_command_line_to_paste(template: str, given: dict[str, str]) -> None:
    with pytest.raises(InfeedError, match="no label") as raised:
        decided(read_project(template), given)
    assert raised.value.do.endswith("run tabular --label bought")
    assert "diagnosis" not in str(raised.value)


def test_on_a_terminal_the_answer_is_the_label(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch, "bought")
    assert decided(read_project("tabular"), given).train.label == "bought"
    assert [choice.name for choice in seen] == ["bought", "age"]
    assert (seen[0].type, seen[0].distinct, seen[0].examples) == ("bytes", 2, "'no', 'yes'")
    assert sys.argv[-2:] == ["--label", "bought"]


def test_nobody_is_asked_for_the_output_of_a_program(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch, "bought")
    with pytest.raises(InfeedError, match="no label"):
        decided(read_project("tabular"), given, may_ask=False)
    assert not seen


def test_a_label_with_a_typing_error_is_an_error_and_no_question(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = asked(monkeypatch, "bought")
    with pytest.raises(InfeedError, match="did you mean 'bought'"):
        decided(read_project("tabular"), {**given, "label": "bougt"})
    assert not seen


def test_a_config_without_a_label_is_asked_for_one_too(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("def build_model(spec):\n    raise NotImplementedError\n")
    features = "[{kind: z_score, column: age}, {kind: label, column: bought}]"
    (tmp_path / "config.yaml").write_text(
        f"source: csv\ndata: {given['data']}\nmodel: model.py:build_model\nfeatures: {features}\n"
    )
    asked(monkeypatch, "bought")
    assert decided(read_project(str(tmp_path / "config.yaml")), {}).train.label == "bought"


def test_the_bundled_table_of_a_template_has_the_label_of_the_template(tmp_path: Path) -> None:
    assert decided(read_project("tabular"), {"root": str(tmp_path)}).train.label == "diagnosis"


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
