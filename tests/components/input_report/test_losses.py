"""Where the time went, and how far it can be told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from infeed.components.dataset.input_profile import InputProfile
from infeed.components.input_report.losses import TimeShares
from infeed.components.input_report.verdict import Verdict, judge

Make = Callable[..., InputProfile]


def trained(profile: InputProfile, outside: float = 0.0, **callbacks: float) -> InputProfile:
    """The profile with so many seconds between calls in each epoch, some of them in callbacks."""
    epochs = tuple(
        dataclasses.replace(epoch, outside_seconds=outside, callback_seconds=callbacks) for epoch in profile.epochs
    )
    return dataclasses.replace(profile, epochs=epochs)


def with_step(profile: InputProfile, seconds: float, floor: float = 0.0, spread: float = 0.0) -> InputProfile:
    """A step alone takes so many seconds."""
    assert profile.ceiling is not None
    rate = profile.batch_size / seconds
    ceiling = dataclasses.replace(
        profile.ceiling, examples_per_second=rate, floor_seconds=floor, floor_spread_seconds=spread
    )
    return dataclasses.replace(profile, ceiling=ceiling)


def verdict_of(profile: InputProfile, limit: float | None = None) -> Verdict:
    return judge(profile, max_wait_fraction=limit)


def test_the_parts_make_up_the_whole(profile: Make) -> None:
    # Epochs of 1 s and 100 steps: 0.1 s waited, 0.4 s between calls, and steps of 2 ms alone.
    shares = TimeShares.of(with_step(trained(profile(epochs=[(1.0, 0.1)] * 9), 0.4, Slow=0.3), 0.002))
    assert (shares.waited, shares.outside) == pytest.approx((0.1, 0.4))
    assert shares.slowed == pytest.approx(1 - 0.1 - 0.4 - 0.2)
    assert shares.callback == ("Slow", pytest.approx(0.3))


def test_without_a_ceiling_nobody_knows_how_long_a_step_takes_alone(profile: Make) -> None:
    assert TimeShares.of(profile(ceiling=None)).slowed == 0


@pytest.mark.parametrize(("outside", "slow", "named"), [(0.4, 0.3, True), (0.4, 0.1, False), (0.0, 0.0, False)])
def test_a_callback_is_named_if_it_takes_most_of_the_time_between_calls(
    outside: float, slow: float, named: bool, profile: Make
) -> None:
    shares = TimeShares.of(trained(profile(epochs=[(1.0, 0.0)] * 9), outside, Slow=slow, TensorBoard=0.01))
    assert (shares.callback is not None) == named


def test_epochs_are_repeats_and_runs_differ_by_three_points_at_least(profile: Make) -> None:
    alike, different = ([(1.0, 0.1)] * 9, [(1.0, 0.05), *[(1.0, 0.05), (1.0, 0.35)] * 4])
    assert TimeShares.of(profile(epochs=alike)).uncertainty == pytest.approx(0.03)
    assert 0.08 < TimeShares.of(profile(epochs=different)).uncertainty < 0.2


def test_a_floor_whose_turns_differ_makes_the_share_uncertain(profile: Make) -> None:
    given = with_step(profile(epochs=[(1.0, 0.4)] * 9), 0.001, floor=0.001, spread=0.0008)
    assert TimeShares.of(given).uncertainty == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("waited", "outside", "alone", "kind"),
    [
        (0.0, 0.25, 0.0075, "overhead-bound"),  # a quarter of the time between calls
        (0.0, 0.15, 0.0085, "compute-bound"),
        (0.01, 0.0, 0.0018, "overhead-bound"),  # 10 ms in training, 1.8 ms alone
        (0.10, 0.1, 0.003, "overhead-bound"),
        (0.10, 0.1, 0.008, "balanced"),
        (0.30, 0.1, 0.001, "input-bound"),
        (0.30, 0.4, 0.003, "overhead-bound"),
    ],
)
def test_time_that_is_neither_waiting_nor_the_step_has_a_verdict_of_its_own(
    waited: float, outside: float, alone: float, kind: str, profile: Make
) -> None:
    given = with_step(trained(profile(epochs=[(1.0, waited)] * 20), outside), alone)
    assert verdict_of(given).kind == kind


def test_milliseconds_between_calls_set_the_pace_and_are_not_worth_a_change(profile: Make) -> None:
    verdict = verdict_of(trained(profile(epochs=[(0.01, 0.0)] * 9), 0.009))
    assert (verdict.kind, verdict.advice) == ("overhead-bound", ())
    assert "72 ms" in verdict.headline


def test_a_slow_callback_is_named_with_its_share_and_what_to_do(profile: Make) -> None:
    verdict = verdict_of(trained(profile(epochs=[(1.0, 0.0)] * 9), 0.6, Sleeper=0.55))
    assert verdict.bottleneck == "callback Sleeper"
    assert "60 % between calls of the training function (55 % in the callback Sleeper)" in verdict.headline
    (advice,) = (said for said in verdict.advice if "Sleeper" in said)
    assert "on_epoch_end" in advice
    assert "2.5 times as fast" in advice


def test_time_of_python_between_calls_calls_for_longer_calls(profile: Make) -> None:
    verdict = verdict_of(trained(profile(epochs=[(1.0, 0.0)] * 9), 0.6))
    assert verdict.bottleneck == "time between calls"
    assert "steps_per_call" in " ".join(verdict.advice)


def test_steps_that_run_longer_than_alone_have_causes(profile: Make) -> None:
    verdict = verdict_of(with_step(profile(epochs=[(1.0, 0.0)] * 9), 0.0018))
    assert verdict.bottleneck == "other work on the same CPU"
    assert "82 % in steps that are slower than alone" in verdict.headline
    assert verdict.slowed_fraction == pytest.approx(0.82)


@pytest.mark.parametrize(("limit", "blessed"), [(0.5, True), (0.3, False)])
def test_a_floor_above_what_was_counted_tells_nothing(limit: float, blessed: bool, profile: Make) -> None:
    # 100 steps of 10 ms: 4 ms of each were counted, and 8 ms for a batch that is there.
    verdict = verdict_of(with_step(profile(epochs=[(1.0, 0.4)] * 9), 0.01, floor=0.008), limit)
    assert (verdict.kind, verdict.gain, verdict.advice) == ("unclear", 1.0, ())
    assert (verdict.judged_wait_fraction, verdict.wait_uncertainty) == (0.0, pytest.approx(0.4))
    assert "4,000 µs a step" in verdict.headline
    assert "8,000 µs for a batch" in verdict.headline
    assert verdict.blessed is blessed


def test_a_floor_a_little_above_what_was_counted_is_no_waiting(profile: Make) -> None:
    assert verdict_of(with_step(profile(epochs=[(1.0, 0.4)] * 9), 0.01, floor=0.0042)).kind == "compute-bound"
