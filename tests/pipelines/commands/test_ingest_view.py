from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress

from infeed.components.example_gen.ingest import ProgressListener
from infeed.pipelines.commands.ingest import Bars, show_opening, show_progress, summary
from infeed.pipelines.console.terminal import Terminal


def manifest(**changes: Any) -> Any:
    """As much of a `Manifest` as is told of."""
    split = SimpleNamespace(records=1_000, bytes=2_500_000, shards=[1, 2], reason="by size")
    told = {
        "rows_read": 1_000,
        "splits": {"train": split},
        "filtered": 0,
        "rejected": SimpleNamespace(rows=0, file="rejected.jsonl"),
        "balanced": SimpleNamespace(repeated=0, dropped=0),
        "warnings": (),
        "options": {},
    }
    return SimpleNamespace(**{**told, **changes})


def test_a_summary_has_a_line_for_each_split_and_nothing_is_lost_in_silence(golden: Callable[..., None]) -> None:
    lacking = manifest(
        splits={"eval": SimpleNamespace(records=0, bytes=0, shards=[1], reason="by size")},
        filtered=1,
        rejected=SimpleNamespace(rows=2, file="rejected.jsonl"),
        balanced=SimpleNamespace(repeated=3, dropped=4),
        warnings=("a column is empty",),
    )
    golden("ingest.txt", "".join(f"{summary(one, 'out', 1.5)}\n" for one in (manifest(), lacking)))


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (None, "hash"),
        ({"how": "record", "salt": "b"}, "hash"),
        ({"how": "columns", "columns": ["user", "shop"]}, "hash of user, shop"),
        ({"how": "time", "column": "day", "cuts": ["2031"]}, "no day is in its period, divided at 2031"),
        ({"how": "name", "column": "usage"}, "no usage has its name"),
        ({"how": "label", "column": "y"}, "every y has too few rows"),
    ],
)
def test_an_empty_split_is_explained_by_the_rule(rule: Any, reason: str) -> None:
    empty = SimpleNamespace(records=0, bytes=0, shards=[1], reason="by size")
    told = summary(manifest(splits={"eval": empty}, options={"split_by": rule}), "out", 1.5)
    assert "eval is empty" in told
    assert reason in told
    assert ("hash" in told) == ("hash" in reason)


@pytest.mark.parametrize(("rows", "word"), [(20, "few rows"), (16_749, "--split-salt")])
def test_an_empty_split_of_many_rows_has_another_reason_than_their_number(rows: int, word: str) -> None:
    empty = SimpleNamespace(records=0, bytes=0, shards=[1], reason="by size")
    assert word in summary(manifest(splits={"eval": empty}, rows_read=rows), "out", 1.5)


def test_nothing_is_drawn_where_nobody_looks() -> None:
    opened: Any = SimpleNamespace(tasks=[1], provenance=SimpleNamespace(bytes=10))
    with show_progress(opened, quiet=True) as watcher, show_opening(quiet=True):
        assert type(watcher) is ProgressListener


@pytest.fixture
def progress() -> Progress:
    return Progress(console=Terminal(file=io.StringIO(), force_terminal=True))


def test_bars_count_rows_and_shards(progress: Progress) -> None:
    opened: Any = SimpleNamespace(tasks=[1, 2], provenance=SimpleNamespace(bytes=40))
    bars = Bars(progress, opened)
    reading, writing = progress.tasks
    bars.read(SimpleNamespace(rows=1_500, spills=SimpleNamespace(bytes=np.array([7]))))  # type: ignore[arg-type]
    assert (reading.completed, reading.total, reading.fields["count"]) == (1, 2, "1,500 rows")
    assert not writing.visible
    bars.write(SimpleNamespace(bytes=7), shards=4)  # type: ignore[arg-type]
    assert (reading.completed, writing.completed, writing.total) == (2, 1, 4)
    assert writing.visible
    assert writing.fields["count"] == "4 shards"
