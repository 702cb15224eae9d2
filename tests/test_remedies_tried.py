"""The remedies of errors that people meet with their first tables are parsed out of `do`, tried, and help."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cli import main
from infeed.pipelines.commands import run
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.project.config_file import Project
from infeed.pipelines.project.resolve import Overrides, resolve

# Flags beside each other are one remedy; all other words separate remedies. What `without` names is no remedy.
_VALUE = r"(?:'[^']*'|[^\s'`]+)"
_FLAG = rf"--(?:set {_VALUE}|[a-z][a-z-]*(?: (?!--)(?:'[^']*'|[\w./*-]+(?![\w ]* is\b)))?)"
_REMEDY = re.compile(rf"(?<!without ){_FLAG}(?: {_FLAG})*")

Write = Callable[[Path], Path]


def remedies_in(do: str) -> list[list[str]]:
    """The command lines that a `do` names."""
    return [shlex.split(found.rstrip(";")) for found in _REMEDY.findall(do)]


def applied(command: list[str], remedy: list[str]) -> list[str]:
    """The command with the flags of the remedy, in place of a label that it has."""
    if "--label" in command and "--label" in remedy:
        at = command.index("--label")
        command = [*command[:at], *command[at + 2 :]]
    return [*command, *remedy]


def run_with(monkeypatch: pytest.MonkeyPatch, *words: str) -> PipelineConfig | InfeedError:
    """What `infeed run` decides, by its own flags, or the error that it shows."""
    found: list[PipelineConfig | InfeedError] = []

    def decide(project: Project, given: dict[str, Any], may_ask: bool = True) -> PipelineConfig:
        try:
            found.append(resolve(project, Overrides(**given)))
        except InfeedError as error:
            found.append(error)
        raise SystemExit  # before anything starts

    monkeypatch.setattr(run, "decided", decide)
    result = CliRunner().invoke(main, ["run", *words])
    assert found, result.output
    return found[0]


def csv(text: str, name: str = "t.csv", encoding: str = "utf-8") -> Write:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return write


def parquet(**columns: Any) -> Write:
    def write(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "t.parquet")
        return folder / "t.parquet"

    return write


def lines(row: str, rows: int = 40) -> str:
    """Rows with `{n}`, one of seven numbers, `{m}`, a number of its own, and `{c}`, one of two classes."""
    return "".join(row.format(n=n % 7, m=n + 1, c="ab"[n % 2]) + "\n" for n in range(rows))


GOOD = "x,y\n" + lines("{n},{c}")
AMOUNTS = "price,y\n" + lines('"{m},250.50",{c}', rows=200) + "call us,a\n"
ITEMS = [{"k": 1}]

# The file, the words of the command, and how many remedies its error has.
CASES: dict[str, tuple[Write, list[str], int]] = {
    "no label": (csv(GOOD), [], 1),
    "a label that is not there": (csv(GOOD), ["--label", "yy"], 1),
    "no header line, but data": (csv(lines("5.1,{n},{c}")), ["--label", "y"], 2),
    "no header line, but numbers": (csv(lines("5.1,{n},{m}")), ["--label", "c3"], 1),
    "another delimiter": (csv(GOOD.replace(",", ";")), ["--label", "y"], 2),
    "a row with too few cells": (csv(GOOD + "7\n"), ["--label", "y"], 1),
    "another encoding": (csv(GOOD + "7,\xe4\n7,\xe4\n", encoding="latin-1"), ["--label", "y"], 2),
    "another encoding of the header": (csv(GOOD.replace("x", "\xe4"), encoding="latin-1"), ["--label", "y"], 1),
    "more bad rows than the limit": (
        csv(GOOD + "7\n8\n"),
        ["--label", "y", "--on-bad-row", "reject", "--bad-row-limit", "1"],
        1,
    ),
    "a text as quantity": (csv(GOOD), ["--label", "y", "--task", "regression"], 1),
    "a class with a fraction": (
        csv("x,y\n" + lines("{n},{m}.5")),
        ["--label", "y", "--task", "classification"],
        1,
    ),
    "too many classes": (csv("x,y\n" + lines("{n},{m}")), ["--label", "y", "--task", "classification"], 1),
    "a label of amounts and words": (csv(AMOUNTS), ["--label", "price"], 1),
    "amounts and words alone": (csv(AMOUNTS), ["--label", "y"], 2),
    "lists of objects alone": (csv(lines('{{"y": [{{"k": {n}}}]}}'), "t.jsonl"), ["--label", "y.k"], 1),
    "a column that no example can hold": (
        parquet(items=[ITEMS] * 40, x=[n % 7 for n in range(40)], y=["a", "b"] * 20),
        ["--label", "y"],
        1,
    ),
    "a column that gives the label away": (
        csv("x,copy,y\n" + lines("{n},{c},{c}")),
        ["--label", "y", "--strict"],
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_remedy_of_infeed_run_helps(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, words, count = CASES[case]
    command = ["tabular", "--data", str(write(tmp_path)), "--root", str(tmp_path / "run"), *words]
    error = run_with(monkeypatch, *command)
    assert isinstance(error, InfeedError)
    remedies = remedies_in(error.do)
    assert len(remedies) == count, error.do
    for remedy in remedies:
        found = run_with(monkeypatch, *applied(command, remedy))
        assert not isinstance(found, InfeedError) or found.what != error.what, (remedy, found)
        assert isinstance(found, PipelineConfig) or case in ("lists of objects alone", "another delimiter"), (
            remedy,
            found,
        )


# Notes are told before a run starts; each remedy makes a feature of the column, or another one of it.
NOTES: dict[str, tuple[Write, str, int]] = {
    "amounts and words": (csv("z,price,y\n" + lines('{n},"{m},250.50",{c}', rows=200) + "7,call us,a\n"), "price", 2),
    "numbers and words": (csv("z,price,y\n" + lines("{n},{m},{c}") + "7,sold,b\n"), "price", 2),
    "units and words": (csv("z,price,y\n" + lines("{n},{m} kg,{c}") + "7,heavy,b\n"), "price", 2),
    "a sign that may be either": (csv("z;price;y\n" + lines("{n};1,{n}00;{c}")), "price", 2),
    "amounts and words in JSON": (
        csv(lines('{{"z": {n}, "price": "${m}.50", "y": "{c}"}}') + '{"z": 7, "price": "?", "y": "a"}\n', "t.jsonl"),
        "price",
        1,
    ),
    "lists of objects": (csv(lines('{{"items": [{{"k": "{n}"}}], "z": {n}, "y": "{c}"}}'), "t.jsonl"), "items", 1),
}


@pytest.mark.parametrize("case", NOTES)
def test_a_remedy_of_a_note_helps(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, column, count = NOTES[case]
    command = ["tabular", "--data", str(write(tmp_path)), "--root", str(tmp_path / "run"), "--label", "y"]
    command += ["--delimiter", ";"] if ";" in case or "either" in case else []
    before = run_with(monkeypatch, *command)
    assert isinstance(before, PipelineConfig), before
    [words] = [words for about, words in before.notes if about in ("left out", "note") and words.startswith(column)]
    remedies = remedies_in(words)
    assert len(remedies) == count, words
    for remedy in remedies:
        after = run_with(monkeypatch, *applied(command, remedy))
        assert isinstance(after, PipelineConfig), (remedy, after)
        made = [feature for feature in after.features if feature.column.partition(".")[0] == column]
        assert made, remedy
        assert made != [feature for feature in before.features if feature.column == column]


INGEST: dict[str, tuple[Write, list[str], int]] = {
    "an unknown format": (csv(GOOD, "t.dat"), [], 1),
    "a row with too few cells": (csv(GOOD + "7\n"), [], 1),
    "a cell of another type": (csv(GOOD + "many,a\n"), ["--set", 'types={"x": "int"}'], 1),
    "another delimiter": (csv(GOOD.replace(",", ";")), [], 2),
    "no header line": (csv(lines("{n},{m}")), [], 1),
    "a number of another format": (csv(GOOD + "many,a\n"), ["--set", 'numbers={"x": "1,234.5"}'], 1),
}


@pytest.mark.parametrize("case", INGEST)
def test_a_remedy_of_infeed_ingest_helps(case: str, tmp_path: Path) -> None:
    write, words, count = INGEST[case]
    command = ["ingest", str(write(tmp_path)), str(tmp_path / "out"), "--json", "--workers", "1", *words]
    first = CliRunner().invoke(main, command)
    remedies = remedies_in(json.loads(first.output)["error"]["do"])
    assert (first.exit_code, len(remedies)) == (2, count), first.output
    for remedy in remedies:
        again = CliRunner().invoke(main, [*command, *remedy, "--overwrite"])
        assert again.exit_code == 0, (remedy, again.output)


@pytest.mark.parametrize(
    ("do", "found"),
    [
        (
            "use --set thousands=, --set 'nulls=[\"\"]'; or --label y",
            [["--set", "thousands=,", "--set", 'nulls=[""]'], ["--label", "y"]],
        ),
        ("set aside: --on-bad-row reject, IngestOptions(x='y')", [["--on-bad-row", "reject"]]),
        ("keep it: --keep 'a b'; without --strict, it is left out", [["--keep", "a b"]]),
    ],
)
def test_remedies_are_parsed(do: str, found: list[list[str]]) -> None:
    assert remedies_in(do) == found
