"""What each epoch took: `EpochRecord`, the callback that keeps it, and the rate that training could reach."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.meter import Meter
from infeed.components.trainer.cluster import agreed, distribute
from infeed.components.trainer.steps import TrainSteps


@dataclass(frozen=True)
class EpochRecord:
    """One epoch as measured: seconds of training (without validation) and the part of it spent waiting for input."""

    epoch: int
    steps: int
    seconds: float
    wait_seconds: float
    examples: int
    examples_per_second: float
    peak_memory_bytes: int


@dataclass
class Progress:
    """Steps done and to do; what a call of the training function takes next."""

    per_epoch: int
    per_call: int
    total: float = float("inf")
    done: int = 0
    to_skip: int = 0

    @classmethod
    def resumed(cls, done: int, per_epoch: int, per_call: int, total: float) -> Progress:
        """After `done` steps: Keras starts the broken epoch again, so its first calls are skipped.

        Raises:
          InfeedError: no call of so many steps ends there.
        """
        if done % per_epoch % per_call:
            raise InfeedError(
                f"a checkpoint was written after {done:,} steps, and no call of {per_call} steps ends there",
                where="steps_per_call",
                do="Use as many as when it was written, or remove the folder of checkpoints.",
            )
        return cls(per_epoch, per_call, total, done - done % per_epoch, done % per_epoch)

    @property
    def ends_epoch(self) -> bool:
        """Whether the steps done are the last ones of an epoch, or of training."""
        return self.done % self.per_epoch == 0 or self.done >= self.total

    def take(self) -> int:
        """Steps of the next call; the last call of an epoch is shorter where the numbers do not divide."""
        count = int(min(self.per_call, self.per_epoch - self.done % self.per_epoch, self.total - self.done))
        self.done += count
        if not self.to_skip:
            return count
        self.to_skip -= count
        return 0


class RecordEpochs(keras.callbacks.Callback):
    """Keeps an `EpochRecord` an epoch. The clock runs from the epoch's first step to its last, not over validation."""

    def __init__(self, meter: Meter, progress: Progress, batch_size: int) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []  # plain values: they are part of a checkpoint, as is `seconds`
        self.seconds = 0.0
        self._meter, self._progress, self._batch_size = meter, progress, batch_size
        self._last_step = 0.0

    @property
    def epochs(self) -> tuple[EpochRecord, ...]:
        """All epochs so far."""
        return tuple(EpochRecord(**record) for record in self.records)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._meter.reset()
        self.seconds = 0.0
        self._last_step = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.perf_counter()
        self.seconds += now - self._last_step
        self._last_step = now

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        steps, seconds = self._progress.done - epoch * self._progress.per_epoch, self.seconds
        examples = steps * self._batch_size
        record = EpochRecord(
            epoch=epoch,
            steps=steps,
            seconds=seconds,
            wait_seconds=min(self._meter.seconds, seconds),
            examples=examples,
            examples_per_second=examples / seconds if seconds else 0.0,
            peak_memory_bytes=_peak_memory(),
        )
        self.records.append(dataclasses.asdict(record))


def measure_ceiling(
    train_steps: TrainSteps, strategy: tf.distribute.Strategy, batch: Any, batch_size: int, *, seconds: float = 1.0
) -> dict[str, float | int]:
    """Trains on one constant batch for about `seconds`: the rate training could reach if input were free.

    It changes the model's weights, so it comes after the export.

    Args:
      train_steps: as `fit` left them.
      strategy: the one that trained.
      batch: this worker's part of a global batch.
      batch_size: of the global batch.
      seconds: how long about; all workers make the same number of steps.
    """
    constant = tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)
    iterator = iter(distribute(constant, strategy, batch_size))

    def timed(count: int) -> float:
        started = time.perf_counter()
        train_steps(iterator, tf.constant(count))
        return time.perf_counter() - started

    timed(8)  # the first call may trace
    steps = max(8, int(8 * seconds / agreed(timed(8), strategy)))
    took = timed(steps)
    return {"steps": steps, "seconds": took, "examples_per_second": steps * batch_size / took}


def _peak_memory() -> int:
    """The process' largest resident set so far, in bytes; getrusage counts kilobytes, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
