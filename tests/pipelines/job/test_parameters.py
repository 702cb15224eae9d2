from __future__ import annotations

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import CompiledJob
from infeed.pipelines.job.parameters import read_parameters

DECLARED = {
    "data": {"parameterType": "STRING"},
    "epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 5.0},
    "rate": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.1},
    "augment": {"parameterType": "BOOLEAN", "defaultValue": False},
    "layers": {"parameterType": "LIST", "defaultValue": []},
    "options": {"parameterType": "STRUCT", "defaultValue": {}},
}


def read(given: list[str], job: CompiledJob) -> dict[str, object]:
    return read_parameters(given, job.parameters, job.name)


def job(**declared: object) -> CompiledJob:
    root = {"inputDefinitions": {"parameters": declared}} if declared else {}
    return CompiledJob({"pipelineInfo": {"name": "taxi"}, "schemaVersion": "2.1.0", "root": root})


def test_values_get_the_types_that_the_job_declares() -> None:
    given = ["data=a=b", "epochs=7", "rate=1", "augment=true", "layers=[8, 4]", 'options={"a": 1}']
    found = read(given, job(**DECLARED))
    assert found == {"data": "a=b", "epochs": 7, "rate": 1, "augment": True, "layers": [8, 4], "options": {"a": 1}}
    assert type(found["epochs"]) is int
    assert type(found["augment"]) is bool


def test_a_text_is_never_taken_for_a_number() -> None:
    assert read(["data=007"], job(**DECLARED)) == {"data": "007"}


def test_only_what_is_given_is_sent_and_the_rest_keeps_the_jobs_defaults() -> None:
    assert read(["data="], job(**DECLARED)) == {"data": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "epochs=2.5",
            r"'2.5' is not a whole number\n  where: --parameter epochs=2.5\n  do:    .*5",
        ),
        ("epochs=true", r"'true' is not a whole number"),
        ("epochs=five", r"'five' is not a whole number"),
        ("rate=NaN", r"'NaN' is not a number"),
        ("augment=1", r"'1' is not true or false"),
        ('layers={"a": 1}', r"is not a list"),
        ("epochs", r"no value for 'epochs'.*\n.*\n.*--parameter epochs=VALUE"),
        (
            "epoch=1",
            r"unknown parameter 'epoch'.*\n.*\n  do:    the job has data \(STRING\), epochs \(NUMBER_INTEGER\)",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_one_that_would(text: str, said: str) -> None:
    with pytest.raises(InfeedError, match=said):
        read(["data=x", text], job(**DECLARED))


def test_a_parameter_without_a_default_has_to_be_given() -> None:
    with pytest.raises(InfeedError, match=r"no value for data\n.*'taxi'\n  do:    add --parameter data=VALUE"):
        read([], job(**DECLARED))


def test_a_name_is_given_once() -> None:
    with pytest.raises(InfeedError, match=r"two values for 'epochs'"):
        read(["epochs=1", "epochs=2"], job(**DECLARED))


def test_a_job_without_parameters_takes_none() -> None:
    assert read([], job()) == {}
    with pytest.raises(InfeedError, match=r"unknown parameter 'epochs'.*\n.*\n.*the job has no parameters"):
        read(["epochs=1"], job())
