"""A damaged file is read, its damaged rows set aside, or it is refused by name: no traceback, no end of the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SEEDS_PER_ROUND = 5
_SCRIPT = Path(__file__).with_name("ingest_mutants.py")
TEXT = ("a.csv", "quoted.csv", "crlf.csv.gz", "a.jsonl", "a.txt")
BINARY = (
    "a.parquet",
    "rich.parquet",
    "a.avro",
    "deflated.avro",
    "a.tfrecord",
    "a.tfrecord.gz",
    "a.png",
    "a.jpeg",
    "list.csv",
)


@pytest.mark.slow
@pytest.mark.parametrize("files", [TEXT, BINARY], ids=["text", "binary"])
def test_what_becomes_of_damaged_files(tmp_path: Path, files: tuple[str, ...], rounds: int) -> None:
    seeds = rounds * _SEEDS_PER_ROUND
    command = [sys.executable, str(_SCRIPT), "0", str(seeds), str(tmp_path), *files]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in child.stdout.splitlines()]
    outcomes = {one["input"]: one["outcome"] for one in told}
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome not in ("written", "refused")}
    assert not wrong, f"{next(iter(wrong.items()))}, exit code {child.returncode}: {child.stderr[-2000:]}"
    assert len(outcomes) == seeds * len(files)
    assert {"written", "refused"} <= set(outcomes.values())
