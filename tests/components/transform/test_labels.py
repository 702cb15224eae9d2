"""The classes of a label: distinct values in a fixed order, one a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infeed.components.errors import InfeedError

pytestmark = pytest.mark.tfx


def written(folder: Path, *batches: tuple[list[int] | list[bytes], list[bool]]) -> list[bytes]:
    """The lines of the file that these batches give; each is the values that are there, and presence a row."""
    from infeed.components.transform.labels import merge, summarize, write_classes

    summaries = [summarize((np.array(values), np.array(present))) for values, present in batches]
    halves = [merge(summaries[:1]), merge(summaries[1:])]  # Beam merges in any grouping
    path = write_classes(merge(halves), str(folder), column="y", filename="y", refuse_missing=True)
    return Path(path.decode()).read_bytes().splitlines()


def test_integers_are_ordered_by_number(tmp_path: Path) -> None:
    assert written(tmp_path, ([10, 2], [True, True]), ([2, -1], [True, True])) == [b"-1", b"2", b"10"]


def test_strings_are_ordered_by_their_bytes(tmp_path: Path) -> None:
    assert written(tmp_path, ([b"b", b"a"], [True, True]), ([b"B"], [True])) == [b"B", b"a", b"b"]


def test_missing_rows_of_all_batches_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="column 'y' has no label in 3 rows"):
        written(tmp_path, ([1], [True, False]), ([], [False, False]))


def test_a_class_with_a_line_break_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="which has a line break"):
        written(tmp_path, ([b"a\nb"], [True]))
