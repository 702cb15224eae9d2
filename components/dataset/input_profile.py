"""`input_profile.json`: the cost of input in each epoch of a training, from the Trainer to InputReport.

Each class is one JSON object, and its fields are the object's members in order.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError, value_errors
from infeed.components.dataset import files

INPUT_PROFILE = "input_profile.json"
FORMAT = 1

# Below this share, the gain from perfect input is within the variation between runs, so training counts as not waiting.
WAITS_FROM = 0.05
# A gain below 5 % is within the variation between runs.
WORTH_ACTING = 1.05
# Usual limit for increasing the batch at once without tuning the learning rate again.
BATCH_GROWTH = 4
# A larger batch must leave this many steps per epoch, or progress is measured too rarely.
FEWEST_STEPS_PER_EPOCH = 20
COLUMNS = "tier=columns"  # the change that keeps the decoded split in memory
# Waits are measured in the graph and durations in Python. The two clocks may differ slightly.
CLOCK_TOLERANCE = 1.05


@dataclass(frozen=True)
class EpochProfile:
    """One pass over the training split."""

    epoch: int  # index of the epoch, from 0
    steps: int  # batches trained on
    seconds: float  # wall-clock time of all steps, including waits and excluding validation
    wait_seconds: float  # part of `seconds` in which training waited for a batch or for its transfer
    examples: int  # records trained on, over all replicas
    examples_per_second: float
    peak_memory_bytes: int | None = None  # peak memory of the process until the end of this epoch. None if unknown.
    # Waits of each worker, if there are several. `wait_seconds` is their maximum, because every worker waits for the
    # slowest.
    workers_wait_seconds: tuple[float, ...] = ()
    # Part of `seconds` between calls of the training function: callbacks and Keras' Python code.
    outside_seconds: float = 0.0
    # Part of `outside_seconds` in the batch hooks of each callback, by class name.
    callback_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def measured(
        cls,
        epoch: int,
        steps: int,
        seconds: float,
        waited: Sequence[float],
        batch_size: int,
        outside: float = 0.0,
        of_callbacks: Mapping[str, float] | None = None,
    ) -> EpochProfile:
        """Return the profile of an epoch that ends now. Called in the training process.

        `waited` are the seconds that each worker waited, by the clock in its graph. `outside` are the seconds between
        calls of the training function. `of_callbacks` is the part of each callback.
        """
        examples = steps * batch_size
        rate = examples / seconds if seconds else 0.0
        waits = tuple(min(one, seconds) for one in waited)
        several = waits if len(waits) > 1 else ()
        callbacks = dict(of_callbacks or {})
        unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return cls(epoch, steps, seconds, max(waits), examples, rate, peak, several, outside, callbacks)


@dataclass(frozen=True)
class Ceiling:
    """Rate of the same training step on a constant batch in memory: the limit if input were free."""

    steps: int
    seconds: float
    examples_per_second: float
    # Seconds of a step that count as waiting although the batch is ready: the cost of handing it over. The median of
    # several turns.
    floor_seconds: float = 0.0
    floor_spread_seconds: float = 0.0  # half the interquartile range over these turns


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage of the input pipeline, as the median over several turns."""

    name: str
    does: str
    microseconds: float  # wall-clock microseconds per example, above the previous stage
    spread: float  # half the interquartile range over the turns
    cpu_seconds: float  # CPU seconds of this process per 1,000 examples, above the previous stage
    examples_per_second: float  # rate of the pipeline up to this stage
    bytes_per_example: float  # size of the stage's output
    hidden: bool  # whether the cost is at most twice its spread
    once: bool  # whether the stage runs once, because a later stage keeps its output
    # Largest growth in a turn of the pipeline up to this stage: of the process's resident memory, or of the blocks that
    # TensorFlow's allocator has handed out. None if unknown.
    memory_bytes: int | None = None
    # Whether training skips the stage, such as the copy to the device if training runs on the host.
    beside: bool = False

    @property
    def label(self) -> str:
        """Name of the stage for a table, in parentheses if training skips it."""
        return f"({self.name})" if self.beside else f"{self.name}, once" if self.once else self.name

    @property
    def in_epochs(self) -> bool:
        """Whether every epoch runs the stage."""
        return not (self.once or self.beside)


def pace_setter(stages: Sequence[StageCost]) -> str:
    """Return the name of the slowest stage of an epoch. Empty if noise hides all stages."""
    visible = [one for one in stages if one.in_epochs and not one.hidden]
    return max(visible, key=lambda one: one.microseconds).name if visible else ""


def pipeline_rate(stages: Sequence[StageCost]) -> float:
    """Return the examples a second of the whole pipeline."""
    return next(one for one in reversed(stages) if not one.beside).examples_per_second


@dataclass(frozen=True)
class Trial:
    """A tried change of the feed's options: the same pipeline, measured with and without the change."""

    change: str  # option and value, such as `batch_size=512`
    examples_per_second: float
    gain: float  # rate with the change divided by the rate without it
    helps: bool  # whether the gain is above 5 % and above the noise

    @classmethod
    def of(cls, change: str, before: StageCost, after: StageCost) -> Trial:
        """Compare the costs of two whole pipelines."""
        gain = after.examples_per_second / before.examples_per_second
        is_clear = before.microseconds - after.microseconds > before.spread + after.spread
        return cls(change, after.examples_per_second, gain, gain >= WORTH_ACTING and is_clear)


@dataclass(frozen=True)
class Timeline:
    """Time of the training steps, in a bounded number of parts of consecutive steps."""

    steps: tuple[int, ...]
    seconds: tuple[float, ...]  # wall-clock time of each part, without validation
    wait_seconds: tuple[float, ...]  # part of `seconds` in which training waited for input, including the hand-over


@dataclass(frozen=True)
class StepSummary:
    """One step of the input pipeline: its name, its effect, and the reason for it."""

    name: str
    does: str
    reason: str


@dataclass(frozen=True)
class PlanSummary:
    """Description of a training's input pipeline."""

    tier: str  # source of the data after the first epoch
    reason: str
    steps: tuple[StepSummary, ...]  # steps of the input pipeline, in order
    left_out: tuple[str, ...] = ()  # descriptions of skipped corrupt records. Written only if there are any.
    advice: str = ""  # recommended change of the files. Written only if there is one.

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


@dataclass(frozen=True)
class InputProfile:
    """The content of `input_profile.json`."""

    format: int = field(default=FORMAT, kw_only=True)
    strategy: str  # tf.distribute strategy, as in the Trainer's options
    replicas: int  # devices that trained, over all hosts
    hosts: int  # machines that trained
    batch_size: int  # records of a global batch, over all replicas
    steps_per_epoch: int
    epochs: tuple[EpochProfile, ...]  # the epochs in order, at least one
    ceiling: Ceiling | None  # the rate on constant data. None if the Trainer did not measure it.
    plan: PlanSummary
    bytes: int  # size of the training split on disk
    handover_seconds: float = 0.0  # without a ceiling, its `floor_seconds`. Written only if measured.
    stages: tuple[StageCost, ...] = ()  # cost of each stage, in the order of the plan. Written only if measured.
    trials: tuple[Trial, ...] = ()  # changes that were tried because training waited. Written only if there are any.
    timeline: Timeline | None = None  # time of the steps on the first worker. Written only if recorded.

    def waited(self, epoch: EpochProfile) -> float:
        """Return the seconds that training waited for input, above the cost of handing over ready batches."""
        return max(0.0, min(epoch.wait_seconds, epoch.seconds) - epoch.steps * self.floor_seconds)

    def wait_fraction(self, epochs: Sequence[EpochProfile]) -> float:
        """Return the share of the time of these epochs, 0 to 1, that training waited for input."""
        return sum(map(self.waited, epochs)) / sum(epoch.seconds for epoch in epochs)

    @property
    def workers_waited(self) -> tuple[float, ...]:
        """Seconds that each worker waited over all steady epochs. Empty if there is one process."""
        columns = zip(*(epoch.workers_wait_seconds for epoch in self.steady_epochs), strict=True)
        floor = self.floor_seconds * sum(epoch.steps for epoch in self.steady_epochs)
        return tuple(max(0.0, sum(column) - floor) for column in columns)

    @property
    def floor_seconds(self) -> float:
        """Seconds of a step to hand over a batch. 0 if not measured."""
        return self.ceiling.floor_seconds if self.ceiling else self.handover_seconds

    @property
    def steady_epochs(self) -> tuple[EpochProfile, ...]:
        """The epochs after the first, which fills caches and traces graphs. A single epoch is kept."""
        return self.epochs[1:] or self.epochs

    @property
    def peak_memory_bytes(self) -> int | None:
        """Peak memory of the training process. None if unknown."""
        return max((e.peak_memory_bytes for e in self.epochs if e.peak_memory_bytes is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        profile = schema.to_plain(self)
        for name in ("left_out", "advice"):
            if not getattr(self.plan, name):
                del profile["plan"][name]
        for name in ("handover_seconds", "stages", "trials", "timeline"):
            if not getattr(self, name):
                del profile[name]
        return profile

    def write(self, folder: str) -> None:
        files.write_bytes(files.join(folder, INPUT_PROFILE), json.dumps(self.to_dict(), indent=1).encode())


def read_profile(path: str) -> InputProfile:
    """Read an input profile.

    Raises InfeedError if the file does not exist, is not JSON, has another format, or has a missing or invalid value.
    """

    def check_format(given: Any) -> None:
        if not isinstance(given, dict):
            raise ValueError(f"the content is a {type(given).__name__}, not an object")
        if given.get("format") != FORMAT:
            what = f"the input profile has format {given.get('format')!r}, but this version reads format {FORMAT}"
            raise InfeedError(what, where=path, do="run Trainer and InputReport from the same version of tfx-infeed")

    try:
        content = files.read_bytes(path)
    except FileNotFoundError as error:
        do = (
            "pass the model_run of infeed's Trainer. A custom run_fn must read its training data with "
            "infeed.components.datasets(fn_args, ...) or fn_args.data_accessor"
        )
        raise InfeedError(f"the model run has no {files.name(path)}", where=path, do=do) from error
    do = "run the Trainer again. If the Trainer wrote this file, please report a bug"
    with value_errors(path, do, "cannot read the input profile: "):  # not JSON, not UTF-8, or not a profile
        profile = schema.read_json(InputProfile, content, check_format)
        _check(profile)
    return profile


def _check(profile: InputProfile) -> None:
    """Raise ValueError for impossible numbers.

    Profiles are checked on reading, not on creation, so that a wrong measurement does not fail a finished training.
    """
    _require(bool(profile.epochs), "epochs", "there are no epochs")
    workers = len(profile.epochs[0].workers_wait_seconds)
    for epoch in profile.epochs:
        seconds, waited = epoch.seconds, epoch.wait_seconds
        where = f"epoch {epoch.epoch}"
        _require(math.isfinite(seconds) and seconds > 0, where, f"seconds is {seconds}")
        is_part = 0 <= waited <= seconds * CLOCK_TOLERANCE
        _require(is_part, where, f"wait_seconds is {waited} of {seconds} seconds")
        outside = epoch.outside_seconds
        _require(0 <= outside <= seconds * CLOCK_TOLERANCE, where, f"outside_seconds is {outside} of {seconds} seconds")
        _require(len(epoch.workers_wait_seconds) == workers, where, f"workers_wait_seconds is not of {workers} workers")
    if profile.ceiling is not None:
        rate = profile.ceiling.examples_per_second
        _require(math.isfinite(rate) and rate > 0, "ceiling", f"examples_per_second is {rate}")
        floor = profile.ceiling.floor_seconds
        _require(math.isfinite(floor) and floor >= 0, "ceiling", f"floor_seconds is {floor}")
    if timeline := profile.timeline:
        lengths = {len(timeline.steps), len(timeline.seconds), len(timeline.wait_seconds)}
        _require(len(lengths) == 1, "timeline", f"its lists have {sorted(lengths)} values")
        _require(min(timeline.steps, default=1) > 0, "timeline", "a part has no steps")
    own = profile.handover_seconds
    _require(math.isfinite(own) and own >= 0, "handover_seconds", f"it is {own}")


def _require(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{where}: {what}")
