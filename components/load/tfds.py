"""Shapes of tensors in `features.json`, which TFDS writes beside its records. A tf.Example holds flat lists."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from infeed.components.dataset import files

_FILE = "features.json"
_SCALARS = "classLabel", "text", "image"  # one value, for images the bytes of a file
_TENSORS = "tensor", "boundingBox"
ANY_SIZE = -1  # of a dimension
NESTED = (ANY_SIZE, ANY_SIZE)  # shape of a sequence of sequences, which is written as the two features NAME/...
VALUES, LENGTHS = "/ragged_flat_values", "/ragged_row_lengths_0"
_log = logging.getLogger(__name__)
Shape = tuple[int, ...]


def declared_shapes(folder: str) -> dict[str, Shape]:
    """Return the shapes of one dimension and more that a folder of TFDS declares, by feature name.

    A first dimension of -1 is of any size. A sequence of sequences has the shape `NESTED`. Other tensors with inner
    dimensions of unknown size are left out. A nested feature has the name of its record, such as `pose/matrix`. A file
    that TFDS cannot have written gives no shapes, and a warning.
    """
    path = files.join(folder, _FILE)
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
    elif (own := _shape(feature)) is not None:
        shape = (*outer, *own)
        if len(outer) == len(NESTED) == len(shape):
            yield name, NESTED
        elif shape and len(outer) < len(NESTED) and min(shape[1:], default=1) > 0:
            yield name, shape


def _shape(feature: Mapping[str, Any]) -> Shape | None:
    """Return the shape of one value in the record. None for records, and for encoded tensors."""
    if any(kind in feature for kind in _SCALARS):
        return ()
    tensor = next((feature[kind] for kind in _TENSORS if kind in feature), None)
    if tensor is None or tensor.get("encoding", "none") != "none":
        return None
    return tuple(int(size) for size in tensor.get("shape", {}).get("dimensions", []))
