"""Shapes of tensors in `schema.pbtxt`, which TFX's SchemaGen and Transform write. A tf.Example holds flat lists."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files
from infeed.components.load.delivery import Delivery
from infeed.components.load.find import SplitFiles
from infeed.components.load.tfds import ANY_SIZE, Shape

_FILE = "schema.pbtxt"
_PLACES = _FILE, f"transformed_metadata/{_FILE}"  # in artifacts of SchemaGen and of Transform


def declared_tensors(given: str | os.PathLike[str]) -> dict[str, Shape]:
    """Return the shapes that a schema declares: the path of the file, or of an artifact that holds it.

    Raises InfeedError if there is no such file, it is not a schema, or tensorflow-metadata is not installed.
    """
    place = files.path_text(given, "infeed.load, schema")
    inside = (path for path in (files.join(place, name) for name in _PLACES) if files.exists(path))
    path = next(inside, place)
    if not files.exists(path) or files.is_folder(path):
        do = f"use the path of {_FILE}, or of an artifact of SchemaGen or Transform"
        raise InfeedError(f"there is no {_FILE}", where=path, do=do)
    return schema_shapes(path)


def with_schema(found: SplitFiles, declared: Mapping[str, Shape]) -> SplitFiles:
    """Return the files with the shapes of a schema in place of those of TFDS. Single values have none."""
    shapes = {**found.shapes, **declared}
    return replace(found, shapes={name: shape for name, shape in shapes.items() if shape})


def schema_shapes(path: str) -> dict[str, Shape]:
    """Return the shapes that a schema declares, by feature name. A first dimension of -1 is of any size.

    A single value has the shape `()`. Deprecated features, sparse tensors, ragged tensors whose inner rows vary, and
    shapes with inner dimensions of unknown size are left out. Raises InfeedError if the file is not a schema.
    """
    required("tensorflow_metadata")
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(files.read_bytes(path), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InfeedError(f"not a schema of TFX: {error}", where=path, do="write it as SchemaGen does") from error
    old = {one.name for one in schema.feature if one.deprecated or one.lifecycle_stage == schema_pb2.DEPRECATED}
    group = schema.tensor_representation_group[""].tensor_representation
    shapes = [*((one.name, _shape(one)) for one in schema.feature), *_represented(group)]
    return {name: shape for name, shape in shapes if shape is not None and _is_usable(shape) and name not in old}


def check_shapes(declared: Mapping[str, Shape], delivery: Delivery, rows: int, where: str | os.PathLike[str]) -> None:
    """Raise InfeedError if a feature does not fit the shape that the schema declares. `rows` is the number of rows."""
    schema = delivery.schema
    for name in sorted(declared.keys() & schema.keys()):
        shape, spec = declared[name], schema[name]
        held = (ANY_SIZE, *spec.step) if spec.shape is None else spec.shape
        fits = len(held) == len(shape) and all(map(_fits, held, shape))
        # LoadOptions.on_missing handles missing values, in this split or another.
        is_optional = delivery.placed[name].is_optional or spec.nulls == rows
        if not fits and not (is_optional and abs(math.prod(shape)) == 1):
            values = "numbers of values that differ" if spec.shape is None else _text(held)
            what = f"the rows of feature {name!r} have {values}, but the schema declares {_text(shape)}"
            raise InfeedError(what, where=f"{os.fspath(where)}, {name}", do="correct the schema, or leave it out")


def _fits(size: int, declared: int) -> bool:
    return declared in (ANY_SIZE, size)


def _text(shape: Shape) -> str:
    return f"the shape {list(shape)}" if shape else "one value"


def _is_usable(shape: Shape) -> bool:
    """Return whether the number of values in a row gives the size of the first dimension, if it is unknown."""
    return all(size > 0 or (size == ANY_SIZE and place == 0) for place, size in enumerate(shape))


def _shape(feature: Any) -> Shape | None:
    if feature.HasField("shape"):
        return tuple(dim.size for dim in feature.shape.dim)
    if feature.HasField("value_count"):
        return () if feature.value_count.max == 1 else (ANY_SIZE,)
    return None


def _represented(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    for one in tensors.values():
        if one.HasField("dense_tensor"):
            yield one.dense_tensor.column_name, tuple(dim.size for dim in one.dense_tensor.shape.dim)
        elif one.HasField("ragged_tensor"):
            path, parts = one.ragged_tensor.feature_path.step, one.ragged_tensor.partition
            if len(path) == 1 and all(part.HasField("uniform_row_length") for part in parts):
                yield path[0], (ANY_SIZE, *(part.uniform_row_length for part in parts))
