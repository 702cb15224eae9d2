from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import INPUT_PROFILE, InputProfile, Timeline, read_profile
from infeed.components.input_report.report import Report, step_plot
from infeed.components.input_report.verdict import bands, judge

Make = Callable[..., InputProfile]


def test_the_steps_are_drawn_and_one_that_towers_is_cut_off_and_said(profile: Make) -> None:
    calm = replace(profile(), timeline=Timeline((50,) * 6, (0.5,) * 6, (0.1,) * 6))
    svg = step_plot(calm)
    ElementTree.fromstring(svg)
    assert "var(--waited)" in svg
    assert "took" not in svg
    towers = replace(profile(), timeline=Timeline((50,) * 6, (9.0, *(0.5,) * 5), (0.1,) * 6))
    assert "steps 1 to 50 took 180 ms each" in step_plot(towers)
    assert "Step by step" in Report(calm, judge(calm, max_wait_fraction=None)).to_html()


def test_older_profiles_have_no_timeline(profile: Make) -> None:
    assert step_plot(profile()) == ""
    assert "timeline" not in profile().to_dict()
    assert "Step by step" not in Report(profile(), judge(profile(), max_wait_fraction=None)).to_html()


def test_a_timeline_comes_back_and_one_with_holes_is_refused(profile: Make, tmp_path: Path) -> None:
    given = replace(profile(), timeline=Timeline((3, 4), (0.1, 0.2), (0.0, 0.1)))
    given.write(str(tmp_path))
    assert read_profile(str(tmp_path / INPUT_PROFILE)) == given
    replace(given, timeline=Timeline((3, 4), (0.1,), (0.0, 0.1))).write(str(tmp_path))
    with pytest.raises(InfeedError, match="timeline"):
        read_profile(str(tmp_path / INPUT_PROFILE))


def test_the_diagram_sets_apart_what_runs_once(profile: Make) -> None:
    found = bands(profile(steps=("verify", "read", "columns", "gather", "prefetch")))
    assert [[step.name for step in steps] for _, steps in found] == [
        ["verify", "read", "columns"],
        ["gather", "prefetch"],
    ]
    assert len(bands(profile(steps=("input_fn", "prefetch")))) == 1
