from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from infeed.components.dataset.input_profile import Ceiling, InputProfile
from infeed.components.input_report import report

Make = Callable[..., InputProfile]


def drawn(svg: str, variable: str) -> int:
    return svg.count(f"fill: var({variable})")


@pytest.mark.parametrize("epochs", [1, 2, 40, 41, 200])
def test_any_number_of_epochs_is_well_formed_and_in_the_pages_colours(epochs: int, profile: Make) -> None:
    svg = report.waiting(profile(epochs=[(1.0, 0.4)] * epochs))
    ElementTree.fromstring(svg)
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", svg)) == set()
    assert drawn(svg, "--waited") > 0
    assert drawn(svg, "--computed") > 0


def test_few_epochs_are_bars_and_many_are_one_area(profile: Make) -> None:
    assert drawn(report.waiting(profile(epochs=[(1.0, 0.4)] * 40)), "--waited") == 40
    assert drawn(report.waiting(profile(epochs=[(1.0, 0.4)] * 200)), "--waited") == 1


def test_a_first_epoch_that_towers_over_the_rest_is_cut_off_and_said(profile: Make) -> None:
    assert "epoch 1 took 30.0 s, 10 % of it waiting" in report.waiting(profile(epochs=[(30.0, 3.0), (1.0, 0.1)]))
    assert "took" not in report.waiting(profile(epochs=[(2.0, 0.3), (1.0, 0.1)]))


def test_the_first_epoch_of_a_resumed_training_has_its_own_number(profile: Make) -> None:
    whole = profile(epochs=[(1.0, 0.1)] * 4 + [(30.0, 3.0), (1.0, 0.1)])
    assert "epoch 5 took 30.0 s" in report.waiting(dataclasses.replace(whole, epochs=whole.epochs[4:]))


def test_throughput_stands_under_the_line_of_constant_data(profile: Make) -> None:
    epochs = profile().epochs
    assert "on constant data: 2,300" in report.throughput_plot(epochs, Ceiling(50, 0.5, 2300.0))
    assert "constant" not in report.throughput_plot(epochs, None)


def test_two_figures_share_a_page_without_sharing_ids(profile: Make) -> None:
    given = profile()
    page = report.waiting(given) + report.throughput_plot(given.epochs, given.ceiling)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_same_numbers_give_the_same_drawing(profile: Make) -> None:
    assert report.waiting(profile()) == report.waiting(profile())
