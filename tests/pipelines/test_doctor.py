import dataclasses
import json
import subprocess
import sys
import time

import pytest

from infeed.components.feed.capacity import Machine
from infeed.pipelines import doctor
from infeed.pipelines.doctor import (
    Finding,
    Inventory,
    Level,
    compare,
    credentials,
    devices,
    examine,
    image_findings,
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


def finds(*names):
    return lambda: [Finding("run", name, "there") for name in names]


def breaks():
    raise OSError("no such device")


def test_the_findings_are_in_the_order_of_the_checks():
    def slow():
        time.sleep(0.05)
        return finds("first", "second")()

    assert [finding.name for finding in examine([("run", slow), ("build", finds("third"))])] == [
        "first",
        "second",
        "third",
    ]


def test_a_check_that_breaks_is_a_finding_and_the_others_are_made_all_the_same():
    broken, whole = examine([("build", breaks), ("run", finds("CPU"))])
    assert (broken.purpose, broken.name, broken.level) == ("build", "breaks", Level.PROBLEM)
    assert broken.found == "OSError: no such device"
    assert whole == Finding("run", "CPU", "there")


SECRET = "-----BEGIN PRIVATE KEY-----"


@pytest.fixture
def find(tmp_path):
    """The findings for Kubeflow and Google, on a machine that has nothing but what the test gives it."""

    def found(environment=(), vendor="Standard PC"):
        (tmp_path / "vendor").write_text(vendor)
        return tuple(credentials(dict(environment), tmp_path, tmp_path / "vendor"))

    return found


def key(path, **content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"private_key": SECRET, **content}))
    return path


def test_without_any_vertex_cannot_be_asked_but_many_kubeflows_can(find):
    kubeflow, google = find()
    assert (kubeflow.level, google.level) == (Level.OK, Level.WARNING)
    assert "gcloud auth application-default login" in google.do


def test_a_key_file_is_told_by_kind_and_never_by_content(find, tmp_path):
    file = key(tmp_path / "key.json", type="service_account")
    _, google = find({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    assert google.found == "service_account, named by GOOGLE_APPLICATION_CREDENTIALS"
    assert SECRET not in repr(google)


def test_the_named_file_comes_before_that_of_gcloud(find, tmp_path):
    file = key(tmp_path / "key.json", type="external_account")
    key(tmp_path / ".config" / "gcloud" / "application_default_credentials.json", type="authorized_user")
    assert find({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})[1].found.startswith("external_account")
    assert find()[1].found == "authorized_user, of gcloud"


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_a_file_that_is_no_key_is_a_problem(find, tmp_path, content):
    (tmp_path / "key.json").write_text(content)
    _, google = find({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")})
    assert google.level is Level.PROBLEM


def test_a_machine_of_google_has_an_account(find):
    assert find(vendor="Google Compute Engine")[1].found == "service account of this machine"


def test_a_pod_has_the_token_of_its_cluster(find, tmp_path):
    (tmp_path / "token").write_text(SECRET)
    kubeflow, _ = find({"KF_PIPELINES_SA_TOKEN_PATH": str(tmp_path / "token")})
    assert kubeflow.found == "service account token of a pod"


VERSIONS = {"tfx-infeed": "0.1.0", "tfx": "1.21.0", "numpy": "2.4.6"}
HERE = Inventory("3.13.5", VERSIONS, code="abc")


def differences(there):
    return {
        finding.name: (finding.level, finding.found)
        for finding in compare(there, HERE)
        if finding.level is not Level.OK
    }


def having(**versions):
    changed = {**VERSIONS, **{name.replace("_", "-"): version for name, version in versions.items()}}
    return dataclasses.replace(HERE, versions={name: version for name, version in changed.items() if version})


def test_the_same_in_both_leaves_nothing_to_say():
    assert differences(HERE) == {}


def test_an_image_without_this_package_cannot_run_a_job():
    assert differences(having(tfx_infeed=None)) == {
        "tfx-infeed": (Level.PROBLEM, "not in the image, so its steps cannot run")
    }


def test_another_version_of_this_package_is_a_problem():
    assert differences(having(tfx_infeed="0.2.0"))["tfx-infeed"] == (Level.PROBLEM, "0.2.0 in the image, 0.1.0 here")


def test_the_same_version_with_other_code_is_a_problem():
    stale = dataclasses.replace(HERE, code="def")
    assert differences(stale)["tfx-infeed"] == (Level.PROBLEM, "0.1.0 in both, but the code differs")


def test_another_tfx_is_worth_a_rehearsal():
    assert differences(having(tfx="1.16.0"))["tfx"] == (Level.WARNING, "1.16.0 in the image, 1.21.0 here")
    assert differences(having(tfx="1.21.1")) == {}


def test_what_is_missing_there_is_a_problem():
    assert differences(having(numpy=None))["numpy"][0] is Level.PROBLEM


@pytest.mark.slow
def test_the_image_is_asked_as_this_environment_is(engines):
    """The fake engine runs the command on this machine, so that both are the same."""
    command = f'while [ "$1" != taxi:1 ]; do shift; done; shift; exec {sys.executable} "$@"'
    engines.add("docker", f'[ "$1" != run ] || {{ {command}; }}; echo 3.4GB')
    first, *others = image_findings("taxi:1")
    assert (first.name, first.found.split(",")[0]) == ("taxi:1", "3.4GB")
    assert {finding.level for finding in others} == {Level.OK}
    assert {"tfx-infeed", "tfx", "tensorflow", "apache-beam"} <= {finding.name for finding in others}
    *others, last = image_findings("taxi:1", beam_runner="DataflowRunner")
    assert (last.name, last.level) == ("Beam worker", Level.PROBLEM)
    assert "/opt/apache/beam/boot" in last.found


BEAM = dataclasses.replace(HERE, versions={**VERSIONS, "apache-beam": "2.77.0"})
SDK = "docker.io/apache/beam_python3.13_sdk:2.77.0"


@pytest.mark.parametrize(
    ("there", "here", "runner", "level"),
    [
        ({}, BEAM, "DataflowRunner", Level.PROBLEM),
        ({}, BEAM, "FlinkRunner", Level.WARNING),  # a pool starts without the program as well
        ({"beam_worker": True, "beam_sdk": SDK}, BEAM, "DataflowRunner", Level.OK),
        ({"beam_worker": True}, BEAM, "DataflowRunner", Level.OK),  # whoever put it there
        ({"beam_worker": True, "beam_sdk": SDK.replace("77", "76")}, BEAM, "FlinkRunner", Level.PROBLEM),
        ({"beam_worker": True, "beam_sdk": SDK.replace("3.13", "3.12")}, BEAM, "FlinkRunner", Level.PROBLEM),
        ({"beam_worker": True, "beam_sdk": SDK}, HERE, "FlinkRunner", Level.WARNING),
    ],
)
def test_beam_is_the_same_in_the_image_for_its_workers_and_here(there, here, runner, level):
    finding = doctor._beam_worker(dataclasses.replace(BEAM, **there), here, runner)
    assert (finding.name, finding.level) == ("Beam worker", level)
    assert ("2.77.0" in finding.found) == bool(there)


def test_an_image_that_cannot_be_had_is_a_problem(engines):
    engines.add("docker", '[ "$1" != run ] || { echo "manifest unknown" >&2; exit 125; }')
    (finding,) = image_findings("taxi:1")
    assert finding.level is Level.PROBLEM
    assert "manifest unknown" in finding.found


def test_a_python_without_this_package_is_told_as_such(tmp_path):
    bare = [sys.executable, "-S", "-I", "-c", doctor._INVENTORY]
    told = json.loads(subprocess.run(bare, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert told["versions"] == {}
