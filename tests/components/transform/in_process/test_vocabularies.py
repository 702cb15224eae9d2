"""Vocabularies are cut, ordered and written as tft on Beam does: the largest first, and of equal counts by token."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

ENTRIES = [(2, b"b"), (3, b"c"), (2, b"a"), (1, b"d")]
RANKED = sorted(ENTRIES, reverse=True)


def scratch(folder: Path) -> Any:
    from infeed.components.transform.in_process.phases import Scratch

    return Scratch(str(folder))


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
        ({}, RANKED),
        ({"top_k": 2}, RANKED[:2]),
        ({"frequency_threshold": 2}, RANKED[:3]),
        ({"top_k": 1, "coverage_top_k": 1, "key_fn": lambda token: token < b"b"}, [(3, b"c"), (2, b"a")]),
    ],
)
def test_entries_are_cut_by_frequency_and_to_the_most_frequent(
    tmp_path: Path, changes: dict[str, Any], expected: list[Any]
) -> None:
    from infeed.components.transform.in_process import vocabularies

    assert list(vocabularies.prune(node(**changes), scratch(tmp_path), ENTRIES)) == expected


def test_an_empty_vocabulary_gets_an_entry(tmp_path: Path) -> None:
    from infeed.components.transform.in_process import vocabularies

    ((count, _),) = vocabularies.prune(node(top_k=5), scratch(tmp_path), [])
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

    path = vocabularies.write(node(**changes), scratch(tmp_path), list(ENTRIES), reserved)
    assert Path(path).read_bytes().split(b"\n") == [*expected, b""]


def test_a_compressed_vocabulary_is_a_tfrecord_file(tmp_path: Path) -> None:
    from infeed.components.dataset import records
    from infeed.components.transform.in_process import vocabularies

    path = vocabularies.write(node(file_format="tfrecord_gzip"), scratch(tmp_path), list(ENTRIES), None)
    assert path.endswith("words.tfrecord.gz")
    assert list(records.read_records(path)) == [b"c", b"b", b"a", b"d"]


def counted(path: Path, batches: Any, *, by_label: bool = False, **changes: Any) -> Any:
    """Tokens of several workers, whose tallies write runs."""
    from tensorflow_transform import analyzers

    from infeed.components.transform.in_process import vocabularies

    ordering = analyzers._VocabOrderingType
    weighted = isinstance(batches[0], tuple)
    by_count = ordering.WEIGHTED_FREQUENCY if weighted else ordering.FREQUENCY
    operation = node(vocab_ordering_type=ordering.MUTUAL_INFORMATION if by_label else by_count, **changes)
    made = vocabularies.counter_of(operation, scratch(path))
    total = made()
    for batch in batches:
        part = made()
        part.add(batch if weighted else (batch,))
        total.merge(pickle.loads(pickle.dumps(part)))
    return operation, total.elements()


def written(path: Path, batches: Any, **changes: Any) -> tuple[list[bytes], int]:
    from infeed.components.transform.in_process import vocabularies

    operation, elements = counted(path, batches, **changes)
    pruned = vocabularies.prune(operation, scratch(path), vocabularies.merge(operation, scratch(path), elements))
    lines = Path(vocabularies.write(operation, scratch(path), pruned, None)).read_bytes().splitlines()
    return lines, vocabularies.number_of(pruned)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little memory that all is on disk."""
    for bound in ("TALLY_BYTES", "KEYED_BYTES"):
        monkeypatch.setattr(f"infeed.components.transform.counting.{bound}", 64)
    monkeypatch.setattr("infeed.components.transform.counting._FIRST_CHECK", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [b"3 b", b"1 c", b"1 a"]),
        ({"top_k": 2}, [b"3 b", b"1 c"]),
        ({"frequency_threshold": 2}, [b"3 b"]),
        ({"top_k": 1, "coverage_top_k": 1, "key_fn": lambda token: token < b"b"}, [b"3 b", b"1 a"]),
        ({"fingerprint_shuffle": True}, [b"1 c", b"1 a", b"3 b"]),
    ],
)
def test_what_workers_count_is_cut_and_written_from_disk(tmp_path: Path, changes: Any, expected: list[bytes]) -> None:
    batches = [np.array(list(some), object) for some in ([b"b", b"a"], [b"b"], [b"c", b"b"])]
    lines, number = written(tmp_path, batches, store_frequency=True, **changes)
    assert list(tmp_path.glob("tallies/*"))
    assert number == len(expected)
    assert lines == expected


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("top_k", [None, 1])
def test_if_no_token_is_frequent_there_is_one_entry(tmp_path: Path, top_k: int | None) -> None:
    lines, _ = written(tmp_path, [np.array([b"a"], object)], frequency_threshold=2, top_k=top_k)
    assert len(lines) == 1
    assert lines != [b"a"]


@pytest.mark.usefixtures("small")
def test_weights_are_added_and_numbers_become_text(tmp_path: Path) -> None:
    batches = [
        (np.array(tokens), np.array(weights, np.float32)) for tokens, weights in (([7, 10], [0.5, 2]), ([7], [1]))
    ]
    lines, _ = written(tmp_path, batches, input_dtype="int64", store_frequency=True)
    assert lines == [b"2.0 10", b"1.5 7"]


@pytest.mark.usefixtures("small")
def test_what_was_cached_is_merged_with_what_is_counted(tmp_path: Path) -> None:
    from infeed.components.transform.in_process import vocabularies
    from infeed.components.transform.in_process.phases import Repeatable

    operation, elements = counted(tmp_path, [np.array([b"a", b"b", b"a"], object)])
    merged = vocabularies.merge(
        operation, scratch(tmp_path), Repeatable(lambda: iter([*elements, (b"b", 2), (b"c", 1)]))
    )
    assert list(merged) == [(3, b"b"), (2, b"a"), (1, b"c")]
    assert list(elements) == [(b"a", 2), (b"b", 1)]  # stays, for the cache


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "changes", [{}, {"top_k": 2}, {"coverage_top_k": 1, "top_k": 1, "key_fn": lambda one: one < b"c"}]
)
def test_label_means_from_disk_give_what_memory_gives(
    tmp_path: Path, changes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [
        (np.array([*tokens, b"global_y_count_sentinel"], object), np.array(means, np.float32), np.array(counts))
        for tokens, means, counts in (
            ([b"b", b"a"], [[1], [0], [0.6]], [3, 2, 5]),
            ([b"c", b"b"], [[0], [0.5], [0.2]], [3, 2, 5]),
        )
    ]
    changes = {"min_diff_from_avg": 0.0, "use_adjusted_mutual_info": False, "store_frequency": True, **changes}
    from_disk = written(tmp_path / "disk", batches, by_label=True, **changes)
    assert list(tmp_path.glob("disk/keys/*"))
    monkeypatch.undo()
    assert written(tmp_path / "memory", batches, by_label=True, **changes) == from_disk
    assert from_disk[1] == (3 if len(changes) == 3 else 2)
