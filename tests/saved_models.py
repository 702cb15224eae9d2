"""A SavedModel as those load it that answer requests: by a session, not by TensorFlow 2's Python loader.

Each loader gives signature -> function, whose keywords are NumPy arrays by the names of the signature's inputs, and
which returns NumPy arrays by the names of its outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

Signatures = Mapping[str, Callable[..., dict[str, np.ndarray]]]


def by_python(folder: Path | str) -> Signatures:
    """As `tf.saved_model.load` gives it."""
    model = tf.saved_model.load(str(folder))

    def answer(name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = model.signatures[name](**{key: tf.constant(value) for key, value in given.items()})
        return {key: value.numpy() for key, value in found.items()}

    return {name: _function(answer, name) for name in model.signatures}


def by_session(folder: Path | str) -> Signatures:
    """As TFX's BulkInferrer loads it."""
    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    definitions = tf.compat.v1.saved_model.load(session, ["serve"], str(folder)).signature_def

    def answer(name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        definition = definitions[name]
        feed = {definition.inputs[key].name: value for key, value in given.items()}
        return session.run({key: tensor.name for key, tensor in definition.outputs.items()}, feed)

    return {name: _function(answer, name) for name in definitions if not name.startswith("__")}


def by_cpp(folder: Path | str) -> Signatures:
    """As TensorFlow Serving loads it: the C++ function `tensorflow::LoadSavedModel`, without any of Python's code."""
    session = _CSession(str(folder))
    return {name: _function(session.answer, name) for name in session.signatures}


def _function(answer: Callable[..., Any], name: str) -> Callable[..., dict[str, np.ndarray]]:
    return lambda **given: answer(name, given)


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p))


class _Port(ctypes.Structure):
    """One output of an operation."""

    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


class _CSession:
    """A session of TensorFlow's C API, of the library that the wheel brings."""

    def __init__(self, folder: str) -> None:
        self._c = _library()
        self._graph, status = self._c.TF_NewGraph(), self._c.TF_NewStatus()
        meta_graph = self._c.TF_NewBuffer()
        tags = (ctypes.c_char_p * 1)(b"serve")
        self._session = self._c.TF_LoadSessionFromSavedModel(
            self._c.TF_NewSessionOptions(), None, folder.encode(), tags, 1, self._graph, meta_graph, status
        )
        self._check(status)
        data = ctypes.string_at(meta_graph.contents.data, meta_graph.contents.length)
        definitions = meta_graph_pb2.MetaGraphDef.FromString(data).signature_def
        self.signatures = {name: it for name, it in definitions.items() if not name.startswith("__")}

    def answer(self, name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        definition, status = self.signatures[name], self._c.TF_NewStatus()
        inputs = [self._port(definition.inputs[key].name) for key in given]
        values = [self._tensor(np.asarray(value)) for value in given.values()]
        outputs = [self._port(tensor.name) for tensor in definition.outputs.values()]
        found = (ctypes.c_void_p * len(outputs))()
        self._c.TF_SessionRun(
            self._session,
            None,
            (_Port * len(inputs))(*inputs),
            (ctypes.c_void_p * len(values))(*values),
            len(inputs),
            (_Port * len(outputs))(*outputs),
            found,
            len(outputs),
            None,
            0,
            None,
            status,
        )
        self._check(status)
        return {key: self._array(tensor) for key, tensor in zip(definition.outputs, found, strict=True)}

    def _check(self, status: int) -> None:
        if self._c.TF_GetCode(status):
            raise RuntimeError(self._c.TF_Message(status).decode())

    def _port(self, tensor: str) -> _Port:
        operation, index = tensor.split(":")
        return _Port(self._c.TF_GraphOperationByName(self._graph, operation.encode()), int(index))

    def _tensor(self, array: np.ndarray) -> int:
        is_text = array.dtype.kind in "OS"
        kind = tf.string if is_text else tf.as_dtype(array.dtype)
        size = array.size * (_TSTRING if is_text else array.itemsize)
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor = self._c.TF_AllocateTensor(kind.as_datatype_enum, shape, array.ndim, size)
        data = self._c.TF_TensorData(tensor)
        if not is_text:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, size)
            return tensor
        for place, text in enumerate(array.ravel().tolist()):
            self._c.TF_StringInit(data + place * _TSTRING)
            self._c.TF_StringCopy(data + place * _TSTRING, text, len(text))
        return tensor

    def _array(self, tensor: int) -> np.ndarray:
        shape = [self._c.TF_Dim(tensor, axis) for axis in range(self._c.TF_NumDims(tensor))]
        kind, data = tf.as_dtype(self._c.TF_TensorType(tensor)), self._c.TF_TensorData(tensor)
        if kind != tf.string:
            size = self._c.TF_TensorByteSize(tensor)
            return np.frombuffer(ctypes.string_at(data, size), kind.as_numpy_dtype).reshape(shape)
        places = [data + place * _TSTRING for place in range(int(np.prod(shape)))]
        texts = [ctypes.string_at(self._c.TF_StringGetDataPointer(at), self._c.TF_StringGetSize(at)) for at in places]
        return np.array(texts, object).reshape(shape)


_TSTRING = 24  # bytes of a TF_TString

_ANY, _TEXT, _INT, _LONG, _SIZE = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_size_t,
)
_C_API = {  # what a function returns, and what it takes
    "TF_NewGraph": (_ANY,),
    "TF_NewStatus": (_ANY,),
    "TF_GetCode": (_INT, _ANY),
    "TF_Message": (_TEXT, _ANY),
    "TF_NewBuffer": (ctypes.POINTER(_Buffer),),
    "TF_NewSessionOptions": (_ANY,),
    "TF_LoadSessionFromSavedModel": (_ANY, _ANY, _ANY, _TEXT, _ANY, _INT, _ANY, ctypes.POINTER(_Buffer), _ANY),
    "TF_SessionRun": (None, _ANY, _ANY, _ANY, _ANY, _INT, _ANY, _ANY, _INT, _ANY, _INT, _ANY, _ANY),
    "TF_GraphOperationByName": (_ANY, _ANY, _TEXT),
    "TF_AllocateTensor": (_ANY, _INT, _ANY, _INT, _SIZE),
    "TF_TensorData": (_ANY, _ANY),
    "TF_TensorType": (_INT, _ANY),
    "TF_TensorByteSize": (_SIZE, _ANY),
    "TF_NumDims": (_INT, _ANY),
    "TF_Dim": (_LONG, _ANY, _INT),
    "TF_StringInit": (None, _ANY),
    "TF_StringCopy": (None, _ANY, _TEXT, _SIZE),
    "TF_StringGetDataPointer": (_ANY, _ANY),
    "TF_StringGetSize": (_SIZE, _ANY),
}


def _library() -> ctypes.CDLL:
    c = ctypes.CDLL(str(Path(tf.__file__).with_name("libtensorflow_cc.so.2")))
    for name, (result, *arguments) in _C_API.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c
