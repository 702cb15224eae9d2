"""Sums, counts and quantiles: the same in one batch or many, and from the statistics of a column.

Covers `feature` as well, whose classes say what is asked of them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.transform.analyses import Analysis, ByKey, Frequencies, Moments, Quantiles
from infeed.components.transform.kinds.encode import Cross, Vocabulary
from infeed.components.transform.kinds.scale import ZScore

RNG = np.random.default_rng(3)
FLOATS = RNG.lognormal(0, 3, 1000).astype(np.float32)
INTS = RNG.integers(-(10**12), 10**12, 1000)
WORDS = np.array([b"%d" % number for number in RNG.integers(0, 50, 1000)], object)


def filled(kind: type[Analysis], values: Any, parts: int) -> Any:
    analysis = kind()
    for part in np.array_split(values, parts):
        analysis.add(part, missing=1, rows=len(part) + 1)
    return analysis


@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["float32", "int64"])
def test_moments_are_numpys_and_the_same_to_the_last_bit_however_rows_are_divided(values: Any) -> None:
    one, many = filled(Moments, values, 1), filled(Moments, values, 7)
    assert one.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-12)
    assert one.deviation == pytest.approx(values.astype(np.float64).std(), rel=1e-12)
    assert (one.mean, one.variance, one.least, one.most) == (many.mean, many.variance, many.least, many.most)
    assert (many.count, many.missing, many.rows) == (1000, 7, 1007)


@pytest.mark.parametrize(
    ("kind", "values"), [(Moments, FLOATS), (Moments, INTS), (Quantiles, FLOATS), (Frequencies, WORDS)]
)
def test_merged_parts_are_as_if_one_had_seen_all(kind: type[Analysis], values: Any) -> None:
    parts = [filled(kind, part, 2) for part in np.array_split(values, 5)]
    merged, whole = functools.reduce(lambda one, other: one.merge(other), parts), filled(kind, values, 10)
    assert (merged.rows, merged.count, merged.missing, merged.sample) == (whole.rows, 1000, 10, whole.sample)
    facts = {Moments: lambda one: (one.mean, one.variance), Quantiles: lambda one: one.at([0.1, 0.5, 0.9])}
    told = facts.get(kind, lambda one: one.counts)
    assert told(merged) == told(whole)


def test_parts_by_key_merge_key_by_key() -> None:
    def of(values: list[float], keys: list[bytes]) -> ByKey[Moments]:
        found = ByKey(Moments, secret=b"secret")
        found.add(np.array(values, np.float32), np.array(keys, object), missing=1, rows=len(values) + 1)
        return found

    merged = of([1, 2], [b"a", b"b"]).merge(of([4, 8], [b"b", b"c"]))
    assert {key: one.mean for key, one in merged.of.items()} == {b"a": 1, b"b": 3, b"c": 8}
    assert (merged.overall.mean, merged.overall.missing, merged.overall.rows) == (3.75, 2, 6)


def test_quantiles_of_few_values_are_exact() -> None:
    expected = np.quantile(FLOATS, [0.0, 0.3, 1.0], method="inverted_cdf")
    assert filled(Quantiles, FLOATS, 7).at([0.0, 0.3, 1.0]) == pytest.approx(expected.tolist())


def test_words_are_counted_and_ranked() -> None:
    counts = filled(Frequencies, np.array([b"a", b"b", b"b", b"c", b"", b"x\ny"], object), 3)
    assert [*counts.ranked()] == [b"b", b"c", b"a"]
    assert [*counts.ranked(size=1)] == [b"b"]
    assert counts.ranked(least=2) == {b"b": 2}
    assert sum(filled(Frequencies, WORDS, 5).counts.values()) == 1000


@pytest.mark.parametrize("values", [FLOATS, INTS, WORDS], ids=["float32", "int64", "bytes"])
def test_the_statistics_of_a_column_answer_what_a_pass_answers(values: Any) -> None:
    column = pa.array(
        [*values.tolist(), None], {"f": pa.float32(), "i": pa.int64()}.get(values.dtype.kind, pa.binary())
    )
    known = ColumnStatistics.of("x", column)
    for kind in (Frequencies,) if values.dtype == object else (Moments, Quantiles, Frequencies):
        answer, counted = kind.of(known), filled(kind, values, 1)
        assert answer is not None
        assert (answer.rows, answer.count, answer.missing) == (1001, 1000, 1)
        told = [vars(one) for one in (answer, counted)]
        for name in ("sum", "squares", "least", "most", "counts"):
            assert told[0].get(name) == told[1].get(name)
        if isinstance(answer, Quantiles):
            assert answer.at([0.1, 0.9]) == counted.at([0.1, 0.9])


def test_counts_that_are_not_exact_are_no_answer() -> None:
    known = ColumnStatistics.of("x", pa.array([b"%d" % number for number in range(20_000)]))
    assert Frequencies.of(known) is None


def test_each_key_has_an_analysis_of_its_own() -> None:
    by_key = ByKey(Moments)
    by_key.add(np.array([1.0, 10.0, 3.0], np.float32), np.array([b"b", b"a", b"b"], object), rows=3)
    by_key.add(np.array([5.0], np.float32), np.array([b"b"], object), rows=1)
    assert by_key.keys == [b"a", b"b"]
    assert [one.mean for one in by_key.in_order] == [4.75, 10.0, 3.0]
    assert by_key.overall.rows == 4


@pytest.mark.parametrize("kind", [Moments, Quantiles, Frequencies])
def test_an_analysis_by_key_is_that_of_the_rows_of_the_key(kind: type[Analysis], tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    keys = np.array([b"%d" % key for key in draw.integers(0, 300, 1000)], object)
    by_key = ByKey(kind, str(tmp_path), b"secret")
    for part in np.array_split(np.arange(1000), 7):
        by_key.add(FLOATS[part], keys[part], rows=len(part))
    assert by_key.keys == sorted(set(keys))
    for key, found in by_key.of.items():
        expected = filled(kind, FLOATS[keys == key], 1)
        assert (found.count, found.sample) == (expected.count, expected.sample)
        told = [vars(one) for one in (found, expected)]
        for name in ("sum", "squares", "least", "most", "counts"):
            assert told[0].get(name) == told[1].get(name)


def test_features_of_the_same_values_share_what_is_counted() -> None:
    assert ZScore("x").stream == ZScore("x", output="y").stream
    assert ZScore("x").stream != ZScore("x", fill=0.0).stream
    assert ZScore("x", key="k").stream != ZScore("x").stream
    assert Cross(("x", "y"), "z").stream != Vocabulary("x").stream
    assert [f.analyses_raw for f in (ZScore("x"), ZScore("x", fill=0.0), Cross(("x", "y"), "z"))] == [
        True,
        False,
        False,
    ]
