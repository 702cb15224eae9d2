from __future__ import annotations

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.spills import strata_of_rows


def test_rows_are_numbered_by_both_labels() -> None:
    batch = pa.RecordBatch.from_pydict({"x": ["a", "b", "a", None], "y": [1, 1, 2, 1]})
    found = strata_of_rows(batch, ("x", "y"))
    assert [found.labels[number] for number in found.numbers] == [("a", 1), ("b", 1), ("a", 2), (None, 1)]
    assert len(strata_of_rows(batch, (None, None)).labels) == 1


def test_nan_is_no_label() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.0, float("nan"), None]})
    found = strata_of_rows(batch, ("x", None))
    assert [found.labels[number][0] for number in found.numbers] == [1.0, None, None]


def test_labels_that_cannot_be() -> None:
    batch = pa.RecordBatch.from_pydict({"list": [[1]], "id": [1]})
    with pytest.raises(InfeedError, match=r"(?s)type is list.*label 'list'"):
        strata_of_rows(batch, ("list", None))
    many = pa.RecordBatch.from_pydict({"id": list(range(10_001))})
    with pytest.raises(InfeedError, match=r"more than 10000 distinct labels"):
        strata_of_rows(many, (None, "id"))
