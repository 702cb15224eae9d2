"""Packing of features that share a type and shape into one tensor between the transform graph and the model.

The feed and the step run every operation once per tensor of a batch, so a thousand features cost a thousand operations
each time. Packed features stay in a few tensors until the model unpacks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

FEWEST = 32  # smaller groups of features stay unpacked


@dataclass(frozen=True)
class Packing:
    """Assignment of features to packed tensors: packed tensor name -> ordered feature names."""

    packs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, specs: Mapping[str, Any], apart: Collection[str] = ()) -> Packing:
        """Group the features by dtype and shape, except those in `apart`."""
        alike: dict[str, list[str]] = {}
        for name, spec in sorted(specs.items()):
            if isinstance(spec, tf.io.FixedLenFeature) and name not in apart:
                alike.setdefault(f"packed {spec.dtype.name}{list(spec.shape)}", []).append(name)
        return cls({pack: tuple(names) for pack, names in alike.items() if len(names) >= FEWEST})

    def pack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Stack the tensors [batch, ...] of each group into one tensor [batch, features, ...]."""
        packed = {pack: tf.stack([features[name] for name in names], axis=1) for pack, names in self.packs.items()}
        inside = {name for names in self.packs.values() for name in names}
        return {name: tensor for name, tensor in features.items() if name not in inside} | packed

    def unpack(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Reverse `pack`, for tensors or tensor specs."""
        features: dict[str, Any] = {}
        for name, tensor in batch.items():
            if name not in self.packs:
                features[name] = tensor
            elif isinstance(tensor, tf.TypeSpec):
                spec = tf.TensorSpec([tensor.shape[0], *tensor.shape[2:]], tensor.dtype)
                features |= dict.fromkeys(self.packs[name], spec)
            else:
                parts = tf.unstack(tensor, axis=1) if tf.is_tensor(tensor) else _columns(tensor)
                features |= zip(self.packs[name], parts, strict=True)
        return features


def _columns(array: Any) -> list[Any]:
    """Split an array of NumPy or JAX, [batch, features, ...]."""
    return [array[:, number] for number in range(array.shape[1])]
