from __future__ import annotations

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.submit.cron import check_cron, sundays_as_0


@pytest.mark.parametrize("expression", ["0 6 * * 1-5", "*/15 0-6 1,15 * MON", "  0 6  * * *"])
def test_five_fields_are_a_cron_expression(expression: str) -> None:
    assert check_cron(expression).split() == expression.split()


@pytest.mark.parametrize(
    "expression", ["", "0 6 * *", "0 0 6 * * *", "0 6 * * ;", "@daily", "0 25 * * *", "0 6 0 * 1-9"]
)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(InfeedError) as error:
        check_cron(expression)
    assert error.value.where == "--cron"


@pytest.mark.parametrize(
    ("days", "without_7"),
    [
        ("7", "0"), ("1-7", "1,2,3,4,5,6,0"), ("5-7,2", "5,6,0,2"), ("1-7/3", "1,4,0"), ("0-7", "0,1,2,3,4,5,6"),
        ("2,7", "2,0"), ("*", "*"), ("*/7", "*/7"), ("1-5", "1-5"), ("MON-FRI", "MON-FRI"),
    ],
)  # fmt: skip
def test_sunday_is_day_0_for_kubeflow_and_other_fields_stay(days: str, without_7: str) -> None:
    assert sundays_as_0(f"7 7 7 7 {days}") == f"7 7 7 7 {without_7}"
