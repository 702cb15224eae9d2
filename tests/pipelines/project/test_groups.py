from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.project.coded_columns import CodedColumn
from infeed.pipelines.project.groups import find_groups, near_rows
from infeed.pipelines.surveys import Group, Task

RANDOM = np.random.default_rng(0)
ROWS = 2_000
WHO = RANDOM.integers(0, 200, ROWS)
THEIR_CLASS = (RANDOM.random(200) < 0.5)[WHO]
MOSTLY = np.where(RANDOM.random(ROWS) < 0.2, ~THEIR_CLASS, THEIR_CLASS)
CHANCE = RANDOM.random(ROWS) < 0.5


def groups(columns: Mapping[str, Any], task: Task = "classification", splits: Any = None) -> dict[str, Group]:
    """Find groups, with all columns but the label learned from."""
    cells = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    known = {name: one for name, one in cells.items() if one}
    statistics = {name: ColumnStatistics.of_cells(name, one) for name, one in known.items() if name != "y"}
    return {group.column: group for group in find_groups(known, {"y": task}, statistics, list(statistics), splits)}


@pytest.mark.parametrize("name", ["user_id", "customer", "PatientID", "member-no", "session.key", "user_hash"])
def test_the_name_of_somebody_who_may_come_back_makes_a_group(name: str) -> None:
    assert groups({name: WHO, "y": CHANCE})[name].agreement < 0.05


@pytest.mark.parametrize(("name", "label"), [("thing_id", MOSTLY), ("place", THEIR_CLASS)])
def test_rows_that_agree_in_the_label_make_a_group_the_sooner_for_the_name_of_an_identifier(
    name: str, label: Any
) -> None:
    texts = [f"t{who}" for who in WHO]
    assert groups({name: texts, "y": label})[name].agreement > 0.3
    assert groups({name: texts, "y": CHANCE}) == {}


def test_a_group_of_a_quantity_shares_its_level() -> None:
    level = RANDOM.normal(size=200)[WHO] * 3
    found = groups({"shop_id": [f"s{who}" for who in WHO], "y": level + RANDOM.normal(size=ROWS)}, "regression")
    assert found["shop_id"].agreement == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_measurement_is_no_group_however_well_it_predicts(task: Task) -> None:
    age = RANDOM.integers(18, 80, ROWS)
    label = age > 50 if task == "classification" else age * 3.0 + RANDOM.normal(size=ROWS)
    assert groups({"age": age, "size_id": age, "weight": age / 2, "y": label}, task) == {}
    assert groups({"count": WHO, "y": THEIR_CLASS}) == {}


def test_values_that_are_few_or_occur_once_make_no_groups() -> None:
    assert groups({"user": WHO % 9, "user_id": np.arange(ROWS), "y": THEIR_CLASS}) == {}


def test_groups_in_files_are_shared_as_far_as_train_has_them() -> None:
    splits = (WHO >= 100).astype(int)
    assert groups({"user": WHO, "y": CHANCE}, splits=splits)["user"].shared == 0
    splits = (np.arange(ROWS) >= 1_500).astype(int)
    assert groups({"user": WHO, "y": CHANCE}, splits=splits)["user"].shared == pytest.approx(1, abs=0.01)


def panel(random: np.random.Generator) -> tuple[dict[str, Any], Any]:
    """142 countries x 12 years: each has its level and its own growth."""
    country, year = np.repeat(np.arange(142), 12), np.tile(np.arange(1952, 2012, 5), 142)
    people = np.exp(random.normal(16, 1.5, 142)[country] + 0.01 * random.normal(1.5, 0.8, 142)[country] * (year - 1952))
    wealth = random.normal(8, 1.2, 142)[country] + 0.02 * random.normal(1, 0.7, 142)[country] * (year - 1952)
    life = 55 + 5 * (wealth - 8) + random.normal(0, 5, 142)[country] + 0.2 * (year - 1952)
    columns = {"country": [f"land {one}" for one in country], "year": year, "people": people, "wealth": np.exp(wealth)}
    return columns, life


def tracks(random: np.random.Generator) -> tuple[dict[str, Any], Any]:
    """200 storms of 60 hours: they move slowly, and their stage changes along the way."""
    place = random.normal(0, 20, (200, 1, 2)) + np.cumsum(random.normal(0, 0.3, (200, 60, 2)), axis=1)
    strength = random.normal(0, 1, (200, 1)) + np.cumsum(random.normal(0, 0.1, (200, 60)), axis=1)
    stage = np.digitize(strength.ravel(), [-1, 0, 1])
    columns = {"lat": place[..., 0].ravel(), "long": place[..., 1].ravel(), "hour": np.tile(np.arange(60) % 24, 200)}
    return {"name": [f"storm {one}" for one in np.repeat(np.arange(200), 60)], **columns}, stage


@pytest.mark.parametrize("seed", range(3))
def test_panels_and_tracks_are_found_by_what_near_rows_do_to_the_label(seed: int) -> None:
    columns, life = panel(np.random.default_rng(seed))
    assert "country" in groups({**columns, "y": life}, "regression")
    columns, stage = tracks(np.random.default_rng(seed))
    assert groups({**columns, "y": stage})["name"].near


def test_some_twenty_kinds_that_decide_much_of_the_label_are_a_category() -> None:
    """Cars of 25 transmissions: cars of one are alike, and a new car has a known one."""

    def cars(kinds: int) -> dict[str, Any]:
        draw = np.random.default_rng(1)
        kind = np.repeat(np.arange(kinds), 44)
        size, weight = (draw.normal(0, 2, kinds)[kind] + draw.normal(size=44 * kinds) for _ in range(2))
        thrift = draw.normal(0, 4, kinds)[kind] + draw.normal(0, 2, 44 * kinds)
        return {"gearbox": [f"gear {one}" for one in kind], "size": size, "weight": weight, "y": thrift}

    assert "gearbox" not in groups(cars(25), "regression")
    assert "gearbox" in groups(cars(60), "regression")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_texts_of_independent_tables_are_no_groups(task: Task) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        town = random.integers(0, random.integers(20, 400), ROWS)
        x, z = random.normal(size=ROWS), random.normal(size=ROWS)
        label = x + z > 0 if task == "classification" else x + z + 0.3 * random.normal(size=ROWS)
        assert groups({"town": [f"t{one}" for one in town], "x": x, "z": z, "y": label}, task) == {}


def test_a_category_with_an_effect_is_no_group() -> None:
    random = np.random.default_rng(0)
    brand = random.integers(0, 60, ROWS)
    x = random.normal(size=ROWS)
    label = x + 0.5 * random.normal(size=60)[brand] + 0.3 * random.normal(size=ROWS)
    assert groups({"brand": [f"b{one}" for one in brand], "x": x, "y": label}, "regression") == {}


DRAW = np.random.default_rng(0)
GROUP = np.repeat(np.arange(100), 10)
LEVEL = DRAW.normal(size=100)[GROUP]


def column(name: str, values: object) -> CodedColumn:
    cells = Cells.of(pa.array(values))
    assert cells
    return CodedColumn(name, cells)


def test_a_column_by_which_rows_of_a_group_are_near_shows_the_level_of_the_group() -> None:
    near = column("near", np.arange(100)[GROUP] + DRAW.random(1_000) / 2)
    found = near_rows(GROUP, LEVEL, False, [near, column("noise", DRAW.random(1_000))])
    assert found.any < 0.1
    assert found.other == pytest.approx(1, abs=0.3)
    assert found.gain > 4 * found.error


def test_a_code_of_the_group_does_not_count() -> None:
    code = column("code", [f"c{one}" for one in GROUP])
    assert near_rows(GROUP, LEVEL, False, [code]).gain == 0
    assert near_rows(GROUP, LEVEL, False, []) == (0, 0, 0)


def test_classes_are_wrong_or_right_and_rows_without_a_group_are_ignored() -> None:
    label = (LEVEL > 0).astype(np.float64)
    near = column("near", np.arange(100)[GROUP] + DRAW.random(1_000) / 2)
    some = np.where(np.arange(1_000) % 3, GROUP, -1)
    found = near_rows(some, label, True, [near])
    assert found.any < 0.15
    assert found.other == pytest.approx(0.5, abs=0.15)


def test_one_group_or_none_has_no_others() -> None:
    noise = column("noise", DRAW.random(1_000))
    assert near_rows(np.zeros(1_000, np.int64), LEVEL, False, [noise]) == (0, 0, 0)
    assert near_rows(np.full(1_000, -1), LEVEL, False, [noise]) == (0, 0, 0)
