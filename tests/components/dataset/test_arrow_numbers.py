from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.arrow_numbers import from_numbers, to_numbers


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.uint8])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_numbers_return_from_arrow(dtype, size):
    values = np.arange(size * 2).astype(dtype)
    made = from_numbers(values[::2])
    assert made.equals(pa.array(values[::2]))
    for array in (made, made[1:], made[:-1]):
        assert to_numbers(array).dtype == dtype
        assert to_numbers(array).tolist() == array.to_pylist()
