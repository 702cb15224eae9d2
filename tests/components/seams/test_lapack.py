from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.load.shuffle import swap_rows
from infeed.components.seams import lapack


def one_by_one(count: int, others: list[int]) -> list[int]:
    values = list(range(count))
    for place, other in enumerate(others):
        values[place], values[other] = values[other], values[place]
    return values


def test_the_names_are_as_they_were_read():
    assert lapack.SWAPS.available() is None
    assert lapack.row_swaps() is not None


@given(st.integers(1, 5000), st.integers(0, 2**32), st.floats(0, 1))
def test_lapack_and_numpy_swap_as_one_swap_after_another(count, seed, share):
    size = round((count - 1) * share)
    others = np.random.default_rng(seed).integers(np.arange(size), count)
    for swap in (lapack.row_swaps(), swap_rows):
        values = np.arange(count, dtype=np.uint32)
        swap(values, others + 1)
        assert values.tolist() == one_by_one(count, others.tolist())


def test_a_numpy_without_the_names_has_no_swaps(monkeypatch):
    lapack.row_swaps.cache_clear()
    monkeypatch.setattr(lapack, "_NAMES", ("no_such_name",))
    assert lapack.row_swaps() is None
    lapack.row_swaps.cache_clear()
