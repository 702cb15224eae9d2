from __future__ import annotations

from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.job.parameters import (
    as_text,
    constant,
    declared_type,
    legacy_value,
    parse,
    read_parameters,
    to_legacy,
)

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


def test_a_component_in_python_prints_true_with_a_capital_letter() -> None:
    assert parse("True", "BOOLEAN", "out") is True


def test_a_text_is_never_taken_for_a_number_and_defaults_are_not_sent() -> None:
    assert read(["data=007"], job(**DECLARED)) == {"data": "007"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epochs=2.5", r"'2.5' is not a whole number\n  where: --parameter epochs=2.5\n  do:    .*5"),
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


@pytest.mark.parametrize("value", [3, 0.5, "three"])
def test_types_of_schema_2_0_go_both_ways(value: Any) -> None:
    assert legacy_value(to_legacy(value)) == value


def test_a_constant_is_read_in_either_schema() -> None:
    assert constant({"constant": [1, 2]}) == [1, 2]
    assert constant({"constantValue": {"doubleValue": 0.5}}) == 0.5


def test_declared_types_have_one_name_in_both_schemas() -> None:
    assert declared_type({"type": "INT"}) == declared_type({"parameterType": "NUMBER_INTEGER"}) == "NUMBER_INTEGER"


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (3.0, "3"), (0.5, "0.5"), (True, "true"), ([1, "a"], '[1, "a"]'), ({"a": 1}, '{"a": 1}')],
)
def test_command_lines_hold_values_as_kubeflow_writes_them(value: Any, text: str) -> None:
    assert as_text(value) == text
