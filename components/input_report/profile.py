"""Reads `input_profile.json`: what the Trainer measured while it trained, epoch by epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infeed.components.dataset import files
from infeed.components.errors import InfeedError

INPUT_PROFILE = "input_profile.json"
FORMAT = 1

# Waiting and lasting are read from two clocks, in the graph and in Python, which may disagree by a little.
CLOCK_TOLERANCE = 1.05


@dataclass(frozen=True)
class Epoch:
    """One pass over the training split.

    Attributes:
      epoch: its number, counted from 0.
      steps: batches trained on.
      seconds: wall-clock time of all steps, the waiting included.
      wait_seconds: the part of `seconds` in which training stood still until a batch was there.
      examples: records trained on, over all replicas.
      examples_per_second: the rate at which they were.
      peak_memory_bytes: most memory the process held until the end of this epoch; None where it is unknown.
    """

    epoch: int
    steps: int
    seconds: float
    wait_seconds: float
    examples: int
    examples_per_second: float
    peak_memory_bytes: int | None

    def __post_init__(self) -> None:
        where = f"epoch {self.epoch}"
        _require(math.isfinite(self.seconds) and self.seconds > 0, f"seconds is {self.seconds}", where)
        _require(0 <= self.wait_seconds <= self.seconds * CLOCK_TOLERANCE, self._waited_too_long(), where)

    def _waited_too_long(self) -> str:
        return f"wait_seconds is {self.wait_seconds} of {self.seconds} seconds"

    @property
    def computing_seconds(self) -> float:
        """The seconds in which training did not wait for input."""
        return max(0.0, self.seconds - self.wait_seconds)


@dataclass(frozen=True)
class Ceiling:
    """The same training step on one batch that stays in memory: what training reaches when input is free."""

    steps: int
    seconds: float
    examples_per_second: float

    def __post_init__(self) -> None:
        rate = self.examples_per_second
        _require(math.isfinite(rate) and rate > 0, f"examples_per_second is {rate}", "ceiling")


@dataclass(frozen=True)
class Step:
    """One step of the input pipeline: its name, what it does, and why it stands where it does."""

    name: str
    does: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """How training was fed, in words: the tier, why that one, and its steps in order."""

    tier: str
    reason: str
    steps: tuple[Step, ...]

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


@dataclass(frozen=True)
class InputProfile:
    """All of `input_profile.json`.

    Attributes:
      strategy: the tf.distribute strategy by its name in the Trainer's options.
      replicas: devices that trained side by side, over all hosts.
      hosts: machines that trained.
      batch_size: records in a global batch, over all replicas.
      steps_per_epoch: batches in an epoch.
      epochs: at least one, in order.
      ceiling: the rate on constant data; None where the Trainer did not measure it.
      plan: the input pipeline.
      bytes: size of the training split on disk.
    """

    strategy: str
    replicas: int
    hosts: int
    batch_size: int
    steps_per_epoch: int
    epochs: tuple[Epoch, ...]
    ceiling: Ceiling | None
    plan: Plan
    bytes: int

    def __post_init__(self) -> None:
        _require(bool(self.epochs), "there is no epoch", "epochs")

    @property
    def steady_epochs(self) -> tuple[Epoch, ...]:
        """The epochs after the first, which fills caches and traces graphs; the first if it is the only one."""
        return self.epochs[1:] or self.epochs

    @property
    def peak_memory_bytes(self) -> int | None:
        """Most memory the training process held; None where it is unknown."""
        return max((e.peak_memory_bytes for e in self.epochs if e.peak_memory_bytes is not None), default=None)


def read_profile(path: str) -> InputProfile:
    """Reads one input profile.

    Raises:
      InfeedError: there is no such file, it is not JSON, it is of another format, or a value is missing or impossible.
    """
    given = _load(path)
    if given.get("format") != FORMAT:
        raise InfeedError(
            f"The input profile has format {given.get('format')!r}; this version reads format {FORMAT}",
            where=path,
            do="Run Trainer and InputReport from the same version of tfx-infeed.",
        )
    try:
        return _parse(given)
    except KeyError as error:
        raise _malformed(f"{error.args[0]!r} is missing", path) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _malformed(str(error), path) from error


def _load(path: str) -> Mapping[str, Any]:
    try:
        given = json.loads(files.read_bytes(path))
    except FileNotFoundError as error:
        raise InfeedError(
            f"The model run has no {files.name(path)}",
            where=path,
            do="Train with infeed's Trainer, which writes it, and pass that Trainer's model_run.",
        ) from error
    except ValueError as error:  # not JSON, or not UTF-8
        raise _malformed(str(error), path) from error
    if not isinstance(given, dict):
        raise _malformed(f"it holds a {type(given).__name__}, not an object", path)
    return given


def _parse(given: Mapping[str, Any]) -> InputProfile:
    plan, ceiling = given["plan"], given["ceiling"]
    return InputProfile(
        strategy=str(given["strategy"]),
        replicas=int(given["replicas"]),
        hosts=int(given["hosts"]),
        batch_size=int(given["batch_size"]),
        steps_per_epoch=int(given["steps_per_epoch"]),
        epochs=tuple(_epoch(epoch) for epoch in given["epochs"]),
        ceiling=_ceiling(ceiling) if ceiling is not None else None,
        plan=Plan(plan["tier"], plan["reason"], tuple(_step(step) for step in plan["steps"])),
        bytes=int(given["bytes"]),
    )


def _epoch(given: Mapping[str, Any]) -> Epoch:
    peak = given.get("peak_memory_bytes")
    return Epoch(
        epoch=int(given["epoch"]),
        steps=int(given["steps"]),
        seconds=float(given["seconds"]),
        wait_seconds=float(given["wait_seconds"]),
        examples=int(given["examples"]),
        examples_per_second=float(given["examples_per_second"]),
        peak_memory_bytes=int(peak) if peak is not None else None,
    )


def _ceiling(given: Mapping[str, Any]) -> Ceiling:
    return Ceiling(int(given["steps"]), float(given["seconds"]), float(given["examples_per_second"]))


def _step(given: Mapping[str, Any]) -> Step:
    return Step(str(given["name"]), str(given["does"]), str(given["reason"]))


def _require(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise ValueError(f"{where}: {what}")


def _malformed(what: str, path: str) -> InfeedError:
    return InfeedError(
        f"The input profile cannot be read: {what}",
        where=path,
        do="Run the Trainer again; if it wrote this file, that is a fault worth reporting.",
    )
