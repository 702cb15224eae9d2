from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from infeed.components.dataset.input_profile import InputProfile
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import judge

Make = Callable[..., InputProfile]
TIMES = [(2.0, 1.525), (1.0, 0.525), (1.0, 0.525)]  # 25 ms of each epoch are no waiting
SPLIT = Split.of((Shard("Split-train/a", 1000, 1_000_000, ""),))


def report_on(profile: InputProfile, limit: float | None = None, split: Split | None = None) -> Report:
    verdict = judge(profile, max_wait_fraction=limit, split=split)
    return Report(profile, verdict, limit, split, {"model_run": "gs://bucket/Trainer/model_run/8"})


class Words(HTMLParser):
    """The words a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self._skipping = False
        self._seen: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._skipping = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._skipping = False

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._seen.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self._seen).split())


def words_of(report: Report) -> str:
    return str(Words(report.to_html()))


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
    html = report_on(profile()).to_html()
    assert re.findall(r"<(?:script|link|img|iframe)\b|@import|url\((?!#)|(?:src|href)=\"(?!#)", html) == []


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
