"""pyarrow before 14, which reads Arrow data of other libraries only by the pointer in their capsule."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

from infeed.components.base.errors import InfeedError
from infeed.components.seams.seam import Seam, listed

CAPSULES = Seam(
    "pyarrow",
    "data of other libraries, with pyarrow before 14",
    listed({"pyarrow.lib": "RecordBatchReader._import_from_c RecordBatch._import_from_c Schema._import_from_c"}),
    ("10.0.1",),
    "reading the data raises an error that asks for pyarrow 14",
)
_DO = "install pyarrow 14 or newer"
_SCHEMA_BYTES = 72  # of an ArrowSchema


def read_stream(data: Any) -> pa.RecordBatchReader:
    """Return the batches of an object with `__arrow_c_stream__`. Raises pa.ArrowInvalid if the data has no columns."""
    if hasattr(pa.RecordBatchReader, "from_stream"):
        return pa.RecordBatchReader.from_stream(data)
    CAPSULES.require(_DO)
    capsule = data.__arrow_c_stream__()
    stream = _pointer(capsule, b"arrow_array_stream")
    _check_types(stream)
    return pa.RecordBatchReader._import_from_c(stream)


def read_array(data: Any) -> pa.RecordBatch:
    """Return the rows of an object with `__arrow_c_array__`. Raises pa.ArrowInvalid if the data has no columns."""
    if hasattr(pa.RecordBatchReader, "from_stream"):
        return pa.record_batch(data)
    CAPSULES.require(_DO)
    schema, array = data.__arrow_c_array__()
    return pa.RecordBatch._import_from_c(_pointer(array, b"arrow_array"), _pointer(schema, b"arrow_schema"))


def _check_types(stream: int) -> None:
    """Raise InfeedError for a type that this pyarrow does not support, because its reader would abort the process."""
    schema = ctypes.create_string_buffer(_SCHEMA_BYTES)
    get_schema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
        ctypes.c_void_p.from_address(stream).value or 0  # the first field of an ArrowArrayStream
    )
    if get_schema(stream, ctypes.addressof(schema)):
        return  # the reader raises the error of the library
    try:
        pa.Schema._import_from_c(ctypes.addressof(schema))
    except pa.ArrowException as error:
        do = "install pyarrow 16 or newer, or make the library write plain text instead of views"
        raise InfeedError(f"pyarrow {pa.__version__} does not support a type of the data: {error}", do=do) from error


def _pointer(capsule: Any, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, name) or 0)
