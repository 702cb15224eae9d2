from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.pipelines.project.groups import find_groups
from infeed.pipelines.surveys import Group, Task

RANDOM = np.random.default_rng(0)
ROWS = 2_000
WHO = RANDOM.integers(0, 200, ROWS)
THEIR_CLASS = (RANDOM.random(200) < 0.5)[WHO]
MOSTLY = np.where(RANDOM.random(ROWS) < 0.2, ~THEIR_CLASS, THEIR_CLASS)
CHANCE = RANDOM.random(ROWS) < 0.5


def groups(columns: Mapping[str, Any], task: Task = "classification", splits: Any = None) -> dict[str, Group]:
    cells = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    known = {name: one for name, one in cells.items() if one}
    statistics = {name: ColumnStatistics.of_cells(name, one) for name, one in known.items() if name != "y"}
    return {group.column: group for group in find_groups(known, "y", task, statistics, splits)}


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
