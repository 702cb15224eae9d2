"""Shapes of tensors in `features.json`, which TFDS writes beside its records. A tf.Example holds flat lists."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from infeed.components.dataset import files

_FILE = "features.json"
_log = logging.getLogger(__name__)
Shape = tuple[int, ...]


def declared_shapes(folder: str) -> dict[str, Shape]:
    """Return the shapes of at least two dimensions that a folder of TFDS declares, by feature name.

    A nested feature has the name of its record, such as `pose/matrix`. Tensors of unknown size are left out. A file
    that TFDS cannot have written gives no shapes, and a warning.
    """
    path = files.join(folder, _FILE)
    if not files.exists(path):
        return {}
    try:
        return dict(_shapes(json.loads(files.read_bytes(path)), ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s: no features of TFDS (%s: %s), so tensors are flat lists", path, type(error).__name__, error)
        return {}


def _shapes(feature: Mapping[str, Any], name: str) -> Iterator[tuple[str, Shape]]:
    for inner, one in feature.get("featuresDict", {}).get("features", {}).items():
        yield from _shapes(one, f"{name}/{inner}" if name else inner)
    shape = _shape(feature)
    if shape is not None and len(shape) > 1 and min(shape) > 0:
        yield name, shape


def _shape(feature: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a tensor, or of a sequence of tensors. None for others, such as encoded tensors."""
    if sequence := feature.get("sequence"):
        inner = _shape(sequence["feature"])
        return None if inner is None else (int(sequence.get("length", -1)), *inner)
    tensor = feature.get("tensor")
    if tensor is None:
        return () if "classLabel" in feature or "text" in feature else None
    if tensor.get("encoding", "none") != "none":
        return None
    return tuple(int(size) for size in tensor.get("shape", {}).get("dimensions", []))
