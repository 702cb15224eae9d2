from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from infeed.components.base import schema
from infeed.components.base.annotations import Count, Tagged, choices_of, follow, hints_of, is_optional, is_tag, tags_of
from infeed.components.base.errors import InfeedError


@dataclass(frozen=True)
class Circle:
    radius: int
    kind: Literal["circle"] = field(default="circle", kw_only=True)


@dataclass(frozen=True)
class Square:
    side: int
    kind: Literal["square"] = field(default="square", kw_only=True)


Shape = Annotated[Circle | Square, Tagged("kind")]


@dataclass(frozen=True)
class Drawing:
    shape: Shape | None = None
    shapes: tuple[Shape, ...] = ()
    layers: Mapping[str, Circle] = field(default_factory=dict)
    copies: Count = 1
    paper: Literal["A4", "A5"] | None = None


HINTS = hints_of(Drawing)


def test_choices_are_those_of_a_literal_and_tags_those_of_a_tagged_union() -> None:
    assert choices_of(HINTS["paper"]) == ("A4", "A5")
    assert choices_of(HINTS["shape"]) == ()
    assert tags_of(HINTS["shape"]) == {"circle": Circle, "square": Square}
    assert tags_of(HINTS["paper"]) == {}
    assert is_optional(HINTS["paper"])
    assert not is_optional(HINTS["copies"])
    assert is_tag(hints_of(Circle)["kind"])


@pytest.mark.parametrize(
    ("steps", "path", "holder"),
    [
        (("copies",), ("copies",), Drawing),
        (("shape", "square", "side"), ("shape", "side"), Square),
        (("shapes", 1, "circle", "radius"), ("shapes", 1, "radius"), Circle),
        (("layers", "top", "radius"), ("layers", "top", "radius"), Circle),
        (("color",), ("color",), Drawing),  # which there is not
    ],
)
def test_the_name_of_a_member_of_a_union_is_no_part_of_a_path(steps: Any, path: Any, holder: type) -> None:
    assert follow(Drawing, steps)[:2] == (path, holder)


def test_a_tagged_union_is_read_by_its_tag() -> None:
    given = {"shapes": [{"kind": "square", "side": 1}, {"kind": "circle", "radius": 2}]}
    assert schema.read(Drawing, given).shapes == (Square(1), Circle(2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shapes": [{"kind": "cirle"}]}, r"kind is 'cirle'; did you mean 'circle'\?\n  where: shapes\[0\]\.kind\n"),
        ({"shapes": [{"side": 1}]}, r"the setting 'kind' is missing\n  where: shapes\[0\]\n"),
        ({"shape": {"kind": "square", "side": "x"}}, r"side is 'x'\n  where: shape\.side\n"),
        ({"copies": -1}, r"copies is -1\n  where: copies\n  do:    use a number of at least 0"),
        ({"copies": 1 << 63}, r"where: copies\n  do:    use a number of at most 9223372036854775807"),
    ],
)
def test_a_mistake_in_a_tagged_union_is_told_with_its_path(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        schema.read(Drawing, given)
