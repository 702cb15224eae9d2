from __future__ import annotations

import dataclasses
import html
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import INPUT_PROFILE, Ceiling, InputProfile, Timeline, read_profile
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.input_report import report
from infeed.components.input_report.report import Report, step_plot
from infeed.components.input_report.verdict import bands, judge

Make = Callable[..., InputProfile]
TIMES = [(2.0, 1.525), (1.0, 0.525), (1.0, 0.525)]  # 25 ms of each epoch are no waiting
SPLIT = Split.of((Shard("Split-train/a", 1000, 1_000_000, ""),))


def report_on(profile: InputProfile, limit: float | None = None, split: Split | None = None) -> Report:
    verdict = judge(profile, max_wait_fraction=limit, split=split)
    return Report(profile, verdict, limit, split, {"model_run": "gs://bucket/Trainer/model_run/8"})


def words_of(report: Report) -> str:
    """The words that a reader sees."""
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", report.to_html(), flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


def test_the_page_says_it_all(profile: Make) -> None:
    words = words_of(report_on(profile(floor=0.00025, epochs=TIMES), limit=0.1, split=SPLIT))
    for expected in (
        "50 % input-bound Training waits 50 % of its time for input: ",
        "from the second epoch on",
        "Not blessed: the limit is 10 %.",
        "Examples a second 1,000",
        "On constant data 2,000",
        "Handing over a batch 250 µs a step, not counted as waiting",
        "Waited in the first epoch 75 %",
        "Trained 3 epochs of 100 steps",
        "Strategy mirrored, 2 replicas",
        "Training split 1.0 MB in 1 shard",
        "Peak memory 1.4 GB",
        "Keep the decoded records in memory",
        "read does read why read",
        "model_run: gs://bucket/Trainer/model_run/8",
    ):
        assert expected in words


def test_one_epoch_without_a_ceiling_has_one_figure_and_says_what_is_missing(profile: Make) -> None:
    report = report_on(profile(epochs=[(1.0, 0.1)], ceiling=None))
    assert report.to_html().count("<svg") == 1
    words = words_of(report)
    assert "There was only one epoch, so it includes filling caches" in words
    assert "On constant data not measured" in words
    assert "lessed" not in words


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ((0.02, 0.5), "Waited, by worker 2.0 %, 50 %"),
        ((0.02, *[0.25] * 8, 0.5), "Waited, by worker 2.0 % (worker 0) to 50 % (worker 9)"),
    ],
)
def test_the_wait_of_each_worker_is_told(waits: tuple[float, ...], said: str, profile: Make) -> None:
    given = profile()
    epochs = tuple(dataclasses.replace(epoch, workers_wait_seconds=waits) for epoch in given.epochs)
    assert said in words_of(report_on(dataclasses.replace(given, epochs=epochs)))


def test_when_nothing_is_to_be_changed_it_says_so(profile: Make) -> None:
    words = words_of(report_on(profile(epochs=[(1.0, 0.0), (1.0, 0.0)], ceiling=1000.0)))
    assert "What to change Nothing about the input is worth changing." in words


def test_the_page_needs_no_network_and_no_script(profile: Make) -> None:
    page = report_on(profile()).to_html()
    assert re.findall(r"<(?:script|link|img|iframe)\b|@import|url\((?!#)|(?:src|href)=\"(?!#)", page) == []


def test_words_from_the_profile_are_escaped(profile: Make) -> None:
    assert "<script>" not in report_on(profile(strategy="<script>alert(1)</script>")).to_html()


def test_json_says_the_same_to_programs(profile: Make) -> None:
    said = json.loads(report_on(profile(), limit=0.1, split=SPLIT).to_json())
    assert said["format"] == 1
    assert said["verdict"]["kind"] == "input-bound"
    assert said["verdict"]["wait_fraction_after_first"] == pytest.approx(0.5)
    assert said["verdict"]["gain"] == pytest.approx(2)
    assert (said["verdict"]["max_wait_fraction"], said["verdict"]["blessed"]) == (0.1, False)
    assert [epoch["wait_fraction"] for epoch in said["epochs"]] == pytest.approx([0.75, 0.5, 0.5])
    assert said["plan"]["steps"][1] == {"name": "read", "does": "does read", "reason": "why read"}
    assert said["shards"] == 1
    assert said["inputs"] == {"model_run": "gs://bucket/Trainer/model_run/8"}


def test_what_the_pipeline_records_is_what_the_page_shows_large(profile: Make) -> None:
    properties = report_on(profile(), limit=0.6).custom_properties()
    share, range_ = pytest.approx(0.5), pytest.approx(0.03)
    told = {"verdict": "input-bound", "bottleneck": "", "blessed": 1}
    assert properties == {**told, "wait_fraction": share, "wait_uncertainty": range_}
    assert "blessed" not in report_on(profile()).custom_properties()


def test_both_files_are_written_and_nothing_else_is_left(profile: Make, tmp_path: Path) -> None:
    report_on(profile()).write(str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json"]


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
