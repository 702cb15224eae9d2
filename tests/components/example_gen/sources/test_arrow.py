from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from opened_sources import rows_of
from pyarrow import feather

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import formats
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources.arrow import ArrowOptions, open_arrow

ROWS = [
    {"n": number, "kind": "odd" if number % 2 else "", "picture": {"bytes": bytes([number % 7]), "path": None}}
    for number in range(1_000)
]
TABLE = pa.Table.from_pylist(ROWS)
DICTIONARY = TABLE.set_column(1, "kind", TABLE["kind"].combine_chunks().dictionary_encode())


def write_file(path: Path, table: pa.Table = TABLE, **options: Any) -> None:
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=100)


def write_stream(path: Path, table: pa.Table = TABLE, **options: Any) -> None:
    with pa.ipc.new_stream(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=100)


def write_feather(path: Path, table: pa.Table = TABLE, **options: Any) -> None:
    feather.write_feather(table, str(path), chunksize=100, **options)


def open_folder(folder: Path, *, columns: list[str] | None = None, **options: Any) -> OpenedSource:
    return open_arrow(str(folder), {None: "*"}, IngestOptions(**options), ArrowOptions(columns))


def flat(row: dict[str, Any]) -> dict[str, Any]:
    picture = row["picture"]
    return {"n": row["n"], "kind": row["kind"], "picture.bytes": picture["bytes"], "picture.path": picture["path"]}


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("table", [TABLE, DICTIONARY], ids=["plain", "dictionary"])
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_every_value_comes_back_in_order(tmp_path: Path, write: Any, table: pa.Table, compression: str | None) -> None:
    write(tmp_path / "a.arrow", table, compression=compression)
    opened = open_folder(tmp_path, block_bytes=4_000)
    assert rows_of(opened) == [flat(row) for row in ROWS]
    assert (len(opened.tasks) > 1) == (write is write_file)  # a stream has no index


def test_feather_is_the_file_format(tmp_path: Path) -> None:
    write_feather(tmp_path / "a.feather", compression="lz4")
    assert rows_of(open_folder(tmp_path)) == [flat(row) for row in ROWS]


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_types_that_drift_are_widened_and_those_without_values_do_not_count(
    tmp_path: Path, write: Any, compression: str | None
) -> None:
    tables = [{"x": [1], "y": [1]}, {"x": [0.5], "y": pa.array([None], pa.string())}, {"x": pa.array([], pa.string())}]
    for number, columns in enumerate(tables):
        write(tmp_path / f"{number}.arrow", pa.table(columns), compression=compression)
    opened = open_folder(tmp_path)
    assert opened.schema == pa.schema([("x", pa.float64()), ("y", pa.int64())])
    assert rows_of(opened) == [{"x": 1.0, "y": 1}, {"x": 0.5, "y": None}]


def test_a_saved_dataset_of_hugging_face_is_read_without_its_json_files(tmp_path: Path) -> None:
    for number in range(2):
        write_stream(tmp_path / f"data-0000{number}-of-00002.arrow")
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text("{}")
    assert formats.guess_format(str(tmp_path)) == "arrow"
    assert len(rows_of(open_folder(tmp_path))) == 2_000


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"ARROW1\0\0 and no more", b"FEA1 and more"])
def test_a_file_that_is_not_arrow(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.arrow").write_bytes(content)
    with pytest.raises(InfeedError) as error:
        open_folder(tmp_path)
    assert error.value.where == f"{tmp_path}/a.arrow"


@pytest.mark.parametrize("write", [write_file, write_stream])
@pytest.mark.parametrize("missing", [8, 200])
def test_a_truncated_file_is_an_error(tmp_path: Path, write: Any, missing: int) -> None:
    write(tmp_path / "a.arrow")
    content = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(content[:-missing])
    with pytest.raises(InfeedError, match="truncated") as error:
        open_folder(tmp_path)
    assert error.value.where == f"{tmp_path}/a.arrow"


def test_text_that_is_not_utf8_is_an_error_and_not_a_value(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], "<i4")), pa.py_buffer(b"\xff")])
    write_stream(tmp_path / "a.arrow", pa.table({"t": text}))
    with pytest.raises(InfeedError, match="UTF8") as error:
        rows_of(open_folder(tmp_path))
    assert error.value.where == f"{tmp_path}/a.arrow"


def test_one_long_row_is_named(tmp_path: Path) -> None:
    write_file(tmp_path / "a.arrow", pa.table({"t": ["x"] * 150 + ["x" * (2 << 20)]}))
    opened = open_folder(tmp_path, max_row_mb=1)
    with pytest.raises(InfeedError, match="2 MB") as error:
        rows_of(opened)
    assert error.value.where == f"{tmp_path}/a.arrow, row 151"


def test_a_batch_larger_than_the_reader_s_memory_is_mapped(tmp_path: Path) -> None:
    numbers = np.arange(50_000_000)  # 400 MB, in one batch
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("n", pa.int64())])) as writer:
        writer.write_table(pa.table({"n": numbers}))
    opened = open_folder(tmp_path, max_row_mb=1)
    (task,) = opened.tasks
    first = next(iter(opened.read(task.payload, bad_rows=BadRows())))
    assert first.column("n")[:3].to_pylist() == [0, 1, 2]
