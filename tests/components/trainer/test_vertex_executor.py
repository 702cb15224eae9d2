"""The custom job that a Trainer on Vertex AI asks for, with a client in the place of Google's that takes every job."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.tfx

JOB = {
    "project": "taxi",
    "region": "europe-west4",
    "display_name": "taxi-trainer",
    "job_spec": {
        "worker_pool_specs": [
            {
                "machine_spec": {"machine_type": "n1-standard-8"},
                "replica_count": n,
                "container_spec": {"image_uri": "i:1"},
            }
            for n in (1, 3)
        ]
    },
}


class Client:
    """Vertex AI's JobServiceClient: keeps the job that it is given, and says that it has ended in `state`."""

    def __init__(self, state: str) -> None:
        self.state, self.parent, self.job = state, "", None

    def create_custom_job(self, parent: str, custom_job: dict[str, Any]) -> Any:
        from google.cloud.aiplatform_v1.types import CustomJob

        self.parent, self.job = parent, CustomJob(custom_job)
        return CustomJob(name=f"{parent}/customJobs/1")

    def get_custom_job(self, name: str, retry: Any) -> Any:
        from google.cloud.aiplatform_v1.types import CustomJob, JobState

        del retry
        return CustomJob(name=name, state=JobState[f"JOB_STATE_{self.state}"])


def train(monkeypatch: pytest.MonkeyPatch, state: str) -> Client:
    from tfx.extensions.google_cloud_ai_platform import training_clients
    from tfx.types import standard_artifacts

    from infeed.components.trainer import vertex_executor

    client = Client(state)
    monkeypatch.setattr(training_clients.gapic, "JobServiceClient", lambda client_options: client)
    model = standard_artifacts.Model()
    model.uri = "gs://bucket/model"
    config = {"infeed": {"epochs": 50}, **vertex_executor.custom_config(JOB)}
    properties = {"custom_config": json.dumps(config), "run_fn": "r", "epochs": 3}
    vertex_executor.VertexExecutor().Do({}, {"model": [model]}, properties)
    return client


def test_every_machine_runs_our_executor_with_the_options_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    client = train(monkeypatch, "SUCCEEDED")
    assert client.parent == "projects/taxi/locations/europe-west4"
    assert client.job.display_name == "taxi-trainer"
    pools = client.job.job_spec.worker_pool_specs
    assert [pool.replica_count for pool in pools] == [1, 3]
    for pool in pools:
        command = list(pool.container_spec.command)
        assert command[:3] == ["python", "-m", "tfx.scripts.run_executor"]
        given = dict(zip(command[3::2], command[4::2], strict=True))
        assert given["--executor_class_path"] == "infeed.components.trainer.executor.TrainerExecutor"
        assert "gs://bucket/model" in given["--outputs"]
        assert json.loads(given["--exec-properties"])["epochs"] == 3
        assert pool.container_spec.image_uri == "i:1"


def test_a_job_that_fails_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"Job 'projects/taxi/locations/europe-west4/customJobs/1' did not succeed"):
        train(monkeypatch, "FAILED")


def test_a_job_without_one_of_its_parts_is_refused() -> None:
    from infeed.components.base.errors import InfeedError
    from infeed.components.trainer import vertex_executor

    given = {name: part for name, part in JOB.items() if name != "region"}
    with pytest.raises(InfeedError, match=r"(?s)no region.*give display_name, job_spec, project, region"):
        vertex_executor.spec_of(given, None)
