"""What a table costs goes with its columns, not with their square.

Counted in calls, Python's and those into C, which a busy machine makes as many of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import open_source

BUCKETS = Buckets((("all", 1),))
OPTIONS = IngestOptions(on_bad_row="reject")


def write_csv(path: Path, columns: int) -> None:
    """Columns of three kinds, and a bad row."""
    rows = [[(row + at, at / 2, f"x{at}")[at % 3] for at in range(columns)] for row in range(10)]
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join(f"c{at}" for at in range(columns)), *lines, "one cell"]))


def write_jsonl(path: Path, columns: int) -> None:
    """Rows of so many keys beside one that does not go together with them."""
    row = json.dumps({f"k{at}": at for at in range(columns)})
    path.write_text("\n".join([*[row] * 10, '{"k7": "text"}']))


def counted(work: Callable[[], Any]) -> int:
    """Calls made in this thread meanwhile."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def ingest_file(path: Path, columns: int) -> None:
    opened = open_source(str(path), path.suffix[1:], OPTIONS, {})
    root = f"{path}.out"
    job = ingest.Job.of(opened, root=root, splits=BUCKETS.names, buckets=BUCKETS, options=OPTIONS)
    manifest = ingest.ingest(opened.tasks, job)
    assert (len(manifest.schema), manifest.rows_read, manifest.rejected.rows) == (columns, 11, 1)


@pytest.mark.slow  # each call is counted by a Python function
@pytest.mark.parametrize(("name", "write"), [("csv", write_csv), ("jsonl", write_jsonl)])
def test_twice_the_columns_cost_twice_the_calls(tmp_path: Path, name: str, write: Callable[..., None]) -> None:
    calls = []
    for columns in (50, 50, 100, 200):  # the first imports what the others have
        path = tmp_path / f"{len(calls)}.{name}"
        write(path, columns)
        calls.append(counted(lambda path=path, columns=columns: ingest_file(path, columns)))  # type: ignore[misc]
    _, few, twice, four_times = calls
    assert four_times - twice < 2.5 * (twice - few)  # 2 where it is linear, 4 where it goes with the square
