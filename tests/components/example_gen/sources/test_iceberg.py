from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.types import LongType

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources.iceberg import file_of

ROWS = [
    {"id": number, "text": None if number % 5 == 0 else f"ü{number}", "tags": list(range(number % 3))}
    for number in range(40)
]
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.int32()))])


@pytest.fixture
def table(iceberg: Any) -> Any:
    """A table of two snapshots: `ROWS[:30]`, and all of `ROWS`."""
    made = iceberg.create_table("n.t", schema=SCHEMA)
    made.append(pa.Table.from_pylist(ROWS[:30], SCHEMA))
    made.append(pa.Table.from_pylist(ROWS[30:], SCHEMA))
    return made


def root_of(table: Any) -> str:
    return str(table.location()).removeprefix("file://")


def read(table: Any, **settings: Any) -> list[dict[str, Any]]:
    opened = open_source(root_of(table), "iceberg", IngestOptions(), settings)
    batches = [one for task in opened.tasks for one in opened.read(task.payload, bad_rows=BadRows())]
    assert all(batch.schema == opened.schema for batch in batches)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def test_the_rows_of_each_snapshot_come_back(table: Any) -> None:
    assert guess_format(root_of(table)) == "iceberg"
    assert read(table) == ROWS
    assert read(table, snapshot=table.history()[0].snapshot_id) == ROWS[:30]
    assert read(table, columns=["id"]) == [{"id": row["id"]} for row in ROWS]
    with pytest.raises(InfeedError, match="7") as error:
        read(table, snapshot=7)
    assert error.value.where == root_of(table)


def test_an_added_column_is_null_in_old_files(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("new", LongType())
    assert read(table) == [{**row, "new": None} for row in ROWS]


def test_a_renamed_column_is_refused(table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("text", "words")
    with pytest.raises(InfeedError, match="'text'") as error:
        read(table)
    assert error.value.where == root_of(table)


def test_the_metadata_file_may_be_named(table: Any) -> None:
    folder = Path(root_of(table), "metadata")
    newest = max(folder.glob("*.metadata.json"))
    (folder / f"{newest.name[:5]}-other.metadata.json").write_bytes(newest.read_bytes())
    with pytest.raises(InfeedError, match="2 metadata files"):
        read(table)
    assert read(table, metadata=newest.name) == ROWS
    (folder / "version-hint.text").write_text("1")
    assert read(table) == ROWS[:30]


@pytest.mark.parametrize(("form", "deletes", "word"), [("ORC", set(), "ORC"), ("PARQUET", {1, 2}, "2 delete files")])
def test_a_file_that_needs_icebergs_own_rules_is_refused(form: str, deletes: set[int], word: str) -> None:
    file = SimpleNamespace(file_format=FileFormat(form))
    with pytest.raises(InfeedError, match=word) as error:
        file_of(SimpleNamespace(file=file, delete_files=deletes), "/t/data/a")
    assert error.value.where == "/t/data/a"


def test_a_copy_is_read_where_it_lies_also_in_a_store(table: Any, s3: str, tmp_path: Path) -> None:
    files.copy(root_of(table), f"{s3}/t")
    Path(root_of(table)).rename(tmp_path / "moved")
    for place in (str(tmp_path / "moved"), f"{s3}/t"):
        opened = open_source(place, guess_format(place), IngestOptions(), {})
        assert all(task.payload.file.path.startswith(f"{place}/data/") for task in opened.tasks)
        batches = [one for task in opened.tasks for one in opened.read(task.payload, bad_rows=BadRows())]
        assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == list(range(40))
