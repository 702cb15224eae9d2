from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project.coded_columns import CodedColumn
from infeed.pipelines.project.nearness import near_rows

RANDOM = np.random.default_rng(0)
GROUP = np.repeat(np.arange(100), 10)
LEVEL = RANDOM.normal(size=100)[GROUP]


def column(name: str, values: object) -> CodedColumn:
    cells = Cells.of(pa.array(values))
    assert cells
    return CodedColumn(name, cells)


def test_a_column_by_which_rows_of_a_group_are_near_shows_the_level_of_the_group() -> None:
    near = column("near", np.arange(100)[GROUP] + RANDOM.random(1_000) / 2)
    found = near_rows(GROUP, LEVEL, False, [near, column("noise", RANDOM.random(1_000))])
    assert found.any < 0.1
    assert found.other == pytest.approx(1, abs=0.3)
    assert found.gain > 4 * found.error


def test_a_code_of_the_group_does_not_count() -> None:
    code = column("code", [f"c{one}" for one in GROUP])
    assert near_rows(GROUP, LEVEL, False, [code]).gain == 0
    assert near_rows(GROUP, LEVEL, False, []) == (0, 0, 0)


def test_classes_are_wrong_or_right_and_rows_without_a_group_are_ignored() -> None:
    label = (LEVEL > 0).astype(np.float64)
    near = column("near", np.arange(100)[GROUP] + RANDOM.random(1_000) / 2)
    some = np.where(np.arange(1_000) % 3, GROUP, -1)
    found = near_rows(some, label, True, [near])
    assert found.any < 0.15
    assert found.other == pytest.approx(0.5, abs=0.15)


def test_one_group_or_none_has_no_others() -> None:
    noise = column("noise", RANDOM.random(1_000))
    assert near_rows(np.zeros(1_000, np.int64), LEVEL, False, [noise]) == (0, 0, 0)
    assert near_rows(np.full(1_000, -1), LEVEL, False, [noise]) == (0, 0, 0)
