from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import BadRows, OpenedSource

ROWS = 600
ARRAYS = {
    "x": np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3),
    "y": np.arange(ROWS, dtype=">i4"),
    "raw": np.array([b"a", b"abc"] * (ROWS // 2)),
    "yes": np.arange(ROWS) % 2 == 0,
}
NAMES = [f"häuser {number}" if number % 3 else "" for number in range(ROWS)]
LISTS = [list(range(number % 4)) for number in range(ROWS)]


def write(path: Path, group: str = "/", **how: Any) -> None:
    with h5py.File(path, "a") as file:
        at = file.require_group(group)
        for name, array in ARRAYS.items():
            at.create_dataset(name, data=array, **how)
        at.create_dataset("name", data=NAMES, dtype=h5py.string_dtype())
        lists = at.create_dataset("lists", (ROWS,), dtype=h5py.vlen_dtype(np.int32))
        for number, values in enumerate(LISTS):
            lists[number] = values


def open_file(path: Path, block_bytes: int = 8_000, **settings: Any) -> OpenedSource:
    return open_source(str(path), "hdf5", IngestOptions(block_bytes=block_bytes), settings)


def rows_of(opened: OpenedSource) -> list[dict[str, Any]]:
    batches = [one for task in opened.tasks for one in opened.read(task.payload, bad_rows=BadRows())]
    assert all(batch.schema == opened.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(("how", "tasks"), [({}, 43), ({"compression": "gzip", "chunks": True}, 1)])
def test_every_value_comes_back_in_order(tmp_path: Path, how: Any, tasks: int) -> None:
    write(tmp_path / "a.h5", "data/train", **how)
    assert guess_format(str(tmp_path)) == "hdf5"
    opened = open_file(tmp_path / "a.h5", group="data/train")
    rows = rows_of(opened)
    assert len(opened.tasks) == tasks  # HDF5 chooses chunks of all rows
    for name, array in ARRAYS.items():
        assert [row[name] for row in rows] == array.reshape(ROWS, *[-1] * (array.ndim > 1)).tolist(), name
    assert [row["name"] for row in rows] == NAMES
    assert [row["lists"] for row in rows] == LISTS


def test_what_is_left_out_may_be_a_single_value(tmp_path: Path) -> None:
    write(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["version"] = 3
    assert [row["y"] for row in rows_of(open_file(tmp_path / "a.h5", columns=["y"]))] == ARRAYS["y"].tolist()


def test_the_fields_of_a_compound_type_are_columns(tmp_path: Path) -> None:
    table = np.array([(1, 0.5, b"a"), (2, 1.5, b"b")], [("n", "<i8"), ("x", "<f8"), ("t", "S4")])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["table"] = table
    assert rows_of(open_file(tmp_path)) == [
        {"table.n": 1, "table.x": 0.5, "table.t": b"a"},
        {"table.n": 2, "table.x": 1.5, "table.t": b"b"},
    ]


def test_only_the_datasets_asked_for_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"], file["names"] = np.zeros((6, 2)), np.zeros(6), np.zeros(2)
    assert rows_of(open_file(tmp_path, columns=["x", "y"])) == [{"x": [0, 0], "y": 0}] * 6
    with pytest.raises(InfeedError, match="names 2") as error:
        open_file(tmp_path)
    assert error.value.where == f"{tmp_path}/a.h5"
    with pytest.raises(InfeedError, match="'z'"):
        open_file(tmp_path, columns=["z"])


def test_a_group_is_named_if_there_is_none(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", "train")
    with pytest.raises(InfeedError, match="no datasets") as error:
        open_file(tmp_path)
    assert "train" in error.value.do
    with pytest.raises(InfeedError, match="'test'"):
        open_file(tmp_path, group="test")


def test_values_of_other_files_are_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(80))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
        file["link"] = h5py.ExternalLink("b.h5", "x")
        file["soft"] = h5py.SoftLink("/link")
    assert rows_of(open_file(tmp_path / "a.h5")) == [{"x": 0}] * 3
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file.create_dataset("y", (3,), "f8", external=[(f"{tmp_path}/secret", 0, 24)])
    with pytest.raises(InfeedError, match="other files"):
        open_file(tmp_path / "a.h5")


@pytest.mark.parametrize("size", [0, 40, 3_000, -30])
def test_a_truncated_file_is_an_error(tmp_path: Path, size: int) -> None:
    write(tmp_path / "a.h5")
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[:size])
    with pytest.raises(InfeedError) as error:
        rows_of(open_file(tmp_path))
    assert error.value.where.startswith(f"{tmp_path}/a.h5")


def test_a_type_that_no_example_holds_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["z"] = np.zeros(3, np.complex64)
    with pytest.raises(InfeedError, match="complex64"):
        open_file(tmp_path)
