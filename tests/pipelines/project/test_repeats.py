from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.project.repeats import count_repeats, find_repeats
from infeed.pipelines.surveys import Repeats

RANDOM = np.random.default_rng(0)
AGAIN = np.r_[np.arange(900), np.arange(100)]  # the last hundred rows repeat the first
AMOUNT, LABEL = RANDOM.normal(size=900)[AGAIN], RANDOM.integers(0, 2, 900)[AGAIN]


def repeats(columns: Mapping[str, Any], features: str, splits: Any = None) -> Repeats:
    cells = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    known = {name: one for name, one in cells.items() if one}
    return find_repeats(known, {f: ColumnStatistics.of_cells(f, known[f]) for f in features.split()}, splits)


def test_rows_that_are_equal_in_all_columns_are_copies() -> None:
    assert repeats({"amount": AMOUNT, "y": LABEL}, "amount") == Repeats(1_000, equal=200, copies=200)


def test_rows_that_differ_in_the_label_or_in_what_is_not_learned_from_are_alike() -> None:
    found = repeats({"id": np.arange(1_000), "amount": AMOUNT, "y": LABEL}, "amount")
    assert found == Repeats(1_000, equal=200, alike=200)
    numbered = repeats({"id": 3 * np.arange(1_000), "amount": AMOUNT, "y": LABEL}, "id amount")
    assert numbered == replace(found, ignored=("id",))
    assert repeats({"amount": AMOUNT, "y": np.arange(1_000)}, "amount") == found


def test_copies_of_which_some_differ_elsewhere_are_counted_once() -> None:
    other = np.r_[np.zeros(950), np.ones(50)]
    found = repeats({"amount": AMOUNT, "other": other, "y": LABEL}, "amount")
    assert found == Repeats(1_000, equal=200, copies=100, alike=100)


CELLS = st.lists(st.tuples(*[st.sampled_from([None, 1, 2, 3])] * 3), min_size=2, max_size=30)


@given(CELLS)
def test_the_counts_are_those_of_comparing_all_pairs(rows: list[tuple[int | None, ...]]) -> None:
    columns = zip("abc", zip(*rows, strict=True), strict=True)
    cells = {name: Cells.of(pa.array(values, pa.int64())) for name, values in columns}
    others = [(row, [*rows[:place], *rows[place + 1 :]]) for place, row in enumerate(rows)]
    found = count_repeats({name: one for name, one in cells.items() if one}, ["a", "b"])
    assert found.equal == sum(any(one[:2] == row[:2] for one in rest) for row, rest in others)
    assert found.copies == sum(row in rest for row, rest in others)
    assert found.alike == sum(any(one[:2] == row[:2] and one != row for one in rest) for row, rest in others)


def test_rows_of_few_values_are_equal_by_chance() -> None:
    few = {"town": RANDOM.choice(["Bern", "Basel"], 1_000), "rooms": RANDOM.integers(1, 6, 1_000), "y": LABEL}
    found = repeats(few, "town rooms")
    assert found == Repeats(1_000, expected=1_000, effective=found.effective)
    assert 15 < found.effective <= 20  # 2 towns, 5 numbers of rooms and 2 labels


def of_originals(random: np.random.Generator, rows: int, decimals: int) -> dict[str, Any]:
    """Rows of a rounded measurement and two categories, one with a rare value."""
    return {
        "x": random.normal(size=rows).round(decimals),
        "status": random.choice(list("abcd"), rows, p=[0.33, 0.33, 0.33, 0.01]),
        "side": random.integers(0, 2, rows).astype(float),
        "y": random.integers(0, 2, rows),
    }


@pytest.mark.parametrize("decimals", [2, 3, 4, 9])
def test_rows_without_copies_are_not_reported_however_coarse_their_numbers_are(decimals: int) -> None:
    random = np.random.default_rng(decimals)
    tables = [of_originals(random, rows, decimals) for rows in (300, 700, 3_000) for _ in range(15)]
    told = [found for table in tables if (found := repeats(table, "x status side")).equal > 0.005 * found.rows]
    assert len(told) <= 1


@pytest.mark.parametrize(("share", "drawn"), [(0.1, 0.5), (0.5, 0.5), (0.6, 0.4)])
@pytest.mark.parametrize("id_too", [False, True])
def test_copies_are_counted_and_do_not_pass_for_chance(share: float, drawn: float, id_too: bool) -> None:
    """`share` of the rows are drawn from the share `drawn` of the distinct rows."""
    for seed in range(10):
        random = np.random.default_rng(seed)
        few = random.integers(0, round(500 * drawn), round(650 * share))
        places = np.r_[few, np.arange(round(500 * drawn), 500)]
        table = {name: values[places] for name, values in of_originals(random, 500, 9).items()}
        wanted = int((np.bincount(places)[places] > 1).sum())
        found = repeats({**table, "id": np.arange(len(places))} if id_too else table, "x status side")
        copies, alike = (0, wanted) if id_too else (wanted, 0)
        assert found == Repeats(len(places), equal=wanted, copies=copies, alike=alike, effective=found.effective)
        assert found.effective > len(places)


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(300, 1_500), st.integers(0, 99), st.booleans())
def test_tables_of_a_few_categories_have_no_copies(sizes: list[int], rows: int, seed: int, dependent: bool) -> None:
    random = np.random.default_rng(seed)
    table = {f"c{number}": random.integers(0, size, rows) for number, size in enumerate(sizes)}
    table |= {"region": table["c0"] // 2} if dependent else {}
    found = repeats({**table, "y": random.integers(0, 2, rows)}, " ".join(table))
    assert (found.equal, found.copies) == (0, 0)
    assert found.expected


@pytest.mark.parametrize(
    ("counts", "effective"), [([1] * 50, 50), ([25, 25], 2), ([50], 1), ([30, 10, 10], 2500 / 1100)]
)
def test_the_effective_rows_are_those_of_groups_of_equal_size(counts: list[int], effective: float) -> None:
    cells = Cells.of(pa.array(np.repeat(np.arange(len(counts)), counts)))
    assert cells is not None
    assert count_repeats({"a": cells}, ["a"]).effective == pytest.approx(effective)


def test_rows_of_train_in_the_files_of_other_splits_are_counted() -> None:
    splits = np.repeat([0, 1, 2], [800, 100, 100])
    found = repeats({"amount": AMOUNT, "y": LABEL}, "amount", splits)
    assert found == Repeats(1_000, scored=200, shared=100)
    assert repeats({"amount": RANDOM.normal(size=1_000), "y": LABEL}, "amount", splits).shared == 0
    one = np.r_[np.arange(999.0), 5.0]
    assert repeats({"amount": one, "y": LABEL}, "amount", splits).shared == 1


def test_missing_values_texts_and_lists_are_compared_too() -> None:
    rows = [[i, i + 1] if i % 3 else None for i in range(900)]
    columns = {
        "list": [rows[i] for i in AGAIN],
        "text": [f"row {i}" if i % 5 else None for i in AGAIN],
        "y": LABEL,
    }
    empty = (
        sum(i >= 100 and i % 15 == 0 for i in range(900)) + 7
    )  # rows without both are equal too, as far as the label
    assert 200 <= repeats(columns, "list text").copies <= 200 + empty
    lists = {"list": [[i, 1] for i in range(500)] + [[1, i] for i in range(500)], "y": [0, 1] * 500}
    assert repeats(lists, "list").equal == 0


def test_nothing_repeats_where_nothing_is_learned_from() -> None:
    assert repeats({"y": LABEL}, "") == Repeats(1_000)
