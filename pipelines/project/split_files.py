"""Detection of files and folders that name their split: `train.csv` and `test.csv`, `train/` and `val/`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.example_gen.formats import FORMATS, kind_of_name
from infeed.pipelines.config import EVAL, TEST, TRAIN

# Words in names of splits, likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    TRAIN: ("train", "training"),
    EVAL: ("val", "valid", "validation", "eval", "evaluation", "dev"),
    TEST: ("test", "testing"),
}
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class SplitFiles:
    """Files of a table by split."""

    # split -> file pattern below the folder, including train. Empty if names indicate no splits.
    patterns: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()  # files and folders without a split

    def without(self, splits: Collection[str]) -> SplitFiles:
        return SplitFiles({name: one for name, one in self.patterns.items() if name not in splits}, self.beside)


def find_split_files(folder: str, kind: str) -> SplitFiles:
    """Find the splits that files and folders in `folder` name. Without train and another split, there are none.

    A file or a pattern instead of a folder has no splits. Raises InfeedError if no pattern matches exactly the files
    of a split.
    """
    if not files.is_folder(folder):
        return SplitFiles()
    at_top = [files.name(file.path) for file in files.glob(folder, "*") if kind_of_name(file.path) == kind]
    inside = {name: _pattern_inside(folder, name, kind) for name in files.list_folders(folder)}
    folders = [name for name, pattern in inside.items() if pattern and not files.is_hidden(name)]
    found: dict[str, str] = {}
    taken: list[str] = []
    for split in NAMES:
        if names := _likeliest(at_top, split):
            found[split] = _pattern_of(names, at_top, folder)
        elif names := _likeliest(folders, split)[:1]:
            found[split] = inside[names[0]]
        taken += names
    if TRAIN not in found or len(found) == 1:
        return SplitFiles()
    return SplitFiles(found, tuple(name for name in (*at_top, *folders) if name not in taken))


def split_of(name: str) -> tuple[str, str] | None:
    """Return (split, word) of a name that begins or ends with the word, for example `rides_test.csv`."""
    words = _WORDS.findall(name.lower().partition(".")[0])
    words = [word for word in words if word not in ("of", "part")]
    for word in words[:1] + words[-1:]:
        for split, known in NAMES.items():
            if word in known:
                return split, word
    return None


def _likeliest(names: Sequence[str], split: str) -> list[str]:
    """Return the names of the split with the likeliest word."""
    said = {name: found[1] for name in names if (found := split_of(name)) and found[0] == split}
    word = next((word for word in NAMES[split] if word in said.values()), "")
    return [name for name, its in said.items() if its == word]


def _pattern_inside(folder: str, name: str, kind: str) -> str:
    """Return a pattern of the files of this format in a folder, without a README. Empty if there are none."""
    inside = [files.name(file.path) for file in files.glob(folder, f"{name}/*")]
    of_kind = [one for one in inside if kind_of_name(one) == kind]
    if not of_kind:
        return ""
    suffixes = {suffix for suffix in FORMATS[kind].suffixes if all(one.lower().endswith(suffix) for one in of_kind)}
    suffix = max(suffixes, key=len, default="")
    mixed = [one for one in inside if one.endswith(suffix)] != of_kind
    return f"{name}/*" if mixed else f"{name}/*{suffix}"


def _pattern_of(names: Sequence[str], every: Collection[str], folder: str) -> str:
    """Return the only name, or a pattern that matches exactly these names."""
    if len(names) == 1:
        return names[0]
    begin = re.split(r"[\W\d_]", names[0])[0]
    for pattern in (re.sub(r"\d+", "*", names[0]), f"{begin}*"):
        if set(fnmatch.filter(every, pattern)) == set(names):
            return pattern
    what = f"{names[0]} and {names[1]} belong to one split, but no pattern matches only the files of this split"
    do = "put the files of each split into a separate folder, for example train/ and test/"
    raise InfeedError(what, where=folder, do=do)
