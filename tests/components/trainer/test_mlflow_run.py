"""A training recorded in MLflow's own store, and read by MLflow's client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import MlflowOptions

pytestmark = pytest.mark.slow  # Keras takes seconds to load


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the one store of mlflow-skinny without a server
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, "0" if name.endswith("RETRIES") else "5")
    return str(tmp_path / "store")


def runs_of(store: str) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("taxi")
    return list(client.search_runs([experiment.experiment_id]))


def epoch(number: int, **metrics: float) -> Any:
    from infeed.components.trainer.pace import Pace

    return Pace(number, 2, 10, 10, 10 * number, metrics, 512.0, 0.25, ends_epoch=True)


def test_a_run_has_options_metrics_of_epochs_profile_and_model(store: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    from infeed.components.trainer.mlflow_run import recording
    from infeed.components.trainer.pace import Pace

    (tmp_path / "input_profile.json").write_text('{"batch_size": 64}')
    options = {"epochs": 2, "feed": {"batch_size": 64, "cache": None}, "images": (), "text": "x" * 9_000}
    with recording(MlflowOptions(store, "taxi", "first"), "abc", options) as run:
        run(Pace(1, 2, 10, 10, 10, {"loss": 9.0}))  # the last step, before validation
        run(epoch(1, loss=0.5, val_loss=0.75))
        run(epoch(2, loss=0.25, val_loss=0.5))
        run.finish(str(tmp_path), "gs://models/7")
    [found] = runs_of(store)
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert {**found.data.params, "text": ""} == {"epochs": "2", "feed.batch_size": "64", "text": ""}
    assert found.data.metrics == {
        "loss": 0.25,
        "val_loss": 0.5,
        "input/examples_per_second": 512,
        "input/wait_fraction": 0.25,
    }
    assert found.data.tags["model_uri"] == "gs://models/7"
    client = MlflowClient(tracking_uri=store)
    history = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, "loss")]
    assert history == [(10, 0.5), (20, 0.25)]
    [profile] = Path(store).rglob("input_profile.json")
    assert json.loads(profile.read_text()) == {"batch_size": 64}


def test_a_killed_training_continues_its_run_and_a_failed_one_does_not(store: str) -> None:
    from infeed.components.trainer.mlflow_run import MlflowRun, recording

    options = MlflowOptions(store, "taxi")
    MlflowRun(options, "abc", {"epochs": 2})(epoch(1, loss=0.5))  # and then killed
    with pytest.raises(ValueError, match="broken"), recording(options, "abc", {"epochs": 2}):
        raise ValueError("broken")
    assert [run.info.status for run in runs_of(store)] == ["FAILED"]
    with recording(options, "abc", {"epochs": 2}):
        pass
    assert {run.info.status for run in runs_of(store)} == {"FAILED", "FINISHED"}


def test_a_server_that_does_not_answer_is_one_warning(store: str, caplog: pytest.LogCaptureFixture) -> None:
    from infeed.components.trainer.mlflow_run import recording

    with recording(MlflowOptions("http://127.0.0.1:9"), "abc", {}) as run:
        run(epoch(1, loss=0.5))
    warnings = [record for record in caplog.records if record.name.endswith("mlflow_run")]
    assert len(warnings) == 1
    assert "127.0.0.1:9" in warnings[0].getMessage()


def test_a_client_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from infeed.components.trainer.mlflow_run import recording

    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(InfeedError, match="mlflow") as caught, recording(MlflowOptions(), "abc", {}):
        pass
    assert "tfx-infeed[mlflow]" in caught.value.do
