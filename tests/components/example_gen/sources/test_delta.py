from __future__ import annotations

import datetime
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arro3 import core as arro3
from deltalake import DeltaTable, write_deltalake

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import BadRows

TYPES = {
    "id": arro3.DataType.int64(),
    "text": arro3.DataType.string(),
    "tags": arro3.DataType.int32(),
    "share": arro3.DataType.float64(),
    "day": arro3.DataType.date32(),
    "place": arro3.DataType.string(),
}
ROWS = [
    {
        "id": number,
        "text": None if number % 7 == 0 else f"ü{number}",
        "tags": list(range(number % 3)),
        "share": None if number % 5 == 0 else number / 4,
        "day": None if number % 4 == 3 else datetime.date(2026, 1, 1 + number % 4),
        "place": f"a b/{number % 2}%",
    }
    for number in range(60)
]


def write(folder: Path, rows: list[dict[str, Any]], **how: Any) -> None:
    names = list(rows[0])
    columns = {name: column([row[name] for row in rows], TYPES[name]) for name in names}
    write_deltalake(str(folder), arro3.Table.from_pydict(columns), **how)


def column(values: list[Any], kind: arro3.DataType) -> arro3.Array:
    if isinstance(values[0], datetime.date):
        days = [None if value is None else (value - datetime.date(1970, 1, 1)).days for value in values]
        return arro3.Array(days, arro3.DataType.int32()).cast(kind)
    if not isinstance(values[0], list):
        return arro3.Array(values, kind)
    offsets = arro3.Array(np.cumsum([0, *map(len, values)]).tolist(), arro3.DataType.int32())
    return arro3.list_array(offsets, arro3.Array([item for items in values for item in items], kind))


def read(folder: Path | str, **settings: Any) -> list[dict[str, Any]]:
    opened = open_source(str(folder), "delta", IngestOptions(block_bytes=2_000), settings)
    rows = list[dict[str, Any]]()
    for task in opened.tasks:
        for batch in opened.read(task.payload, bad_rows=BadRows()):
            assert batch.schema == opened.schema
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def scanned(folder: Path, **version: Any) -> list[dict[str, Any]]:
    """What delta-rs' own engine reads."""
    batches = list(DeltaTable(str(folder), **version).scan())
    columns = [{name: batch.column(name).to_pylist() for name in batch.schema.names} for batch in batches]
    rows = [dict(zip(one, values, strict=True)) for one in columns for values in zip(*one.values(), strict=True)]
    return sorted(rows, key=lambda row: row["id"])


def test_the_rows_are_those_of_delta_rs(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS, partition_by=["day", "place"])
    assert guess_format(str(tmp_path / "t")) == "delta"
    assert read(tmp_path / "t") == scanned(tmp_path / "t") == ROWS


def test_a_version_is_read_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "t", [{"id": row["id"], "text": row["text"]} for row in ROWS[:20]])
    write(
        tmp_path / "t",
        [{"id": row["id"], "share": row["share"]} for row in ROWS[20:]],
        mode="append",
        schema_mode="merge",
    )
    DeltaTable(str(tmp_path / "t")).delete("id % 3 = 0")
    for version in range(3):
        assert read(tmp_path / "t", version=version) == scanned(tmp_path / "t", version=version), version
    assert len(read(tmp_path / "t")) == 40
    assert read(tmp_path / "t", columns=["id"]) == [{"id": row} for row in range(60) if row % 3]
    with pytest.raises(InfeedError, match="version") as error:
        read(tmp_path / "t", version=7)
    assert error.value.where == str(tmp_path / "t")


def test_deleted_rows_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS[:20])
    delete_rows(tmp_path / "t", [0, 3, 19])
    assert read(tmp_path / "t") == scanned(tmp_path / "t")
    assert [row["id"] for row in read(tmp_path / "t")] == [row for row in range(20) if row not in (0, 3, 19)]


def test_a_bad_row_is_numbered_over_deleted_rows(tmp_path: Path) -> None:
    write(tmp_path / "t", [{"id": number, "tags": [None] if number in (3, 10) else [1]} for number in range(20)])
    delete_rows(tmp_path / "t", [0, 3, 19])
    with pytest.raises(InfeedError, match="null") as error:
        read(tmp_path / "t")
    assert "line 11, column 'tags'" in error.value.where


@pytest.mark.parametrize(
    ("change", "word"),
    [({"configuration": {"delta.columnMapping.mode": "name"}}, "columnMapping"), ({"schemaString": "{"}, "")],
)
def test_a_table_that_cannot_be_read_is_an_error(tmp_path: Path, change: Any, word: str) -> None:
    write(tmp_path / "t", ROWS[:3])
    edit_log(tmp_path / "t", {"metaData": change})
    with pytest.raises(InfeedError, match=word) as error:
        read(tmp_path / "t")
    assert error.value.where == str(tmp_path / "t")


def test_a_table_in_a_store_is_read_like_a_local_one(s3: str, tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS)
    delete_rows(tmp_path / "t", [3, 4])
    files.copy(str(tmp_path / "t"), f"{s3}/t")
    assert guess_format(f"{s3}/t") == "delta"
    assert read(f"{s3}/t") == read(tmp_path / "t")


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "t", ROWS[:3])
    DeltaTable(str(tmp_path / "t")).delete()
    with pytest.raises(InfeedError, match="no rows"):
        read(tmp_path / "t")


def delete_rows(table: Path, rows: list[int]) -> None:
    """Give the only file of a table a deletion vector, as Spark writes it into the log."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + np.array(rows, "<u2").tobytes()
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    described = {
        "storageType": "i",
        "pathOrInlineDv": z85(vector),
        "sizeInBytes": len(vector),
        "cardinality": len(rows),
    }
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    edit_log(
        table, {"add": {"deletionVector": described}, "protocol": {**features, "writerFeatures": ["deletionVectors"]}}
    )


def edit_log(table: Path, changes: dict[str, dict[str, Any]]) -> None:
    (log,) = (table / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        for name in action.keys() & changes.keys():
            action[name].update(changes[name])
    log.write_text("\n".join(map(json.dumps, actions)))


def z85(data: bytes) -> str:
    signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    numbers = struct.unpack(f">{-(-len(data) // 4)}I", data.ljust(-(-len(data) // 4) * 4, b"\0"))
    return "".join(signs[number // 85**place % 85] for number in numbers for place in (4, 3, 2, 1, 0))
