"""Which rows of a batch go on, and the spills that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import spills
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.spills import (
    RunRecords,
    Spill,
    Spills,
    Strata,
    choose_columns,
    choose_rows,
    strata_of_rows,
)

RECORDS = [[b"a", b"bb", b""], [b"dddd"]]


def array(values: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(values, pa.large_binary())


def records_of(spill: Spill) -> list[bytes]:
    records: list[bytes] = spills.read_file(spill.path, spill.start, spill.start + spill.records).to_pylist()
    return records


@pytest.fixture
def written(tmp_path: Path) -> list[Spill]:
    return [
        spill
        for number, records in enumerate(RECORDS)
        for spill in spills.write_spill(
            f"{tmp_path}/{number}", "train", array(records), np.arange(len(records)), None, Strata.none(len(records))
        )
    ]


def test_a_spill_knows_its_records_and_their_bytes(written: list[Spill]) -> None:
    assert [(spill.records, spill.bytes) for spill in written] == [(3, 3), (1, 4)]


def test_a_stratum_is_a_spill_of_its_own(tmp_path: Path) -> None:
    strata = Strata(np.array([1, 0, 1, 0, 1]), [(None, "a"), (None, "b"), (None, "nobody")])
    values = array([b"0", b"1", b"22", b"3", b"4"])
    found = list(spills.write_spill(f"{tmp_path}/0", None, values, np.arange(5), (7,), strata))
    assert [(spill.start, spill.records, spill.bytes, spill.strata) for spill in found] == [
        (0, 2, 2, (None, "a")),
        (2, 3, 4, (None, "b")),
    ]
    first, second = (records_of(found[part]) for part in (0, 1))
    assert (set(first), set(second)) == ({b"1", b"3"}, {b"0", b"22", b"4"})


def test_a_seed_shuffles_what_is_written(tmp_path: Path) -> None:
    values = [bytes([number]) for number in range(100)]
    (one,) = spills.write_spill(f"{tmp_path}/a", "train", array(values), np.arange(100), (0, 1), Strata.none(100))
    stored = records_of(one)
    assert sorted(stored) == values != stored


def test_a_permutation_never_changes() -> None:
    assert spills.permutation(8, (0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def test_only_the_rows_asked_for_are_written(tmp_path: Path) -> None:
    rows = np.array([3, 1])
    strata = Strata(np.array([0, 1, 0, 1]), [(None, "a"), (None, "b")])
    (found,) = spills.write_spill(f"{tmp_path}/a", "train", array([b"0", b"1", b"22", b"3"]), rows, None, strata)
    assert (found.records, found.strata, records_of(found)) == (2, (None, "b"), [b"3", b"1"])


def test_the_blocks_of_a_run_are_shuffled_together(tmp_path: Path) -> None:
    run = RunRecords()
    for first in (0, 50):
        values = [bytes([number]) for number in range(first, first + 50)]
        rows = {"train": np.arange(0, 50, 2), "eval": np.arange(1, 50, 2)}
        run.add(array(values), rows, Strata.none(50), 1)
    train, evaluation = run.spill(lambda split: f"{tmp_path}/{split}", lambda split: (0, 1))
    found = [record[0] for record in records_of(train)]
    assert sorted(found) == list(range(0, 100, 2))
    assert {number // 50 for number in found[:10]} == {0, 1}
    assert sorted(records_of(evaluation)) == [bytes([number]) for number in range(1, 100, 2)]


def test_a_label_is_one_stratum_in_all_blocks_of_a_run(tmp_path: Path) -> None:
    run = RunRecords()
    for values, labels in (([b"0", b"1"], "ab"), ([b"2", b"3"], "bc")):
        strata = Strata(np.array([0, 1]), [(label, None) for label in labels])
        run.add(array(values), {None: np.arange(2)}, strata, 1)
    found = list(run.spill(lambda _: f"{tmp_path}/all", lambda _: None))
    assert [(one.strata[0], records_of(one)) for one in found] == [("a", [b"0"]), ("b", [b"1", b"2"]), ("c", [b"3"])]


def test_a_run_ends_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills, "_RUN_BYTES", 100)
    run = RunRecords()
    assert run.has_room(101)  # a block that is too large is a run of its own
    for block_bytes in (40, 40):
        assert run.has_room(block_bytes)
        run.add(array([]), {}, Strata.none(0), block_bytes)
    assert [run.has_room(more) for more in (20, 21)] == [True, False]


SPILLS = [
    Spill("train", "a", 0, 4, 41, ("x", None)),
    Spill("eval", "b", 0, 2, 20, ("y", None)),
    Spill("train", "a", 4, 3, 30, ("y", "z")),
]


def test_columns_hold_what_the_spills_did() -> None:
    columns = Spills.of(SPILLS)
    assert (list(columns), len(columns)) == (SPILLS, 3)
    assert len(columns.files) == 2  # a path is stored once
    assert list(Spills.of([])) == []


@pytest.mark.parametrize("cut", range(4))
def test_parts_are_joined_in_their_order(cut: int) -> None:
    assert list(Spills.joined([Spills.of(SPILLS[:cut]), Spills.of(SPILLS[cut:])])) == SPILLS
    assert list(Spills.joined([])) == []


def test_the_spills_of_a_split() -> None:
    assert list(Spills.of(SPILLS).of_split("train")) == [SPILLS[0], SPILLS[2]]
    assert list(Spills.of(SPILLS).of_split("test")) == []


def test_a_cut_has_the_average_bytes_of_its_spill() -> None:
    found = Spills.of(SPILLS).cut(np.array([1, 2, 0]), np.array([3, 2, 3]))
    assert list(found) == [Spill("train", "a", 1, 2, 20, ("x", None)), SPILLS[2]]


def test_labels_are_numbered() -> None:
    numbers, labels = Spills.of(SPILLS).labels(0)
    assert [labels[number] for number in numbers] == ["x", "y", "y"]


def test_rows_are_numbered_by_both_labels() -> None:
    batch = pa.RecordBatch.from_pydict({"x": ["a", "b", "a", None], "y": [1, 1, 2, 1]})
    found = strata_of_rows(batch, ("x", "y"))
    assert [found.labels[number] for number in found.numbers] == [("a", 1), ("b", 1), ("a", 2), (None, 1)]
    assert len(strata_of_rows(batch, (None, None)).labels) == 1


def test_nan_is_no_label() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.0, float("nan"), None]})
    found = strata_of_rows(batch, ("x", None))
    assert [found.labels[number][0] for number in found.numbers] == [1.0, None, None]


def test_labels_that_cannot_be() -> None:
    batch = pa.RecordBatch.from_pydict({"list": [[1]], "id": [1]})
    with pytest.raises(InfeedError, match=r"(?s)type is list.*label 'list'"):
        strata_of_rows(batch, ("list", None))
    many = pa.RecordBatch.from_pydict({"id": list(range(10_001))})
    with pytest.raises(InfeedError, match=r"more than 10000 distinct labels"):
        strata_of_rows(many, (None, "id"))


BATCH = pa.RecordBatch.from_pydict(
    {
        "x": [1, 2, 3, 4],
        "text": pa.array(["a", None, "", "b"]),
        "number": pa.array([0.5, None, np.nan, np.inf]),
        "list": pa.array([[1], [], None, [2, 3]]),
        "nothing": pa.nulls(4),
    }
)


def chosen(bad_rows: BadRows | None = None, **options: Any) -> list[int]:
    bad_rows = bad_rows or BadRows("reject", 9)
    rows: list[int] = choose_rows(BATCH, IngestOptions(**options), "in.csv", bad_rows).column("x").to_pylist()
    return rows


@pytest.mark.parametrize(
    ("required", "rows"),
    [
        ((), [1, 2, 3, 4]),
        (("text",), [1, 3, 4]),  # an empty text is a value
        (("number",), [1]),
        (("list",), [1, 4]),
        (("text", "list"), [1, 4]),
        (("nothing",), []),
    ],
)
def test_a_row_without_a_required_value_is_a_bad_row(required: tuple[str, ...], rows: list[int]) -> None:
    bad_rows = BadRows("reject", 9)
    assert chosen(bad_rows, required=required) == rows
    assert len(bad_rows.take()) == 4 - len(rows)


def test_a_bad_row_is_told_with_its_file_column_and_cells() -> None:
    bad_rows = BadRows("reject", 9)
    chosen(bad_rows, required=("text",))
    (row,) = bad_rows.take()
    assert (row.file, row.column, json.loads(row.text)["x"]) == ("in.csv", "text", 2)
    with pytest.raises(InfeedError, match="column 'text'"):
        chosen(BadRows(), required=("text",))
    with pytest.raises(InfeedError, match="more than 1 bad rows"):
        chosen(BadRows("reject", 1), required=("number",))


def test_rows_that_the_filter_leaves_out_need_no_value() -> None:
    bad_rows = BadRows("reject", 9)
    assert chosen(bad_rows, filter="x > 2", required=("text", "number")) == []
    assert [json.loads(row.text)["x"] for row in bad_rows.take()] == [3, 4]


def test_columns_are_written_in_the_order_that_they_are_named_in() -> None:
    assert choose_columns(BATCH, IngestOptions(columns=("text", "x"))).schema.names == ["text", "x"]
    with pytest.raises(InfeedError, match="'y'"):
        choose_columns(BATCH, IngestOptions(columns=("y",)))
    with pytest.raises(InfeedError, match="'y'"):
        chosen(required=("y",))


@pytest.mark.parametrize(
    ("labeled", "rows"),
    [(("text",), [1, 4]), (("number",), [1]), (("list",), [1, 2, 4]), (("nothing",), []), (("x", "list"), [1, 2, 4])],
)
def test_rows_without_a_label_are_left_out_and_are_no_bad_rows(labeled: tuple[str, ...], rows: list[int]) -> None:
    assert chosen(BadRows("fail"), labeled=labeled) == rows


def test_dropped_columns_are_not_written() -> None:
    options = IngestOptions(drop=("list", "x"))
    assert choose_columns(BATCH, options).schema.names == ["text", "number", "nothing"]
    chosen_and_dropped = IngestOptions(columns=("text", "x"), drop=("x",))
    assert choose_columns(BATCH, chosen_and_dropped).schema.names == ["text"]


@pytest.mark.parametrize(("drop", "word"), [(("txt",), "'txt'"), (tuple(BATCH.schema.names), "every column")])
def test_columns_that_cannot_be_dropped_are_reported(drop: tuple[str, ...], word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        choose_columns(BATCH, IngestOptions(drop=drop))
    assert "drop" in raised.value.where
