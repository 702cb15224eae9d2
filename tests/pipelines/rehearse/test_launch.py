from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.pipelines.rehearse.launch import ContainerLauncher, LocalLauncher
from infeed.pipelines.rehearse.locations import PathMapping

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
