from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.dataset.files import FileStat
from infeed.components.example_gen.sources import folders
from infeed.components.example_gen.sources.folders import Classes, FileRef


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("/in/cat/1.png", "*/*", "cat"),
        ("/in/train/cat/1.png", "train/*/*", "cat"),
        ("/in/3/1.png", "[0-7]/*.png", "3"),
        ("/in/1.png", "*", None),
        ("/in/train/1.png", "train/*", None),  # the folder is the split's
    ],
)
def test_a_folder_is_a_class_where_the_pattern_leaves_it_open(path: str, pattern: str, expected: str | None) -> None:
    (ref,) = folders.refs_of("/in", pattern, [FileStat(path, 1, 0)])
    assert (ref.path, ref.filename, ref.text) == (path, path.removeprefix("/in/"), expected)


def test_classes_are_numbered_in_order() -> None:
    refs = [FileRef("/in", text or "", 1, text) for text in ("dog", "cat", None, "dog")]
    classes = Classes.of(refs)
    assert classes.columns([ref.text for ref in refs]) == {
        "label": [1, 0, None, 1],
        "label/text": ["dog", "cat", None, "dog"],
    }
    assert Classes.of([refs[2]]).columns([None]) == {}


def test_blocks_are_bounded_and_in_order() -> None:
    refs = [FileRef("/in", str(number), size, None) for number, size in enumerate((5, 5, 20, 1))]
    assert [list(block) for block in folders.plan_blocks(refs, 10)] == [refs[:2], refs[2:3], refs[3:]]


def test_what_a_folder_holds_decides_the_pattern(tmp_path: Path) -> None:
    assert folders.default_pattern(str(tmp_path / "later")) == "*/*"
    (tmp_path / "x.txt").touch()
    assert folders.default_pattern(str(tmp_path)) == "*"
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "x.txt").touch()
    assert folders.default_pattern(str(tmp_path)) == "*/*"
