"""Whatever was measured, a report does not contradict itself."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.units import percent, times
from infeed.components.dataset.input_profile import Ceiling, EpochProfile, InputProfile, PlanSummary, StepSummary
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import LEAST_COMPUTING_FRACTION, judge

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
