"""Features of one type and shape as one tensor, on their way from the transform graph to the model.

Every operation of the feed and of a step handles each tensor of a batch by itself. A thousand features would cost a
thousand operations at each of them; packed, they are a few tensors until the model takes them apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

FEWEST = 32  # like features; fewer stay as they are


@dataclass(frozen=True)
class Packing:
    """Which features travel together.

    Attributes:
      packs: name of the packed tensor -> names of the features in it, in order.
    """

    packs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, specs: Mapping[str, Any], apart: Collection[str] = ()) -> Packing:
        """The packing of features with these parsing specs.

        Args:
          apart: names of features that are not packed.
        """
        alike: dict[str, list[str]] = {}
        for name, spec in sorted(specs.items()):
            if isinstance(spec, tf.io.FixedLenFeature) and name not in apart:
                alike.setdefault(f"packed {spec.dtype.name}{list(spec.shape)}", []).append(name)
        return cls({pack: tuple(names) for pack, names in alike.items() if len(names) >= FEWEST})

    def pack(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors [batch, ...] by feature -> the same, the packed ones as [batch, features, ...]."""
        packed = {pack: tf.stack([features[name] for name in names], axis=1) for pack, names in self.packs.items()}
        inside = {name for names in self.packs.values() for name in names}
        return {name: tensor for name, tensor in features.items() if name not in inside} | packed

    def unpack(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Takes `pack` back; also of the specs of tensors."""
        features: dict[str, Any] = {}
        for name, tensor in batch.items():
            if name not in self.packs:
                features[name] = tensor
            elif isinstance(tensor, tf.TypeSpec):
                spec = tf.TensorSpec([tensor.shape[0], *tensor.shape[2:]], tensor.dtype)
                features |= dict.fromkeys(self.packs[name], spec)
            else:
                features |= zip(self.packs[name], tf.unstack(tensor, axis=1), strict=True)
        return features
