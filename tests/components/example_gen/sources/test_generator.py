from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows

ROWS = """
import datetime
def rows(part, parts):
    for number in range(part, 2_500, parts):
        yield {
            "id": number,
            "text": None if number % 5 == 0 else f"ü{number}",
            "x": number / 8,
            "tags": list(range(number % 3)),
            "raw": b"\\xff",
            "day": datetime.date(2026, 1, 1),
        }
"""


def write(folder: Path, code: str) -> str:
    (folder / "mine.py").write_text(code)
    return f"{folder}/mine.py:rows"


def read(function: str, bad_rows: BadRows | None = None, **settings: Any) -> list[dict[str, Any]]:
    opened = open_source(function, "generator", IngestOptions(block_bytes=10_000), settings)
    bad_rows = bad_rows or BadRows()
    batches = [one for task in opened.tasks for one in opened.read(task.payload, bad_rows=bad_rows)]
    assert all(batch.schema == opened.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("parts", [1, 7])
def test_every_row_of_every_part_comes_back(tmp_path: Path, parts: int) -> None:
    function, made = write(tmp_path, ROWS), dict[str, Any]()
    exec(ROWS, made)
    assert read(function, parts=parts) == [row for part in range(parts) for row in made["rows"](part, parts)]


def test_processes_write_the_bytes_of_one(tmp_path: Path) -> None:
    function = write(tmp_path, ROWS)
    written = [
        infeed.ingest(
            function, tmp_path / f"{workers}", format="generator", source_options={"parts": 4}, workers=workers
        )
        for workers in (1, 2)
    ]
    assert written[0].splits == written[1].splits
    assert written[0].rows_read == 2_500


@pytest.mark.parametrize(
    ("row", "place", "word"),
    [
        ('{"a": "text"}', ", line 1202, column 'a'", "'text'"),
        ('{"a": 1, "b": 2}', ", column 'b'", "no column 'b'"),
        ('{"a": 0.5}', ", line 1202, column 'a'", "0.5"),
    ],
)
def test_a_later_row_that_does_not_fit_is_a_bad_row(tmp_path: Path, row: str, place: str, word: str) -> None:
    lines = ["yield from ({'a': n} for n in range(1_201))", f"yield {row}", "yield {'a': 7}"]
    function = write(tmp_path, "\n    ".join(["def rows(part, parts):", *lines]))
    with pytest.raises(InfeedError, match=word) as error:
        read(function, parts=1)
    assert error.value.where == f"{function}, part 0 of 1{place}"
    bad_rows = BadRows("reject", 10)
    assert len(read(function, bad_rows, parts=1)) == 1_202
    assert len(bad_rows.take()) == 1


@pytest.mark.parametrize(
    ("code", "word", "place"),
    [
        ("def rows(part, parts):\n    yield {'a': 1 / part}", "division", "mine.py"),
        ("def rows(part, parts):\n    yield 3", "a row is 3", "part 0 of 16, row 1"),
        ("def rows(part, parts):\n    return []", "no rows", "mine.py:rows"),
        ("def rows(part, parts):\n    yield {'a': object()}", "unsupported", "column 'a'"),
        ("def other(): pass", "rows", "SOURCE"),
    ],
)
def test_a_function_that_cannot_be_read_is_an_error(tmp_path: Path, code: str, word: str, place: str) -> None:
    with pytest.raises(InfeedError, match=word) as error:
        read(write(tmp_path, code))
    assert place in error.value.where
