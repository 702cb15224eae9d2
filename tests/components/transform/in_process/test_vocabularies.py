"""Vocabularies are cut, ordered and written as tft on Beam does: the largest first, and of equal counts by token."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.tfx

ENTRIES = [(2, b"b"), (3, b"c"), (2, b"a"), (1, b"d")]


def node(**changes: Any) -> Any:
    """An operation of tft's, pruning and writing in one."""
    return SimpleNamespace(
        **{
            "top_k": None,
            "frequency_threshold": 0,
            "informativeness_threshold": float("-inf"),
            "coverage_top_k": None,
            "coverage_frequency_threshold": 0,
            "coverage_informativeness_threshold": float("-inf"),
            "key_fn": None,
            "input_dtype": "string",
            "vocab_filename": "words",
            "store_frequency": False,
            "fingerprint_shuffle": False,
            "file_format": "text",
            "input_is_sorted": False,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ENTRIES),
        ({"top_k": 2}, [(3, b"c"), (2, b"b")]),
        ({"frequency_threshold": 2}, ENTRIES[:3]),
        ({"top_k": 1, "coverage_top_k": 1, "key_fn": lambda token: token < b"b"}, [(3, b"c"), (2, b"a")]),
    ],
)
def test_entries_are_cut_by_frequency_and_to_the_most_frequent(changes: dict[str, Any], expected: list[Any]) -> None:
    from infeed.components.transform.in_process import vocabularies

    assert vocabularies.prune(node(**changes), ENTRIES) == expected


def test_numbers_become_text_and_an_empty_vocabulary_gets_an_entry() -> None:
    from infeed.components.transform.in_process import vocabularies

    assert vocabularies.prune(node(input_dtype="int64"), [(1, 7)]) == [(1, b"7")]
    ((count, _),) = vocabularies.prune(node(top_k=5), [])
    assert count == 1


@pytest.mark.parametrize(
    ("changes", "reserved", "expected"),
    [
        ({}, None, [b"c", b"b", b"a", b"d"]),
        ({"store_frequency": True}, None, [b"3 c", b"2 b", b"2 a", b"1 d"]),
        ({}, [b"d", b"new"], [b"d", b"new", b"c", b"b", b"a"]),
        ({"fingerprint_shuffle": True}, None, sorted([b"a", b"b", b"c", b"d"], key=lambda t: hashlib.sha1(t).digest())),
    ],
)
def test_the_file_holds_the_largest_first(
    tmp_path: Path, changes: dict[str, Any], reserved: list[bytes] | None, expected: list[bytes]
) -> None:
    from infeed.components.transform.in_process import vocabularies

    path = vocabularies.write(node(**changes), str(tmp_path), list(ENTRIES), reserved)
    assert Path(path).read_bytes().split(b"\n") == [*expected, b""]


def test_a_compressed_vocabulary_is_a_tfrecord_file(tmp_path: Path) -> None:
    from infeed.components.dataset import records
    from infeed.components.transform.in_process import vocabularies

    path = vocabularies.write(node(file_format="tfrecord_gzip"), str(tmp_path), list(ENTRIES), None)
    assert path.endswith("words.tfrecord.gz")
    assert list(records.read_records(path)) == [b"c", b"b", b"a", b"d"]


def test_spans_are_merged_by_token() -> None:
    from tensorflow_transform import analyzers

    from infeed.components.transform.in_process import vocabularies

    operation = SimpleNamespace(vocab_ordering_type=analyzers._VocabOrderingType.FREQUENCY)
    assert vocabularies.merge(operation, [(b"a", 1), (b"b", 2), (b"a", 4)]) == [(5, b"a"), (2, b"b")]
