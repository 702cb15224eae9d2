"""`input_profile.json`: what feeding cost a training, epoch by epoch. The Trainer writes it, InputReport reads it.

Each class is one object of the file, and its fields are the object's members, in that order.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from infeed.components import schema
from infeed.components.dataset import files
from infeed.components.errors import InfeedError

INPUT_PROFILE = "input_profile.json"
FORMAT = 1

# Waiting and lasting are read from two clocks, in the graph and in Python, which may disagree by a little.
CLOCK_TOLERANCE = 1.05


@dataclass(frozen=True)
class EpochProfile:
    """One pass over the training split.

    Attributes:
      epoch: its number, counted from 0.
      steps: batches trained on.
      seconds: wall-clock time of all steps, the waiting included, validation left out.
      wait_seconds: the part of `seconds` in which training stood still until a batch was there, and in which ready
        batches were handed over.
      examples: records trained on, over all replicas.
      examples_per_second: the rate at which they were.
      peak_memory_bytes: most memory the process held until the end of this epoch; None where it is unknown.
      workers_wait_seconds: of each worker, where there are several; `wait_seconds` is the largest of them, for all wait
        for the one that waits.
      outside_seconds: the part of `seconds` between calls of the training function: callbacks, and Keras' own Python.
      callback_seconds: the part of `outside_seconds` in the batch hooks of each callback, by the name of its class.
    """

    epoch: int
    steps: int
    seconds: float
    wait_seconds: float
    examples: int
    examples_per_second: float
    peak_memory_bytes: int | None = None
    workers_wait_seconds: tuple[float, ...] = ()
    outside_seconds: float = 0.0
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
        """An epoch that ends now, in the process that trained.

        Args:
          waited: seconds of waiting of each worker, by the clocks in their graphs.
          batch_size: records in a global batch.
          outside: seconds between calls of the training function.
          of_callbacks: the part of these in each callback.
        """
        examples = steps * batch_size
        rate = examples / seconds if seconds else 0.0
        waits = tuple(min(one, seconds) for one in waited)
        several = waits if len(waits) > 1 else ()
        callbacks = dict(of_callbacks or {})
        return cls(epoch, steps, seconds, max(waits), examples, rate, _peak_memory(), several, outside, callbacks)


@dataclass(frozen=True)
class Ceiling:
    """The same training step on one batch that stays in memory: what training reaches when input is free.

    Attributes:
      steps: how many were made.
      seconds: wall-clock time of all of them.
      examples_per_second: the rate at which their examples were trained on.
      floor_seconds: seconds a step that count as waiting although the batch is there: what handing it over takes. The
        median of several turns.
      floor_spread_seconds: half the range of the middle half of these turns.
    """

    steps: int
    seconds: float
    examples_per_second: float
    floor_seconds: float = 0.0
    floor_spread_seconds: float = 0.0


@dataclass(frozen=True)
class StepSummary:
    """One step of the input pipeline: its name, what it does, and why it stands where it does."""

    name: str
    does: str
    reason: str


@dataclass(frozen=True)
class PlanSummary:
    """How training was fed, in words.

    Attributes:
      tier: where epochs after the first are read from.
      reason: why that one.
      steps: of the input pipeline, in order.
      left_out: corrupt records that were, each in words; in the file only where there are any.
    """

    tier: str
    reason: str
    steps: tuple[StepSummary, ...]
    left_out: tuple[str, ...] = ()

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


@dataclass(frozen=True)
class InputProfile:
    """All of `input_profile.json`.

    Attributes:
      format: of the file; another one has other members.
      strategy: the tf.distribute strategy by its name in the Trainer's options.
      replicas: devices that trained side by side, over all hosts.
      hosts: machines that trained.
      batch_size: records in a global batch, over all replicas.
      steps_per_epoch: batches in an epoch.
      epochs: at least one, in order.
      ceiling: the rate on constant data; None where the Trainer did not measure it.
      plan: the input pipeline.
      bytes: size of the training split on disk.
      handover_seconds: where there is no ceiling, its floor: seconds a step that count as waiting although the batch is
        there; in the file only where it was measured.
    """

    format: int = field(default=FORMAT, kw_only=True)
    strategy: str
    replicas: int
    hosts: int
    batch_size: int
    steps_per_epoch: int
    epochs: tuple[EpochProfile, ...]
    ceiling: Ceiling | None
    plan: PlanSummary
    bytes: int
    handover_seconds: float = 0.0

    def waited(self, epoch: EpochProfile) -> float:
        """Seconds in which training waited for input: what lies above the floor, which batches that are there take."""
        return max(0.0, min(epoch.wait_seconds, epoch.seconds) - epoch.steps * self.floor_seconds)

    @property
    def workers_waited(self) -> tuple[float, ...]:
        """The same of each worker over all steady epochs; empty where one process trained."""
        columns = zip(*(epoch.workers_wait_seconds for epoch in self.steady_epochs), strict=True)
        floor = self.floor_seconds * sum(epoch.steps for epoch in self.steady_epochs)
        return tuple(max(0.0, sum(column) - floor) for column in columns)

    @property
    def floor_seconds(self) -> float:
        """Seconds a step that handing over a batch takes; 0 where the Trainer did not measure it."""
        return self.ceiling.floor_seconds if self.ceiling else self.handover_seconds

    @property
    def steady_epochs(self) -> tuple[EpochProfile, ...]:
        """The epochs after the first, which fills caches and traces graphs; the first if it is the only one."""
        return self.epochs[1:] or self.epochs

    @property
    def peak_memory_bytes(self) -> int | None:
        """Most memory the training process held; None where it is unknown."""
        return max((e.peak_memory_bytes for e in self.epochs if e.peak_memory_bytes is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The file's content as plain data."""
        profile = schema.to_plain(self)
        if not self.plan.left_out:
            del profile["plan"]["left_out"]
        if not self.handover_seconds:
            del profile["handover_seconds"]
        return profile

    def write(self, folder: str) -> None:
        """Writes `input_profile.json` into a folder of any kind of store."""
        files.write_bytes(files.join(folder, INPUT_PROFILE), json.dumps(self.to_dict(), indent=1).encode())


def read_profile(path: str) -> InputProfile:
    """Reads one input profile.

    Raises:
      InfeedError: there is no such file, it is not JSON, it is of another format, or a value is missing or impossible.
    """
    try:
        profile = schema.read_json(InputProfile, files.read_bytes(path), partial(_check_format, path))
        _check(profile)
    except FileNotFoundError as error:
        raise InfeedError(
            f"the model run has no {files.name(path)}",
            where=path,
            do="pass the model_run of infeed's Trainer; a run_fn of your own has to read its training data by "
            "infeed.components.datasets(fn_args, ...) or fn_args.data_accessor, or there is nothing to report",
        ) from error
    except ValueError as error:  # not JSON, not UTF-8, or not a profile
        raise InfeedError(
            f"the input profile cannot be read: {error}",
            where=path,
            do="run the Trainer again; if it wrote this file, that is a fault worth reporting",
        ) from error
    return profile


def _check_format(path: str, given: Any) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"it holds a {type(given).__name__}, not an object")
    if given.get("format") != FORMAT:
        raise InfeedError(
            f"the input profile has format {given.get('format')!r}; this version reads format {FORMAT}",
            where=path,
            do="run Trainer and InputReport from the same version of tfx-infeed",
        )


def _check(profile: InputProfile) -> None:
    """Raises ValueError for numbers that nothing can be concluded from.

    Not when the profile is made: a training that measured nonsense is not to fail at its end for that.
    """
    _require(bool(profile.epochs), "epochs", "there is no epoch")
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
    own = profile.handover_seconds
    _require(math.isfinite(own) and own >= 0, "handover_seconds", f"it is {own}")


def _require(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise ValueError(f"{where}: {what}")


def _peak_memory() -> int:
    """The process' largest resident set so far, in bytes; getrusage counts kilobytes, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
