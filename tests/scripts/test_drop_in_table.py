"""docs/drop-in.md says of every argument of TFX's components what it is here, and that is so."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tfx

SCRIPT = Path(__file__).parents[2] / "scripts" / "drop_in_table.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("drop_in_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["drop_in_table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drop_in = load()
PAIRS = {pair.title: pair for pair in drop_in.PAIRS}
REPLACED = [pair for pair in drop_in.PAIRS if pair.ours != pair.theirs]


def test_the_page_is_what_the_script_writes() -> None:
    page = drop_in.PAGE.read_text()
    assert drop_in.with_tables(page) == page, "run: python scripts/drop_in_table.py"


@pytest.mark.parametrize("pair", REPLACED, ids=lambda pair: pair.title)
def test_arguments_that_are_the_same_stand_at_tfxs_place_with_tfxs_default(pair: Any) -> None:
    theirs, ours = (drop_in.parameters(component) for component in pair.classes())
    order = [name for name in theirs if name not in drop_in.NEWER.get(pair.title, ())]
    assert list(ours)[: len(order)] == order
    for name in order:
        if drop_in._verdict(pair, name)[0] == "same":
            assert ours[name].default == theirs[name].default, name
            assert ours[name].kind == theirs[name].kind, name


@pytest.mark.parametrize("pair", REPLACED, ids=lambda pair: pair.title)
def test_arguments_of_newer_versions_are_taken_by_name(pair: Any) -> None:
    newer = drop_in.NEWER.get(pair.title, ())
    assert set(newer) <= set(drop_in.parameters(pair.classes()[1]))
    known = {name for one in PAIRS.values() for name in drop_in.arguments(one)}
    assert set(newer) <= known


@pytest.mark.parametrize(("title", "name"), drop_in.REFUSED)
def test_what_is_refused_is_refused_by_name_and_nothing_else_is_wrong(title: str, name: str) -> None:
    pair = PAIRS[title]
    pair.classes()[1](**pair.given())
    with pytest.raises(Exception) as refused:  # noqa: PT011 - its class and words are checked below
        pair.classes()[1](**pair.given(), **{name: drop_in.REFUSED[title, name]()})
    assert type(refused.value).__name__ == "InfeedError"
    assert name in str(refused.value)


def test_what_is_said_by_hand_is_said_of_arguments_that_there_are() -> None:
    for title, name in [*drop_in.CHANGED, *drop_in.NOTES, *drop_in.REFUSED]:
        assert name in drop_in.arguments(PAIRS[title]), (title, name)
        assert name in drop_in.parameters(PAIRS[title].classes()[1]), (title, name)
    assert not set(drop_in.CHANGED) & (set(drop_in.REFUSED) | set(drop_in.NOTES))
    assert not set(drop_in.NOTES) & set(drop_in.REFUSED)


def test_arguments_whose_default_differs_are_told_as_changed() -> None:
    """What the test above holds for "same" is not held by calling everything changed."""
    for pair in REPLACED:
        theirs, ours = (drop_in.parameters(component) for component in pair.classes())
        differ = {name for name in theirs if name in ours and theirs[name].default != ours[name].default}
        assert {(pair.title, name) for name in differ} <= set(drop_in.CHANGED)


def test_components_of_tfx_that_are_not_replaced_are_not_offered_by_ours() -> None:
    from infeed import components

    for pair in drop_in.PAIRS:
        if pair.ours == pair.theirs:
            assert pair.title not in components.__all__
            assert inspect.isclass(pair.classes()[0])
