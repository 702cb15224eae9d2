"""The callbacks of docs/training.md, which report a training to MLflow and Prometheus."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tfx
PAGE = Path(__file__).parents[3] / "docs" / "training.md"
# Scrapes what the file serves, as the last callback of an epoch.
SCRAPE = """
def with_scrape(spec):
    from urllib.request import urlopen

    def scrape(epoch, logs):
        with urlopen("http://127.0.0.1:PORT/metrics", timeout=60) as answer:
            (HERE / "scraped.txt").write_bytes(answer.read())

    return [*callbacks(spec), keras.callbacks.LambdaCallback(on_epoch_end=scrape)]
"""


def test_a_training_reports_its_epochs_to_mlflow_and_prometheus(
    table: Any,
    train: Callable[..., Path],
    hold_ports: Callable[[int], list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the one store of mlflow-skinny without a server
    from mlflow.tracking import MlflowClient

    port = str(*hold_ports(1))
    found = re.search(r"```python\n(.*?)```", PAGE.read_text().partition("## Monitor with")[2], re.DOTALL)
    assert found
    store = str(tmp_path / "store")
    code = found[1].replace("http://mlflow.example.org:5000", store).replace("9400", port)
    scrape = SCRAPE.replace("PORT", port)
    own = tmp_path / "callbacks.py"
    own.write_text(f"from pathlib import Path\n{code}\nHERE = Path(__file__).parent\n{scrape}")
    named = {"callbacks_fn": f"{own}:with_scrape"}
    train(table[0], "class", "table", label="kind", epochs=2, place=tmp_path / "trained", **named)
    client = MlflowClient(tracking_uri=store)
    [run] = client.search_runs([client.get_experiment_by_name("taxi").experiment_id])
    assert run.info.status == "FINISHED"
    history = [one.value for one in client.get_metric_history(run.info.run_id, "val_loss")]
    assert len(history) == 2
    scraped = dict(line.split() for line in (tmp_path / "scraped.txt").read_text().splitlines() if "#" not in line)
    assert float(scraped['training_metric{name="val_loss"}']) == pytest.approx(history[-1])
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(port)), timeout=2):
        pass  # the port is closed
