from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics


def _columns(**values: Any) -> dict[str, ColumnStatistics]:
    arrays = {name: rows if isinstance(rows, pa.Array) else pa.array(rows) for name, rows in values.items()}
    return {name: ColumnStatistics.of(name, array) for name, array in arrays.items()}


@pytest.fixture(scope="session")
def columns() -> Any:
    """Makes statistics of columns that are given as lists or Arrow arrays."""
    return _columns
