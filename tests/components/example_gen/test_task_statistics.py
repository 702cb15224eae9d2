from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset.manifest import Manifest, Source
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.splits import ByLabel
from infeed.components.dataset.statistics.table_statistics import statistics_of
from infeed.components.engine.processes import Processes
from infeed.components.example_gen import ingest, task_statistics
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRows, OpenedSource, Task
from infeed.components.example_gen.sources.csv_files import open_csv
from infeed.components.example_gen.task_statistics import analyzed_splits

MakeJob = Callable[..., Job]
SCHEMA = pa.schema(
    [
        ("row", pa.int32()),
        ("fare", pa.float64()),
        ("word", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("no", pa.null()),
    ]
)


def block_of(first: int) -> pa.RecordBatch:
    rows = range(first, first + 40)
    columns = {
        "row": list(rows),
        "fare": [None if row % 7 == 0 else row / 3 for row in rows],
        "word": [None if row % 5 == 0 else f"w{row % 4}" for row in rows],
        "tags": [None if row % 6 == 0 else ["a"] * (row % 3) for row in rows],
        "no": [None] * len(rows),
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def read_blocks(firsts: tuple[int, ...], *, bad_rows: BadRows) -> list[pa.RecordBatch]:
    return [block_of(first) for first in firsts]


def table() -> OpenedSource:
    tasks = tuple(Task(order, (order * 80, order * 80 + 40)) for order in range(5))
    return OpenedSource(Source("table", "f", 1, 1), SCHEMA, tasks, read_blocks)


def written(one: Job, map_fn: Any = map, opened: OpenedSource | None = None) -> dict[str, bytes]:
    ingest.ingest((opened or table()).tasks, one, map_fn=map_fn)
    return {file.name: file.read_bytes() for file in sorted(Path(one.root).glob("statistics-*"))}


def read(one: Job, cache: Path, split: str = "train") -> dict[str, Any]:
    return {name: found.plain() for name, found in statistics_of(one.root, split, cache_dir=str(cache)).items()}


@pytest.mark.parametrize("compat", ["none", "tfx"])
def test_what_ingest_counts_is_what_the_shards_hold(job: MakeJob, tmp_path: Path, compat: str) -> None:
    one = job(table(), IngestOptions(compat=compat))
    assert list(written(one)) == ["statistics-eval.json", "statistics-train.json"]
    counted = {split: read(one, tmp_path / "none", split) for split in ("train", "eval")}
    assert not list((tmp_path / "none").glob("statistics-*"))
    for split, found in counted.items():
        (Path(one.root) / f"statistics-{split}.json").unlink()
        assert read(one, tmp_path / "cache", split) == found
    assert list(counted["train"]) == ["fare", "row", "tags", "word"]


def test_groups_of_tasks_add_up_to_the_same(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = written(job(table()))
    monkeypatch.setattr(task_statistics, "_GROUP", 2)
    assert len(task_statistics.statistics_groups(5)) == 2
    assert written(job(table())) == at_once


@pytest.mark.parametrize(("tasks", "groups"), [(1, 0), (64, 0), (65, 2), (1_000, 16), (1_000_000, 1_000)])
def test_neither_groups_nor_their_tasks_are_many(tasks: int, groups: int) -> None:
    found = task_statistics.statistics_groups(tasks)
    assert len(found) == groups
    assert not found or (found[0].first, found[-1].stop >= tasks) == (0, True)


def backwards(function: Callable[[Any], Any], items: Sequence[Any], /) -> Iterable[Any]:
    return map(function, reversed(items))


def test_neither_order_nor_workers_change_a_byte(job: MakeJob) -> None:
    first = written(job(table()))
    assert written(job(table()), backwards) == first


@pytest.mark.slow
def test_processes_do_not_change_a_byte_either(job: MakeJob, tmp_path: Path) -> None:
    for number in range(3):
        rows = [f"{row / 7},w{row * number % 5}" for row in range(4_000)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["fare,word", *rows]))
    options = IngestOptions(block_bytes=20_000)
    opened = open_csv(str(tmp_path), {None: "*.csv"}, options)
    with Processes(2) as engine:
        by_two = written(job(opened, options), engine.map, opened)
    assert by_two == written(job(opened, options), map, opened)


def test_statistics_are_there_before_the_manifest_is(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    there = list[str]()

    def write(manifest: Manifest, root: str) -> None:
        there.extend(sorted(path.name for path in Path(root).glob("statistics-*")))

    monkeypatch.setattr(Manifest, "write", write)
    ingest.ingest(table().tasks, job(table()))
    assert there == ["statistics-eval.json", "statistics-train.json"]


def test_a_run_that_fails_and_one_without_statistics_leave_none(job: MakeJob) -> None:
    one = job(table())
    written(one)

    def fail(function: Callable[[Any], Any], items: Sequence[Any], /) -> Iterable[Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest.ingest(table().tasks, one, map_fn=fail)
    assert not list(Path(one.root).glob("statistics-*"))
    written(one)
    assert not written(job(table(), IngestOptions(statistics=False)))


@pytest.mark.parametrize(
    ("options", "splits"),
    [
        (IngestOptions(), ["train", "eval"]),
        (IngestOptions(statistics=False), []),
        (IngestOptions(split_by=ByLabel("word")), []),
        (IngestOptions(balance=Balance("word")), ["eval"]),
    ],
)
def test_statistics_are_of_splits_whose_rows_are_known_at_once(options: IngestOptions, splits: list[str]) -> None:
    found = partial(analyzed_splits, ["train", "eval"], SCHEMA, options)
    assert found(False) == splits
    assert found(True) == []


def test_a_split_that_was_balanced_is_read_when_somebody_asks(job: MakeJob, tmp_path: Path) -> None:
    one = job(table(), IngestOptions(balance=Balance("word")))
    assert list(written(one)) == ["statistics-eval.json"]
    counts = statistics_of(one.root, "train", ["word"], str(tmp_path / "cache"))["word"].counts
    assert len({count for _, count in counts.items()}) == 1


def test_a_very_wide_table_is_read_when_somebody_asks() -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(20_001)])
    assert analyzed_splits(["train"], schema, IngestOptions(), False) == []
