"""A mapping by sorted runs holds what a dictionary holds, whatever fits into memory and however values are divided."""

from __future__ import annotations

import operator
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.transform import counting
from infeed.components.transform.counting import KeyedRuns

KEYS = st.one_of(
    *(st.lists(st.lists(keys, max_size=30), max_size=8) for keys in (st.binary(max_size=3), st.integers(-9, 9)))
)
LIMITS = st.sampled_from([64, 3000, 1 << 20])  # from a run for each part to none


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("keyed") / "runs")


def mapping(folder: str, limit: int | None = None, **options: Any) -> KeyedRuns[tuple[int, ...]]:
    return KeyedRuns(folder, operator.add, limit, b"secret", **options)


def put(runs: KeyedRuns[tuple[int, ...]], key: Any, value: int) -> None:
    runs.put(key, (*runs.get(key, tuple), value))


@given(parts=KEYS, limit=LIMITS, descends=st.booleans())
def test_holds_what_a_dictionary_holds_and_pickling_changes_no_order(
    folder: str, parts: list[list[Any]], limit: int, descends: bool
) -> None:
    expected: dict[Any, list[int]] = {}
    stayed, travelled = (mapping(folder, limit, descends=descends) for _ in range(2))
    for start, keys in enumerate(parts):
        some, others = (mapping(folder, limit, descends=descends) for _ in range(2))
        for number, key in enumerate(keys, 100 * start):
            put(some, key, number)
            put(others, key, number)
            expected.setdefault(key, []).append(number)
        stayed.merge(some)
        travelled.merge(pickle.loads(pickle.dumps(others)))
    held = list(stayed.items())
    assert held == list(travelled.items()) == list(stayed.items())
    assert {key: sorted(value) for key, value in held} == expected
    assert stayed.keys() == sorted(expected, reverse=descends)
    assert len(stayed) == len(expected)


def test_many_keys_go_to_disk_and_few_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_FIRST_CHECK", 8)
    many, few = mapping(str(tmp_path / "many"), 2000), mapping(str(tmp_path / "few"), 2000)
    for number in range(1000):
        put(many, b"%d" % number, number)
        put(few, b"%d" % (number % 4), number)
        assert len(many._held) <= 64
    assert list((tmp_path / "many").iterdir())
    assert not (tmp_path / "few").exists()
    assert dict(many.items()) == {b"%d" % number: (number,) for number in range(1000)}


def test_a_file_that_another_program_wrote_is_not_unpickled(tmp_path: Path) -> None:
    theirs = KeyedRuns[tuple[int, ...]](str(tmp_path), operator.add, secret=b"another secret")
    ours = mapping(str(tmp_path))
    put(theirs, b"key", 1)
    ours.merge(theirs)
    with pytest.raises(InfeedError, match="modified") as raised:
        list(ours.items())
    assert raised.value.where == str(tmp_path)
