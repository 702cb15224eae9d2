"""A training that its options record, from `run_fn` to the store of MLflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tfx


def test_a_training_records_its_epochs_and_its_model(
    table: Any, train: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    store = str(tmp_path / "store")
    monitors = {"mlflow": {"uri": store}, "prometheus": {"textfile": str(tmp_path / "taxi.prom")}}
    train(table[0], "class", "table", label="kind", epochs=2, place=tmp_path / "trained", **monitors)
    client = MlflowClient(tracking_uri=store)
    [run] = client.search_runs([client.get_experiment_by_name("infeed").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["epochs"] == "2"
    assert "mlflow.uri" not in run.data.params
    assert run.data.tags["model_uri"] == str(tmp_path / "trained" / "model")
    assert len(client.get_metric_history(run.info.run_id, "val_loss")) == 2
    assert run.data.metrics["input/examples_per_second"] > 0
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["input_profile.json"]
    assert not (tmp_path / "taxi.prom").exists()
