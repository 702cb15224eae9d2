import json
import subprocess
import sys

import pytest

from infeed.pipelines.commands import doctor
from infeed.pipelines.commands.doctor import Finding, Inventory, Level, compare, image_findings, unmet_requirements

pytestmark = pytest.mark.stack


@pytest.fixture
def requires(monkeypatch):
    """Stands in for this package's list of dependencies."""

    def say(*requirements):
        monkeypatch.setattr(doctor, "requires", lambda package: list(requirements))

    return say


def test_a_version_that_is_not_allowed_is_told_with_those_that_are(requires):
    requires("click<2", "rich", "no-such-package>=1")
    assert [line.split(",")[-1].strip() for line in unmet_requirements("tfx-infeed")] == [
        "not <2",
        "no-such-package is missing",
    ]


def test_requirements_of_another_python_or_of_an_extra_do_not_count(requires):
    requires("no-such-package; python_version < '3'", "no-such-package; extra == 'test'")
    assert list(unmet_requirements("tfx-infeed")) == []
    assert list(unmet_requirements("tfx-infeed", "test")) == ["no-such-package is missing"]


def test_an_extra_does_not_repeat_what_all_need(requires):
    requires("no-such-package", "click<2; extra == 'tfx'")
    assert [line.split(",")[-1] for line in unmet_requirements("tfx-infeed", "tfx")] == [" not <2"]


def test_a_stack_that_is_not_as_required_is_a_problem(requires):
    requires("no-such-package")
    finding = doctor._stack()
    assert (finding.level, finding.do) == (
        Level.PROBLEM,
        "Create a new virtual environment: pip install 'tfx-infeed[tfx]'.",
    )
    assert "no-such-package is missing" in finding.found


def test_a_missing_extra_is_named_with_the_command_that_adds_it(requires):
    requires("no-such-package; extra == 'sql'")
    finding = doctor._extras()
    assert finding.level is Level.OK
    assert "kubeflow" in finding.found
    assert "sql" not in finding.found
    assert finding.do == "To add one: pip install 'tfx-infeed[sql]'."


def test_every_engine_that_works_is_named(engines):
    engines.add("podman")
    engines.add("buildah")
    assert doctor._engines() == Finding("build", "container engine", "podman, buildah")


def test_a_machine_without_an_engine_can_still_run_pipelines(engines):
    finding = doctor._engines()
    assert finding.level is Level.WARNING
    assert finding.found == "docker: not installed; podman: not installed; buildah: not installed"


VERSIONS = {"tfx-infeed": "0.1.0", "tfx": "1.21.0", "numpy": "2.4.6"}
HERE = Inventory("3.13.5", VERSIONS, code="abc")


def differences(there):
    return {
        finding.name: (finding.level, finding.found)
        for finding in compare(there, HERE)
        if finding.level is not Level.OK
    }


def having(code="abc", **versions):
    changed = {**VERSIONS, **{name.replace("_", "-"): version for name, version in versions.items()}}
    return Inventory("3.13.5", {name: version for name, version in changed.items() if version}, code)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (HERE, {}),
        (having(tfx="1.21.1"), {}),
        (having(tfx_infeed=None), {"tfx-infeed": (Level.PROBLEM, "not in the image, so its steps cannot run")}),
        (having(tfx_infeed="0.2.0"), {"tfx-infeed": (Level.PROBLEM, "0.2.0 in the image, 0.1.0 here")}),
        (having("def"), {"tfx-infeed": (Level.PROBLEM, "0.1.0 in both, but the code differs")}),
        (having(tfx="1.16.0"), {"tfx": (Level.WARNING, "1.16.0 in the image, 1.21.0 here")}),
        (having(numpy=None), {"numpy": (Level.PROBLEM, "not in the image, 2.4.6 here")}),
    ],
)
def test_differences_between_an_image_and_this_machine(there, found):
    assert differences(there) == found


@pytest.mark.slow
def test_the_image_is_asked_as_this_environment_is(engines):
    """The fake engine runs the command on this machine, so that both are the same."""
    command = f'while [ "$1" != taxi:1 ]; do shift; done; shift; exec {sys.executable} "$@"'
    engines.add("docker", f'[ "$1" != run ] || {{ {command}; }}; echo 3.4GB')
    first, *others = image_findings("taxi:1")
    assert (first.name, first.found.startswith("Python 3.")) == ("taxi:1", True)
    assert {finding.level for finding in others} == {Level.OK}
    assert {"tfx-infeed", "tfx", "tensorflow", "apache-beam"} <= {finding.name for finding in others}


def test_an_image_that_cannot_be_had_is_a_problem(engines):
    engines.add("docker", '[ "$1" != run ] || { echo "manifest unknown" >&2; exit 125; }')
    (finding,) = image_findings("taxi:1")
    assert finding.level is Level.PROBLEM
    assert "manifest unknown" in finding.found


def test_a_python_without_this_package_is_told_as_such(tmp_path):
    bare = [sys.executable, "-S", "-I", "-c", doctor._INVENTORY]
    told = json.loads(subprocess.run(bare, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    assert told["versions"] == {}
