from __future__ import annotations

import numpy as np
import pytest

from infeed.components.example_gen.spills import Spill, Spills

SPILLS = [
    Spill("train", "a", 0, 4, 41, ("x", None)),
    Spill("eval", "b", 0, 2, 20, ("y", None)),
    Spill("train", "a", 4, 3, 30, ("y", "z")),
]


def test_columns_hold_what_the_spills_did() -> None:
    columns = Spills.of(SPILLS)
    assert (list(columns), len(columns)) == (SPILLS, 3)
    assert len(columns.files) == 2  # a path is stored once
    assert list(Spills.of([])) == []


@pytest.mark.parametrize("cut", range(4))
def test_parts_are_joined_in_their_order(cut: int) -> None:
    assert list(Spills.joined([Spills.of(SPILLS[:cut]), Spills.of(SPILLS[cut:])])) == SPILLS
    assert list(Spills.joined([])) == []


def test_the_spills_of_a_split() -> None:
    assert list(Spills.of(SPILLS).of_split("train")) == [SPILLS[0], SPILLS[2]]
    assert list(Spills.of(SPILLS).of_split("test")) == []


def test_a_cut_has_the_average_bytes_of_its_spill() -> None:
    found = Spills.of(SPILLS).cut(np.array([1, 2, 0]), np.array([3, 2, 3]))
    assert list(found) == [Spill("train", "a", 1, 2, 20, ("x", None)), SPILLS[2]]


def test_labels_are_numbered() -> None:
    numbers, labels = Spills.of(SPILLS).labels(0)
    assert [labels[number] for number in numbers] == ["x", "y", "y"]
