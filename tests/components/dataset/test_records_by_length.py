from __future__ import annotations

import numpy as np
import pytest

from infeed.components.dataset.records import by_length


@pytest.mark.parametrize("far", [3, 1 << 40])
def test_each_row_gets_what_is_made_of_its_length(far: int) -> None:
    made: list[int] = []

    def make(length: int) -> bytes:
        made.append(length)
        return b"" if length < 0 else str(length).encode()

    assert by_length(np.array([7, -1, far, 7, 0]), make).to_pylist() == [b"7", b"", str(far).encode(), b"7", b"0"]
    assert sorted(made) == sorted({-1, 0, 7, far}), "once for each length"


def test_no_rows() -> None:
    assert len(by_length(np.array([], np.int64), bytes)) == 0
