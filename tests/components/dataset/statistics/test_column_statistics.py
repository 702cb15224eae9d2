"""Covers `cells` as well."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.schema import read_json
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics, StoredColumn

NUMBERS = st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, -0.0, 1.5]))
LISTS = {
    pa.list_(pa.float32()): st.one_of(st.none(), st.lists(st.floats(width=32), max_size=4)),
    pa.large_list(pa.int64()): st.one_of(st.none(), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)),
    pa.list_(pa.binary()): st.one_of(st.none(), st.lists(st.binary(max_size=3), max_size=4)),
    pa.string(): st.one_of(st.none(), st.text(max_size=3)),
    pa.int32(): st.one_of(st.none(), st.integers(-5, 5)),
}


def of(rows: list[Any], kind: pa.DataType) -> ColumnStatistics:
    return ColumnStatistics.of("x", pa.array(rows, kind))


@given(st.lists(NUMBERS, max_size=40))
def test_numbers_are_told_as_numpy_tells_them(rows: list[float | None]) -> None:
    found = of(rows, pa.float64())
    values = [value for value in rows if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    assert (found.rows, found.missing, found.values) == (len(rows), rows.count(None), len(values))
    assert found.nans == sum(map(math.isnan, values))
    assert found.infinities == sum(map(math.isinf, values))
    assert found.zeros == finite.count(0)
    assert found.minimum == min(finite, default=None)
    assert found.maximum == max(finite, default=None)
    assert float(found.total.fraction) == math.fsum(finite)
    assert dict(found.counts.items()) == Counter(finite)
    if finite:
        assert found.mean == pytest.approx(np.mean(finite), rel=1e-6, abs=1e-30)
        assert found.std == pytest.approx(np.std(np.array(finite) / 2**64) * 2**64, rel=1e-6, abs=1e-30)
        assert found.quantiles.at([0.3]) == np.quantile(finite, [0.3], method="inverted_cdf").tolist()


@pytest.mark.parametrize("kind", LISTS, ids=str)
@given(data=st.data())
def test_parts_add_up_to_the_whole_in_any_order(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(LISTS[kind], max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    one, two, three = (of(part, kind) for part in (rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]))
    whole = json.dumps(of(rows, kind).plain())
    assert json.dumps(((one + two) + three).plain()) == whole
    assert json.dumps((three + (one + two)).plain()) == whole
    assert json.dumps(read_json(StoredColumn, whole.encode()).statistics().plain()) == whole


@pytest.mark.parametrize("kind", LISTS, ids=str)
@given(data=st.data())
def test_rows_that_are_taken_are_those_of_the_column(kind: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(LISTS[kind], min_size=1, max_size=12))
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12, unique=True))
    cells = Cells.of(pa.array(rows, kind))
    assert cells is not None
    taken = ColumnStatistics.of_cells("x", cells.take(np.array(places, np.int64)))
    assert json.dumps(taken.plain()) == json.dumps(of([rows[place] for place in places], kind).plain())


def test_lengths_tell_lists_from_missing_ones() -> None:
    rows = [[1, 2, 3], [], None, [4]]
    found = of(rows, pa.list_(pa.int64()))
    assert (found.missing, found.present, found.values) == (1, 3, 4)
    assert (found.lengths.minimum, found.lengths.maximum, found.lengths.mean) == (0, 3, 4 / 3)
    assert found.lengths.quantiles.at([0.5]) == [1]
    empty = ColumnStatistics.of("x", pa.array(rows, pa.list_(pa.int64())), empty_lists=True)
    assert (empty.missing, empty.present, empty.lengths.mean) == (0, 4, 1)


def test_long_bytes_are_measured_and_not_counted() -> None:
    found = of([b"x" * 5_000, b"", b"ab", None, b"ab"], pa.binary())
    assert list(found.counts.items()) == [(b"ab", 2), (b"", 1)]
    assert (found.counts.exact, found.counts.uncounted, found.counts.others) == (False, 1, 1)
    assert (found.byte_lengths.minimum, found.byte_lengths.maximum, found.byte_lengths.total) == (0, 5_000, 5_004)
    assert found.zeros == 1
    assert (found.minimum, found.mean, found.std) == (None, None, None)


def test_bytes_that_are_no_text_are_told_whether_they_are_counted_or_too_long() -> None:
    rows = [b"\xff", b"a", b"\xff", b"\x89" * 2_000, "é".encode() * 1_000, b"\xff" * 2_000, None, b""]
    assert of(rows, pa.binary()).invalid_utf8 == 4
    assert of(["a", "é", None], pa.string()).invalid_utf8 == of([1], pa.int64()).invalid_utf8 == 0


def test_what_a_type_becomes_in_an_example_is_what_is_counted() -> None:
    assert of([True, False, True], pa.bool_()).total.units == 2
    assert of([0.1], pa.float64()).maximum == float(np.float32(0.1))
    texts = pa.array(["a", None, "a"]).dictionary_encode()
    assert dict(ColumnStatistics.of("x", texts).counts.items()) == {b"a": 2}
    with pytest.raises(ValueError, match="has no type"):
        of([None], pa.null())


def test_columns_of_different_types_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="'x' is int, but 'x' is bytes"):
        of([1], pa.int64()) + of([b"a"], pa.binary())


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["rows"], -1, "rows: -1 is too small"),
        (["type"], "text", "is not one of int, float, bytes"),
        (["missing"], 1, "inconsistent"),
        (["nans"], 1, "inconsistent"),
        (["minimum"], None, "inconsistent"),
        (["lengths", "total"], 9, "do not add up"),
        (["squares", "units"], "-5", "sums are impossible"),
        (["total", "units"], "x", "invalid literal"),
        (["total", "units"], "9" * 5_000, "5000 digits"),
        (["total", "scale"], 3, "units of 2"),
        (["extra"], 3, "not a field"),
    ],
)
def test_tampered_statistics_are_refused(path: list[str], value: Any, says: str) -> None:
    plain = json.loads(json.dumps(of([1.5, 2.5], pa.float32()).plain()))
    inner = plain
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(ValueError, match=says):
        read_json(StoredColumn, json.dumps(plain).encode()).statistics()
