"""Plots and templates of HTML pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from infeed.components.base.drawing import COMPUTED, new_axes, render, to_svg


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


def test_values_of_a_template_hold_no_control_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_package_of_pages"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.html.j2").write_text("<p>{{ text }}{{ svg | safe }}{{ number }}</p>")
    monkeypatch.syspath_prepend(str(tmp_path))
    values = {"text": "\x1b<", "svg": "<svg>\x07</svg>", "number": 5}
    assert render("a_package_of_pages", "a.html.j2", **values) == r"<p>\x1b&lt;<svg>\x07</svg>5</p>"
