"""Services that observe a training, as its options select them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from infeed.components.trainer.mlflow_run import MlflowRun, recording
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.pace import Observer
from infeed.components.trainer.prometheus import exporting

_NOT_RECORDED = ("mlflow", "prometheus", "source_options")


@dataclass(frozen=True)
class Monitors:
    """Observers of a training, and its run of MLflow."""

    observers: tuple[Observer, ...] = ()
    run: MlflowRun | None = None

    def finish(self, folder: str, model: str) -> None:
        """Record `input_profile.json` of the folder and the URI of the model."""
        if self.run:
            self.run.finish(folder, model)


@contextmanager
def monitored(options: TrainOptions, identity: str, *, chief: bool) -> Iterator[Monitors]:
    """Yield the monitors of the options. Only the chief has some.

    Args:
      identity: name of the training, which is the same if it is started again.

    Raises:
      InfeedError: a client is not installed, or a port cannot be opened.
    """
    with ExitStack() as stack:
        observers, run = list[Observer](), None
        if chief and options.prometheus:
            observers.append(stack.enter_context(exporting(options.prometheus)))
        if chief and options.mlflow:
            params = {name: value for name, value in options.to_dict().items() if name not in _NOT_RECORDED}
            run = stack.enter_context(recording(options.mlflow, identity, params))
            observers.append(run)
        yield Monitors(tuple(observers), run)
