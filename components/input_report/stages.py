"""Measured stages of an input pipeline: the bottleneck, recommended changes, and a plot."""

from __future__ import annotations

from collections.abc import Sequence

from infeed.components.base.drawing import COMPUTED, INK, WAITED, new_axes, to_svg
from infeed.components.base.units import listed, number, percent, times
from infeed.components.dataset.input_profile import (
    WAITS_FROM,
    InputProfile,
    StageCost,
    Trial,
    pace_setter,
    pipeline_rate,
)

# The pipeline keeps up if its rate is this multiple of the step's. Below, both compete for the CPU.
_KEEPS_UP_FROM = 1.25
_SHARDS = "write more shards so that more are read at a time"
_LARGER = "increase the batch size"
# Stage -> (advice that a trial can replace, advice that changes data, code or machines).
_ADVICE = {
    "read": ("", f"put the files on faster storage, or {_SHARDS}"),
    "decompress": ("", f"write the dataset without compression, or {_SHARDS}"),
    "records": ("", _SHARDS),
    "shuffle": ("shuffle fewer records together, or keep the split in memory (tier columns)", ""),
    "batch": (_LARGER, ""),
    "parse": ("keep the decoded columns (tier columns or disk), so that each record is parsed once", ""),
    "transform": ("keep the transformed columns (tier columns or disk), so that each record is transformed once", ""),
    "augment": ("", "use fewer or cheaper changes (augment), or give the host more CPU cores"),
    "map": ("", "work on whole batches, in parallel: dataset.batch(...).map(..., num_parallel_calls=tf.data.AUTOTUNE)"),
    "map_examples": ("", "write the function for whole batches: map_batches"),
    "map_batches": ("give a NumPy function more processes", "make the function cheaper"),
    "cut": (f"{_LARGER}: a call costs more than a small batch", ""),
    "gather": (f"{_LARGER}: a call costs more than its rows", ""),
    "hand-over": (_LARGER, "join features of one type into one tensor (pack=True)"),
    "Python generator": ("", "run the generator in its own process: infeed.components.feed.inputs.from_process"),
    "map (Python)": ("", "write the function with TensorFlow, or run it in processes: map_batches with kind: numpy"),
}


def pace(stages: Sequence[StageCost], bound_by: str, trials: Sequence[Trial] = (), of_plan: str = "") -> str:
    """Describe the bottleneck, `bound_by`, and the changes to make, proven ones first.

    `of_plan`, the plan's advice about the files, precedes general advice about reading.
    """
    rate = f"{pipeline_rate(stages):,.0f} examples a second"
    if not bound_by:
        return f"The pipeline makes {rate}; the noise of this machine hides the slowest stage: measure longer."
    stage = next(one for one in stages if one.name == bound_by)
    share = stage.microseconds / sum(max(0.0, one.microseconds) for one in stages if one.in_epochs)
    said = [f"The pipeline makes {rate}; {bound_by} is the slowest stage, with {percent(share)} of the time."]
    said += _outcomes(trials)
    tryable, other = _ADVICE.get(bound_by, ("", "" if trials else "make this stage cheaper, or run it in parallel"))
    if of_plan and step_of(bound_by) == "read":
        other = of_plan
    if untried := " or ".join(filter(None, ("" if trials else tryable, other))):
        said.append(f"Not tried: {untried}.")
    return " ".join(said)


def _outcomes(trials: Sequence[Trial]) -> list[str]:
    """Return sentences about the changes that were tried, best first."""
    said = [told(one) for one in sorted(trials, key=lambda one: -one.gain) if one.helps]
    useless = [one.change for one in trials if not one.helps]
    return [*said, f"Tried, and did not help: {listed(useless)}."] if useless else said


def told(trial: Trial) -> str:
    return f"{trial.change}: {times(trial.gain)} the examples a second (measured)."


def of_training(profile: InputProfile) -> str:
    """Compare the pipeline with the training step in one or two sentences. Empty if the stages were not measured."""
    if not profile.stages:
        return ""
    slowest = pace_setter(profile.stages)
    advice = profile.plan.advice
    if not profile.ceiling:
        return pace(profile.stages, slowest, profile.trials, advice)
    step = profile.ceiling.examples_per_second
    waits = profile.wait_fraction(profile.steady_epochs) >= WAITS_FROM
    return beside_step(profile.stages, slowest, profile.trials, step, advice, waits=waits)


def keeps_up(stages: Sequence[StageCost], step: float) -> bool:
    """Return whether the pipeline is clearly faster, in examples per second, than the training step."""
    return pipeline_rate(stages) >= _KEEPS_UP_FROM * step


def beside_step(
    stages: Sequence[StageCost],
    bound_by: str,
    trials: Sequence[Trial],
    step: float,
    of_plan: str = "",
    *,
    waits: bool = False,
) -> str:
    """Compare the pipeline with a training step that processes `step` examples per second.

    `waits` is whether training waited. For the other arguments, see `pace`.
    """
    if not keeps_up(stages, step):
        return f"{pace(stages, bound_by, trials, of_plan)} The training step could take {number(step)}."
    rate = pipeline_rate(stages)
    alone = f"Alone, the pipeline makes {number(rate)} examples a second, {times(rate / step)} as many as"
    shared = "In training, both share the CPU, and bursts cause waits."
    why = shared if waits else "Faster stages would gain nothing."
    return " ".join([f"{alone} the training step takes. {why}", *_outcomes(trials)])


def step_of(stage: str) -> str:
    """Return the step of the plan to which a measured stage belongs. Unpacking belongs to reading."""
    return "read" if stage in ("decompress", "records") else stage


def stage_plot(profile: InputProfile) -> str:
    """Plot the rate of the pipeline up to each stage as SVG, with a line for the rate of the training step."""
    stages = [one for one in profile.stages if one.in_epochs][::-1]
    figure, axes = new_axes(1.0 + 0.38 * len(stages))
    rates = [one.examples_per_second for one in stages]
    slowest = pace_setter(profile.stages)
    colors = [WAITED if one.name == slowest else COMPUTED for one in stages]
    axes.barh(range(len(stages)), rates, color=colors, height=0.6)
    axes.set_yticks(range(len(stages)), [one.name for one in stages])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.set_xscale("log")
    axes.set_xlabel("examples a second up to this stage")
    most, least = max(rates), min(rates)
    if profile.ceiling:
        ceiling = profile.ceiling.examples_per_second
        axes.axvline(ceiling, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.set_title(f"dashed: the training step, {number(ceiling)}", color=INK, size=12, loc="left")
        most, least = max(most, ceiling), min(least, ceiling)
    axes.set_xlim(least / 3, most * 1.3)
    return to_svg(figure, "stages")
