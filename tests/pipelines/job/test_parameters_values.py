from __future__ import annotations

from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.parameters import as_text, constant, declared_type, legacy_value, mapped, parse, to_legacy


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


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", "NUMBER_INTEGER", 3),
        ("0.5", "NUMBER_DOUBLE", 0.5),
        ("True", "BOOLEAN", True),  # as a component in Python prints it
        ("[1]", "LIST", [1]),
        ('{"a": 1}', "STRUCT", {"a": 1}),
        ("3", "STRING", "3"),
    ],
)
def test_an_output_file_is_read_by_its_type(text: str, kind: str, value: Any) -> None:
    assert parse(text, kind, "out") == value


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("3.5", "NUMBER_INTEGER", "a whole number"),
        ("yes", "BOOLEAN", "true or false"),
        ("{}", "LIST", "a list in JSON"),
    ],
)
def test_a_file_that_holds_something_else_is_an_error(text: str, kind: str, words: str) -> None:
    with pytest.raises(InfeedError, match=f"is not {words}\n  where: parameter out"):
        parse(text, kind, "parameter out")


def test_values_are_changed_inside_of_lists_and_objects() -> None:
    data = {"a": [1, {"b": "two", "c": None}]}
    assert mapped(data, lambda one: one + 1 if isinstance(one, int) else one) == {"a": [2, {"b": "two", "c": None}]}
    assert data == {"a": [1, {"b": "two", "c": None}]}
