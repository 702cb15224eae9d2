"""Planted leaks are found, each with its reason; honest columns of scikit-learn's data sets are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project import leaks as module
from infeed.pipelines.project.leaks import find_leaks
from infeed.pipelines.surveys import Leak, Task

Columns = Mapping[str, Any]


def leaks(columns: Columns, task: Task = "classification", times: tuple[str, ...] = ()) -> dict[str, Leak]:
    cells = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    return find_leaks({name: one for name, one in cells.items() if one}, {"y": task}, times)


def some(values: Any, there: Any) -> list[Any]:
    return [value if one else None for value, one in zip(values, there, strict=True)]


def classes(rows: int, share: float) -> tuple[Any, Any, Any]:
    """Random numbers, whether a row is of the class 'yes', and the label."""
    random = np.random.default_rng(0)
    yes = random.random(rows) < share
    return random, yes, np.where(yes, "yes", "no")


def sorted_by(yes: Any) -> Any:
    numbers = np.empty(len(yes), np.int64)
    numbers[np.argsort(yes, kind="stable")] = np.arange(len(yes))
    return numbers


def planted(rows: int, share: float) -> tuple[Columns, dict[str, str]]:
    """Columns that surely give the label away, and a part of the reason."""
    random, yes, label = classes(rows, share)
    amounts, numbers = random.integers(5, 500, rows), sorted_by(yes)
    days = np.datetime64("2024-01-01") + numbers * 1_000 // rows
    columns = {
        "same": (label, "equals the label"),
        "flag": (yes.astype(int), "0 for 'no', 1 for 'yes'"),
        "renamed": (np.where(yes, "churned", "active"), "'active' for 'no'"),
        "nearly": (np.where(random.random(rows) < 0.002, ~yes, yes).astype(int), "0 for 'no'"),
        "with_gaps": (some(np.where(yes, "c", "a"), random.random(rows) < 0.8), "'a' for 'no'"),
        "filled": (some(amounts, yes), "filled in 100.0% of the rows of 'yes'"),
        "empty": (some(random.normal(size=rows), ~yes), "filled in 100.0% of the rows of 'no'"),
        "blank": (np.where(yes, random.choice(["R1", "R2", "R3"], rows), ""), "filled in 100.0% of the rows of 'yes'"),
        "zero": (np.where(yes, amounts, 0), "it is 0 in 100.0% of the rows of 'no'"),
        "zero_float": (np.where(yes, random.normal(size=rows), 0.0), "it is 0 in 100.0% of the rows of 'no'"),
        "none": (np.where(yes, random.choice(["a", "b"], rows), "none"), "it is 'none' in 100.0%"),
        "reason": (
            np.where(yes, random.choice(["a", "b"], rows), random.choice(["c", "d"], rows)),
            "each of its values belongs to one class",
        ),
        "number_id": (100 + 3 * numbers, "changes only 1 time"),
        "order_id": (random.permutation(10**9 + numbers * 10**6) * 0 + 10**9 + numbers * 10**6, "changes only 1 time"),
        "day": ([str(day) for day in days], "changes only 1 time"),
        "comment": ([f"row {i} says {word} today" for i, word in enumerate(label)], "contains the class name"),
        "tags": ([[f"t{i % 7}", *(["closed"] if one else [])] for i, one in enumerate(yes)], "'closed' is in it"),
        "codes": ([[i % 7, *([99] if one else [])] for i, one in enumerate(yes)], "99 is in it"),
    }
    given = {name: values for name, (values, _) in columns.items()}
    return {**given, "y": label}, {name: why for name, (_, why) in columns.items()}


@pytest.mark.parametrize(("rows", "share"), [(300, 0.4), (4_000, 0.01), (2_000, 0.97)])
def test_columns_that_surely_give_a_class_away_are_found_with_the_reason(rows: int, share: float) -> None:
    columns, reasons = planted(rows, share)
    found = leaks(columns, times=("day",))
    assert {name: why for name, why in reasons.items() if name not in found} == {}
    assert [name for name, why in reasons.items() if why not in found[name].why] == []
    assert all(leak.sure and leak.score >= 0.97 for leak in found.values())


@pytest.mark.parametrize(("rows", "share"), [(300, 0.4), (4_000, 0.01)])
def test_what_may_be_honest_is_asked(rows: int, share: float) -> None:
    random, yes, label = classes(rows, share)
    columns = {
        "measured": np.where(yes, random.uniform(5, 9, rows), random.uniform(1, 5, rows)),
        "review": [f"film {i} was {'bad' if one else 'good'} to see" for i, one in enumerate(yes)],
        "partly": some(random.normal(size=rows), yes & (random.random(rows) < 0.6)),
        "town": [f"{'east' if one else 'west'} {i % 7}" for i, one in enumerate(yes)],
        "y": label,
    }
    found = leaks(columns)
    assert {name: leak.sure for name, leak in found.items()} == dict.fromkeys(columns.keys() - {"y"}, False)
    assert "in 0.0% of the others" in found["partly"].why


@pytest.mark.parametrize(("rows", "share"), [(300, 0.4), (4_000, 0.01), (20, 0.5)])
def test_columns_that_predict_well_and_not_all_are_left_alone(rows: int, share: float) -> None:
    random, yes, label = classes(rows, share)
    numbers = random.permutation(rows)
    columns = {
        "noise": random.normal(size=rows),
        "strong": yes * 3 + random.normal(size=rows),
        "often": np.where(random.random(rows) < 0.05, ~yes, yes).astype(int),
        "id": numbers,
        "name": [f"u{number}" for number in random.integers(0, 10**12, rows)],
        "town": random.choice(["Bern", "Basel", "Chur"], rows),
        "gaps": some(random.normal(size=rows), random.random(rows) < 0.5),
        "user": random.integers(0, rows // 5, rows),
        "list": [[int(number) % 5] * (number % 3) for number in numbers],
        "mostly_zero": np.where(random.random(rows) < 0.9, 0, 1),
        "y": label,
    }
    assert leaks(columns) == {}


def test_of_three_classes_one_may_be_given_away() -> None:
    random = np.random.default_rng(0)
    label = random.integers(0, 3, 900)
    columns = {
        "filled": some(random.normal(size=900), label == 2),
        "zero": np.where(label == 1, 0, random.integers(1, 9, 900)),
        "not_zero": np.where(label == 1, random.integers(1, 9, 900), 0),
        "copy": np.array(["x", "y", "z"])[label],
        "order_id": sorted_by(label) * 7,
        "noise": random.normal(size=900),
        "y": label,
    }
    found = leaks(columns)
    assert found.keys() == columns.keys() - {"noise", "y"}
    assert "of the rows of 1" in found["not_zero"].why
    assert "2 times" in found["order_id"].why


def test_one_small_class_of_many_takes_no_column_away() -> None:
    random = np.random.default_rng(1)
    label = np.repeat(np.arange(300), random.integers(10, 30, 300))
    small, rows = label == 7, len(label)
    words = random.choice(["oil", "ink", "bronze", "paper"], (rows, 3))
    columns = {
        "title": np.where(small, "At dusk", [f"{' '.join(three)} {i % 900}" for i, three in enumerate(words)]),
        "filled": some(random.normal(size=rows), small),
        "tags": [["dusk"] if one else [three[0]] for one, three in zip(small, words, strict=True)],
        "y": label,
    }
    found = leaks(columns)
    assert {name: leak.sure for name, leak in found.items()} == dict.fromkeys(["title", "filled", "tags"], False)
    assert all(f"{small.sum()} rows of 7" in leak.why for leak in found.values())


@pytest.mark.parametrize(("share", "sure"), [(0.01, False), (0.08, True)])
def test_a_column_is_sure_to_leak_if_it_gives_a_material_share_of_the_rows_away(share: float, sure: bool) -> None:
    random = np.random.default_rng(2)
    label = np.where(random.random(4_000) < share, 9, random.integers(0, 9, 4_000))
    assert leaks({"filled": some(label, label == 9), "y": label})["filled"].sure == sure


def test_a_code_of_the_classes_leaks_whichever_class_shows_it() -> None:
    random = np.random.default_rng(5)
    label = random.choice(4, 9_000, p=[0.9, 0.085, 0.01, 0.005])
    breed = np.where(label == 3, 999, 100 * label + random.integers(0, 30, 9_000))
    assert leaks({"breed": [f"breed {one}" for one in breed], "y": label})["breed"].sure


def test_many_small_classes_with_values_of_their_own_are_a_material_share() -> None:
    random = np.random.default_rng(3)
    label = np.repeat(np.arange(100), 20)
    known = np.where(label < 50, label, 1_000 + random.integers(0, 5, 2_000))
    assert leaks({"known": known, "y": label})["known"].sure
    assert not leaks({"known": np.where(label < 1, label, known + 5_000), "y": label}).keys() - {"known"}


def test_a_number_that_a_threshold_divides_is_reported_with_it() -> None:
    """As the cycles of a test: 45 of them mean that nothing was found, and some are not written down."""
    random = np.random.default_rng(4)
    label = np.where(random.random(8_000) < 0.06, "positive", "negative")
    label[:27] = "invalid"
    below = (label == "positive") & (random.random(8_000) < 0.996)
    cycles = some(np.where(below, random.uniform(20, 44.9, 8_000), 45.0), random.random(8_000) < 0.98)
    minutes = np.where(below, random.uniform(20, 45, 8_000), random.uniform(45, 60, 8_000))
    found = leaks({"cycles": cycles, "minutes": minutes, "y": label})
    assert [leak.sure for leak in found.values()] == [False, False]
    assert "below 45 in" in found["cycles"].why
    assert all("rows of 'positive' and in 0.0% of the others" in leak.why for leak in found.values())


def test_a_user_whose_rows_are_all_of_one_class_does_not_sort_the_table() -> None:
    random = np.random.default_rng(0)
    user = random.integers(0, 200, 2_000)
    assert leaks({"user_id": user, "y": (random.random(200) < 0.5)[user].astype(int)}) == {}


def test_a_copy_of_a_quantity_is_found_in_other_units_and_in_words() -> None:
    random = np.random.default_rng(0)
    price = random.lognormal(size=1_000) * 100
    copies = {
        "same": (price, "equals"),
        "euro": (price * 0.93, "label x 0.93"),
        "fahrenheit": (price * 1.8 + 32, "label x 1.8 +32"),
        "minus": (-price, "x -1"),
        "log": (np.log(price), "orders the rows"),
        "text": ([f"{value:.2f} CHF" for value in price], "rounding"),
        "rank": (np.argsort(np.argsort(price)), "orders the rows"),
    }
    honest = {
        "near": price * (1 + random.normal(size=1_000) / 20),
        "noise": random.normal(size=1_000),
        "rooms": (price // 20).clip(0, 9),
        "town": random.choice(["a", "b"], 1_000),
        "list": [[value] * 2 for value in price],
    }
    found = leaks({**{name: values for name, (values, _) in copies.items()}, **honest, "y": price}, "regression")
    assert found.keys() == copies.keys()
    assert [name for name, (_, why) in copies.items() if why not in found[name].why] == []
    assert all(leak.sure for leak in found.values())


def test_neighbours_in_time_are_asked_about() -> None:
    time = np.random.default_rng(0).permutation(2_000)
    found = leaks({"time": time, "y": np.sin(time / 200)}, "regression")
    assert not found["time"].sure


def test_rows_without_a_label_say_nothing() -> None:
    random, yes, label = classes(300, 0.5)
    columns = {"copy": yes.astype(int), "y": some(label, random.random(300) < 0.7)}
    assert leaks(columns)["copy"].sure
    assert leaks({"x": [1, 2] * 5, "y": ["a", "b"] * 5}) == {}  # too few rows to tell


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_real_data_has_no_leaks(name: str) -> None:
    data = getattr(datasets, f"load_{name}")()
    columns = {str(column): data.data[:, place] for place, column in enumerate(data.feature_names)}
    task: Task = "regression" if name == "diabetes" else "classification"
    assert leaks({**columns, "y": data.target}, task) == {}


def test_long_texts_and_lists_are_looked_into_in_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ITEM_BYTES", 2_000)
    _, yes, label = classes(1_000, 0.4)
    columns = {
        "review": [f"film {i} was {'bad' if one else 'good'} to see" for i, one in enumerate(yes)],
        "codes": [[i % 7, *([99] if one else [])] for i, one in enumerate(yes)],
        "y": label,
    }
    assert {name: leak.sure for name, leak in leaks(columns).items()} == {"review": False, "codes": True}


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
VALUES = st.sampled_from([NUMBERS, st.floats(width=32), st.text(max_size=9), st.binary(max_size=4)])


@given(st.data())
def test_whatever_the_columns_hold_something_or_nothing_is_found(data: st.DataObject) -> None:
    rows = data.draw(st.integers(20, 40))
    columns = {"y": data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))}
    for name in "abc":
        values = data.draw(VALUES)
        cells = st.none() | (st.lists(values, max_size=3) if data.draw(st.booleans()) else values)
        columns[name] = data.draw(st.lists(cells, min_size=rows, max_size=rows))
    for task in ("classification", "regression"):
        for leak in leaks(columns, task).values():  # type: ignore[arg-type]
            assert 0 <= leak.score <= 1 + 1e-9
