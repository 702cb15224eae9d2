from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import EpochProfile, InputProfile, StageCost, Trial, read_profile

Make = Callable[..., InputProfile]


def read_json(folder: Path, written: dict[str, Any]) -> InputProfile:
    (folder / "input_profile.json").write_text(json.dumps(written))
    return read_profile(str(folder / "input_profile.json"))


def test_reads_what_the_trainer_wrote(profile: Make) -> None:
    read = profile()
    assert (read.strategy, read.replicas, read.hosts, read.batch_size) == ("mirrored", 2, 1, 10)
    assert [epoch.wait_seconds for epoch in read.epochs] == [1.5, 0.5, 0.5]
    assert read.ceiling is not None
    assert read.ceiling.examples_per_second == 2000
    assert read.plan.steps[1].reason == "why read"


def test_the_first_epoch_is_set_apart_where_there_are_more(profile: Make) -> None:
    assert [epoch.epoch for epoch in profile().steady_epochs] == [1, 2]
    assert [epoch.epoch for epoch in profile(epochs=[(2.0, 1.0)]).steady_epochs] == [0]


def test_peak_memory_is_the_largest_of_all_epochs(profile: Make) -> None:
    assert profile().peak_memory_bytes == 1_400_000_002


def test_a_platform_that_cannot_tell_memory_and_a_run_without_ceiling_are_read_too(
    as_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    given = as_json(ceiling=None)
    for epoch in given["epochs"]:
        epoch["peak_memory_bytes"] = None
    read = read_json(tmp_path, given)
    assert read.ceiling is None
    assert read.peak_memory_bytes is None


def test_a_missing_file_says_who_should_have_written_it(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"has no input_profile\.json\n.*where: .*\n.*do: .*infeed's Trainer"):
        read_profile(str(tmp_path / "input_profile.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[1, 2]", "a list, not an object"),
        ("\ufffd", "cannot read the input profile"),
        ('{"format": 2}', "has format 2"),
        ("{}", "has format None"),
        ('{"format": 1}', "strategy is missing"),
    ],
)
def test_a_file_that_is_no_profile(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "input_profile.json").write_text(text)
    with pytest.raises(InfeedError, match=message):
        read_profile(str(tmp_path / "input_profile.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": []}, "there are no epochs"),
        ({"epochs": [(0.0, 0.0)]}, "epoch 0: seconds is 0.0"),
        ({"epochs": [(1.0, 0.1), (float("nan"), 0.1)]}, "NaN is not JSON"),
        ({"epochs": [(1.0, 1.2)]}, "epoch 0: wait_seconds is 1.2 of 1.0 seconds"),
        ({"epochs": [(1.0, -0.1)]}, "wait_seconds is -0.1"),
        ({"ceiling": -1.0}, "ceiling: examples_per_second is -1.0"),
        ({"floor": -1.0}, "ceiling: floor_seconds is -1.0"),
        ({"replicas": None}, "input profile: replicas"),
        ({"plan": {"tier": "stream", "reason": "", "steps": [{"name": "read"}]}}, r"plan\.steps\[0\]\.does is missing"),
    ],
)
def test_impossible_values(change: dict[str, Any], message: str, profile: Make) -> None:
    with pytest.raises(InfeedError, match=message):
        profile(**change)


def test_two_clocks_may_disagree_by_a_little(profile: Make) -> None:
    given = profile(epochs=[(1.0, 1.01)])
    assert given.waited(given.epochs[0]) == 1.0


def test_waiting_is_what_lies_above_the_floor(profile: Make) -> None:
    given = profile(epochs=[(1.0, 0.5), (1.0, 0.25)], floor=0.003)  # 100 steps
    assert [given.waited(epoch) for epoch in given.epochs] == pytest.approx([0.2, 0.0])
    assert profile(ceiling=None).floor_seconds == 0


def test_a_run_without_ceiling_may_have_a_floor_of_its_own(
    profile: Make, as_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    given = dataclasses.replace(profile(epochs=[(1.0, 0.5)], ceiling=None), handover_seconds=0.003)  # 100 steps
    given.write(str(tmp_path))
    read = read_profile(str(tmp_path / "input_profile.json"))
    assert read.floor_seconds == 0.003
    assert read.waited(read.epochs[0]) == pytest.approx(0.2)
    assert "handover_seconds" not in as_json()
    with pytest.raises(InfeedError, match=r"handover_seconds: it is -1\.0"):
        read_json(tmp_path, {**as_json(), "handover_seconds": -1.0})


def with_workers(written: dict[str, Any], *waits: list[float]) -> dict[str, Any]:
    for epoch, seconds in zip(written["epochs"], waits, strict=True):
        epoch["workers_wait_seconds"] = seconds
    return written


def test_each_worker_waits_for_itself(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    given = with_workers(as_json(floor=0.001), [1.5, 1.4], [0.05, 0.5], [0.3, 0.5])
    assert read_json(tmp_path, given).workers_waited == pytest.approx((0.15, 0.8))


def test_the_workers_of_all_epochs_are_the_same(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    given = with_workers(as_json(), [1.5, 1.4], [0.5], [0.3, 0.5])
    with pytest.raises(InfeedError, match="epoch 1: workers_wait_seconds is not of 2 workers"):
        read_json(tmp_path, given)


def test_an_epoch_is_as_long_as_its_slowest_worker_waits() -> None:
    epoch = EpochProfile.measured(0, 4, 2.0, [0.5, 2.01, 1.0], 8)
    assert (epoch.wait_seconds, epoch.workers_wait_seconds) == (2.0, (0.5, 2.0, 1.0))
    assert EpochProfile.measured(0, 4, 2.0, [0.5], 8).workers_wait_seconds == ()


def test_a_ceiling_without_a_floor_has_one_of_nothing(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    written = as_json()
    del written["ceiling"]["floor_seconds"]
    assert read_json(tmp_path, written).floor_seconds == 0


def test_what_is_written_is_read_back_and_left_out_records_are_told_only_where_there_are_any(
    profile: Make, tmp_path: Path
) -> None:
    for left_out in ((), ("part-0, record 3: wrong checksum",)):
        written = dataclasses.replace(profile(), plan=dataclasses.replace(profile().plan, left_out=left_out))
        written.write(str(tmp_path))
        assert read_profile(str(tmp_path / "input_profile.json")) == written
        plan = json.loads((tmp_path / "input_profile.json").read_text())["plan"]
        assert ("left_out" in plan) == bool(left_out)


def cost(microseconds: float, spread: float = 0.0) -> StageCost:
    """Return the cost of a pipeline."""
    return StageCost("whole", "", microseconds, spread, 0.0, 1e6 / microseconds, 8.0, hidden=False, once=False)


@pytest.mark.parametrize(
    ("before", "after", "helps"),
    [
        (cost(800), cost(400), True),
        (cost(800), cost(800), False),
        (cost(800), cost(1600), False),
        (cost(800), cost(790), False),  # not worth acting
        (cost(800, spread=250), cost(400, spread=200), False),  # hidden by the noise of the machine
    ],
)
def test_a_change_helps_if_it_is_worth_acting_and_clear_of_the_noise(
    before: StageCost, after: StageCost, helps: bool
) -> None:
    found = Trial.of("readers=2", before, after)
    assert found.helps == helps
    assert found.gain == pytest.approx(before.microseconds / after.microseconds)
