"""Cron expressions of schedules."""

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.submit.schedules import check_cron


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
