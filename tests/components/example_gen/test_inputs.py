from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from opened_sources import batches_of, rows_of
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, records
from infeed.components.dataset.options import IngestOptions, OnBadRow
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import BadRow, BadRows, OpenedSource, conform, open_files, to_jsonl
from infeed.components.example_gen.local import ingest
from infeed.components.example_gen.sources.csv_files import open_csv
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.image_files import open_images
from infeed.components.example_gen.sources.streams import Span


def test_small_csv_files_are_one_task_each(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "a.csv").write_text("x\n0.5\n")
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(), CsvOptions())
    assert [(task.order, task.payload.piece, task.split) for task in opened.tasks] == [
        (0, Span(f"{tmp_path}/a.csv", 2, None, 2), None),
        (1, Span(f"{tmp_path}/b.csv", 2, None, 2), None),
    ]
    assert [batch.to_pydict() for batch in opened.read(opened.tasks[1].payload, bad_rows=BadRows())] == [{"x": [1.0]}]
    assert (opened.provenance.kind, opened.provenance.files, opened.provenance.bytes) == ("csv", 2, 10)


@pytest.mark.slow
def test_a_large_csv_file_is_several_tasks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f'{row},"two\nlines"\n' for row in range(2_000)))
    opened = open_csv(str(tmp_path), {None: "*.csv"}, IngestOptions(block_bytes=1024), CsvOptions())
    assert len(opened.tasks) == 5
    assert [x for batch in batches_of(opened) for x in batch.column(0).to_pylist()] == list(range(2_000))


def read_numbers(path: str) -> Iterator[pa.RecordBatch]:
    for line in Path(path).read_text().split():
        yield pa.RecordBatch.from_pydict({"n": [int(line)], "inner": [{"half": int(line) / 2}]})


def test_a_source_in_one_function(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 2")
    (tmp_path / "b").write_text("3")
    opened = open_files("numbers", str(tmp_path), {None: "*"}, read_numbers)
    assert opened.schema.names == ["n", "inner.half"]
    assert rows_of(opened) == [
        {"n": 1, "inner.half": 0.5},
        {"n": 2, "inner.half": 1.0},
        {"n": 3, "inner.half": 1.5},
    ]


def test_a_source_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(InfeedError, match="no rows in the input"):
        open_files("numbers", str(tmp_path), {None: "*"}, read_numbers)


def test_input_that_is_split_keeps_its_splits_and_shares_its_types(tmp_path: Path) -> None:
    for split, row in (("train", "1"), ("eval", "0.5")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.csv").write_text(f"x\n{row}\n")
    patterns = {"train": "train/*", "eval": "eval/*"}
    opened = open_csv(str(tmp_path), patterns, IngestOptions(), CsvOptions())
    assert [task.split for task in opened.tasks] == ["train", "eval"]
    assert str(opened.schema.types[0]) == "double"


def test_images_are_tasks_of_about_a_block(digits: str) -> None:
    opened = open_images(digits, {None: "*/*"}, IngestOptions(block_bytes=4096))
    assert len(opened.tasks) > 1
    batches = list(batches_of(opened))
    assert sum(batch.num_rows for batch in batches) == 120
    assert {batch.schema for batch in batches} == {opened.schema}
    assert opened.provenance.files == 120


def test_a_class_has_one_number_in_all_splits(digits: str) -> None:
    opened = open_images(digits, {"train": "[0-7]/*", "eval": "[89]/*"}, IngestOptions())
    labels = {
        (row["label"], row["label/text"])
        for task in opened.tasks
        for batch in opened.read(task.payload, bad_rows=BadRows())
        for row in batch.to_pylist()
    }
    assert labels == {(number, str(number)) for number in range(10)}


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(InfeedError, match=r"(?s)a pipe or a device, not a file.*/a\.csv"):
        open_csv(str(tmp_path), {None: "a.csv"}, IngestOptions(), CsvOptions())


def test_a_pattern_that_finds_nothing_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"(?s)no files found.*/\*\.csv, split 'eval'"):
        open_csv(str(tmp_path), {"eval": "*.csv"}, IngestOptions(), CsvOptions())


GOOD = {
    "a.csv": b"x,y\n" + b"1,a\n" * 2_000,
    "a.jsonl": b'{"x": 1}\n' * 2_000,
    "a.txt": b"a line\n" * 2_000,
    "a.avro": None,
    "a.parquet": None,
    "a.tfrecord": b"".join(records.frame_records(pa.array([b"record"] * 2_000, pa.large_binary())).to_pylist()),
}


def write_good(path: Path) -> str:
    """Several blocks of a format; the format."""
    table = pa.table({"x": list(range(2_000))})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=200)
    elif path.suffix == ".avro":
        schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
        with path.open("wb") as file:
            fastavro.writer(file, schema, table.to_pylist(), sync_interval=500)
    else:
        path.write_bytes(GOOD[path.name] or b"")
    return guess_format(str(path))


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"1,b\n")


CHANGES: dict[str, Callable[[Path], None]] = {
    "changed during the run: from .* bytes": grow,
    "changed during the run": lambda path: os.truncate(path, path.stat().st_size // 2),
    "removed during the run": Path.unlink,
    "file was removed": lambda path: (path.unlink(), os.mkfifo(path))[1],  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(("message", "change"), CHANGES.items())
@pytest.mark.parametrize("when", ["before", "amid"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, name: str, message: str, change: Callable[[Path], None], when: str
) -> None:
    path = tmp_path / name
    kind = write_good(path)
    opened = open_source(str(tmp_path), kind, IngestOptions(block_bytes=1024, on_bad_row="reject"), {})
    batches = batches_of(opened, BadRows("reject", 9_999))
    if when == "amid":
        next(batches)
    change(path)
    with pytest.raises(InfeedError, match=f"{message}(?s:.*){name}"):
        list(batches)


@pytest.mark.parametrize(("kind", "settings"), [("binary", {}), ("images", {}), ("text", {"unit": "file"})])
def test_a_whole_file_that_is_removed_before_it_is_read(tmp_path: Path, kind: str, settings: dict[str, str]) -> None:
    (tmp_path / "a.png").write_bytes(b"anything")
    opened = open_source(str(tmp_path), kind, IngestOptions(), settings)
    (tmp_path / "a.png").unlink()
    with pytest.raises(InfeedError, match=r"removed during the run(?s:.*)a\.png"):
        [list(opened.read(task.payload, bad_rows=BadRows())) for task in opened.tasks]


def open_rows(folder: Path, on_bad_row: OnBadRow = "fail") -> OpenedSource:
    return open_source(str(folder), "csv", IngestOptions(on_bad_row=on_bad_row, bad_row_limit=10), {})


def irregular(folder: Path) -> None:
    (folder / "a.csv").write_text("x\n1\n2\n")
    (folder / "b.csv").symlink_to("not-fetched")
    os.mkfifo(folder / "c.csv")


def test_a_link_that_leads_nowhere_is_an_error_that_names_it_and_the_remedy(tmp_path: Path) -> None:
    irregular(tmp_path)
    with pytest.raises(InfeedError, match="not-fetched") as raised:
        open_rows(tmp_path)
    assert raised.value.where == str(tmp_path / "b.csv")
    assert "--on-bad-row reject" in raised.value.do


def test_rejected_links_are_counted_and_pipes_are_named(tmp_path: Path) -> None:
    irregular(tmp_path)
    opened, bad_rows = open_rows(tmp_path, "reject"), BadRows("reject", 10)
    rows = sum(batch.num_rows for batch in batches_of(opened, bad_rows))
    assert rows == 2
    assert [row.file for row in bad_rows.take()] == [str(tmp_path / "b.csv")]
    (warning,) = opened.warnings
    assert str(tmp_path / "c.csv") in warning


def test_a_folder_of_nothing_but_dangling_links_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "b.csv").symlink_to("not-fetched")
    with pytest.raises(InfeedError, match="link is dangling"):
        open_rows(tmp_path)
    with pytest.raises(InfeedError, match="link is dangling"):
        guess_format(str(tmp_path))


def test_a_dangling_link_in_place_of_a_class_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").symlink_to("not-fetched")
    found = files.find_irregular(str(tmp_path), "*/*")
    assert [(one.path, one.is_link) for one in found] == [(str(tmp_path / "dog"), True)]


ROW = BadRow("a.csv", 7, "fare", "not a number: 'x'", "1,x,é")


def test_the_first_bad_row_is_an_error_unless_asked_otherwise() -> None:
    with pytest.raises(InfeedError, match=r"(?s)not a number: 'x'.*a\.csv, line 7, column 'fare'.*on_bad_row='reject'"):
        BadRows().report(ROW)


def test_rejected_rows_are_kept_until_taken() -> None:
    bad_rows = BadRows("reject", limit=3)
    bad_rows.report(ROW)
    bad_rows.report(ROW)
    assert bad_rows.take() == (ROW, ROW)
    assert bad_rows.take() == ()


def test_more_than_the_limit_is_an_error() -> None:
    bad_rows = BadRows("reject", limit=1)
    bad_rows.report(ROW)
    bad_rows.take()
    with pytest.raises(InfeedError, match=r"(?s)more than 1 bad rows.*the last at a\.csv, line 7"):
        bad_rows.report(ROW)


def test_the_reject_file_has_one_object_a_line() -> None:
    whole = BadRow("b.csv", None, None, "cut short", "")
    lines = to_jsonl([ROW, whole]).decode().splitlines()
    assert json.loads(lines[0]) == {
        "file": "a.csv",
        "line": 7,
        "column": "fare",
        "reason": "not a number: 'x'",
        "text": "1,x,é",
    }
    assert json.loads(lines[1])["line"] is None
    assert whole.where == "b.csv"


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("a.csv", b"a,b\n1,caf\xe9\n", "line 2", "utf-8"),
        ("a.jsonl", b'not json\n{"a": \n', "line 1", "JSON"),
    ],
)
def test_an_input_whose_rows_are_all_rejected_names_the_first_and_why(
    tmp_path: Path, name: str, content: bytes, line: str, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InfeedError, match=rf"(?i)every row is rejected.*{reason}") as raised:
        ingest(tmp_path / name, tmp_path / "out", options=IngestOptions(on_bad_row="reject"))
    assert raised.value.where.endswith(f"{name}, {line}")


def test_a_parquet_file_whose_rows_are_all_rejected_names_the_column_and_not_the_filter(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [[1, None]] * 5}), tmp_path / "a.parquet")
    with pytest.raises(InfeedError, match="every row is rejected") as raised:
        ingest(tmp_path / "a.parquet", tmp_path / "out", options=IngestOptions(on_bad_row="reject"))
    assert raised.value.where.endswith("a.parquet, line 1, column 'tags'")
    assert "filter" not in raised.value.do


FITTED = pa.schema([("n", pa.uint64()), ("l", pa.list_(pa.int64()))])


def batch(*rows: tuple[int | None, list[int | None] | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "l": values} for n, values in rows], schema=FITTED)


FIRST, SECOND = batch((1, [0]), (None, None)), batch((2, []), (2**63, [1]), (3, [1, None]), (4, [4]))


def test_a_row_that_does_not_fit_is_reported_and_left_out() -> None:
    bad_rows = BadRows("reject", limit=2)
    fitted = list(conform([FIRST, SECOND], FITTED, "a.parquet", bad_rows, first_row=101))
    assert [one.to_pydict()["n"] for one in fitted] == [[1, None], [2, 4]]
    assert bad_rows.take() == (
        BadRow(
            "a.parquet", 104, "n", f"{2**63} does not fit into a signed 64-bit integer", f'{{"n": {2**63}, "l": [1]}}'
        ),
        BadRow("a.parquet", 105, "l", "a list contains null", '{"n": 3, "l": [1, null]}'),
    )


def test_or_it_fails_with_its_row_and_column() -> None:
    with pytest.raises(InfeedError, match=r"(?s)does not fit.*a\.parquet, line 4, column 'n'"):
        list(conform([FIRST, SECOND], FITTED, "a.parquet", BadRows()))


def test_batches_that_fit_pass_as_they_are() -> None:
    assert list(conform([FIRST], FITTED, "a", BadRows())) == [FIRST]


def test_all_that_is_wrong_with_a_list_is_found() -> None:
    schema = pa.schema([("l", pa.list_(pa.uint64()))])
    wrong = pa.RecordBatch.from_pydict({"l": [[1], [None], [2**63], [3, None], None]}, schema=schema)
    bad_rows = BadRows("reject", limit=3)
    (fitted,) = conform([wrong], schema, "a", bad_rows)
    assert fitted.to_pydict() == {"l": [[1], None]}
    assert [row.line for row in bad_rows.take()] == [2, 3, 4]


def test_a_date_beyond_what_python_knows_is_reported_like_others() -> None:
    schema = pa.schema([("d", pa.date32())])
    far = pa.RecordBatch.from_arrays([pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())], schema=schema)
    bad_rows = BadRows("reject", limit=1)
    (fitted,) = conform([far], schema, "a", bad_rows)
    assert fitted.num_rows == 1
    (row,) = bad_rows.take()
    assert (row.line, row.text) == (2, f'{{"d": [{2**31 - 1}]}}')
    assert "does not fit into microseconds" in row.reason
