"""The entry point of a step: what TFX is given, what the launcher finds; `test_launch_tfx` runs a whole pipeline."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine import project_archive
from infeed.components.kubeflow import cluster_job, step
from infeed.components.kubeflow.message import ARGUMENT, pack
from infeed.components.kubeflow.training_job import Place

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk of the pod: parent of `s3` and `gcs`."""
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", str(tmp_path / "pod"))
    return tmp_path / "pod"


@pytest.fixture
def tfx(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that TFX's entry point was given. It writes its outputs as it names them, and ends by SystemExit."""
    given: list[Any] = []

    def run_module(name: str, **_: Any) -> None:
        message = json.loads(sys.argv[sys.argv.index(ARGUMENT) + 1])
        given.append(message)
        outputs = message["outputs"]
        Path(outputs["outputFile"]).write_text(json.dumps({"artifacts": outputs["artifacts"]}))
        raise SystemExit(0)

    monkeypatch.setattr(runpy, "run_module", run_module)
    monkeypatch.setattr(sys, "argv", ["step"])
    return given


def artifacts(*uris: str, **metadata: str) -> Any:
    return {"artifacts": [{"uri": uri, "metadata": metadata} for uri in uris]}


def command(tmp_path: Path, inputs: Any, outputs: Any, *more: str) -> list[str]:
    output_file = str(tmp_path / "output.json")
    message = {"inputs": {"artifacts": inputs}, "outputs": {"artifacts": outputs, "outputFile": output_file}}
    return ["--executor_class_path", "x.Executor", ARGUMENT, json.dumps(message), *more]


def test_tfx_sees_local_paths_and_the_launcher_uris(pod: Path, tfx: list[Any], tmp_path: Path) -> None:
    outputs = {"model": artifacts("s3://b/run/model", of="s3://b/run/examples", other="s3://elsewhere/x")}
    step.main(command(tmp_path, {"examples": artifacts("s3://b/run/examples")}, outputs))
    [seen] = tfx
    assert seen["inputs"]["artifacts"]["examples"]["artifacts"][0]["uri"] == f"{pod}/s3/b/run/examples"
    [model] = seen["outputs"]["artifacts"]["model"]["artifacts"]
    assert model["uri"] == f"{pod}/s3/b/run/model"
    assert model["metadata"] == {"of": f"{pod}/s3/b/run/examples", "other": "s3://elsewhere/x"}
    assert json.loads((tmp_path / "output.json").read_text())["artifacts"] == outputs


def test_an_artifact_without_files_is_an_empty_folder(pod: Path, tfx: list[Any], tmp_path: Path) -> None:
    step.main(command(tmp_path, {"blessing": artifacts("gs://b/run/blessing")}, {}))
    assert list((pod / "gcs" / "b" / "run" / "blessing").iterdir()) == []


@pytest.mark.parametrize(
    ("type_", "is_file"),
    [
        ({"instanceSchema": "title: tfx.Integer\ntype: object\n"}, True),
        ({"schemaTitle": "tfx.Float"}, True),
        ({"instanceSchema": "title: tfx.types.standard_artifacts.String\n"}, True),
        ({"instanceSchema": "title: tfx.Model\ntype: object\n"}, False),
        ({"schemaTitle": "system.Metrics"}, False),
    ],
)
def test_the_folder_of_a_value_is_that_of_its_file(
    pod: Path, tfx: list[Any], tmp_path: Path, type_: Any, is_file: bool
) -> None:
    output = {"artifacts": [{"uri": "s3://b/run/rows", "type": type_}]}
    step.main(command(tmp_path, {}, {"rows": output}))
    assert (pod / "s3" / "b" / "run").is_dir()
    assert (pod / "s3" / "b" / "run" / "rows").exists() != is_file


def test_later_artifacts_of_an_input_are_downloaded_here(s3: str, pod: Path, tfx: list[Any], tmp_path: Path) -> None:
    files.write_bytes(f"{s3}/2/Split-train/data", b"rows")
    step.main(command(tmp_path, {"examples": artifacts(f"{s3}/1", f"{s3}/2")}, {}))
    [seen] = tfx
    second = Path(seen["inputs"]["artifacts"]["examples"]["artifacts"][1]["uri"])
    assert (second / "Split-train" / "data").read_bytes() == b"rows"


def test_inputs_that_exceed_the_limit_of_the_pod_end_the_step_before_tfx(
    pod: Path, tfx: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = pod / "s3" / "b" / "examples" / "Split-train" / "data"
    examples.parent.mkdir(parents=True)
    examples.write_bytes(b"x" * 5)
    monkeypatch.setenv("INFEED_EPHEMERAL_STORAGE", "4")
    with pytest.raises(InfeedError, match="5 B"):
        step.main(command(tmp_path, {"examples": artifacts("s3://b/examples")}, {}))
    assert not tfx


def test_workers_of_a_cluster_get_the_uris(pod: Path, tfx: list[Any], tmp_path: Path) -> None:
    step.main(command(tmp_path, {"examples": artifacts("gs://b/examples")}, {}, "--runner=FlinkRunner"))
    assert tfx[0]["inputs"]["artifacts"]["examples"]["artifacts"][0]["uri"] == "gs://b/examples"


def test_a_step_that_fails_writes_no_output(pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, **_: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(runpy, "run_module", fails)
    monkeypatch.setattr(sys, "argv", ["step"])
    with pytest.raises(SystemExit) as end:
        step.main(command(tmp_path, {}, {"model": artifacts("s3://b/model")}))
    assert end.value.code == 3
    assert not (tmp_path / "output.json").exists()


def test_machines_of_a_job_run_the_step_with_the_project_of_this_one(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, Any]] = []
    monkeypatch.setattr(cluster_job, "run", lambda _, name, make: made.append((name, make(Place(name, "team")))))
    monkeypatch.setenv("INFEED_PROJECT", "s3://b/project/1.tar.gz")
    machine = {"spec": {"containers": [{"name": "node", "image": "taxi:1"}]}}
    given = command(tmp_path, {}, {"model": artifacts("s3://b/run/model")})
    for output in ("model", "model", "other"):
        other = [word.replace("run/model", f"run/{output}") for word in given]
        step.main(["--job", json.dumps({"options": {"machines": 2}, "pod": machine}), *other])
    assert made[0] == made[1]  # the attempts of a step name the same job
    assert made[0][0] != made[2][0]
    [container] = made[0][1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "infeed.components.kubeflow.machine", *given]
    assert {"name": "INFEED_PROJECT", "value": "s3://b/project/1.tar.gz"} in container["env"]
    assert list((pod / "s3" / "b" / "run" / "model").iterdir()) == []  # the chief uploads the model


def test_compressed_parameters_are_expanded(tfx: list[Any], tmp_path: Path) -> None:
    given = command(tmp_path, {"examples": artifacts("gs://b/examples")}, {})
    message = json.loads(given[3])
    message["inputs"]["parameterValues"] = {"features": pack("[1, 2]"), "epochs": 3}
    step.main(["--in-place", *given[:3], json.dumps(message)])
    assert tfx[0]["inputs"]["parameterValues"] == {"features": "[1, 2]", "epochs": 3}
    assert tfx[0]["inputs"]["artifacts"]["examples"]["artifacts"][0]["uri"] == "gs://b/examples"


def test_tfx_starts_in_the_folder_of_the_projects_archive(
    pod: Path, tfx: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("x = 1")
    archive = project_archive.pack(tmp_path, ["model.py"])
    place = tmp_path / f"{project_archive.digest(archive)}.tar.gz"
    place.write_bytes(archive)
    monkeypatch.chdir(pod.parent)
    (tmp_path / "model.py").unlink()
    monkeypatch.setenv(project_archive.VARIABLE, str(place))
    step.main(["--in-place", *command(tmp_path, {}, {}), f"{project_archive.OPTION}{place}"])
    assert str(place) not in sys.argv[-1]
    assert Path("model.py").read_text() == "x = 1"
    assert len(tfx) == 1
