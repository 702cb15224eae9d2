from __future__ import annotations

from pathlib import Path

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.launch import describe_exit, last_lines

LOG = """$ python -m step
OldError: of the attempt before
$ python -m step
INFO: starting
Traceback (most recent call last):
  File "step.py", line 1, in <module>
google.api_core.exceptions.NotFoundError: no such object
I0000 cleaning up
"""


def test_the_error_named_last_in_this_attempt_is_told_with_the_status(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    begun = LOG.index("$", 5)
    assert describe_exit(1, tmp_path / "log", begun) == "NotFoundError: no such object (exit status 1)"


def test_our_own_error_is_told_whatever_was_made_of_it(tmp_path: Path) -> None:
    ours = InfeedError("no files found", where="gs://bucket/*.csv", do="look")
    (tmp_path / "log").write_text(f"infeed.components.errors.InfeedError: {ours}\nRuntimeError: Job '1' failed.\n")
    told = "no files found (exit status 1)\n  where: gs://bucket/*.csv\n  do:    look"
    assert describe_exit(1, tmp_path / "log", 0) == told


def test_a_signal_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert describe_exit(-9, tmp_path / "log", len(LOG)) == "killed by SIGKILL"


def test_the_last_lines_are_short(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\n" + "c" * 1000)
    assert last_lines(tmp_path / "log", 2) == ["b", "c" * 300 + " ..."]
    assert last_lines(tmp_path / "none") == []
