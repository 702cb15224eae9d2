"""Whatever was measured, a report does not contradict itself."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.dataset.input_profile import Ceiling, EpochProfile, InputProfile, PlanSummary, StepSummary
from infeed.components.input_report.report import Report
from infeed.components.input_report.verdict import LEAST_COMPUTING_FRACTION, judge
from infeed.components.units import percent, times

STAGES = ("shards", "read", "shuffle", "batch", "parse", "transform", "augment", "prefetch")
PROMISE = re.compile(r"(?<!Reading can be up to )\b([\d.]+) times as fast|training up to ([\d.]+) times")
ON_INPUT = ("FeedOptions", "CPU cores", "shards")

shares = st.floats(0, 1)


@st.composite
def profiles(draw: st.DrawFn) -> InputProfile:
    """Epochs of any length with any share of waiting, and a ceiling of any height."""
    steps = draw(st.integers(1, 2000))
    epochs = tuple(
        EpochProfile(number, steps, lasted, lasted * draw(shares), steps * 10, steps * 10 / lasted, 1 << 30)
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
    assert (verdict.kind == "compute-bound") == (share < 0.05)
    assert share >= 0.2 or verdict.kind != "input-bound"
    assert verdict.blessed == (None if limit is None else share <= limit)
    if verdict.kind == "compute-bound":
        assert not [said for said in verdict.advice for word in ON_INPUT if word in said]
    of_input = [said for said in verdict.advice if not said.startswith("Try batch_size")]
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
    assert report.custom_properties()["blessed"] == (verdict.judged_wait_fraction <= 0.1)
    facts = dict(report._facts())
    if verdict.wait_fraction_after_first is not None:
        assert facts["Waited in all epochs"] == percent(verdict.wait_fraction)


def _with_floor(profile: InputProfile, floor: float) -> InputProfile:
    assert profile.ceiling is not None
    return dataclasses.replace(profile, ceiling=dataclasses.replace(profile.ceiling, floor_seconds=floor))
