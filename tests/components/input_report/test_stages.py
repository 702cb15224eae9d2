"""The measured stages of a training: the sentence, the plot, and their place in the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infeed.components.dataset.input_profile import (
    INPUT_PROFILE,
    Ceiling,
    InputProfile,
    StageCost,
    Trial,
    pace_setter,
    pipeline_rate,
    read_profile,
)
from infeed.components.input_report.report import Report
from infeed.components.input_report.stages import of_training, pace, stage_plot
from infeed.components.input_report.verdict import judge

Make = Callable[..., InputProfile]


def cost(
    name: str, microseconds: float, rate: float = 1000.0, *, hidden: bool = False, once: bool = False
) -> StageCost:
    return StageCost(name, "", microseconds, 0.1, 0.002, rate, 8.0, hidden, once)


STAGES = (
    cost("read", 90.0, once=True),
    cost("parse", 3.0, 2000.0),
    cost("hand-over", 1.0),
    cost("cut", 9.0, hidden=True),
)


def test_the_stage_that_takes_most_time_in_an_epoch_sets_the_pace() -> None:
    assert pace_setter(STAGES) == "parse"
    said = pace(STAGES[1:3], "parse")
    assert "parse" in said
    assert "75 %" in said
    assert "noise" in pace([cost("parse", 3.0, hidden=True)], pace_setter([cost("parse", 3.0, hidden=True)]))


@pytest.mark.parametrize(("ceiling", "word"), [(100.0, "10 times"), (1_000.0, "parse"), (50_000.0, "50,000")])
def test_a_training_learns_whether_its_pipeline_keeps_up(profile: Make, ceiling: float, word: str) -> None:
    given = replace(profile(), stages=STAGES, ceiling=Ceiling(50, 0.5, ceiling))
    assert word in of_training(given)
    assert "dashed" in stage_plot(given)
    assert of_training(profile()) == ""


def test_the_gain_told_is_the_measured_one_and_what_did_not_help_is_no_advice(profile: Make) -> None:
    trials = Trial("readers=2", 900.0, 0.9, helps=False), Trial("tier=columns", 1800.0, 1.8, helps=True)
    said = pace(STAGES, "parse", trials)
    assert "tier=columns: 1.80 times the examples a second (measured)" in said
    assert "did not help: readers=2." in said
    assert "Not tried" not in said
    assert "Not tried: keep the decoded columns" in pace(STAGES, "parse")
    assert "Not tried: write" in pace([cost("decompress", 3.0)], "decompress", trials)
    given = replace(profile(), stages=STAGES, trials=trials)
    advice = judge(given, max_wait_fraction=None).advice
    assert "1.80 times the examples a second (measured)" in advice[0]
    assert not any("readers" in one or "FeedOptions(tier='columns')" in one for one in advice)
    assert "This was not tried" in judge(profile(), max_wait_fraction=None).advice[0]
    assert "readers=2" in of_training(given)


def test_advice_of_the_plan_about_the_files_goes_before_that_about_reading(profile: Make) -> None:
    said = pace([cost("decompress", 3.0)], "decompress", of_plan="write the shards again")
    assert "Not tried: write the shards again." in said
    assert "write the shards again" not in pace(STAGES, "parse", of_plan="write the shards again")
    reading = replace(profile(), stages=(cost("records", 9.0), cost("parse", 1.0)), ceiling=Ceiling(50, 0.5, 50_000.0))
    advised = replace(reading, plan=replace(reading.plan, advice="write the shards again"))
    assert "write the shards again" in of_training(advised)


def test_a_copy_that_training_does_without_neither_sets_the_pace_nor_counts(profile: Make) -> None:
    stages = (*STAGES, replace(cost("copy to CPU:0", 99.0, 10.0), beside=True))
    assert pace_setter(stages) == "parse"
    assert pipeline_rate(stages) == 1000.0
    html = Report(given := replace(profile(), stages=stages), judge(given, max_wait_fraction=None)).to_html()
    assert "(copy to CPU:0)" in html


def test_the_report_has_a_row_for_each_stage_and_the_profile_comes_back(profile: Make, tmp_path: Path) -> None:
    given = replace(profile(), stages=STAGES)
    given.write(str(tmp_path))
    assert read_profile(str(tmp_path / INPUT_PROFILE)) == given
    html = Report(given, judge(given, max_wait_fraction=None)).to_html()
    assert html.count('<th class="name" scope="row">') == len(STAGES)
    assert "read, once" in html
    assert "within noise" in html
    assert "stages" not in json.loads(json.dumps(profile().to_dict()))
    assert "stage_seconds" in Report(profile(), judge(profile(), max_wait_fraction=None)).to_html()
