from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.dag import read_tasks
from infeed.pipelines.rehearse.platform import check_platform

RESOLVER = {"resolver": {"outputArtifactQueries": {}}}


def test_resolvers_are_for_vertex_alone(jobs: ModuleType) -> None:
    tasks = read_tasks(jobs.job({"latest": {**jobs.step(), "executor": RESOLVER}}).spec)
    check_platform(tasks, "vertex")
    with pytest.raises(InfeedError, match="refuses the job for latest"):
        check_platform(tasks, "kubeflow")


@pytest.mark.parametrize(
    ("words", "service"),
    [
        (["tfx.extensions.google_cloud_ai_platform.trainer.executor.GenericExecutor"], "Vertex AI"),
        (["--runner=DataflowRunner", "--project=p"], "Dataflow"),
        (["--runner", "DataflowRunner"], "Dataflow"),
    ],
)
def test_a_step_that_would_start_something_elsewhere_is_refused(
    jobs: ModuleType, words: list[str], service: str
) -> None:
    step = jobs.step()
    step["executor"]["container"]["args"] += words
    with pytest.raises(InfeedError, match=f"Trainer would hand its work to {service}"):
        check_platform(read_tasks(jobs.job({"Trainer": step}).spec), "vertex")


@pytest.mark.slow
def test_kubeflow_runs_no_drivers(jobs: ModuleType, tmp_path: Path) -> None:
    ingest = jobs.step("write('examples', '')", gives=["examples"], driver="sys.exit('the driver ran')")
    compiled = jobs.job({"ingest": ingest})
    assert jobs.states(jobs.run(compiled, tmp_path, platform="kubeflow")) == {"ingest": "done"}
    assert jobs.states(jobs.run(compiled, tmp_path, platform="vertex")) == {"ingest": "failed"}
