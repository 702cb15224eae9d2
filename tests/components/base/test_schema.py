from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError


@dataclass(frozen=True)
class Inner:
    size: int
    kind: Literal["round", "square"] = "round"


@dataclass(frozen=True)
class Defaults:
    ELSEWHERE: ClassVar[Mapping[str, str]] = {"size": "set size of Inner"}
    kind: Literal["round", "square"] = "round"


@dataclass(frozen=True)
class Outer:
    name: str
    share: float = 0.5
    on: bool = False
    most: int | None = 3
    inner: Inner | None = None
    nodes: Mapping[str, Inner] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    parts: tuple[Inner, ...] = ()
    shares: Mapping[str, float] | Literal["equal"] = "equal"
    anything: Any = None
    defaults: Mapping[str, Defaults] = field(default_factory=dict)


def read(**given: Any) -> Outer:
    return schema.read(Outer, {"name": "a", **given}, "here")


def test_what_it_is_made_of_is_read_in_the_same_way() -> None:
    assert read(inner={"size": 2, "kind": "square"}).inner == Inner(2, "square")
    assert read(nodes={"a": {"size": 1}}, parts=[{"size": 2}]) == Outer("a", nodes={"a": Inner(1)}, parts=(Inner(2),))
    assert read(shares={"x": 1}).shares == {"x": 1}
    assert read(anything=[{"x": None}]).anything == [{"x": None}]


def test_a_setting_without_a_value_was_not_given_unless_none_is_a_value() -> None:
    assert read(share=None, most=None) == Outer("a", share=0.5, most=None)
    with pytest.raises(InfeedError, match="the setting 'name' is missing\n  where: here"):
        read(name=None)


def test_a_name_without_a_value_has_the_defaults_of_its_mapping() -> None:
    assert read(defaults={"a": None}) == read(defaults={"a": {}}) != read()
    with pytest.raises(InfeedError, match=r"the setting 'size' is missing\n  where: here\.nodes\.a"):
        read(nodes={"a": None})


@pytest.mark.parametrize("kind", [Outer, Defaults, tuple[Inner, ...], dict[str, Inner]])
def test_nothing_in_place_of_the_whole_data_is_an_error(kind: Any) -> None:
    with pytest.raises(InfeedError, match="None"):
        schema.read(kind, None, "here")


def test_a_number_is_text_where_text_is_meant() -> None:
    assert read(name=2024, words=[1, 0.5]) == Outer("2024", words=("1", "0.5"))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"nmae": 1}, r"no setting 'nmae'; did you mean 'name'\?\n  where: here\n  do:    use one of name, share"),
    "text": ({"name": ["a"]}, r"name is \['a'\]\n  where: here\.name\n  do:    use text"),
    "no text": ({"name": True}, r"name is True\n  where: here\.name\n  do:    use text, in quotes"),
    "number": ({"share": "half"}, r"share is 'half'\n  where: here\.share\n  do:    use a number"),
    "whole": ({"most": 1.5}, r"most is 1\.5\n  where: here\.most\n  do:    use an integer"),
    "no whole": ({"most": True}, r"most is True(.|\n)*use an integer"),
    "switch": ({"on": "yes please"}, r"on is 'yes please'(.|\n)*use true or false"),
    "one of": (
        {"inner": {"size": 1, "kind": "oval"}},
        r"kind is 'oval'\n  where: here\.inner\.kind(.|\n)*round, square",
    ),
    "either": (
        {"shares": "same"},
        r"shares is 'same'\n  where: here\.shares(.|\n)*use a mapping: \{name: value\}, or 'equal'",
    ),
    "a misspelled choice": ({"inner": {"size": 1, "kind": "rond"}}, r"kind is 'rond'; did you mean 'round'\?\n"),
    "a misspelled choice beside a mapping": ({"shares": "equals"}, r"shares is 'equals'; did you mean 'equal'\?\n"),
    "inside of a mapping beside a choice": ({"shares": {"x": "y"}}, r"x is 'y'\n  where: here\.shares\.x\n"),
    "mapping": ({"nodes": [1]}, r"nodes is \[1\]\n  where: here\.nodes\n  do:    use a mapping"),
    "inside": ({"nodes": {"a": {"size": "x"}}}, r"size is 'x'\n  where: here\.nodes\.a\.size"),
    "list": ({"words": "--a"}, r"words is '--a'\n  where: here\.words\n  do:    use a list"),
    "a long value": ({"words": "x" * 10_000}, r"^words is '" + "x" * 199 + r"\.\.\.\n"),
    "a choice of a mapping": (
        {"nodes": {"a": "round"}},
        r"'round' is not a mapping(.|\n)*where: here\.nodes\.a\n(.|\n)*\{kind: round\}",
    ),
    "a word of no mapping": (
        {"nodes": {"a": "oval"}},
        r"'oval' is not a mapping(.|\n)*\{name: value\}(.|\n)*size",
    ),
    "settings without constants": ({"defaults": {"a": 3}}, r"3 is not a mapping(.|\n)*, with settings from kind$"),
    "no mapping": ({"inner": 3}, r"3 is not a mapping of settings\n  where: here\.inner"),
}


@pytest.mark.parametrize(("given", "error"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_told_with_its_place(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InfeedError, match=error):
        read(**given)


def test_of_names_of_data_the_nearest_and_the_first_are_told_quoted() -> None:
    with pytest.raises(InfeedError, match="there is no column 'hight'; did you mean 'height'") as raised:
        schema.check_known(["age", "hight"], ["age", "height", *map(str, range(20))], "t.csv", "column")
    assert raised.value.do.startswith("use one of 'age', 'height', '0'")
    assert raised.value.do.endswith("'17', ...")
    schema.check_known(["age"], ["age"], "t.csv", "column")
