"""Shapes of tensors in `features.json`, which TFDS writes beside its records. A tf.Example holds flat lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files

_FILE = "features.json"
Shape = tuple[int, ...]


def declared_shapes(folder: str) -> dict[str, Shape]:
    """Return the shapes of at least two dimensions that a folder of TFDS declares, by feature name.

    A nested feature has the name of its record, such as `pose/matrix`. Tensors of unknown size are left out. Raises
    InfeedError if the file is damaged.
    """
    path = files.join(folder, _FILE)
    if not files.exists(path):
        return {}
    try:
        return dict(_shapes(json.loads(files.read_bytes(path)), ""))
    except (AttributeError, TypeError, ValueError) as error:
        what = f"the features of TFDS are damaged: {error}"
        raise InfeedError(what, where=path, do="copy the file again, or delete it to read flat lists") from error


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
