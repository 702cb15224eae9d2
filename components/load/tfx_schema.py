"""Shapes of tensors in `schema.pbtxt`, which TFX's SchemaGen and Transform write. A tf.Example holds flat lists."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files
from infeed.components.load.columns import FeatureSpec
from infeed.components.load.find import SplitFiles
from infeed.components.load.tfds import ANY_SIZE, Shape

_FILE = "schema.pbtxt"
_PLACES = _FILE, f"transformed_metadata/{_FILE}"  # in artifacts of SchemaGen and of Transform


def with_schema(found: SplitFiles, given: str | os.PathLike[str]) -> SplitFiles:
    """Return the files with the shapes of a schema: the path of the file, or of an artifact that holds it.

    Raises InfeedError if there is no such file, it is not a schema, or tensorflow-metadata is not installed.
    """
    place = files.path_text(given, "infeed.load, schema")
    inside = (path for path in (files.join(place, name) for name in _PLACES) if files.exists(path))
    path = next(inside, place)
    if not files.exists(path) or files.is_folder(path):
        do = f"use the path of {_FILE}, or of an artifact of SchemaGen or Transform"
        raise InfeedError(f"there is no {_FILE}", where=path, do=do)
    return replace(found, shapes={**found.shapes, **schema_shapes(path)})


def schema_shapes(path: str) -> dict[str, Shape]:
    """Return the shapes that a schema declares, by feature name. A first dimension of -1 is of any size.

    Single values, sparse tensors, and ragged tensors whose inner rows vary are left out. Raises InfeedError if the file
    is not a schema.
    """
    required("tensorflow_metadata")
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(files.read_bytes(path), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InfeedError(f"not a schema of TFX: {error}", where=path, do="write it as SchemaGen does") from error
    group = schema.tensor_representation_group[""].tensor_representation
    shapes = {one.name: _shape(one) for one in schema.feature} | dict(_represented(group))
    return {name: shape for name, shape in shapes.items() if shape}


def check_shapes(found: SplitFiles, schema: Mapping[str, FeatureSpec], where: str | os.PathLike[str]) -> None:
    """Raise InfeedError if the rows of a feature do not fit the shape that the schema declares."""
    for name in sorted(found.shapes.keys() & schema.keys()):
        declared, spec = found.shapes[name], schema[name]
        held = (ANY_SIZE, *spec.step) if spec.shape is None else spec.shape
        fits = len(held) == len(declared) and all(map(_fits, held, declared))
        is_optional = spec.nulls and abs(math.prod(declared)) == 1  # LoadOptions.on_missing handles missing values
        if not fits and not is_optional:
            rows = "numbers of values that differ" if spec.shape is None else f"the shape {list(held)}"
            what = f"the rows of feature {name!r} have {rows}, but the schema declares the shape {list(declared)}"
            raise InfeedError(what, where=f"{os.fspath(where)}, {name}", do="correct the schema, or leave it out")


def _fits(size: int, declared: int) -> bool:
    return declared in (ANY_SIZE, size)


def _shape(feature: Any) -> Shape:
    if feature.HasField("shape"):
        return tuple(dim.size for dim in feature.shape.dim)
    return (ANY_SIZE,) if feature.HasField("value_count") and feature.value_count.max != 1 else ()


def _represented(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    for one in tensors.values():
        if one.HasField("dense_tensor"):
            yield one.dense_tensor.column_name, tuple(dim.size for dim in one.dense_tensor.shape.dim)
        elif one.HasField("ragged_tensor"):
            (column, *inner), parts = one.ragged_tensor.feature_path.step, one.ragged_tensor.partition
            if not inner and all(part.HasField("uniform_row_length") for part in parts):
                yield column, (ANY_SIZE, *(part.uniform_row_length for part in parts))
