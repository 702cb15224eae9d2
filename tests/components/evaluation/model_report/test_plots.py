"""Plots of extreme findings; `test_page` draws common ones."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np

from infeed.components.evaluation.model_report import plots
from infeed.components.evaluation.model_report.importance import Importance


def test_errors_that_are_all_equal_have_a_histogram() -> None:
    ElementTree.fromstring(plots.residuals(np.zeros(10)))


def test_importances_beyond_twenty_columns_are_left_out_and_long_names_cut() -> None:
    svg = plots.importance([Importance(f"column {number} {'x' * 40}", 1.0 / (number + 1), 0.1) for number in range(30)])
    assert "column 0 " in svg
    assert "column 19 " in svg
    assert "column 20 " not in svg
    assert "x" * 30 not in svg
