import json
import sys

import pytest

from infeed.components.feed.capacity import Machine
from infeed.pipelines import doctor
from infeed.pipelines.doctor import (
    Finding,
    Level,
    devices,
    python_and_stack,
    room,
    unmet_requirements,
)
from infeed.pipelines.doctor import (
    engines as container_engines,
)


@pytest.fixture
def requires(monkeypatch):
    """Stands in for this package's list of dependencies."""

    def say(*requirements):
        monkeypatch.setattr(doctor, "requires", lambda package: list(requirements))

    return say


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Stands in for the process that asks TensorFlow for devices."""

    def says(script):
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))

    return says


def test_a_version_that_is_not_allowed_is_told_with_those_that_are(requires):
    requires("click<2", "rich", "no-such-package>=1")
    assert [line.split(",")[-1].strip() for line in unmet_requirements("tfx-infeed")] == [
        "not <2",
        "no-such-package is missing",
    ]


def test_requirements_of_another_python_or_of_an_extra_do_not_count(requires):
    requires("no-such-package; python_version < '3'", "no-such-package; extra == 'test'")
    assert list(unmet_requirements("tfx-infeed")) == []


def test_a_stack_that_is_not_as_required_is_a_problem(requires):
    requires("no-such-package")
    finding = list(python_and_stack())[1]
    assert (finding.level, finding.do) == (
        Level.PROBLEM,
        "Create a new virtual environment: pip install 'tfx-infeed[tfx]'.",
    )
    assert "no-such-package is missing" in finding.found


def test_devices_are_counted_by_kind(python):
    python("echo a warning; echo '" + json.dumps({"CPU": 1, "GPU": 8}) + "'")
    assert list(devices()) == [Finding("run", "devices", "1 CPU, 8 GPU")]


def test_a_driver_whose_gpus_tensorflow_does_not_see_is_a_warning(python, monkeypatch):
    python("echo '{\"CPU\": 1}'")
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: True)
    (finding,) = devices()
    assert finding.level is Level.WARNING
    assert "tensorflow[and-cuda]" in finding.do


def test_a_tensorflow_that_does_not_start_is_a_problem_with_its_last_words(python):
    python("echo Traceback >&2; echo 'ImportError: libcuda' >&2; exit 1")
    (finding,) = devices()
    assert (finding.level, finding.found) == (Level.PROBLEM, "TensorFlow does not start: ImportError: libcuda")


def test_little_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(Machine, "here", lambda: Machine(cpus=1, memory_bytes=2 * 10**9))
    cpu, memory, _ = room()
    assert (cpu.found, cpu.level) == ("1 core", Level.OK)
    assert (memory.found, memory.level) == ("2.0 GB: little for TFX", Level.WARNING)


def test_every_engine_that_works_is_named(engines):
    engines.add("podman")
    engines.add("buildah")
    assert list(container_engines()) == [Finding("build", "container engine", "podman, buildah")]


def test_a_machine_without_an_engine_can_still_run_pipelines(engines):
    (finding,) = container_engines()
    assert finding.level is Level.WARNING
    assert finding.found == "docker: not installed; podman: not installed; buildah: not installed"
