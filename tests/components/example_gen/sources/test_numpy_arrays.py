from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources.numpy_arrays import NumpyOptions, open_numpy

ROWS = 500
ARRAYS = {
    "x": np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3),
    "y": np.arange(ROWS, dtype=">i4"),
    "name": np.array([f"häuser {number}" for number in range(ROWS)]),
    "raw": np.array([b"", b"a\0b", b"abc", b"d"] * (ROWS // 4)),
    "day": np.datetime64("2020-01-01") + np.arange(ROWS),
    "yes": np.arange(ROWS) % 2 == 0,
}


def open_folder(folder: Path, *, arrays: list[str] | None = None, **options: Any) -> OpenedSource:
    return open_numpy(str(folder), {None: "*"}, IngestOptions(**options), NumpyOptions(arrays))


def rows_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> Iterator[dict[str, Any]]:
    for task in opened.tasks:
        for batch in opened.read(task.payload, bad_rows=bad_rows or BadRows()):
            assert batch.schema == opened.schema
            yield from batch.to_pylist()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_value_comes_back_in_order(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", **ARRAYS)
    opened = open_folder(tmp_path, block_bytes=2_000)
    rows = list(rows_of(opened))
    for name, array in ARRAYS.items():
        assert [row[name] for row in rows] == array.reshape(ROWS, *[-1] * (array.ndim > 1)).tolist(), name
    (task,) = opened.tasks
    assert len(list(opened.read(task.payload, bad_rows=BadRows()))) > 10


def test_tasks_read_rows_of_an_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAYS["x"])
    opened = open_folder(tmp_path, block_bytes=2_400)
    assert len(opened.tasks) == 5
    assert [row["value"] for row in rows_of(opened)] == ARRAYS["x"].reshape(ROWS, 6).tolist()


def test_the_fields_of_a_structured_array_are_columns(tmp_path: Path) -> None:
    table = np.array([(1, 0.5, "a"), (2, 1.5, "b")], [("n", "<i8"), ("x", "<f8"), ("t", "<U4")])
    np.save(tmp_path / "a.npy", table)
    assert list(rows_of(open_folder(tmp_path))) == [{"n": 1, "x": 0.5, "t": "a"}, {"n": 2, "x": 1.5, "t": "b"}]


def test_only_the_arrays_asked_for_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros((6, 2)), x_test=np.zeros((3, 2)), y_train=np.zeros(6))
    assert len(list(rows_of(open_folder(tmp_path, arrays=["x_train", "y_train"])))) == 6
    with pytest.raises(InfeedError, match="x_train 6, x_test 3") as error:
        open_folder(tmp_path)
    assert error.value.where == f"{tmp_path}/a.npz"
    with pytest.raises(InfeedError, match="'z'"):
        open_folder(tmp_path, arrays=["z"])


def test_a_large_row_is_an_error(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((2, 1 << 18)))
    with pytest.raises(InfeedError, match="2 MB") as error:
        list(rows_of(open_folder(tmp_path, max_row_mb=1)))
    assert error.value.where == f"{tmp_path}/a.npz"


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.array([{}, {}], dtype=object), "pickled"),
        (np.array(1.0), "without rows"),
        (np.zeros((3, 2), order="F"), "Fortran"),
        (np.zeros(3, np.complex64), "complex64"),
    ],
)
def test_an_array_that_cannot_be_rows_is_refused(tmp_path: Path, array: Any, word: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InfeedError, match=word):
        open_folder(tmp_path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("size", [0, 5, 40, 200, 3_000, -30])
def test_a_truncated_file_is_an_error(tmp_path: Path, name: str, size: int) -> None:
    if name == "a.npy":
        np.save(tmp_path / name, ARRAYS["x"])
    else:
        np.savez_compressed(tmp_path / name, **ARRAYS)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:size])
    with pytest.raises(InfeedError) as error:
        list(rows_of(open_folder(tmp_path)))
    assert error.value.where.startswith(f"{tmp_path}/{name}")


def test_damaged_values_of_an_npz_are_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ARRAYS["x"])
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[2_000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InfeedError) as error:
        list(rows_of(open_folder(tmp_path)))
    assert error.value.where == f"{tmp_path}/a.npz, array 'x'"
