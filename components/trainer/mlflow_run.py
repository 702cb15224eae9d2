"""Record of a training as a run of MLflow: options, metrics of each epoch, the profile of the input, and the model."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from infeed.components.base.errors import required
from infeed.components.dataset import files
from infeed.components.dataset.input_profile import INPUT_PROFILE
from infeed.components.trainer.options import MlflowOptions
from infeed.components.trainer.pace import Pace

_log = logging.getLogger(__name__)
_TAG = "infeed.training"
_MOST_PARAMS, _MOST_CHARACTERS = 100, 500  # of a request, and of the value of a parameter on older servers
# MLflow tries seven times and waits two minutes each time. A training must not wait for logs so long.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class MlflowRun:
    """Run of MLflow. After the first failure there is one warning, and nothing more is recorded.

    A killed training continues its run: `identity` names the training, and is the same if it is started again.
    """

    def __init__(self, options: MlflowOptions, identity: str, params: Mapping[str, Any]) -> None:
        client = required("mlflow.tracking").MlflowClient
        self._entities = required("mlflow.entities")
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._where = options.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
        self._given_up = False
        self._client: Any = None
        self._id = ""

        def start() -> None:
            self._client = client(tracking_uri=options.uri)
            experiment = self._client.get_experiment_by_name(options.experiment)
            number = experiment.experiment_id if experiment else self._client.create_experiment(options.experiment)
            query = f"tags.`{_TAG}` = '{identity}' and attributes.status = 'RUNNING'"
            found = self._client.search_runs([number], query, max_results=1)
            new = {"tags": {_TAG: identity}, "run_name": options.run_name}
            run = found[0] if found else self._client.create_run(number, **new)
            _log.info("MLflow records the training as run %s of experiment %s", run.info.run_name, options.experiment)
            self._id = str(run.info.run_id)
            texts = {name: str(value)[:_MOST_CHARACTERS] for name, value in flat(params).items()}
            entries = [self._entities.Param(*one) for one in texts.items()]
            for first in range(0, len(entries), _MOST_PARAMS):
                self._client.log_batch(self._id, params=entries[first : first + _MOST_PARAMS])

        self._try(start)

    def __call__(self, pace: Pace) -> None:
        """Record the metrics of a finished epoch; an observer of the pace."""
        if not pace.ends_epoch:
            return
        measured = {"input/examples_per_second": pace.examples_per_second, "input/wait_fraction": pace.waited}
        values = {**pace.metrics, **{name: value for name, value in measured.items() if value is not None}}
        now = int(1000 * time.time())
        entries = [self._entities.Metric(name, value, now, pace.done) for name, value in values.items()]
        self._try(lambda: self._client.log_batch(self._id, metrics=entries))

    def finish(self, folder: str, model: str) -> None:
        """Record `input_profile.json` of the folder, which `infeed report` reads, and the URI of the model."""
        profile = files.read_bytes(files.join(folder, INPUT_PROFILE)).decode()
        self._try(lambda: self._client.set_tag(self._id, "model_uri", model))
        self._try(lambda: self._client.log_text(self._id, profile, INPUT_PROFILE))

    def end(self, status: str) -> None:
        self._try(lambda: self._client.set_terminated(self._id, status))

    def _try(self, act: Callable[[], object]) -> None:
        if self._given_up:
            return
        try:
            act()
        except Exception as error:  # of any library that the client uses: a training must not fail because of its logs
            self._given_up = True
            _log.warning("MLflow at %s records nothing more of this training: %s", self._where, error)


@contextmanager
def recording(options: MlflowOptions, identity: str, params: Mapping[str, Any]) -> Iterator[MlflowRun]:
    """Yield the run of a training, and end it with its status."""
    run = MlflowRun(options, identity, params)
    try:
        yield run
    except KeyboardInterrupt:
        run.end("KILLED")
        raise
    except BaseException:
        run.end("FAILED")
        raise
    run.end("FINISHED")


def flat(options: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested options to dotted names, and drop values that are None or empty."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{name}.")
        elif value not in (None, "", [], ()):
            found[f"{before}{name}"] = value
    return found
