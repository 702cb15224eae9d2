"""What a table costs goes with its columns, not with their square: each of these took 40 CPU seconds and more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import open_source

_CPU_SECONDS = 15  # a quiet machine takes two
BUCKETS = Buckets((("all", 1),))
OPTIONS = IngestOptions(on_bad_row="reject")


def write_csv(path: Path) -> None:
    """10,000 columns of three kinds."""
    rows = [[(row + at, at / 2, f"x{at}")[at % 3] for at in range(10_000)] for row in range(20)]
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([",".join(f"c{at}" for at in range(10_000)), *lines, "one cell"]))


def write_jsonl(path: Path) -> None:
    """200 rows of 5,000 keys beside one that does not go together with them."""
    row = json.dumps({f"k{at}": at for at in range(5_000)})
    path.write_text("\n".join([*[row] * 200, '{"k7": "text"}']))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "columns", "rows"), [("a.csv", write_csv, 10_000, 20), ("a.jsonl", write_jsonl, 5_000, 200)]
)
def test_a_wide_table_with_a_bad_row(
    tmp_path: Path, name: str, write: Callable[[Path], None], columns: int, rows: int
) -> None:
    write(tmp_path / name)
    began = time.process_time()
    opened = open_source(str(tmp_path / name), name.partition(".")[2], OPTIONS, {})
    job = ingest.Job.of(opened, root=f"{tmp_path}/out", splits=BUCKETS.names, buckets=BUCKETS, options=OPTIONS)
    manifest = ingest.ingest(opened.tasks, job)
    assert (len(manifest.schema), manifest.rows_read, manifest.rejected.rows) == (columns, rows + 1, 1)
    assert time.process_time() - began < _CPU_SECONDS
