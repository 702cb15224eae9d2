"""Shapes of tensors that a schema declares, because a tf.Example holds flat lists.

TFDS writes `features.json` beside its records; SchemaGen and Transform of TFX write `schema.pbtxt`. TFDS writes a
sequence of sequences as two features: the values of all inner sequences, and the length of each.
"""

from __future__ import annotations

import json
import logging
import math
import os
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from infeed.components.base.errors import InfeedError, required
from infeed.components.dataset import files

if TYPE_CHECKING:
    from infeed.components.load.delivery import Delivery
    from infeed.components.load.find import SplitFiles
    from infeed.components.load.spill import FeatureCounts, SpilledFeature

Shape = tuple[int, ...]
F = TypeVar("F", bound="FeatureCounts")
_FEATURES_FILE, _FILE = "features.json", "schema.pbtxt"
_PLACES = _FILE, f"transformed_metadata/{_FILE}"  # in artifacts of SchemaGen and of Transform
_SCALARS = "classLabel", "text", "image"  # one value, for images the bytes of a file
_TENSORS = "tensor", "boundingBox"
ANY_SIZE = -1  # of a dimension
NESTED = (ANY_SIZE, ANY_SIZE)  # shape of a sequence of sequences, which is written as the two features NAME/...
VALUES, LENGTHS = "/ragged_flat_values", "/ragged_row_lengths_0"
_log = logging.getLogger(__name__)


def declared_shapes(folder: str) -> dict[str, Shape]:
    """Return the shapes of one dimension and more that a folder of TFDS declares, by feature name.

    A first dimension of -1 is of any size. A sequence of sequences has the shape `NESTED`. Other tensors with inner
    dimensions of unknown size are left out. A nested feature has the name of its record, such as `pose/matrix`. A file
    that TFDS cannot have written gives no shapes, and a warning.
    """
    path = files.join(folder, _FEATURES_FILE)
    if not files.exists(path):
        return {}
    try:
        return dict(_shapes(json.loads(files.read_bytes(path)), "", ()))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        _log.warning("%s: no features of TFDS (%s: %s), so tensors are flat lists", path, type(error).__name__, error)
        return {}


def sequence_name(feature: str) -> str:
    """Return the name of the sequence of sequences that a feature belongs to, or else its own name."""
    return feature.removesuffix(VALUES).removesuffix(LENGTHS)


def _shapes(feature: Mapping[str, Any], name: str, outer: Shape) -> Iterator[tuple[str, Shape]]:
    """Yield the shape of each tensor in a feature. `outer` are the lengths of the sequences around the feature."""
    for inner, one in feature.get("featuresDict", {}).get("features", {}).items():
        yield from _shapes(one, f"{name}/{inner}" if name else inner, outer)
    if sequence := feature.get("sequence"):
        yield from _shapes(sequence["feature"], name, (*outer, int(sequence.get("length", -1))))
    elif (own := _tensor_shape(feature)) is not None:
        shape = (*outer, *own)
        if len(outer) == len(NESTED) == len(shape):
            yield name, NESTED
        elif shape and len(outer) < len(NESTED) and min(shape[1:], default=1) > 0:
            yield name, shape


def _tensor_shape(feature: Mapping[str, Any]) -> Shape | None:
    """Return the shape of one value in the record. None for records, and for encoded tensors."""
    if any(kind in feature for kind in _SCALARS):
        return ()
    tensor = next((feature[kind] for kind in _TENSORS if kind in feature), None)
    if tensor is None or tensor.get("encoding", "none") != "none":
        return None
    return tuple(int(size) for size in tensor.get("shape", {}).get("dimensions", []))


def declared_tensors(given: str | os.PathLike[str]) -> dict[str, Shape]:
    """Return the shapes that a schema declares: the path of the file, or of an artifact that holds it.

    Raises InfeedError if there is no such file, it is not a schema, or tensorflow-metadata is not installed.
    """
    place = files.path_text(given, "infeed.load, schema")
    path = next(filter(files.exists, (files.join(place, name) for name in _PLACES)), place)
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
    shapes = [*((one.name, _declared_shape(one)) for one in schema.feature), *_represented(group)]
    # The number of values in a row gives only the size of the first dimension.
    return {
        name: shape
        for name, shape in shapes
        if shape is not None and name not in old
        if all(size > 0 or (size == ANY_SIZE and place == 0) for place, size in enumerate(shape))
    }


def check_shapes(declared: Mapping[str, Shape], delivery: Delivery, rows: int, where: str | os.PathLike[str]) -> None:
    """Raise InfeedError if a feature does not fit the shape that the schema declares. `rows` is the number of rows."""
    schema = delivery.schema
    for name in sorted(declared.keys() & schema.keys()):
        shape, spec = declared[name], schema[name]
        held = (ANY_SIZE, *spec.step) if spec.shape is None else spec.shape
        fits = len(held) == len(shape) and all(one in (ANY_SIZE, size) for size, one in zip(held, shape, strict=True))
        # LoadOptions.on_missing handles missing values, in this split or another.
        is_optional = delivery.placed[name].is_optional or spec.nulls == rows
        if not fits and not (is_optional and abs(math.prod(shape)) == 1):
            values = "numbers of values that differ" if spec.shape is None else _text(held)
            what = f"the rows of feature {name!r} have {values}, but the schema declares {_text(shape)}"
            raise InfeedError(what, where=f"{os.fspath(where)}, {name}", do="correct the schema, or leave it out")


def _text(shape: Shape) -> str:
    return f"the shape {list(shape)}" if shape else "one value"


def _declared_shape(feature: Any) -> Shape | None:
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


def joined(features: Mapping[str, F], shapes: Mapping[str, Shape]) -> dict[str, F]:
    """Return the features, with one in place of the two of each sequence of sequences that TFDS declares.

    Its steps are the inner sequences.
    """
    found = dict(features)
    for name, (values, lengths) in _sequences(features, shapes).items():
        found[name] = lengths.with_steps(values)
        del found[name + VALUES], found[name + LENGTHS]
    return dict(sorted(found.items()))


def joined_names(features: Collection[str], shapes: Mapping[str, Shape]) -> set[str]:
    """Return the names of features, with that of a sequence of sequences in place of its two."""
    own = {name: sequence_name(name) for name in features}
    return {own[name] if shapes.get(own[name]) == NESTED else name for name in features}


def check_lengths(
    features: Mapping[str, SpilledFeature], shapes: Mapping[str, Shape], records: Sequence[int], paths: Sequence[str]
) -> None:
    """Raise InfeedError if the inner sequences of a record do not hold as many values as the record.

    `records` is the number of records in each of the files `paths`.
    """
    for name, (values, lengths) in _sequences(features, shapes).items():
        held = np.repeat(values.counts, lengths.counts)
        given = np.asarray(lengths.data)
        # A length that is out of range gives a sum that is too large, so that no sum overflows.
        sizes = np.where((given < 0) | (given > held), held + 1, given)
        starts = np.append(0, np.cumsum(lengths.counts))
        wrong = np.flatnonzero(np.diff(np.append(0, np.cumsum(sizes))[starts]) != values.counts)
        if len(wrong):
            row = int(wrong[0])
            some = given[starts[row] : starts[row + 1]].tolist()
            what = f"{name!r} has {values.counts[row]} values, but sequences of the lengths {reprlib.repr(some)}"
            file = int(np.searchsorted(np.cumsum(records), row, side="right"))
            place = f"{paths[file]}, record {row - sum(records[:file])}, {name}"
            do = "write the record again: the lengths are not negative, and their sum is the number of values"
            raise InfeedError(f"{what}, which sum up to {sum(some)}", where=place, do=do)


def _sequences(features: Mapping[str, F], shapes: Mapping[str, Shape]) -> dict[str, tuple[F, F]]:
    """Return the values and the lengths of each sequence of sequences that TFDS declares."""
    found = {}
    for name in [name for name, shape in shapes.items() if shape == NESTED]:
        values, lengths = features.get(name + VALUES), features.get(name + LENGTHS)
        if values is not None and lengths is not None and lengths.kind == "int64":
            found[name] = values, lengths
    return found
