from __future__ import annotations

import os
from types import ModuleType

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine import engine
from infeed.components.engine.engine import FAN_IN, Here, Tree, WithSetUp


def test_results_come_in_the_order_of_the_items(functions: ModuleType) -> None:
    assert list(Here().map(functions.square, map(functions.Item, range(4)))) == [0, 1, 4, 9]


@pytest.mark.parametrize("count", [1, 2, FAN_IN, FAN_IN + 1, FAN_IN**2, FAN_IN**2 + FAN_IN + 3])
def test_neighbors_are_merged_with_neighbors(count: int) -> None:
    tree = Tree[str](lambda one, other: f"({one} {other})")
    for number in range(count):
        tree.add(str(number))
    merged = tree.result()
    assert merged.replace("(", "").replace(")", "").split() == [str(number) for number in range(count)]
    depth = max(merged[:end].count("(") - merged[:end].count(")") for end in range(len(merged) + 1))
    assert depth <= FAN_IN * 3  # a chain of all of them would be as deep as there are results


def test_nothing_cannot_be_merged(functions: ModuleType) -> None:
    with pytest.raises(ValueError, match="no items"):
        Here().reduce(functions.square, [], functions.add)


def test_a_worker_sets_up_once() -> None:
    made: list[int] = []
    call = WithSetUp(lambda one, item: (one, item), lambda: made.append(os.getpid()) or len(made))
    with Here() as engine:
        assert list(engine.map(call, "abc")) == [(1, "a"), (1, "b"), (1, "c")]
    with Here() as engine:  # what was set up is gone with the engine
        assert list(engine.map(call, "d")) == [(2, "d")]


def test_an_engine_inside_another_leaves_what_that_one_has_set_up() -> None:
    made: list[int] = []
    call = WithSetUp(lambda one, item: item, lambda: made.append(1))
    with Here() as outer:
        assert list(outer.map(call, "a")) == ["a"]
        with Here() as inner:
            assert list(inner.map(str, [1])) == ["1"]
        assert list(outer.map(call, "b")) == ["b"]
    assert made == [1]


@pytest.mark.parametrize("changed", [b"", b"theirs", engine.dumps(b"their key", "mine")])
def test_only_what_the_key_has_signed_is_unpickled(changed: bytes) -> None:
    assert engine.loads(b"key", engine.dumps(b"key", "mine"), "file") == "mine"
    with pytest.raises(InfeedError, match="modified") as raised:
        engine.loads(b"key", changed, "file")
    assert raised.value.where == "file"
