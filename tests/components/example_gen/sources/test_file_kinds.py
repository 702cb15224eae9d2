from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from opened_sources import batches_of
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources.file_kinds import HEAD_BYTES, check_lines, check_table, check_text

TABLE = pa.table({"a": [1, 2]})


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out)
    return out.getvalue()


def arrow() -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return out.getvalue()


def avro() -> bytes:
    out = io.BytesIO()
    fields = [{"name": "a", "type": "long"}]
    fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, TABLE.to_pylist())
    return out.getvalue()


def sqlite(path: Path) -> bytes:
    with sqlite3.connect(path) as database:
        database.execute("create table trips(a int)")
        database.execute("insert into trips values (1), (2)")
    return path.read_bytes()


def opened(path: Path, kind: str, options: IngestOptions | None = None, *, sampled: bool = False) -> object:
    return open_source(str(path), kind, options or IngestOptions(), {}, sampled=sampled)


@pytest.mark.parametrize("other", ["csv", "jsonl", "text"])
@pytest.mark.parametrize(("kind", "content"), [("parquet", parquet), ("arrow", arrow), ("avro", avro)])
def test_a_reader_of_text_names_the_format_of_the_file(
    tmp_path: Path, kind: str, content: Callable[[], bytes], other: str
) -> None:
    path = tmp_path / "it's.data"
    path.write_bytes(content())
    with pytest.raises(InfeedError) as raised:
        opened(path, other)
    assert raised.value.where == str(path)
    command = shlex.split(raised.value.do.removeprefix("read it with "))
    assert command == ["infeed", "ingest", str(path), "OUTPUT", "--format", kind]
    opened(Path(command[2]), command[-1])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "text", "parquet", "arrow", "avro"])
def test_an_sqlite_database_comes_with_the_command_that_reads_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trips.csv"
    sqlite(path)
    with pytest.raises(InfeedError, match="SQLite") as raised:
        opened(path, kind)
    variable, *command = shlex.split(raised.value.do.removeprefix("read it with "))
    name, _, url = variable.partition("=")
    assert command[:4] == ["infeed", "ingest", "TABLE", "OUTPUT"]
    monkeypatch.setenv(name, url)
    format, connection = command[5], dict([command[7].split("=")])
    assert open_source("trips", format, IngestOptions(), connection).schema.names == ["a"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_compressed_file_is_known_by_its_content(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(sqlite(tmp_path / "a.sqlite")))
    with pytest.raises(InfeedError, match="SQLite") as raised:
        opened(tmp_path / "a.csv.gz", kind)
    assert "decompress" in raised.value.do


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"PK\x03\x04\x14\0", r"\.xlsx"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", r"\.xls\b"),
        (b"\x89PNG\r\n\x1a\n\0", "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"%PDF-1.7", "PDF"),
        (b"BZh91AY&SY", "bzip2"),
        (b"\xfd7zXZ\0\0", "xz"),
    ],
)
def test_other_files_are_known_by_their_first_bytes(tmp_path: Path, start: bytes, name: str) -> None:
    (tmp_path / "a.csv").write_bytes(start + bytes(100))
    with pytest.raises(InfeedError, match=name):
        opened(tmp_path / "a.csv", "csv")


@pytest.mark.parametrize("start", ["PAR1", "ORC", "ARROW1", "BZh9", "Obj"])
def test_a_header_may_start_as_a_binary_file_does(tmp_path: Path, start: str) -> None:
    (tmp_path / "a.csv").write_text(f"{start},b\n1,2\n")
    check_text(str(tmp_path / "a.csv"), f"{start},b\n1,2\n".encode())
    opened(tmp_path / "a.csv", "csv")


def test_a_file_that_is_not_text_is_a_bad_row_where_each_file_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"PK\x03\x04" + bytes(10))
    (tmp_path / "b.txt").write_text("good")
    source = open_source(str(tmp_path), "text", IngestOptions(), {"unit": "file"})
    bad_rows = BadRows("reject", 5)
    assert [text for batch in batches_of(source, bad_rows) for text in batch[0].to_pylist()] == ["good"]
    assert [os.path.basename(row.file) for row in bad_rows.take()] == ["a.txt"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "avro"])
@pytest.mark.parametrize(
    ("content", "name", "format"),
    [
        (b"a,b\n1,2\n3,4\n", "text", "--format csv"),
        (b'{"a": 1}\n{"a": 2}\n', "text", "--format jsonl"),
        (gzip.compress(b"a\n1\n"), "gzip", "decompress"),
    ],
)
def test_other_readers_name_the_format_too(tmp_path: Path, kind: str, content: bytes, name: str, format: str) -> None:
    (tmp_path / "a.data").write_bytes(content)
    with pytest.raises(InfeedError, match=f"(?i)this is .*{name}.*, not {kind}") as raised:
        opened(tmp_path / "a.data", kind)
    assert format in raised.value.do


def test_a_file_without_a_known_suffix_is_known_by_its_content(tmp_path: Path) -> None:
    sqlite(tmp_path / "a.db")
    with pytest.raises(InfeedError, match="SQLite"):
        guess_format(str(tmp_path / "a.db"))


ROWS = [{"a": 1, "b": ["x", {"c": 2}]}, {"a": 2, "b": []}]
DOCUMENTS = {
    "an array": json.dumps(ROWS),
    "an indented array": json.dumps(ROWS, indent=1),
    "an array with an object a line": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    "an indented object": json.dumps(ROWS[0], indent=2),
    "an object whose rest follows": '{"a": 1,\n"b": 2}\n',
    "an array of numbers": "[1, 2]",
    "a long array": json.dumps(ROWS * 10_000),
    "a long indented object": json.dumps({"rows": ROWS * 10_000}, indent=1),
}


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("document", list(DOCUMENTS.values()), ids=list(DOCUMENTS))
def test_one_json_document_is_not_json_lines(tmp_path: Path, document: str, sampled: bool) -> None:
    path = tmp_path / "a.json"
    path.write_text(f"\ufeff{document}", encoding="utf-8")
    options = IngestOptions(on_bad_row="reject", bad_row_limit=1_000_000)
    with pytest.raises(InfeedError, match="not one object per line") as raised:
        opened(path, "jsonl", options, sampled=sampled)
    assert raised.value.where == str(path)
    assert "jq -c" in raised.value.do


@pytest.mark.parametrize(
    "lines",
    [
        '{"a": 1}',
        '\n\n{"a": 1}\r\n{"a": 2}\r\n',
        '{"a": 1,\n{"a": 2}\n',  # the first row is cut short
        '[1, 2]\n{"a": 1}\n',
        '{"a": "' + "x" * 100_000 + '"}\n{"a": ""}\n',
        "",
    ],
)
def test_lines_that_may_hold_bad_rows_are_no_document(lines: str) -> None:
    check_lines("a.jsonl", lines.encode()[:HEAD_BYTES])


def test_a_csv_file_under_the_name_of_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("a,b\n1,2\n")
    with pytest.raises(InfeedError, match="no line is a JSON object") as raised:
        opened(tmp_path / "a.jsonl", "jsonl")
    assert "--format csv" in raised.value.do


@pytest.mark.parametrize(
    ("content", "do"),
    [('{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n', "--format jsonl"), ('[{"a": 1}]', "jq -c"), ("[\n{}\n]", "jq -c")],
)
def test_json_under_the_name_of_csv(tmp_path: Path, content: str, do: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InfeedError, match="this is JSON") as raised:
        opened(tmp_path / "a.csv", "csv")
    assert do in raised.value.do


@pytest.mark.parametrize("header", ["{a},{b}\n", "[a],[b]\n", '"{""a"": 1}",b\n', "5\n"])
def test_a_header_with_brackets_is_no_json(header: str) -> None:
    check_table("a.csv", header.encode())
