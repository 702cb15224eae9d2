from __future__ import annotations

from collections.abc import Callable

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import InputProfile
from infeed.components.input_report.verdict import ReportOptions, Verdict, judge

Make = Callable[..., InputProfile]


def verdict_of(profile: InputProfile, limit: float | None = None) -> Verdict:
    return judge(profile, max_wait_fraction=limit)


def test_waiting_is_counted_with_and_without_the_first_epoch(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(2.0, 1.5), (1.0, 0.5), (1.0, 0.3)]))
    assert verdict.wait_fraction == pytest.approx(2.3 / 4)
    assert verdict.wait_fraction_after_first == pytest.approx(0.4)
    assert verdict.judged_wait_fraction == verdict.wait_fraction_after_first


def test_a_single_epoch_is_judged_as_it_is(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(2.0, 0.5)]))
    assert verdict.wait_fraction_after_first is None
    assert verdict.judged_wait_fraction == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("waited", "ceiling", "kind"),
    [
        (0.50, None, "input-bound"),
        (0.20, None, "input-bound"),
        (0.19, None, "balanced"),
        (0.05, None, "balanced"),
        (0.049, None, "compute-bound"),
        (0.0, 1000.0, "compute-bound"),
        (0.01, 1900.0, "compute-bound"),  # half the rate on constant data, and yet no waiting that could be saved
        (0.50, 1000.0, "input-bound"),  # a ceiling that was measured low does not explain the waiting away
    ],
)
def test_kind(waited: float, ceiling: float | None, kind: str, profile: Make) -> None:
    epochs = [(9.0, 9.0), *[(1.0, waited)] * 20]
    assert verdict_of(profile(epochs=epochs, ceiling=ceiling)).kind == kind


@pytest.mark.parametrize(("floor", "kind"), [(0.0, "input-bound"), (0.003, "balanced"), (0.0046, "compute-bound")])
def test_handing_over_a_batch_that_is_there_is_no_waiting(floor: float, kind: str, profile: Make) -> None:
    given = profile(
        epochs=[(1.0, 0.46)] * 20, floor=floor, ceiling=1200.0
    )  # 100 steps of 10 ms: the meter counts 4.6 ms of each
    verdict = verdict_of(given, limit=0.2)
    assert verdict.kind == kind
    assert verdict.judged_wait_fraction == pytest.approx(0.46 - 100 * floor, abs=1e-9)
    assert verdict.blessed is (kind != "input-bound")


def test_milliseconds_of_waiting_in_all_are_nothing_to_judge_by(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(9.0, 1.0), *[(0.006, 0.002)] * 20]))
    assert verdict.kind == "balanced"
    assert "40 ms" in verdict.headline
    assert verdict.gain == 1
    assert verdict.advice == ()


def test_the_gain_is_the_rate_on_constant_data_over_the_rate_reached(profile: Make) -> None:
    assert verdict_of(profile(ceiling=1700.0)).gain == pytest.approx(1.7)


def test_no_more_than_the_waiting_can_be_gained_and_the_rest_is_explained(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(1.0, 0.28)] * 9, ceiling=30_000.0))
    assert verdict.gain == pytest.approx(1 / 0.72)
    assert "up to 1.39 times as fast. On one constant batch" in verdict.headline
    assert not any("30 times" in said for said in (verdict.headline, *verdict.advice))


def test_waiting_without_anything_to_gain_is_said_to_be_odd(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(1.0, 0.5)] * 9, ceiling=1000.0))
    assert (verdict.kind, verdict.gain, verdict.advice) == ("input-bound", 1.0, ())
    assert "no faster on one constant batch" in verdict.headline


def test_without_a_ceiling_the_gain_is_what_the_waiting_alone_costs(profile: Make) -> None:
    assert verdict_of(profile(ceiling=None)).gain == pytest.approx(2)


def test_a_ceiling_below_the_rate_reached_promises_nothing(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(1.0, 0.0), (1.0, 0.0)], ceiling=990.0))
    assert verdict.gain == 1
    assert "gain nothing" in verdict.headline


def test_nothing_but_waiting_is_not_an_infinite_gain(profile: Make) -> None:
    assert verdict_of(profile(epochs=[(1.0, 1.0)], ceiling=None)).gain == pytest.approx(1000)


def test_compute_bound_says_so_and_advises_nothing(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(3.0, 2.0), (1.0, 0.01)], ceiling=1020.0))
    assert verdict.bottleneck == "training step"
    assert "1.0 % of its time" in verdict.headline
    assert "up to 1.01 times as fast" in verdict.headline
    assert verdict.advice == ()


def test_no_waiting_at_all_is_told_without_a_share(profile: Make) -> None:
    verdict = verdict_of(profile(epochs=[(3.0, 2.0), (1.0, 0.004)], ceiling=1000.0))
    assert "does not wait" in verdict.headline


def test_the_bottleneck_is_named_where_only_one_stage_can_be_it(profile: Make) -> None:
    after_cache = ("shards", "read", "parse", "cache", "augment", "prefetch")
    assert verdict_of(profile(steps=after_cache)).bottleneck == "augment"
    assert verdict_of(profile()).bottleneck is None


@pytest.mark.parametrize(
    ("limit", "blessed"), [(None, None), (0.6, True), (0.5, True), (0.49, False), (0.0, False), (1.0, True)]
)
def test_the_blessing_goes_by_the_waiting_after_the_first_epoch(
    limit: float | None, blessed: bool | None, profile: Make
) -> None:
    assert verdict_of(profile(epochs=[(2.0, 2.0), (1.0, 0.5)]), limit).blessed is blessed


@pytest.mark.parametrize("limit", [None, 0.0, 0.1, 1.0])
def test_a_share_or_nothing(limit: float | None) -> None:
    assert ReportOptions(limit).max_wait_fraction == limit


@pytest.mark.parametrize("limit", [-0.1, 10.0, float("nan")])
def test_a_percentage_is_not_a_share(limit: float) -> None:
    with pytest.raises(InfeedError, match=r"max_wait_fraction is (?s:.*)between 0 and 1"):
        ReportOptions(limit)
