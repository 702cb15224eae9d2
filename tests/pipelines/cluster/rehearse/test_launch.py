from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.cluster.job.compiled import read_tasks
from infeed.pipelines.cluster.rehearse.executor_io import Artifact
from infeed.pipelines.cluster.rehearse.launch import (
    ContainerLauncher,
    Faults,
    LocalLauncher,
    Pod,
    describe_exit,
    has_begun,
    last_lines,
    pod_below,
)
from infeed.pipelines.cluster.rehearse.rehearsal import PathMapping

# A docker that runs the command on this machine, with the interpreter that the image would have.
DOCKER = f"""
[ "$1" = run ] || exit 0
until [ "${{1#--entrypoint=}}" != "$1" ]; do shift; done
shift 2
{sys.executable} "$@"
"""


@pytest.mark.parametrize("python", ["python", "python3"])
def test_here_the_current_python_is_the_one_of_the_image(python: str) -> None:
    here = LocalLauncher("/packages")
    assert here.command([python, "-m", "step"], {}) == [sys.executable, "-m", "step"]
    assert here.command(["sh", "-c", python], {}) == ["sh", "-c", python]
    assert here.environment["PATH"].startswith(f"{Path(sys.executable).parent}:")


def test_what_a_step_installs_stays_out_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    environment = LocalLauncher("/packages").environment
    assert (environment["PIP_TARGET"], environment["PYTHONPATH"]) == ("/packages", "/packages:/mine")
    assert ContainerLauncher("taxi:1", ()).environment == {}


def test_an_image_sees_the_folders_under_their_own_names(engines: Any) -> None:
    engines.add("docker")
    command = ContainerLauncher("taxi:1", ("/root", "/data")).command(["python", "-m", "step"], {"A": "b"})
    assert command[:2] == ["docker", "run"]
    assert {"--volume=/root:/root", "--volume=/data:/data", "--env=A=b"} <= set(command)
    assert command[-4:] == ["--entrypoint=python", "taxi:1", "-m", "step"]


@pytest.mark.slow
def test_every_step_runs_in_the_image_and_is_cached_apart_from_those_run_here(
    jobs: ModuleType, engines: Any, tmp_path: Path
) -> None:
    engines.add("docker", DOCKER)
    learn = jobs.step("write('model', values['base'])", gives=["model"], parameters={"base": "gs://bucket/x"})
    job = jobs.job({"learn": learn})
    options = {"image": "taxi:1", "maps": (PathMapping.parse(f"gs://bucket={tmp_path}"),)}
    rehearsal = jobs.run(job, tmp_path / "root", **options)
    assert jobs.text(rehearsal, "learn", "model") == f"{tmp_path}/x"
    [run] = [call for call in engines.calls("docker") if call[0] == "run"]
    volumes = [word for word in run if word.startswith("--volume=")]
    assert volumes == [f"--volume={folder}:{folder}" for folder in (tmp_path / "root", tmp_path)]
    assert jobs.states(jobs.run(job, tmp_path / "root", **options)) == {"learn": "cached"}
    assert jobs.states(jobs.run(job, tmp_path / "root", maps=options["maps"])) == {"learn": "done"}


def test_they_are_read_from_the_command_line() -> None:
    faults = Faults.parse(["Trainer:2", "Pusher"], ["Transform"])
    assert faults == Faults({"Trainer": 2, "Pusher": 1, "Transform": 1}, frozenset({"Transform"}))


@pytest.mark.parametrize("count", ["0", "two", "-1", ""])
def test_a_number_of_attempts_is_one(count: str) -> None:
    with pytest.raises(InfeedError, match="is not a number of attempts"):
        Faults.parse([f"Trainer:{count}"], [])


def test_only_steps_that_run_something_can_fail(jobs: ModuleType) -> None:
    tasks = read_tasks(jobs.job({"learn": jobs.step(retries=1), "push": jobs.step()}).spec)
    Faults.parse(["push"], ["learn"]).check(tasks)
    with pytest.raises(InfeedError, match=r"no step 'Learn' to fail\n.*learn, push"):
        Faults.parse(["Learn"], []).check(tasks)
    with pytest.raises(InfeedError, match="push is not retried"):
        Faults.parse([], ["push"]).check(tasks)


def test_a_step_has_begun_once_there_is_a_file(tmp_path: Path) -> None:
    output = tmp_path / "model"
    assert not has_begun([str(output)])
    (output / "variables").mkdir(parents=True)
    assert not has_begun([str(output)])
    (output / "variables" / "part").touch()
    assert has_begun([str(output)])
    assert has_begun([str(output / "variables" / "part")])  # some components write a file where others write a folder


LOG = """$ python -m step
OldError: of the attempt before
$ python -m step
INFO: starting
Traceback (most recent call last):
  File "step.py", line 1, in <module>
google.api_core.exceptions.NotFoundError: no such object
I0000 cleaning up
"""


def test_the_error_named_last_in_this_attempt_is_told_with_the_status(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    begun = LOG.index("$", 5)
    assert describe_exit(1, tmp_path / "log", begun) == "NotFoundError: no such object (exit status 1)"


def test_our_own_error_is_told_whatever_was_made_of_it(tmp_path: Path) -> None:
    ours = InfeedError("no files found", where="gs://bucket/*.csv", do="look")
    (tmp_path / "log").write_text(f"infeed.components.base.errors.InfeedError: {ours}\nRuntimeError: Job '1' failed.\n")
    told = "no files found (exit status 1)\n  where: gs://bucket/*.csv\n  do:    look"
    assert describe_exit(1, tmp_path / "log", 0) == told


def test_a_signal_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert describe_exit(-9, tmp_path / "log", len(LOG)) == "killed by SIGKILL"


def test_the_last_lines_are_short(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\n" + "c" * 1000)
    assert last_lines(tmp_path / "log", 2) == ["b", "c" * 300 + " ..."]
    assert last_lines(tmp_path / "none") == []


def artifact(uri: str) -> Artifact:
    return Artifact("run/node/key", {"schemaTitle": "system.Artifact"}, uri)


def written(folder: str, **content: str) -> None:
    for name, text in content.items():
        Path(folder, "sub").mkdir(parents=True, exist_ok=True)
        Path(folder, "sub", name).write_text(text)


def test_a_step_finds_its_inputs_on_the_disk_of_its_pod(s3: str, tmp_path: Path) -> None:
    files.write_bytes(f"{s3}/model/sub/graph", b"graph")
    with pod_below(tmp_path / "pod") as pod:
        pod.download({"model": [artifact(f"{s3}/model")], "none": [artifact(f"{s3}/none")]})
        assert Path(pod.path(f"{s3}/model"), "sub", "graph").read_bytes() == b"graph"
        assert not Path(pod.path(f"{s3}/none")).exists()
        assert pod.path("/mnt/volume") == "/mnt/volume"
    assert not (tmp_path / "pod").exists()


@pytest.mark.parametrize("downloads_all", [False, True])
def test_the_artifacts_of_an_input_after_the_first_are_downloaded_since_2_14(
    s3: str, tmp_path: Path, downloads_all: bool
) -> None:
    for number in (1, 2):
        files.write_bytes(f"{s3}/{number}/data", b"rows")
    with pod_below(tmp_path / "pod", downloads_all=downloads_all) as pod:
        pod.download({"examples": [artifact(f"{s3}/1"), artifact(f"{s3}/2")]})
        assert Path(pod.path(f"{s3}/1")).is_dir()
        assert Path(pod.path(f"{s3}/2")).exists() == downloads_all


def test_outputs_reach_the_store_without_objects_for_folders(s3: str, tmp_path: Path) -> None:
    with pod_below(tmp_path / "pod") as pod:
        written(pod.path(f"{s3}/model"), graph="graph", index="index")
        pod.upload({"model": [artifact(f"{s3}/model")], "unwritten": [artifact(f"{s3}/unwritten")]})
    assert [file.path for file in files.list_files(s3, depth=9)] == [f"{s3}/model/sub/graph", f"{s3}/model/sub/index"]


def test_a_store_that_loses_a_part_is_noticed(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = files.copy

    def losing(source: str, target: str) -> None:
        copy(source, target)
        files.remove(f"{target}/sub/index")

    monkeypatch.setattr(files, "copy", losing)
    with pod_below(tmp_path / "pod") as pod:
        written(pod.path(f"{s3}/model"), graph="graph", index="index")
        with pytest.raises(InfeedError, match="sub/index") as error:
            pod.upload({"model": [artifact(f"{s3}/model")]})
    assert error.value.where == f"{s3}/model/sub/index"


def test_a_store_that_refuses_fails_the_step(s3: str, tmp_path: Path, s3_failing: Callable[[str, int], None]) -> None:
    files.write_bytes(f"{s3}/model/graph", b"graph")
    s3_failing(f"{s3}/model/graph", 9)
    with pod_below(tmp_path / "pod") as pod, pytest.raises(InfeedError, match="'model'") as error:
        pod.download({"model": [artifact(f"{s3}/model")]})
    assert error.value.where == f"{s3}/model"


def test_without_a_store_a_step_sees_the_artifacts_themselves(tmp_path: Path) -> None:
    with pod_below(None) as pod:
        assert pod == Pod()
        assert pod.path("s3://bucket/x") == "s3://bucket/x"
        outputs: Any = {"model": [artifact(str(tmp_path))]}
        pod.upload(outputs)
        assert pod.environment == {}
