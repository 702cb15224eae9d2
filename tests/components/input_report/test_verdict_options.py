from __future__ import annotations

import pytest

from infeed.components.errors import InfeedError
from infeed.components.input_report.verdict import ReportOptions


@pytest.mark.parametrize("limit", [None, 0.0, 0.1, 1.0])
def test_a_share_or_nothing(limit: float | None) -> None:
    assert ReportOptions(limit).max_wait_fraction == limit


@pytest.mark.parametrize("limit", [-0.1, 10.0, float("nan")])
def test_a_percentage_is_not_a_share(limit: float) -> None:
    with pytest.raises(InfeedError, match=r"max_wait_fraction is (?s:.*)between 0 and 1"):
        ReportOptions(limit)
