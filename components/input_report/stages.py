"""The measured stages of an input pipeline: which one sets the pace, what to change, and a plot."""

from __future__ import annotations

from collections.abc import Sequence

from infeed.components.dataset.input_profile import InputProfile, StageCost, pace_setter
from infeed.components.drawing import COMPUTED, INK, WAITED, new_axes, to_svg
from infeed.components.units import number, percent, times

_KEEPS_UP_FROM = 1.25  # rate of the pipeline over that of the step; below, both compete for the CPU
_ADVICE = {
    "read": "Put the files on faster storage, or write more shards so that more are read at a time.",
    "decompress": "Write the dataset without compression, or in more shards so that more are unpacked at a time.",
    "records": "Write more shards, so that more are read at a time.",
    "shuffle": "Shuffle fewer records together, or keep the split in memory (tier columns).",
    "batch": "Increase the batch size.",
    "parse": "Keep the decoded columns (tier columns or disk), so that each record is parsed once.",
    "transform": "Keep the transformed columns (tier columns or disk), so that each record is transformed once.",
    "augment": "Use fewer or cheaper changes (augment), or give the host more CPU cores.",
    "map": "Work on whole batches, in parallel: dataset.batch(...).map(..., num_parallel_calls=tf.data.AUTOTUNE).",
    "map_examples": "Write the function for whole batches: map_batches.",
    "map_batches": "Make the function cheaper, or give a NumPy function more processes.",
    "cut": "Increase the batch size: a call costs more than a small batch.",
    "gather": "Increase the batch size: a call costs more than its rows.",
    "hand-over": "Increase the batch size, or join features of one type into one tensor (pack=True).",
    "Python generator": "Run the generator in its own process: infeed.components.feed.inputs.from_process.",
    "map (Python)": "Write the function with TensorFlow, or run it in processes: map_batches with kind: numpy.",
}


def pace(stages: Sequence[StageCost], bound_by: str) -> str:
    """Say in a sentence which stage sets the pace, and what to change.

    Args:
      bound_by: name of the stage that `pace_setter` returned.
    """
    rate = f"{stages[-1].examples_per_second:,.0f} examples a second"
    if not bound_by:
        return f"The pipeline makes {rate}; the noise of this machine hides which stage sets the pace: measure longer."
    stage = next(one for one in stages if one.name == bound_by)
    share = stage.microseconds / sum(max(0.0, one.microseconds) for one in stages if not one.once)
    advice = _ADVICE.get(bound_by, "Make this stage cheaper, or run it in parallel.")
    return f"The pipeline makes {rate}; {bound_by} sets the pace, with {percent(share)} of the time. {advice}"


def of_training(profile: InputProfile) -> str:
    """Compare the pipeline with the training step in one or two sentences; empty if the stages were not measured."""
    if not profile.stages:
        return ""
    rate, ceiling = profile.stages[-1].examples_per_second, profile.ceiling
    if not ceiling:
        return pace(profile.stages, pace_setter(profile.stages))
    ratio = rate / ceiling.examples_per_second
    if ratio >= _KEEPS_UP_FROM:
        alone = f"Alone, the pipeline makes {number(rate)} examples a second"
        return f"{alone}, {times(ratio)} as many as the training step takes. Faster stages would gain nothing."
    step = f"The training step could take {number(ceiling.examples_per_second)}."
    return f"{pace(profile.stages, pace_setter(profile.stages))} {step}"


def stage_plot(profile: InputProfile) -> str:
    """Plot the rate of the pipeline up to each stage as SVG, with a line for the rate of the training step."""
    stages = [one for one in profile.stages if not one.once][::-1]
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
