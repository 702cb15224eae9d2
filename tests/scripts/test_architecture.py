"""ARCHITECTURE.md shows the house as it is: its picture, its rooms and its paths."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architecture = load()
PAGE = architecture.PAGE.read_text()


@pytest.fixture(scope="module")
def arrows() -> Counter[Any]:
    return architecture.rooms_imported()


def test_the_picture_is_what_the_script_draws(arrows: Counter[Any]) -> None:
    assert architecture.with_picture(PAGE, arrows) == PAGE, "run: python scripts/architecture.py"


@pytest.mark.parametrize("floor", ["components", "pipelines"])
def test_the_page_names_every_room(floor: str) -> None:
    house = PAGE.split("```")[1].split(f"\n{floor}/")[1].split("\ntemplates/")[0].split()
    packages = [f"{path.parent.name}/" for path in (ROOT / floor).glob("*/__init__.py")]
    modules = [path.name for path in (ROOT / floor).glob("[!_]*.py")]
    assert {*packages, *modules} <= set(house)


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("infeed", ""),
        ("infeed.components", "components"),  # a front door, with imports of its own
        ("infeed.components.base.errors", "components/base"),
        ("infeed.components.feed.plan", "components/feed"),
        ("infeed.pipelines", ""),
        ("infeed.pipelines.submit.vertex", "pipelines/submit"),
        ("infeed.templates.image.model", "templates"),
    ],
)
def test_a_room_is_a_folder_of_a_floor(module: str, room: str) -> None:
    assert architecture.room(module) == room


@pytest.mark.parametrize(
    ("arrows", "drawn"),
    [
        ([("a", "b"), ("b", "c")], [("a", "b"), ("b", "c")]),
        ([("a", "b"), ("b", "c"), ("a", "c")], [("a", "b"), ("b", "c")]),
        ([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")], [("a", "b"), ("b", "c"), ("c", "d")]),
        (
            [("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")],
            [("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")],
        ),  # a circle
    ],
)
def test_an_arrow_that_follows_from_others_is_not_drawn(arrows: list[Any], drawn: list[Any]) -> None:
    assert sorted(architecture.without_detours(Counter(arrows))) == sorted(drawn)


def test_the_picture_counts_imports() -> None:
    picture = architecture.mermaid(Counter({("components/feed", "components/dataset"): 8}))
    assert 'components_feed["feed"]' in picture
    assert "components_feed -->|8| components_dataset" in picture


def test_a_module_that_is_imported_by_its_name_is_drawn(arrows: Counter[Any]) -> None:
    assert arrows["pipelines/cli", "pipelines/commands"] == 1
    assert arrows["pipelines/judging", "components/evaluation"] >= 1
