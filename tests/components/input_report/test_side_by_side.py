"""Two trainings side by side."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from infeed.components.dataset.input_profile import InputProfile, StageCost
from infeed.components.input_report.report import Report
from infeed.components.input_report.side_by_side import ReportPair
from infeed.components.input_report.verdict import judge
from infeed.pipelines.cli import main

Make = Callable[..., InputProfile]


def pair_of(profile: Make) -> tuple[InputProfile, InputProfile]:
    """A training that waits, and one that does not, whose stages were measured."""
    stages = (StageCost("parse", "", 3.0, 0.5, 0.1, 1000.0, 8.0, hidden=False, once=True),)
    return profile(), replace(profile(epochs=[(1.0, 0.0)] * 3), stages=stages)


def test_each_row_has_both_trainings(profile: Make) -> None:
    reports = [Report(one, judge(one, max_wait_fraction=None)) for one in pair_of(profile)]
    pair = ReportPair(*reports)
    rows = {name: both for name, *both in pair.rows()}
    assert rows["Verdict"][0] == "input-bound"
    assert rows["Waited for input"][0].startswith("50 %")
    assert rows["Waited for input"][1].startswith("0 %")
    assert pair.stages() == [("parse", "", "3.00 ± 0.50, once")]
    page = pair.to_html(["before", "after"])
    assert "<strong>after</strong>" in page
    assert "3.00 ± 0.50" in page
    assert "<script" not in page


def test_the_command_shows_both_and_writes_a_page(profile: Make, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("before", "after")]
    for folder, one in zip(folders, pair_of(profile), strict=True):
        one.write(folder)
    page = tmp_path / "both.html"
    done = CliRunner().invoke(main, ["report", *folders, "--html", str(page)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "input-bound" in done.output
    assert "input-bound" in page.read_text()
    as_json = CliRunner().invoke(main, ["report", *folders, "--json"], catch_exceptions=False)
    assert list(json.loads(as_json.output)) == folders


def test_a_report_shows_itself_in_a_notebook(profile: Make) -> None:
    one = profile()
    report = Report(one, judge(one, max_wait_fraction=None))
    (inside,) = re.findall(r'<iframe srcdoc="([^"]*)"', report._repr_html_())
    assert html.unescape(inside) == report.to_html()
