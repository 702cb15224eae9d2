"""Plots and templates of HTML pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from infeed.components.drawing import COMPUTED, new_axes, to_svg


def draw(name: str) -> str:
    figure, axes = new_axes(2.0)
    axes.plot([1, 2], [3, 5], "o", color=COMPUTED)
    return to_svg(figure, name)


def test_a_plot_has_the_colors_of_the_page_and_is_the_same_each_time() -> None:
    svg = draw("one")
    ElementTree.fromstring(svg)
    assert "var(--computed)" in svg
    assert not re.findall(r"(?:fill|stroke): #", svg)
    assert svg == draw("one")


def test_two_plots_share_no_ids() -> None:
    ids = re.findall(r'\bid="([^"]+)"', draw("one") + draw("two"))
    assert len(ids) == len(set(ids)) > 0
