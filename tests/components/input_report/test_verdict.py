from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import percent, times
from infeed.components.dataset.input_profile import Ceiling, EpochProfile, InputProfile, PlanSummary, StepSummary
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import LEAST_COMPUTING_FRACTION, ReportOptions, TimeShares, Verdict, judge

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


CACHED = ("shards", "read", "batch", "parse", "cache", "shuffle", "batch", "augment", "prefetch")


def advice(profile: InputProfile, split: Split | None = None) -> str:
    return "\n".join(judge(profile, max_wait_fraction=None, split=split).advice)


def split_of(shards: int, shard_bytes: int) -> Split:
    return Split.of(tuple(Shard(f"Split-train/{i}", 1000, shard_bytes, "") for i in range(shards)))


def test_a_small_split_belongs_in_memory(profile: Make) -> None:
    said = advice(profile())
    assert "1.0 MB on disk and at most about 10 MB decoded; the process used 1.4 GB" in said
    assert "up to 2.0 times as fast" in said
    assert "CPU cores" not in said


def test_a_large_split_is_not_advised_into_memory(profile: Make) -> None:
    said = advice(profile(bytes=200_000_000))
    assert "memory" not in said
    assert "read, shuffle, batch, parse, transform and augment process every record in every epoch" in said


def test_a_cache_gains_nothing_in_a_single_epoch(profile: Make) -> None:
    assert "memory" not in advice(profile(epochs=[(1.0, 0.5)]))


def test_with_a_cache_only_what_comes_after_it_is_left_to_speed_up(profile: Make) -> None:
    said = advice(profile(steps=CACHED))
    assert "after the cache cheaper: shuffle, batch and augment process every record" in said
    assert "At 2,000 examples a second instead of 1,000" in said


def test_a_single_epoch_only_fills_the_cache(profile: Make) -> None:
    said = advice(profile(steps=CACHED, epochs=[(4.0, 2.0)]))
    assert "cheaper: read, batch, parse, shuffle, batch and augment process every record. At" in said


def test_what_is_held_as_columns_is_gathered_and_augmented_in_every_epoch(profile: Make) -> None:
    steps = ("shards", "read", "batch", "parse", "transform", "columns", "gather", "augment", "prefetch")
    assert "after the cache cheaper: gather and augment process every record" in advice(profile(steps=steps))


def test_few_large_shards_cannot_be_read_side_by_side(profile: Make) -> None:
    said = advice(profile(bytes=100_000_000), split_of(2, 50_000_000))
    assert "10 shards instead of 2, 10 MB each" in said
    assert "Reading can be up to 5.0 times as fast, and training up to 2.0 times" in said


def test_small_shards_are_not_cut_further(profile: Make) -> None:
    assert "shards" not in advice(profile(), split_of(1, 15_000_000))


def test_shards_do_not_matter_once_records_are_cached(profile: Make) -> None:
    assert "shards" not in advice(profile(steps=CACHED), split_of(1, 900_000_000))


def test_an_input_function_of_the_users_own_has_neither_tiers_nor_shards(profile: Make) -> None:
    said = advice(profile(steps=("input_fn", "prefetch"), bytes=0), split_of(1, 900_000_000))
    assert "memory" not in said
    assert "shards" not in said
    for remedy in ("from_process", "num_parallel_calls", "tf.data service", "up to 2.0 times as fast"):
        assert remedy in said
    assert "Give the host more CPU cores" not in said


def test_steps_of_less_than_a_millisecond_want_a_larger_batch(profile: Make) -> None:
    said = advice(profile(epochs=[(1.0, 0.0), (0.1, 0.0)], ceiling=10_000.0))  # 100 steps of 1 ms
    assert "batch_size=40 instead of 10" in said
    assert "1.0 ms" in said
    assert "1.18 times as fast" in said


def test_a_batch_is_not_grown_until_an_epoch_has_few_steps(profile: Make) -> None:
    assert advice(profile(epochs=[(1.0, 0.0), (0.1, 0.0)], ceiling=10_000.0, steps_per_epoch=79)) == ""


def test_who_does_not_wait_is_given_no_advice_on_input(profile: Make) -> None:
    given = profile(epochs=[(9.0, 1.0), *[(1.0, 0.049)] * 20], ceiling=1220.0, bytes=100_000_000)
    assert advice(given, split_of(2, 50_000_000)) == ""


def test_all_well_means_no_advice(profile: Make) -> None:
    assert advice(profile(epochs=[(1.0, 0.0), (1.0, 0.0)], ceiling=1010.0), split_of(1, 900_000_000)) == ""


STAGES = ("shards", "read", "shuffle", "batch", "parse", "transform", "augment", "prefetch")
PROMISE = re.compile(r"(?<!Reading can be up to )\b([\d.]+) times as fast|training up to ([\d.]+) times")
ON_INPUT = ("FeedOptions", "CPU cores", "shards")

shares = st.floats(0, 1)


def _parts(draw: st.DrawFn, lasted: float, steps: int) -> tuple[Any, ...]:
    """Waiting, examples, rate, memory, and time between calls, a part of it in a callback."""
    waited = lasted * draw(shares)
    outside = (lasted - waited) * draw(shares)
    return waited, steps * 10, steps * 10 / lasted, 1 << 30, (), outside, {"Slow": outside * draw(shares)}


@st.composite
def profiles(draw: st.DrawFn) -> InputProfile:
    """Epochs of any length with any share of waiting, and a ceiling of any height."""
    steps = draw(st.integers(1, 2000))
    epochs = tuple(
        EpochProfile(number, steps, lasted, *_parts(draw, lasted, steps))
        for number, lasted in enumerate(draw(st.lists(st.floats(0.01, 1000), min_size=1, max_size=4)))
    )
    ceiling = draw(st.none() | st.builds(Ceiling, st.just(50), st.just(0.5), st.floats(1, 1e6), st.floats(0, 0.1)))
    plan = PlanSummary("stream", "why", tuple(StepSummary(name, "does", "why") for name in STAGES))
    return InputProfile("mirrored", 2, 1, 10, steps, epochs, ceiling, plan, draw(st.integers(1, 1 << 34)))


@given(profiles(), st.none() | shares)
def test_the_share_the_kind_the_gain_and_the_advice_agree(profile: InputProfile, limit: float | None) -> None:
    verdict = judge(profile, max_wait_fraction=limit)
    share = verdict.judged_wait_fraction
    assert 0 <= share <= 1
    most = 1 / max(1 - share, LEAST_COMPUTING_FRACTION)
    assert 1 <= verdict.gain <= most
    assert share < 0.05 or verdict.kind not in ("compute-bound", "unclear")
    assert share >= 0.2 or verdict.kind != "input-bound"
    assert share >= 0.05 or verdict.kind != "balanced"
    most_waited = verdict.wait_uncertainty if verdict.kind == "unclear" else share
    assert verdict.blessed == (None if limit is None else most_waited <= limit)
    assert verdict.kind != "overhead-bound" or verdict.outside_fraction + verdict.slowed_fraction >= 0.2
    assert 0.03 <= verdict.wait_uncertainty <= 1
    if verdict.kind not in ("input-bound", "balanced"):
        assert not [said for said in verdict.advice for word in ON_INPUT if word in said]
    of_others = ("Try batch_size", "Make the callback", "Run more steps")
    of_input = [said for said in verdict.advice if not said.startswith(of_others)]
    for promised in PROMISE.findall(" ".join([verdict.headline, *of_input])):
        assert float("".join(promised)) <= float(times(most).split()[0])


@given(profiles())
def test_a_higher_floor_never_makes_for_more_waiting(profile: InputProfile) -> None:
    without = profile if profile.ceiling is None else _with_floor(profile, 0.0)
    assert judge(profile, max_wait_fraction=None).wait_fraction <= judge(without, max_wait_fraction=None).wait_fraction


@given(profiles())
def test_what_programs_read_is_what_people_see(profile: InputProfile) -> None:
    verdict = judge(profile, max_wait_fraction=0.1)
    report = Report(profile, verdict, 0.1)
    assert report.custom_properties()["wait_fraction"] == verdict.judged_wait_fraction
    assert report.custom_properties()["blessed"] == verdict.blessed
    facts = dict(report._facts())
    if verdict.wait_fraction_after_first is not None:
        assert facts["Waited in all epochs"] == percent(verdict.wait_fraction)


def _with_floor(profile: InputProfile, floor: float) -> InputProfile:
    assert profile.ceiling is not None
    return dataclasses.replace(profile, ceiling=dataclasses.replace(profile.ceiling, floor_seconds=floor))


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
