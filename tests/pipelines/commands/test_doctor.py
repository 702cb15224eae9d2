import json

import pytest
from click.testing import CliRunner

from infeed.pipelines.cli import main
from infeed.pipelines.commands import doctor as doctor_command
from infeed.pipelines.commands.doctor import Finding, Level


@pytest.fixture
def machine(monkeypatch):
    """A machine with just the findings that it is given."""

    def has(*findings):
        monkeypatch.setattr(doctor_command, "machine_findings", lambda: findings)

    return has


def doctor(*words):
    return CliRunner().invoke(main, ["doctor", *map(str, words)])


PYTHON = Finding("run", "Python", "3.13.5")
ENGINE = Finding("build", "container engine", "docker: not installed", Level.WARNING, "Install one.")
KFP = Finding("compile", "TFX's compiler", "kfp is missing", Level.PROBLEM, "pip install kfp")


def test_warnings_alone_stand_in_nobodys_way(machine):
    machine(PYTHON, ENGINE)
    result = doctor()
    assert (result.exit_code, "no problems found" in result.output) == (0, True)
    assert "Install one." in result.output


def test_a_problem_is_told_with_its_purpose_and_remedy_and_fails(machine):
    machine(PYTHON, KFP)
    result = doctor()
    assert result.exit_code == 1
    assert "problems for: compile" in result.output
    assert "pip install kfp" in result.output


def test_json_gives_each_finding_by_field(machine):
    machine(KFP)
    (finding,) = json.loads(doctor("--json").output)
    assert finding == {
        "purpose": "compile",
        "name": "TFX's compiler",
        "found": "kfp is missing",
        "level": "problem",
        "do": "pip install kfp",
    }


def test_the_images_of_a_job_are_looked_at(machine, monkeypatch, tmp_path):
    machine()
    monkeypatch.setattr(doctor_command, "image_findings", lambda image: [Finding("image", image, "3.4 GB")])
    executors = {
        name: {"container": {"image": image}} for name, image in (("a", "taxi:1"), ("b", "taxi:1"), ("c", "other"))
    }
    spec = {"pipelineInfo": {"name": "taxi"}, "deploymentSpec": {"executors": executors}, "root": {}}
    (tmp_path / "job.json").write_text(json.dumps({"pipelineSpec": spec}))
    images = [finding["name"] for finding in json.loads(doctor(tmp_path / "job.json", "--json").output)]
    assert images == ["other", "taxi:1"]


def test_a_job_that_is_not_there_is_bad_input(machine):
    machine()
    result = doctor("nothing.json")
    assert (result.exit_code, "nothing.json" in result.output) == (2, True)
