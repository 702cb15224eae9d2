"""Sequences of sequences of numbers or text in folders of TFDS.

TFDS writes such a sequence as two features: the values of all inner sequences, and the length of each.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from infeed.components.base.errors import InfeedError
from infeed.components.load.spill import FeatureCounts, SpilledFeature
from infeed.components.load.tfds import LENGTHS, NESTED, VALUES, Shape, sequence_name

F = TypeVar("F", bound=FeatureCounts)


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
