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


@pytest.mark.parametrize("folder", ["components", "pipelines"])
def test_the_page_names_every_room(folder: str) -> None:
    house = PAGE.split("```")[1].split(f"\n{folder}/")[1].split("\ntemplates/")[0].split()
    packages = [f"{path.parent.name}/" for path in (ROOT / folder).glob("*/__init__.py")]
    modules = [path.name for path in (ROOT / folder).glob("[!_]*.py")]
    assert {*packages, *modules} <= set(house)


def test_every_room_is_on_one_floor(arrows: Counter[Any]) -> None:
    drawn = [room for rooms in architecture.FLOORS.values() for room in rooms]
    assert sorted(drawn) == sorted({room for arrow in arrows for room in arrow})


def test_no_arrow_leads_up(arrows: Counter[Any]) -> None:
    floor = {room: number for number, rooms in enumerate(architecture.FLOORS.values()) for room in rooms}
    assert [arrow for arrow in arrows if floor[arrow[0]] > floor[arrow[1]]] == []


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("infeed", ""),
        ("infeed.components", "infeed.components"),  # a front door, with imports of its own
        ("infeed.components.base.errors", "base"),
        ("infeed.components.feed.plan", "feed"),
        ("infeed.pipelines", ""),
        ("infeed.pipelines.cluster.submit.vertex", "cluster"),
        ("infeed.pipelines.judging", "config and pipeline"),
        ("infeed.pipelines.predict.output", "local, steps, predict"),
        ("infeed.templates.image.model", "templates"),
    ],
)
def test_a_room_is_a_folder_or_a_group_of_modules(module: str, room: str) -> None:
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
    picture = architecture.mermaid(Counter({("local, steps, predict", "dataset"): 8}))
    assert 'local_steps_predict["local, steps, predict"]' in picture
    assert "local_steps_predict -->|8| dataset" in picture


def test_a_module_that_is_imported_by_its_name_is_drawn(arrows: Counter[Any]) -> None:
    assert arrows["cluster", "local, steps, predict"] >= 1  # the module that a compiled job starts
    assert arrows["config and pipeline", "evaluation"] >= 1
