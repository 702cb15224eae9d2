from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources.columnar import ColumnOptions
from infeed.components.example_gen.sources.table_files import TableFile, open_table

NAMES = ["new", "at", "place", "x"]


def open_two(folder: Path, *, columns: list[str] | None = None, **splits: str) -> OpenedSource:
    for number in range(2):
        points = [{"lon": number, "lat": row} for row in range(4)]
        table = pa.table({"x": range(4), "at": points, "dropped": [0] * 4})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=2)
    table = [TableFile(f"{folder}/{number}.parquet", {"place": [None, "b"][number]}) for number in range(2)]
    table[1] = TableFile(table[1].path, table[1].values, np.array([1, 4]))
    patterns = splits or {None: ""}
    return open_table("k", str(folder), patterns, table, NAMES, IngestOptions(), ColumnOptions(columns))


def rows_of(opened: OpenedSource) -> list[dict[str, Any]]:
    batches = [one for task in opened.tasks for one in opened.read(task.payload, bad_rows=BadRows())]
    assert all(batch.schema == opened.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_columns_are_those_of_the_table_in_its_order(tmp_path: Path) -> None:
    opened = open_two(tmp_path)
    assert opened.schema.names == ["new", "at.lat", "at.lon", "place", "x"]
    assert opened.provenance.kind == "k"
    kept = [(0, row, None) for row in range(4)] + [(1, row, "b") for row in (1, 2)]
    assert rows_of(opened) == [
        {"new": None, "at.lon": lon, "at.lat": row, "place": place, "x": row} for lon, row, place in kept
    ]


@pytest.mark.parametrize("columns", [["place"], ["x", "place"], ["at"]])
def test_only_the_columns_asked_for_are_read(tmp_path: Path, columns: list[str]) -> None:
    whole = rows_of(open_two(tmp_path))
    wanted = [{name: row[name] for name in row if name.partition(".")[0] in columns} for row in whole]
    assert rows_of(open_two(tmp_path, columns=columns)) == wanted


def test_a_table_is_one_split(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="train, test"):
        open_two(tmp_path, train="*", test="*")


def test_a_file_outside_of_the_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    inside, one = tmp_path / "t", TableFile(f"{tmp_path}/t/../a.parquet", {})
    inside.mkdir()
    open_one = partial(open_table, "k", str(inside), {None: ""}, [one], NAMES)
    with pytest.raises(InfeedError, match="out of the data folder") as error:
        open_one(IngestOptions(), ColumnOptions())
    assert error.value.where == one.path
    assert rows_of(open_one(IngestOptions(allow_outside=True), ColumnOptions()))[0]["x"] == 1
