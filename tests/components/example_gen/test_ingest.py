from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Column, Manifest, Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest, inputs
from infeed.components.example_gen.ingest import Input, Job, Task
from infeed.components.example_gen.sources.csv import CsvOptions

ROWS_PER_BLOCK = 50
MakeJob = Callable[..., Job]
ReadSplit = Callable[[str, str], list[bytes]]
SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string())])


def block_of(first: int) -> pa.RecordBatch:
    rows = range(first, first + ROWS_PER_BLOCK)
    return pa.RecordBatch.from_pydict({"row": list(rows), "text": ["x" * (row % 90) for row in rows]}, schema=SCHEMA)


def read_table(firsts: tuple[int, ...]) -> list[pa.RecordBatch]:
    return [block_of(first) for first in firsts]


def table(blocks: int = 6) -> Input:
    """`blocks` blocks of 50 rows, two blocks a task."""
    firsts = range(0, blocks * ROWS_PER_BLOCK, ROWS_PER_BLOCK)
    tasks = tuple(Task(order, tuple(firsts[start : start + 2])) for order, start in enumerate(range(0, blocks, 2)))
    return Input(Source("table", "f", 1, 1), SCHEMA, tasks, read_table)


def rows_of(records: list[bytes], blocks: int = 6) -> list[int]:
    """Records back to row numbers, by their bytes."""
    known = {
        example: block * ROWS_PER_BLOCK + row
        for block in range(blocks)
        for row, example in enumerate(encode_examples(block_of(block * ROWS_PER_BLOCK)).to_pylist())
    }
    return [known[record] for record in records]


def many_shards(**options: Any) -> IngestOptions:
    return IngestOptions(shards=ShardOptions(min_bytes=1_000, target_bytes=4_000, readers_per_host=4), **options)


def test_every_row_is_written_once(job: MakeJob, read_split: ReadSplit) -> None:
    one = job(table(), many_shards())
    manifest = ingest.ingest(table().tasks, one)
    rows = [row for split in ("train", "eval") for row in rows_of(read_split(one.root, split))]
    assert sorted(rows) == list(range(300))
    assert manifest.rows_read == 300
    assert Manifest.read(one.root) == manifest


def test_the_manifest_agrees_with_the_files(job: MakeJob) -> None:
    one = job(table(), many_shards())
    manifest = ingest.ingest(table().tasks, one)
    assert len(manifest.splits["train"].shards) > 1
    for split in manifest.splits.values():
        for shard in split.shards:
            assert os.path.getsize(f"{one.root}/{shard.file}") == shard.bytes
    found = {f"Split-{name}/{file}" for name in ("train", "eval") for file in os.listdir(f"{one.root}/Split-{name}")}
    assert found == {shard.file for split in manifest.splits.values() for shard in split.shards}
    assert sorted(os.listdir(one.root)) == ["Split-eval", "Split-train", "manifest.json"]
    assert manifest.schema == (Column("row", "int", (1,), 0), Column("text", "bytes", (1,), 0))


@pytest.mark.parametrize("seed", [0, None])
def test_shards_are_even(job: MakeJob, seed: int | None) -> None:
    shards = ShardOptions(min_bytes=1_000, target_bytes=60_000, readers_per_host=4)
    options = IngestOptions(shards=shards, compression="none", shuffle_seed=seed)
    manifest = ingest.ingest(table(80).tasks, job(table(80), options))
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert len(sizes) > 3
    assert max(sizes) < 1.1 * min(sizes)


def test_without_a_seed_the_order_is_the_inputs(job: MakeJob, read_split: ReadSplit) -> None:
    one = job(table(), many_shards(shuffle_seed=None), Buckets((("train", 1),)))
    ingest.ingest(table().tasks, one)
    assert rows_of(read_split(one.root, "train")) == list(range(300))


def test_a_seed_shuffles_over_the_whole_split(job: MakeJob, read_split: ReadSplit) -> None:
    one = job(table(), many_shards(shuffle_seed=3), Buckets((("train", 1),)))
    manifest = ingest.ingest(table().tasks, one)
    rows = rows_of(read_split(one.root, "train"))
    first_shard = rows[: manifest.splits["train"].shards[0].records]
    assert {row // ROWS_PER_BLOCK for row in first_shard} == set(range(6))  # every block reaches every shard
    assert abs(np.corrcoef(rows, np.arange(300))[0, 1]) < 0.2


def test_the_order_depends_on_the_seed_alone(job: MakeJob, read_split: ReadSplit) -> None:
    orders = []
    for seed, tasks in ((0, table().tasks), (0, table().tasks[::-1]), (1, table().tasks)):
        one = job(table(), many_shards(shuffle_seed=seed))
        ingest.ingest(tasks, one)  # whichever worker was first
        orders.append(read_split(one.root, "train"))
    assert orders[0] == orders[1] != orders[2]


def test_a_shard_larger_than_a_window_is_written_in_windows(
    job: MakeJob, read_split: ReadSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_WINDOW_BYTES", 2_000)
    for seed in (0, None):
        one = job(table(), IngestOptions(shards=ShardOptions(count=2), shuffle_seed=seed))
        ingest.ingest(table().tasks, one)
        rows = [row for split in ("train", "eval") for row in rows_of(read_split(one.root, split))]
        assert sorted(rows) == list(range(300))


def test_uncompressed_shards_have_no_suffix(job: MakeJob) -> None:
    manifest = ingest.ingest(table().tasks, job(table(), IngestOptions(compression="none")))
    assert manifest.splits["train"].shards[0].file == "Split-train/data_tfrecord-00000-of-00001"


def test_a_split_without_rows_has_an_empty_shard(job: MakeJob, read_split: ReadSplit) -> None:
    one = job(table(2), None, Buckets((("train", 10**9), ("eval", 1))))
    manifest = ingest.ingest(table(2).tasks, one)
    assert manifest.splits["eval"].records == 0
    assert read_split(one.root, "eval") == []


def test_input_that_is_split_stays_so(job: MakeJob, read_split: ReadSplit) -> None:
    given = table(2)
    opened = Input(given.source, SCHEMA, (Task(0, (0,), "train"), Task(1, (50,), "test")), given.read)
    one = job(opened, IngestOptions(shuffle_seed=None), None)
    ingest.ingest(opened.tasks, one)
    assert rows_of(read_split(one.root, "train"), 2) == list(range(50))
    assert rows_of(read_split(one.root, "test"), 2) == list(range(50, 100))


def test_a_split_by_feature_keeps_equal_values_together(tmp_path: Path, job: MakeJob) -> None:
    (tmp_path / "a.csv").write_text("user,x\n" + "".join(f"u{row % 20},{row}\n" for row in range(400)))
    opened = inputs.open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    one = job(opened, None, Buckets((("train", 1), ("eval", 1)), feature="user"))
    manifest = ingest.ingest(opened.tasks, one)
    assert all(split.records % 20 == 0 for split in manifest.splits.values())
    assert all(split.records for split in manifest.splits.values())


@pytest.mark.parametrize(
    ("feature", "message"),
    [("nobody", "(?s)no such column.*choose one of user, x, gap"), ("x", "of type double"), ("gap", "an empty value")],
)
def test_a_split_by_a_feature_that_cannot_be(tmp_path: Path, job: MakeJob, feature: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("user,x,gap\na,0.5,1\nb,1.5,\n")
    opened = inputs.open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    with pytest.raises(InfeedError, match=message):
        ingest.ingest(opened.tasks, job(opened, None, Buckets((("train", 1),), feature=feature)))


def test_nulls_are_counted_and_compat_moves_no_row(tmp_path: Path, cancer: str, job: MakeJob) -> None:
    opened = inputs.open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions())
    ours = ingest.ingest(opened.tasks, job(opened, IngestOptions()))
    tfx = ingest.ingest(opened.tasks, job(opened, IngestOptions(compat="tfx")))
    assert sum(column.nulls for column in ours.schema) == sum(column.nulls for column in tfx.schema) == 341
    assert {name: split.records for name, split in ours.splits.items()} == {
        name: split.records for name, split in tfx.splits.items()
    }


def test_no_rows_at_all(job: MakeJob) -> None:
    empty = Input(Source("table", "f", 0, 0), SCHEMA, (), read_table)
    with pytest.raises(InfeedError, match="no rows in the input"):
        ingest.ingest((), job(empty))


def break_reading(firsts: tuple[int, ...], breaks: bool = True) -> Any:
    for first in firsts:
        if first >= 200:
            raise RuntimeError("worker lost while reading")
        yield block_of(first)


def leftovers(root: str) -> list[str]:
    return [file for _, _, found in os.walk(root) for file in found]


def test_a_failure_while_reading_leaves_nothing(job: MakeJob) -> None:
    one = job(Input(table().source, SCHEMA, (), partial(break_reading, breaks=True)))
    with pytest.raises(RuntimeError, match="while reading"):
        ingest.ingest(table().tasks, one)
    assert leftovers(one.root) == []


def test_a_failure_while_writing_leaves_nothing_and_a_rerun_is_right(
    job: MakeJob, read_split: ReadSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, write, written = job(table(), many_shards()), ingest.write_records, Counter[str]()

    def disk_full(path: str, *args: Any, **options: Any) -> Any:
        written["shards"] += 1
        if written["shards"] == 3:
            raise OSError("disk full")
        return write(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "write_records", disk_full)
        with pytest.raises(OSError, match="disk full"):
            ingest.ingest(table().tasks, one)
    assert leftovers(one.root) == []
    ingest.ingest(table().tasks, one)
    rows = [row for split in ("train", "eval") for row in rows_of(read_split(one.root, split))]
    assert sorted(rows) == list(range(300))


def test_a_rerun_over_what_a_killed_worker_left(job: MakeJob, read_split: ReadSplit) -> None:
    one = job(table(), many_shards())
    ingest.ingest(table().tasks, one)
    for stale in ("Split-train/data_tfrecord-00000-of-00099.gz", ".ingest/spills/000000-000000-train.arrow"):
        Path(one.root, stale).parent.mkdir(parents=True, exist_ok=True)
        Path(one.root, stale).write_bytes(b"half a file")
    ingest.ingest(table().tasks, one)
    rows = [row for split in ("train", "eval") for row in rows_of(read_split(one.root, split))]
    assert sorted(rows) == list(range(300))
    assert sorted(os.listdir(one.root)) == ["Split-eval", "Split-train", "manifest.json"]


def test_ingest_needs_neither_beam_nor_tfx_nor_tensorflow() -> None:
    code = (
        "import sys, infeed.components.example_gen.inputs, infeed.components.example_gen\n"
        "found = {'apache_beam', 'tfx', 'tensorflow', 'tfx_bsl'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
