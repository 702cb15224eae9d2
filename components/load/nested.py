"""Sequences of sequences of numbers or text in folders of TFDS.

TFDS writes such a sequence as two features: the values of all inner sequences, and the length of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from infeed.components.load.spill import FeatureCounts
from infeed.components.load.tfds import LENGTHS, NESTED, VALUES, Shape

F = TypeVar("F", bound=FeatureCounts)


def joined(features: Mapping[str, F], shapes: Mapping[str, Shape]) -> dict[str, F]:
    """Return the features, with one in place of the two of each sequence of sequences that TFDS declares.

    Its steps are the inner sequences.
    """
    found = dict(features)
    for name in [name for name, shape in shapes.items() if shape == NESTED]:
        values, lengths = features.get(name + VALUES), features.get(name + LENGTHS)
        if values is not None and lengths is not None and lengths.kind == "int64":
            found[name] = lengths.with_steps(values)
            del found[name + VALUES], found[name + LENGTHS]
    return dict(sorted(found.items()))
