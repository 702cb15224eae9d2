"""Contenders in processes of their own: their turns, and which of their figures are believed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the scripts import one another by name

import contenders
import turns
from clock import Cost


@dataclass
class Loader:
    """Makes 50 batches in advance, each of which takes 0.01 s of CPU; one that is there is taken in 0.001 s."""

    there: int = 50
    made: int = 0
    now: float = 0.0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.now += 0.001
            if self.there:
                self.there -= 1
            else:
                self.made += 1
                self.now += 0.01
            yield 0

    @property
    def cpu(self) -> float:
        return 0.01 * self.made

    @property
    def wall(self) -> float:
        return self.now

    def rest(self) -> None:
        self.made += 50 - self.there
        self.there = 50


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    made = Loader()
    monkeypatch.setattr(turns.time, "perf_counter", lambda: made.now)
    return made


@dataclass
class Watch:
    """A stopwatch of the loader's time."""

    loader: Loader
    cpu_then: float
    wall_then: float

    @property
    def cpu(self) -> float:
        return self.loader.cpu - self.cpu_then

    @property
    def wall(self) -> float:
        return self.loader.wall - self.wall_then


def test_what_was_made_in_advance_is_used_up_before_a_turn(loader: Loader) -> None:
    contender = turns.Turns(iter(loader), 4, lambda: Watch(loader, loader.cpu, loader.wall), loader.rest)
    for _ in range(3):
        figures = contender.turn(0.05)  # in half of that it would take 25 batches of the 50 that are there
        assert figures["wall"] / figures["rows"] == pytest.approx(0.011 / 4, rel=0.01)
        assert figures["cpu"] / figures["rows"] == pytest.approx(0.01 / 4, rel=0.01)


def test_a_figure_that_does_not_fit_the_cores_is_refused() -> None:
    side = contenders.judged("theirs", [Cost(wall=1, cpu=4.7)], "images", {"versions": "9"}, cores=2)
    assert side.absent == "refused: 4.7 cores of 2 would have been busy"
    assert (side.cpu, side.wall, side.also) == (None, None, {"versions": "9"})
    fits = contenders.judged("theirs", [Cost(wall=1, cpu=2.1)], "images", {}, cores=2)
    assert (fits.cpu, fits.wall, fits.absent) == (2.1, 1, "")
    assert fits.also == {"images a second": 1, "images a CPU second": 1 / 2.1}


def test_ours_stand_beside_each_of_the_others_and_those_that_are_absent_together() -> None:
    sides = [contenders.judged(name, [Cost(1, 1)], "rows", {}, 2) for name in ("ours, a", "theirs")]
    absent = [contenders.Side(name, absent="not installed") for name in "xy"]
    results = list(contenders.compared("load", "a case", [*sides, *absent], 3))
    assert [(one.ours.name, one.other and one.other.name) for one in results] == [
        ("ours, a", "theirs"),
        ("ours, a", "x, y"),
    ]


def test_a_contender_that_is_not_installed_and_must_not_be() -> None:
    asked = contenders.Contender("theirs", "nobody.py", ("nothing",))
    assert contenders.prepared(asked, Path("/nonexistent"), install=False).side.absent == "not installed"
