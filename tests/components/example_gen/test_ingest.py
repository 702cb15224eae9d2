from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Balanced, Column, Manifest, Rejected, Source
from infeed.components.dataset.options import Balance, IngestOptions, ShardOptions
from infeed.components.dataset.reading import manifest_of
from infeed.components.dataset.splits import Buckets, ByLabel, ByName, ByRecord, ByTime, SplitBy
from infeed.components.example_gen import ingest, planning, shuffle
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource, Task
from infeed.components.example_gen.sources.csv_files import open_csv
from infeed.components.example_gen.sources.csv_rows import CsvOptions

ROWS_PER_BLOCK = 50
MakeJob = Callable[..., Job]
ReadSplit = Callable[[str, str], list[bytes]]
Ingested = Callable[..., Manifest]
Rows = Callable[..., list[int]]
STATISTICS = ["statistics-eval.json", "statistics-train.json"]
SCHEMA = pa.schema([("row", pa.int64()), ("text", pa.string())])


def block_of(first: int) -> pa.RecordBatch:
    rows = range(first, first + ROWS_PER_BLOCK)
    return pa.RecordBatch.from_pydict({"row": list(rows), "text": ["x" * (row % 90) for row in rows]}, schema=SCHEMA)


def read_table(firsts: tuple[int, ...], *, bad_rows: BadRows) -> list[pa.RecordBatch]:
    return [block_of(first) for first in firsts]


def table(blocks: int = 6) -> OpenedSource:
    """`blocks` blocks of 50 rows, two blocks a task."""
    firsts = range(0, blocks * ROWS_PER_BLOCK, ROWS_PER_BLOCK)
    tasks = tuple(Task(order, tuple(firsts[start : start + 2])) for order, start in enumerate(range(0, blocks, 2)))
    return OpenedSource(Source("table", "f", 1, 1), SCHEMA, tasks, read_table)


def many_shards(**options: Any) -> IngestOptions:
    return IngestOptions(shards=ShardOptions(min_bytes=1_000, target_bytes=4_000, readers_per_host=4), **options)


@pytest.fixture
def ingested(job: MakeJob) -> Ingested:
    """Ingests a source by a job of these options."""
    return lambda opened, *options: ingest.ingest(opened.tasks, job(opened, *options))


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Where jobs write."""
    return f"{tmp_path}/out"


@pytest.fixture
def rows(root: str, read_split: ReadSplit) -> Rows:
    """Reads splits of the table: the numbers of their rows, by the bytes of the records."""
    examples = (encode_examples(block_of(first)).to_pylist() for first in range(0, 300, ROWS_PER_BLOCK))
    known = {example: row for row, example in enumerate(chain.from_iterable(examples))}
    return lambda *splits: [known[record] for split in splits for record in read_split(root, split)]


def test_every_row_is_written_once_and_the_manifest_agrees_with_the_files(
    ingested: Ingested, rows: Rows, root: str
) -> None:
    manifest = ingested(table(), many_shards())
    assert sorted(rows("train", "eval")) == list(range(300))
    assert manifest.rows_read == 300
    assert Manifest.read(root) == manifest
    assert len(manifest.splits["train"].shards) > 1
    for split in manifest.splits.values():
        for shard in split.shards:
            assert os.path.getsize(f"{root}/{shard.file}") == shard.bytes
    found = {f"Split-{name}/{file}" for name in ("train", "eval") for file in os.listdir(f"{root}/Split-{name}")}
    assert found == {shard.file for split in manifest.splits.values() for shard in split.shards}
    assert sorted(os.listdir(root)) == ["Split-eval", "Split-train", "manifest.json", *STATISTICS]
    assert manifest.schema == (Column("row", "int", (1,), 0), Column("text", "bytes", (1,), 0))


@pytest.mark.parametrize("seed", [0, None])
def test_shards_are_even(ingested: Ingested, seed: int | None) -> None:
    shards = ShardOptions(min_bytes=1_000, target_bytes=60_000, readers_per_host=4)
    options = IngestOptions(shards=shards, compression="none", shuffle_seed=seed)
    manifest = ingested(table(80), options)
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert len(sizes) > 3
    assert max(sizes) < 1.1 * min(sizes)


def test_without_a_seed_the_order_is_the_inputs(ingested: Ingested, rows: Rows) -> None:
    ingested(table(), many_shards(shuffle_seed=None), Buckets((("train", 1),)))
    assert rows("train") == list(range(300))


def test_a_seed_shuffles_over_the_whole_split(ingested: Ingested, rows: Rows) -> None:
    manifest = ingested(table(), many_shards(shuffle_seed=3), Buckets((("train", 1),)))
    order = rows("train")
    first_shard = order[: manifest.splits["train"].shards[0].records]
    assert {row // ROWS_PER_BLOCK for row in first_shard} == set(range(6))  # every block reaches every shard
    assert abs(np.corrcoef(order, np.arange(300))[0, 1]) < 0.2


def test_the_order_depends_on_the_seed_alone(job: MakeJob, rows: Rows) -> None:
    orders = []
    for seed, tasks in ((0, table().tasks), (0, table().tasks[::-1]), (1, table().tasks)):
        ingest.ingest(tasks, job(table(), many_shards(shuffle_seed=seed)))  # whichever worker was first
        orders.append(rows("train"))
    assert orders[0] == orders[1] != orders[2]


def test_a_shard_larger_than_a_window_is_written_in_windows(
    ingested: Ingested, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "WINDOW_BYTES", 2_000)
    for seed in (0, None):
        ingested(table(), IngestOptions(shards=ShardOptions(count=2), shuffle_seed=seed))
        assert sorted(rows("train", "eval")) == list(range(300))


def test_regrouping_changes_no_byte(ingested: Ingested, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few in (100, 0):
        ranges = shuffle.Ranges(1_000, few)
        for name, value in (("ON_DISK", ranges), ("_FAN", 2), ("_GROUP_BYTES", 4_000)):
            monkeypatch.setattr(shuffle, name, value)
        found.append(ingested(table(20), many_shards(shuffle_seed=3)))
        assert sorted(os.listdir(root)) == ["Split-eval", "Split-train", "manifest.json", *STATISTICS]
    assert found[0] == found[1]
    assert len(found[0].splits["train"].shards) > 4


@pytest.mark.parametrize(("chosen", "taken"), [("", "mimalloc"), ("system", "system")])
def test_mimalloc_is_taken_unless_the_user_has_chosen(tmp_path: Path, chosen: str, taken: str) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    code = (
        "import infeed, pyarrow, sys; infeed.ingest(*sys.argv[1:]); print(pyarrow.default_memory_pool().backend_name)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": chosen} if chosen else {}
    command = [sys.executable, "-c", code, str(tmp_path / "a.csv"), str(tmp_path / "out")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == taken


def test_uncompressed_shards_have_no_suffix(ingested: Ingested) -> None:
    manifest = ingested(table(), IngestOptions(compression="none"))
    assert manifest.splits["train"].shards[0].file == "Split-train/data_tfrecord-00000-of-00001"


def test_a_split_without_rows_has_an_empty_shard(ingested: Ingested, rows: Rows) -> None:
    manifest = ingested(table(2), None, Buckets((("train", 10**9), ("eval", 1))))
    assert manifest.splits["eval"].records == 0
    assert rows("eval") == []


def test_input_that_is_split_stays_so(ingested: Ingested, rows: Rows) -> None:
    given = table(2)
    opened = OpenedSource(given.provenance, SCHEMA, (Task(0, (0,), "train"), Task(1, (50,), "test")), given.read)
    ingested(opened, IngestOptions(shuffle_seed=None), None)
    assert rows("train") == list(range(50))
    assert rows("test") == list(range(50, 100))


def test_a_split_by_feature_keeps_equal_values_together(ingested: Ingested, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,x\n" + "".join(f"u{row % 20},{row}\n" for row in range(400)))
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    manifest = ingested(opened, None, Buckets((("train", 1), ("eval", 1)), feature="user"))
    assert all(split.records % 20 == 0 for split in manifest.splits.values())
    assert all(split.records for split in manifest.splits.values())


@pytest.mark.parametrize(
    ("feature", "message"),
    [("nobody", "(?s)no column.*use one of user, x, gap"), ("x", "type is double"), ("gap", "a value is empty")],
)
def test_a_split_by_a_feature_that_cannot_be(ingested: Ingested, tmp_path: Path, feature: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("user,x,gap\na,0.5,1\nb,1.5,\n")
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    with pytest.raises(InfeedError, match=message):
        ingested(opened, None, Buckets((("train", 1),), feature=feature))


def test_nulls_are_counted_and_compat_moves_no_row(ingested: Ingested, cancer: str) -> None:
    opened = open_csv(cancer, {None: "*"}, IngestOptions(), CsvOptions())
    ours = ingested(opened, IngestOptions())
    tfx = ingested(opened, IngestOptions(compat="tfx"))
    assert sum(column.nulls for column in ours.schema) == sum(column.nulls for column in tfx.schema) == 341
    assert {name: split.records for name, split in ours.splits.items()} == {
        name: split.records for name, split in tfx.splits.items()
    }


def accounted(manifest: Manifest) -> bool:
    written = sum(split.records for split in manifest.splits.values())
    return (
        manifest.rows_read + manifest.balanced.repeated
        == written + manifest.rejected.rows + manifest.filtered + manifest.balanced.dropped
    )


def test_a_filter_keeps_what_passes_and_counts_the_rest(ingested: Ingested, rows: Rows) -> None:
    manifest = ingested(table(), many_shards(filter="row >= 120 and text != 'x'"))
    assert sorted(rows("train", "eval")) == [row for row in range(120, 300) if row % 90 != 1]
    assert (manifest.rows_read, manifest.filtered) == (300, 122)


def test_a_filter_function_may_return_a_list(ingested: Ingested, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def keep(b):\n    return [row >= 120 for row in b['row'].to_pylist()]\n")
    assert ingested(table(), many_shards(filter=f"{tmp_path}/mine.py:keep")).filtered == 120


def test_chosen_columns_are_written_whatever_the_filter_uses(
    ingested: Ingested, root: str, read_split: ReadSplit
) -> None:
    manifest = ingested(
        table(), many_shards(filter="row < 3", columns=("text",), shuffle_seed=None), Buckets((("train", 1),))
    )
    texts = pa.RecordBatch.from_pydict({"text": ["", "x", "xx"]})
    assert read_split(root, "train") == encode_examples(texts).to_pylist()
    assert manifest.schema == (Column("text", "bytes", (1,), 0),)


def test_stratified_splits_have_their_share_of_every_label(ingested: Ingested, rows: Rows) -> None:
    ingested(table(), many_shards(split_by=ByLabel("text")))
    labels = {split: Counter(row % 90 for row in rows(split)) for split in ("train", "eval")}
    of_four, of_three = ([labels["train"][label] for label in part] for part in (range(30), range(30, 90)))
    assert Counter(of_four) == {3: 20, 2: 10}  # so that train has two thirds of all 300 rows
    assert Counter(of_three) == {2: 60}
    assert labels["train"] + labels["eval"] == {label: 4 if label < 30 else 3 for label in range(90)}


def test_a_salt_divides_records_otherwise_and_none_as_tfx_does(ingested: Ingested, rows: Rows) -> None:
    def trained(split_by: SplitBy | None) -> list[int]:
        ingested(table(), many_shards(split_by=split_by, shuffle_seed=None))
        return rows("train")

    plain, salted, other = (trained(rule) for rule in (None, ByRecord("b"), ByRecord("c")))
    assert trained(ByRecord("")) == plain
    assert trained(ByRecord("b")) == salted
    assert len({tuple(rows) for rows in (plain, salted, other)}) == 3
    assert all(150 < len(rows) < 250 for rows in (plain, salted, other))  # two thirds of 300


@pytest.mark.parametrize("shares", [{"train": 10, "eval": 5, "test": 5}, {"train": 2, "eval": 1}])
def test_exact_shares_are_those_of_the_hash_but_for_a_few_rows(
    ingested: Ingested, rows: Rows, shares: dict[str, int]
) -> None:
    buckets = Buckets(tuple(shares.items()))

    def divided(split_by: SplitBy, **options: Any) -> dict[str, list[int]]:
        ingested(table(), many_shards(split_by=split_by, filter="row < 32", **options), buckets)
        return {name: sorted(rows(name)) for name in shares}

    exact, hashed = divided(ByRecord("", exact=True)), divided(ByRecord(""))
    assert [len(rows) for rows in exact.values()] == ([16, 8, 8] if "test" in shares else [22, 10])
    more = np.cumsum([len(exact[name]) - len(hashed[name]) for name in shares])  # rows that cross each border
    assert sum(len({*exact[name]} - {*hashed[name]}) for name in shares) <= abs(more).sum() < 16
    assert divided(ByRecord("", exact=True), shuffle_seed=9) == exact
    assert divided(ByRecord("b", exact=True)) != exact


def test_an_option_of_another_type_shows_a_value_of_the_column(job: MakeJob) -> None:
    with pytest.raises(InfeedError, match=r"'1' is not a number.* int64, with values such as 0"):
        job(table(), many_shards(filter="row > '1'"))


def test_splits_cut_by_time(ingested: Ingested, rows: Rows) -> None:
    ingested(table(), many_shards(split_by=ByTime("row", ("120",)), shuffle_seed=None))
    assert rows("train") == list(range(120))
    assert rows("eval") == list(range(120, 300))


@pytest.mark.parametrize(
    ("sampling", "records", "balanced"), [("over", 4, Balanced(60, 0)), ("under", 3, Balanced(0, 30))]
)
def test_balancing_repeats_or_drops_on_the_chosen_split_only(
    ingested: Ingested, rows: Rows, sampling: Any, records: int, balanced: Balanced
) -> None:
    options = many_shards(balance=Balance("text", ("train",), sampling), split_by=ByTime("row", ("10000",)))
    manifest = ingested(table(), options)
    counts = Counter(row % 90 for row in rows("train"))
    assert set(counts.values()) == {records}
    assert len(counts) == 90
    assert manifest.balanced == balanced
    assert accounted(manifest)


def test_balancing_after_a_stratified_split_leaves_the_other_splits_alone(ingested: Ingested, rows: Rows) -> None:
    plain, balanced = (many_shards(split_by=ByLabel("text"), balance=one) for one in (None, Balance("text")))
    of_plain = ingested(table(), plain)
    eval_rows = sorted(rows("eval"))
    of_balanced = ingested(table(), balanced)
    assert sorted(rows("eval")) == eval_rows
    assert of_plain.splits["train"].records == 200
    assert of_balanced.splits["train"].records == 270
    assert accounted(of_balanced)


def reject_odd(firsts: tuple[int, ...], *, bad_rows: BadRows) -> Any:
    """Every block with its odd rows reported, the last of them after the last batch."""
    for first in firsts:
        block = block_of(first)
        for row in block["row"].to_pylist():
            if row % 2:
                bad_rows.report(BadRow("table", row + 1, None, "odd", str(row)))
        yield block.take(pa.array(range(0, ROWS_PER_BLOCK, 2)))
    bad_rows.report(BadRow("table", firsts[-1] + 1_000, None, "cut short", ""))


def test_rejected_rows_are_counted_and_listed_in_order(job: MakeJob) -> None:
    opened = OpenedSource(table().provenance, SCHEMA, table().tasks, reject_odd)
    one = job(opened, many_shards(on_bad_row="reject"))
    manifest = ingest.ingest(opened.tasks[::-1], one)
    assert manifest.rejected == Rejected(153, "rejected.jsonl")
    assert manifest.rows_read == 303
    listed = [json.loads(line) for line in Path(one.root, "rejected.jsonl").read_text().splitlines()]
    assert [row["line"] for row in listed if row["reason"] == "odd"] == list(range(2, 301, 2))
    assert sorted(os.listdir(one.root)) == ["Split-eval", "Split-train", "manifest.json", "rejected.jsonl", *STATISTICS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"(?s)odd.*where: table, line 2"),
        ({"on_bad_row": "reject", "bad_row_limit": 10}, "more than 10 bad rows"),  # within a task
        ({"on_bad_row": "reject", "bad_row_limit": 100}, "more than 100 bad rows"),  # over all tasks
    ],
)
def test_too_many_bad_rows_leave_nothing(job: MakeJob, options: dict[str, Any], message: str) -> None:
    opened = OpenedSource(table().provenance, SCHEMA, table().tasks, reject_odd)
    one = job(opened, many_shards(**options))
    with pytest.raises(InfeedError, match=message):
        ingest.ingest(opened.tasks, one)
    assert leftovers(one.root) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "rwo > 1"}, "no column .rwo."),
        ({"columns": ("row", "rwo")}, r"(?s)no column 'rwo'.*columns to keep.*use one of row, text"),
        ({"split_by": ByName("usage")}, "no column 'usage'"),
        ({"split_by": ByTime("row", ("1", "2"))}, "2 cuts for the splits train, eval"),
        ({"balance": Balance("lable")}, "no column 'lable'"),
        ({"balance": Balance("text", ("test",))}, r"(?s)no split 'test'.*use one of train, eval"),
    ],
)
def test_options_that_do_not_fit_are_told_before_anything_is_read(
    job: MakeJob, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InfeedError, match=message):
        job(table(), IngestOptions(**options))


def test_input_that_is_split_is_not_split_again(job: MakeJob) -> None:
    given = table(2)
    opened = OpenedSource(given.provenance, SCHEMA, (Task(0, (0,), "train"),), given.read)
    with pytest.raises(InfeedError, match="split_by is name, but the input is already split"):
        job(opened, IngestOptions(split_by=ByName("text")), None)


def test_no_rows_at_all(job: MakeJob) -> None:
    empty = OpenedSource(Source("table", "f", 0, 0), SCHEMA, (), read_table)
    with pytest.raises(InfeedError, match="no rows in the input"):
        ingest.ingest((), job(empty))


def break_reading(firsts: tuple[int, ...], *, bad_rows: BadRows) -> Any:
    for first in firsts:
        if first >= 200:
            raise RuntimeError("worker lost while reading")
        yield block_of(first)


def leftovers(root: str) -> list[str]:
    return [file for _, _, found in os.walk(root) for file in found]


def test_a_failure_while_reading_leaves_nothing(job: MakeJob) -> None:
    one = job(OpenedSource(table().provenance, SCHEMA, table().tasks, break_reading))
    with pytest.raises(RuntimeError, match="while reading"):
        ingest.ingest(table().tasks, one)
    assert leftovers(one.root) == []


def test_a_failure_while_writing_leaves_nothing_and_a_rerun_is_right(
    job: MakeJob, rows: Rows, monkeypatch: pytest.MonkeyPatch
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
    assert sorted(rows("train", "eval")) == list(range(300))


def test_a_failure_while_publishing_leaves_nothing(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    one, rename = job(table(), many_shards()), ingest.files.rename

    def rename_some(source: str, target: str) -> None:
        if "00002-of" in target:
            raise OSError("connection lost")
        rename(source, target)

    monkeypatch.setattr(ingest.files, "rename", rename_some)
    with pytest.raises(OSError, match="connection lost"):
        ingest.ingest(table().tasks, one)
    assert leftovers(one.root) == []


def test_a_rerun_over_what_a_killed_worker_left(ingested: Ingested, rows: Rows, root: str) -> None:
    ingested(table(), many_shards())
    for stale in (
        "Split-train/data_tfrecord-00000-of-00099.gz",
        "Split-other/data_tfrecord-00000-of-00001.gz",  # of an attempt with other splits
        ".ingest/spills/000000-000000-train.arrow",
        "rejected.jsonl",
    ):
        Path(root, stale).parent.mkdir(parents=True, exist_ok=True)
        Path(root, stale).write_bytes(b"half a file")
    ingested(table(), many_shards())
    assert sorted(rows("train", "eval")) == list(range(300))
    assert sorted(os.listdir(root)) == ["Split-eval", "Split-train", "manifest.json", *STATISTICS]


def test_ingest_needs_neither_beam_nor_tfx_nor_tensorflow() -> None:
    code = (
        "import sys, infeed.components.example_gen.sources.csv_files, infeed.components.example_gen\n"
        "found = {'apache_beam', 'tfx', 'tensorflow', 'tfx_bsl'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_a_csv_a_warning_tells_what_is_more_than_rounding(ingested: Ingested, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("fare,key\n0.1,16777217\n12.35,0.5\n")
    opened = open_csv(str(tmp_path), {None: "in.csv"}, IngestOptions())
    manifest = ingested(opened)
    assert manifest.warnings == ("column 'key': double integers beyond 2^24, or out of range, changed by float32: 1",)


def test_killed_while_an_earlier_dataset_is_cleared_what_is_left_of_it_does_not_look_whole(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = table()
    written = job(opened)
    ingest.ingest(opened.tasks, written)
    remove = files.remove

    def killed(path: str) -> None:
        if path.endswith("Split-train"):
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(files, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        ingest.ingest(opened.tasks, written)
    with pytest.raises(InfeedError, match="not complete"):
        manifest_of(written.root)


def test_a_clean_up_that_fails_hides_no_error(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(root: str) -> None:
        raise OSError("the store refuses")

    def fail() -> None:
        with ingest.transaction(job(table())):
            monkeypatch.setattr(ingest, "clear", refuse)
            raise RuntimeError("the reason")

    with pytest.raises(RuntimeError, match="the reason"):
        fail()
    assert "the store refuses; infeed ingest --clean" in caplog.text


def test_temporary_files_that_stay_after_an_ingest_are_an_error(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    written, remove = job(table()), files.remove

    def refuse(path: str) -> None:
        if path == written.temporary:
            raise OSError("AccessDenied")
        remove(path)

    def publish() -> None:
        with ingest.transaction(written):
            files.write_bytes(f"{written.temporary}/spill", b"")
            monkeypatch.setattr(files, "remove", refuse)

    with pytest.raises(InfeedError, match="AccessDenied") as error:
        publish()
    assert error.value.where == written.temporary
    assert f"infeed ingest --clean {written.root}" in (error.value.do or "")
