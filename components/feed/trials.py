"""Trials of changes to a feed's options: measure the feed with and without each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from infeed.components.base import machine
from infeed.components.dataset.input_profile import (
    BATCH_GROWTH,
    COLUMNS,
    FEWEST_STEPS_PER_EPOCH,
    StageCost,
    Trial,
    pace_setter,
    pipeline_rate,
)
from infeed.components.feed.measure import COPY, HAND_OVER, TURNS, Cut, measure, plan_cuts, rival_cut, short_plan
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.plan import InputPlan
from infeed.components.feed.stages.base import BatchFunctions
from infeed.components.feed.stages.reading import InterleaveShards, ReadShards, ShuffleWindows

_GROWTH = 4  # factor for readers, and for smaller windows
_READING = ("read", "decompress", "records")
_DECODING = (*_READING, "shuffle", "batch", "parse", "transform")
_CALLING = ("batch", "cut", "gather", "prefetch", HAND_OVER)


def try_changes(
    stages: Sequence[StageCost],
    base: Cut,
    options: FeedOptions,
    replan: Callable[[FeedOptions], InputPlan],
    functions: BatchFunctions,
    *,
    seconds: float,
    turns: int = TURNS,
) -> tuple[Trial, ...]:
    """Measure changes that may speed up the slowest stage, about `seconds` for each pipeline.

    `stages` and `base` are the measured costs of the unchanged feed, and its whole pipeline. `replan` plans the same
    split with other options.
    """
    cuts = list[tuple[str, Cut]]()
    for change, changed in changes_for(pace_setter(stages), options, replan):
        planned = replan(changed)
        # Rows to keep are read now, within the time of the measurement.
        most = pipeline_rate(stages) * seconds * planned.bytes / planned.records
        if short := short_plan(planned, most):
            cuts.append((change, rival_cut(plan_cuts(short, functions))))
    if not cuts:
        return ()
    found = measure([base, *(cut for _, cut in cuts)], seconds=seconds * (1 + len(cuts)), turns=turns).stages
    return tuple(Trial.of(change, found[0], one) for (change, _), one in zip(cuts, found[1:], strict=True))


def changes_for(
    stage: str, options: FeedOptions, replan: Callable[[FeedOptions], InputPlan]
) -> Iterator[tuple[str, FeedOptions]]:
    """Yield (name, change) for each change that may speed up a stage."""
    plan = replan(options)
    # Decoding happens once if the rows fit in memory, which `auto` knows and a fixed tier does not ask.
    if stage in _DECODING and plan.tier == "stream":
        kept = replan(replace(options, tier="auto", cache_records=None))
        if kept.tier == "columns":
            yield COLUMNS, replace(options, tier="columns")
    readers = next((one.readers for one in plan.stages if isinstance(one, InterleaveShards | ReadShards)), 0)
    if stage in _READING and readers < (most := min(len(plan.shards), _GROWTH * readers)):
        yield f"readers={most}", replace(options, readers=most)
    window = next((one.window for one in plan.stages if isinstance(one, ShuffleWindows)), 0) // _GROWTH
    if stage == "shuffle" and window >= options.batch_size:
        yield f"shuffle_records={window}", replace(options, shuffle_records=window)
    # These stages cost per batch rather than per row. Too large a batch would leave few steps per epoch.
    larger = BATCH_GROWTH * options.batch_size
    if (stage in _CALLING or stage.startswith(COPY)) and plan.records >= FEWEST_STEPS_PER_EPOCH * larger:
        yield f"batch_size={larger}", replace(options, batch_size=larger)
    function = options.maps.get(stage)
    if function and function.kind == "numpy" and function.processes < machine.cpus():
        processes = min(machine.cpus(), 2 * function.processes)
        changed: dict[str, Any] = {stage: replace(function, processes=processes)}
        yield f"{stage}.processes={processes}", replace(options, **changed)
