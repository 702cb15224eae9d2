from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed import components
from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def channels() -> dict[str, Any]:
    from tfx import types
    from tfx.types import standard_artifacts

    return {
        "model_run": types.Channel(type=standard_artifacts.ModelRun),
        "examples": types.Channel(type=standard_artifacts.Examples),
        "transform_graph": types.Channel(type=standard_artifacts.TransformGraph),
    }


def test_the_model_run_is_all_it_needs() -> None:
    component = components.InputReport(model_run=channels()["model_run"])
    assert list(component.inputs) == ["model_run"]
    assert list(component.outputs) == ["report"]
    assert component.outputs["report"].type_name == "Metrics"


def test_a_limit_may_be_given_as_a_whole_number() -> None:
    component = components.InputReport(**channels(), max_wait_fraction=0)
    assert component.exec_properties["max_wait_fraction"] == 0.0


def test_a_limit_that_is_no_share_stops_the_pipeline_before_it_starts() -> None:
    with pytest.raises(InfeedError, match="max_wait_fraction is 10"):
        components.InputReport(**channels(), max_wait_fraction=10)


def test_runs_under_the_local_runner(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    from tfx.orchestration import metadata
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner

    trained(tmp_path, as_json())
    store = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite"))
    LocalDagRunner().run(pipeline_of(tmp_path, metadata_connection_config=store))

    with metadata.Metadata(store) as handle:
        (report,) = handle.store.get_artifacts_by_type("Metrics")
    assert report.custom_properties["verdict"].string_value == "input-bound"
    assert report.custom_properties["wait_fraction"].double_value == pytest.approx(0.5)
    assert report.custom_properties["blessed"].int_value == 0
    assert (Path(report.uri) / "report.html").exists()


def test_the_compiled_kubeflow_step_runs(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """The step's own container entry point, with what Kubeflow would put in place of `{{$}}`."""
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor

    job = compiled(tmp_path)
    component = job["components"]["InputReport"]
    arguments = job["deploymentSpec"]["executors"]["InputReport_executor"]["container"]["args"]
    output_file = tmp_path / "task" / "executor_output.json"
    invocation = {
        "inputs": {
            "artifacts": {
                "model_run": placed(component["inputDefinitions"], "model_run", trained(tmp_path, as_json()))
            },
            # Either form, as the version of the job's schema wants it.
            "parameters": {"max_wait_fraction": {"doubleValue": 0.1}},
            "parameterValues": {"max_wait_fraction": 0.1},
        },
        "outputs": {
            "artifacts": {"report": placed(component["outputDefinitions"], "report", tmp_path / "out")},
            "outputFile": str(output_file),
        },
    }
    values = {"{{$}}": json.dumps(invocation)}
    kubeflow_v2_run_executor.main(kubeflow_v2_run_executor._parse_flags([values.get(a, a) for a in arguments]))

    (recorded,) = json.loads(output_file.read_text())["artifacts"]["report"]["artifacts"]
    assert recorded["metadata"]["verdict"] == "input-bound"
    assert recorded["metadata"]["blessed"] == 0
    assert (tmp_path / "out" / "report.html").exists()


def trained(tmp_path: Path, profile: dict[str, Any]) -> Path:
    """A model run as the Trainer leaves it."""
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "input_profile.json").write_text(json.dumps(profile))
    return folder


def pipeline_of(tmp_path: Path, **settings: Any) -> Any:
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration.pipeline import Pipeline
    from tfx.types import standard_artifacts

    model_run = Importer(source_uri=str(tmp_path / "trained"), artifact_type=standard_artifacts.ModelRun)
    report = components.InputReport(model_run=model_run.outputs["result"], max_wait_fraction=0.1)
    return Pipeline("reported", str(tmp_path / "root"), components=[model_run, report], **settings)


def compiled(tmp_path: Path) -> dict[str, Any]:
    """The pipeline as Kubeflow Pipelines gets it."""
    from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner, KubeflowV2DagRunnerConfig

    runner = KubeflowV2DagRunner(KubeflowV2DagRunnerConfig(), output_dir=str(tmp_path), output_filename="job.json")
    runner.run(pipeline_of(tmp_path), write_out=True)
    job: dict[str, Any] = json.loads((tmp_path / "job.json").read_text())["pipelineSpec"]
    return job


def placed(definitions: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """The runtime artifact of one input or output, of the type that the compiled job gives it."""
    artifact_type = definitions["artifacts"][name]["artifactType"]
    return {"artifacts": [{"name": name, "uri": str(folder), "type": artifact_type}]}


def test_a_report_is_shown_in_a_frame_and_other_metrics_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tfx.orchestration.experimental.interactive import visualizations
    from tfx.types.experimental import simple_artifacts

    from infeed.components.input_report.component import show_in_notebooks

    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show_in_notebooks()
    show_in_notebooks()
    artifact = simple_artifacts.Metrics()
    artifact.uri = str(tmp_path)
    visualization = visualizations.get_registry().get_visualization(artifact.type_name)
    visualization.display(artifact)
    assert not shown
    (tmp_path / "report.html").write_text('<p class="verdict">balanced</p>')
    visualization.display(artifact)
    assert 'srcdoc="&lt;p class=&quot;verdict&quot;&gt;' in shown[0].data
