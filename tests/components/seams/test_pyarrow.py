from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arro3 import core

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.seams import pyarrow as seam

TABLE = pa.table({"a": [1, 2, 3], "text": ["x", None, "z"]})
BATCH = TABLE.to_batches()[0]


def _capsule(pointer: int, name: bytes) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(pointer, name, None)


class Stream:
    """Data of a library that knows nothing of pyarrow, in the structs of Arrow's C interface."""

    def __init__(self, table: pa.Table) -> None:
        self._struct = ctypes.create_string_buffer(40)
        table.to_reader()._export_to_c(ctypes.addressof(self._struct))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return _capsule(ctypes.addressof(self._struct), b"arrow_array_stream")


class Array:
    """One batch of such a library."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._schema, self._array = ctypes.create_string_buffer(72), ctypes.create_string_buffer(80)
        batch._export_to_c(ctypes.addressof(self._array), ctypes.addressof(self._schema))

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return (
            _capsule(ctypes.addressof(self._schema), b"arrow_schema"),
            _capsule(ctypes.addressof(self._array), b"arrow_array"),
        )


def test_the_names_are_as_they_were_read() -> None:
    assert seam.CAPSULES.available() is None


def test_a_stream_and_an_array_come_back_whole(tmp_path: Path) -> None:
    assert seam.read_stream(Stream(TABLE)).read_all().equals(TABLE)
    assert seam.read_array(Array(BATCH)).equals(BATCH)
    written = infeed.ingest(Stream(TABLE), tmp_path / "stream")
    assert written.splits == infeed.ingest(Array(BATCH), tmp_path / "array").splits
    assert written.rows_read == 3


def test_views_are_text_or_an_error_where_this_arrow_lacks_them(tmp_path: Path) -> None:
    views = core.Table.from_pydict({"text": core.Array(["x"], core.DataType.string_view())})
    if hasattr(pa, "string_view"):
        plain = infeed.ingest(pa.table({"text": ["x"]}), tmp_path / "plain")
        assert infeed.ingest(views, tmp_path / "views").splits == plain.splits
        return
    with pytest.raises(InfeedError, match="does not support a type") as error:
        infeed.ingest(views, tmp_path / "out")
    assert error.value.where == "source (arro3.Table)"
