import dataclasses
import json
import subprocess
import sys

import pytest

from infeed.pipelines import doctor
from infeed.pipelines.doctor import Inventory, Level, compare, image_findings

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
