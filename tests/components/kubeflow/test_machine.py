"""What a machine downloads and uploads; `trainer/test_cluster_machines.py` trains on two of them."""

from __future__ import annotations

import json
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow import machine
from infeed.components.kubeflow.message import ARGUMENT

pytestmark = pytest.mark.tfx


def tf_config(*hosts: str) -> str:
    return json.dumps({"cluster": {"worker": [f"{host}:2222" for host in hosts]}, "task": {"type": "worker"}})


@pytest.fixture
def tfx(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages of TFX's entry point, which makes a model of all rows."""
    given: list[Any] = []

    def run_module(name: str, **_: Any) -> None:
        message = json.loads(sys.argv[sys.argv.index(ARGUMENT) + 1])
        given.append(message)
        read = [artifact["uri"] for artifact in message["inputs"]["artifacts"]["examples"]["artifacts"]]
        rows = "".join(Path(path, "Split-train", "data").read_text() for path in read)
        [model] = message["outputs"]["artifacts"]["model"]["artifacts"]
        Path(model["uri"], "weights").write_text(rows)
        Path(message["outputs"]["outputFile"]).write_text("{}")
        raise SystemExit(0)

    monkeypatch.setattr(runpy, "run_module", run_module)
    monkeypatch.setattr(sys, "argv", ["machine"])
    return given


@pytest.mark.parametrize("number", [0, 1])
def test_each_machine_downloads_and_the_chief_uploads(
    s3: str, number: int, tfx: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", str(tmp_path / "disk"))
    monkeypatch.setenv("JOB_COMPLETION_INDEX", str(number))
    monkeypatch.setenv("TF_CONFIG", tf_config("localhost"))
    for span in (1, 2):
        files.write_bytes(f"{s3}/{span}/Split-train/data", f"rows {span};".encode())
    inputs = {"examples": {"artifacts": [{"uri": f"{s3}/{span}"} for span in (1, 2)]}}
    outputs = {"model": {"artifacts": [{"uri": f"{s3}/model-{number}"}]}}
    output_file = tmp_path / "output.json"
    message = {"inputs": {"artifacts": inputs}, "outputs": {"artifacts": outputs, "outputFile": str(output_file)}}
    machine.main(["--executor_class_path", "x.Executor", ARGUMENT, json.dumps(message)])
    [seen] = tfx
    assert seen["outputs"]["artifacts"]["model"]["artifacts"][0]["uri"].startswith(str(tmp_path / "disk"))
    assert files.exists(f"{s3}/model-{number}/weights") == (number == 0)
    if number == 0:
        assert files.read_bytes(f"{s3}/model-0/weights") == b"rows 1;rows 2;"
    assert not output_file.exists()  # it is the step's, which this machine does not see


def test_training_waits_until_all_machines_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[Any]:
        asked.append(host)
        if asked.count("b") < 3 and host == "b":
            raise socket.gaierror
        return [port]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(machine, "_LOOK", 0)
    machine.wait_for_names({"TF_CONFIG": tf_config("a", "b")})
    assert asked == ["a", "b", "b", "b"]
    monkeypatch.setattr(machine, "_STARTS", -1)
    asked.clear()
    with pytest.raises(InfeedError, match="machine b did not start"):
        machine.wait_for_names({"TF_CONFIG": tf_config("a", "b")})
