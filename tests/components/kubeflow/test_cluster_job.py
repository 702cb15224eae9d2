"""The step against a stand-in for the cluster, whose machines are short scripts."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow import cluster_job
from infeed.components.kubeflow.training_job import Place, TrainingJob, job_object

if TYPE_CHECKING:
    from small_cluster import Cluster

pytestmark = pytest.mark.slow  # the client of Kubernetes takes a second to load


@pytest.fixture
def cluster(check_kubernetes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    small_cluster = importlib.import_module("small_cluster")
    monkeypatch.setattr(cluster_job, "_POLL", 0.05)
    monkeypatch.setattr(cluster_job, "_SILENCE", 0.2)
    with small_cluster.serving(found := small_cluster.Cluster(check_kubernetes), tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        yield found


def run(script: str, **options: Any) -> None:
    """Run a job of two machines; `index` is the number of the machine."""
    code = f"import os, pathlib, sys, time; index = int(os.environ['JOB_COMPLETION_INDEX'])\n{script}"
    pod = {"spec": {"containers": [{"name": "node", "image": "taxi:1"}]}}
    given = TrainingJob(2, **{"restarts": 0, **options})

    def make(place: Place) -> Any:
        return job_object(given, pod, place, [sys.executable, "-S", "-c", code])

    cluster_job.run(given, "infeed-a1", make)


def test_the_output_of_the_chief_is_that_of_the_step(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    run("for step in range(3): print('machine', index, 'step', step)")
    assert capfd.readouterr().out.splitlines() == [f"machine 0 step {step}" for step in range(3)]
    assert cluster.jobs == {}
    assert cluster.asked[-1].startswith("DELETE")


def test_a_train_job_is_followed_likewise(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    run("print('here', index)", kind="trainjob", runtime="plain", restarts=None)
    assert capfd.readouterr().out == "here 0\n"
    assert any("trainer.kubeflow.org/v1alpha1" in asked for asked in cluster.asked)


def test_all_machines_are_restarted_after_one_failed(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = f"folder = pathlib.Path({str(tmp_path)!r})\n"
    mark = "pathlib.Path(folder, f'{index}-{time.time_ns()}').touch()\n"
    run(f"{folder}{mark}sys.exit(3 if index and len(list(folder.glob('1-*'))) < 2 else 0)", restarts=1)
    assert len(list(tmp_path.glob("1-*"))) == 2
    assert "restart 1" in caplog.text


def test_a_failed_machine_is_named_with_the_end_of_its_log(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InfeedError, match=r"machine 1 is Failed \(.*exit code 3\)") as error:
        run("time.sleep(0.2 if index else 60); print('out of memory'); sys.exit(3)")
    assert "rehearsal" in error.value.where
    assert "machine 1: out of memory" in capfd.readouterr().out
    assert cluster.jobs == {}


def test_the_error_of_a_machine_becomes_that_of_the_step(cluster: Cluster) -> None:
    error = str(InfeedError("batch_size is 100", where="feed", do="use a multiple of 3"))
    with pytest.raises(InfeedError, match="batch_size is 100") as raised:
        run(f"print('InfeedError: ' + {error!r}); sys.exit(2 - index)")
    assert raised.value.do == "use a multiple of 3"


def test_a_job_that_takes_too_long_is_deleted(cluster: Cluster) -> None:
    with pytest.raises(InfeedError, match="longer than 1 s"):
        run("time.sleep(60)", timeout=1)
    assert cluster.jobs == {}


def test_machines_that_kubernetes_refuses_are_told(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    message = 'Error creating: pods "infeed-a1-node-0-0-" is forbidden: exceeded quota: requested: nvidia.com/gpu=1'
    cluster.refuses_pods, cluster.warnings = True, {"infeed-a1-node-0": ["an older one", message]}
    with pytest.raises(InfeedError, match=r"longer than 1 s.*0 of 2 machines") as error:
        run("time.sleep(60)", timeout=1)
    command = "kubectl describe --namespace rehearsal jobset/infeed-a1 job/infeed-a1-node-0"
    for told in (error.value.what, caplog.text):
        assert f"FailedCreate: {message}; see: {command}" in told
    assert caplog.text.count("0 of 2") == 1  # the step repeats no reason


def test_a_suspended_job_says_so(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.refuses_pods, cluster.suspended, cluster.warnings = True, True, {}
    with pytest.raises(InfeedError, match="longer than 1 s"):
        run("time.sleep(60)", timeout=1)
    assert "Suspended: jobset is suspended; see: kubectl describe" in caplog.text


def test_a_role_without_events_leaves_the_command(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.refuses_pods = True
    with pytest.raises(InfeedError, match="longer than 1 s"):
        run("time.sleep(60)", timeout=1, kind="trainjob", runtime="plain", restarts=None)
    assert "may not list events; see: kubectl describe" in caplog.text
    assert "trainjob/infeed-a1 jobset/infeed-a1 job/infeed-a1-node-0" in caplog.text


def test_machines_that_are_there_again_are_not_explained() -> None:
    no_job: Any = None  # which is not asked
    follower = cluster_job._Follower(no_job, 2, None, _missing="1 of 2 machines have a pod", _explain_at=0.0)
    follower._report_missing({}, 2)
    assert follower._missing == ""
    follower._report_missing({}, 1)  # a restart has some seconds
    assert follower._missing == ""


def test_a_refused_deletion_does_not_hide_the_error(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    refused = (403, {"message": "cannot delete resource jobsets"})
    cluster.failing = {"DELETE": [refused, refused]}
    with pytest.raises(InfeedError, match="cannot delete") as error:
        run("pass")
    printed = "".join(traceback.format_exception(error.value))
    assert (printed.count("cannot delete resource"), "ApiException" in printed, caplog.records) == (1, False, [])
    cluster.failing = {"DELETE": [(200, {}), refused], "POST": [(422, {"message": "no such field"})]}
    with pytest.raises(InfeedError, match="no such field"):
        run("pass")
    assert "cannot delete resource jobsets" in caplog.text
    cluster.failing = {"DELETE": [(200, {}), refused]}
    with pytest.raises(InfeedError, match="cannot delete"):
        run("pass")


def test_a_step_that_is_stopped_deletes_the_job(cluster: Cluster) -> None:
    def stop() -> None:
        while not any(job.machines for job in [*cluster.jobs.values()]):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=stop).start()
    with pytest.raises(SystemExit) as end:
        run("time.sleep(60)")
    assert end.value.code == 128 + signal.SIGTERM
    assert cluster.jobs == {}
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_job_of_an_earlier_attempt_is_deleted_first(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:  # the step dies at once, and cannot delete anything
        killed.setattr(cluster_job._Job, "delete", lambda *_, **__: None)
        killed.setattr(cluster_job, "_Follower", None)
        with contextlib.suppress(TypeError):
            run("time.sleep(60)")
    [left] = cluster.jobs.values()
    run("pass")
    assert left.condition is not None
    assert [machine.process.poll() for machine in left.machines] == [-signal.SIGTERM] * 2


def test_the_job_belongs_to_the_pod_of_the_step(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "the-step")
    place = cluster_job._Cluster.connect().place(TrainingJob(2), "a")
    assert (place.namespace, place.service_account) == ("rehearsal", "runner")
    assert place.owner == {"apiVersion": "v1", "kind": "Pod", "name": "the-step", "uid": "1-2-3"}
    elsewhere = TrainingJob(2, namespace="team", service_account="trainer")  # no owner in another namespace
    assert cluster_job._Cluster.connect().place(elsewhere, "a") == Place("a", "team", "trainer")


def test_a_server_that_restarts_is_asked_again(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.failing = {"GET": [(404, {}), (503, {}), (500, {})], "POST": [(429, {})]}
    run("print('done')")
    assert capfd.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("code", "do"), [(403, "Role"), (404, "install JobSet"), (422, "deploy.training")], ids=["role", "crd", "invalid"]
)
def test_a_refusal_says_what_to_do(cluster: Cluster, code: int, do: str) -> None:
    cluster.failing = {"POST": [(code, {"message": "no such thing"})]}
    with pytest.raises(InfeedError, match=f"{code}: no such thing") as error:
        run("pass")
    assert error.value.where == "create jobsets.jobset.x-k8s.io"
    assert do in error.value.do


def test_a_job_that_somebody_deletes_is_an_error(cluster: Cluster) -> None:
    def delete() -> None:
        while not any(job.machines for job in [*cluster.jobs.values()]):
            time.sleep(0.01)
        cluster.jobs.pop("infeed-a1").stop()

    threading.Thread(target=delete).start()
    with pytest.raises(InfeedError, match="was deleted"):
        run("time.sleep(60)")


def test_without_a_cluster_the_error_names_the_way_to_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InfeedError, match="cannot access") as error:
        run("pass")
    assert "KUBECONFIG" in error.value.do


def test_a_pod_that_waits_says_why() -> None:
    from kubernetes import client

    waits = client.V1ContainerState(
        waiting=client.V1ContainerStateWaiting(reason="ImagePullBackOff", message="no taxi:2")
    )
    started = client.V1ContainerStatus(name="node", image="", image_id="", ready=False, restart_count=0, state=waits)
    unplaced = client.V1PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes")
    for status, state in (
        (client.V1PodStatus(phase="Pending", container_statuses=[started]), "Pending (ImagePullBackOff: no taxi:2)"),
        (client.V1PodStatus(phase="Pending", conditions=[unplaced]), "Pending (Unschedulable: 0/3 nodes)"),
        (client.V1PodStatus(phase="Running"), "Running"),
    ):
        assert cluster_job._state(client.V1Pod(status=status)) == state
