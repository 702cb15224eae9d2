"""Search for the files of one split, in any of these layouts.

data/                                      Split-train/, Split-eval/: infeed datasets and TFX Examples artifacts
mnist/                                     mnist-train.tfrecord-00000-of-00002: names of TFDS and others
mnist/mnist-train*, one.tfrecord.gz        a pattern, or a single file
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names
from infeed.components.dataset.cache import Expected
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.manifest import Column, Manifest
from infeed.components.dataset.reading import check_listed, flat_files
from infeed.components.dataset.records import HEADER_BYTES, is_gzip, is_header
from infeed.components.load.shapes import declared_shapes

_GLOB = re.compile(r"[*?\[]")
_ENDS = re.compile(r"([-.]?\d+-of-\d+|[._]tfrecords?|\.gz)+$", re.IGNORECASE)  # end of a file name, after the split
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)-of-(?P<count>\d+)")
_DEFAULT = "train"


@dataclass(frozen=True)
class SplitFiles:
    """Files of a split, in record order."""

    place: str  # folder, file or pattern of the dataset
    split: str
    files: tuple[FileStat, ...]
    expected: tuple[Expected, ...] = ()  # required size and checksum of each file, if a manifest lists them
    schema: tuple[Column, ...] = ()  # columns of the dataset, if a manifest lists them. Null counts cover all splits.
    # Files of the other splits by name, if no manifest lists the columns.
    others: Mapping[str, tuple[FileStat, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors that TFDS declares

    @property
    def identity(self) -> list[list[str]]:
        """Plain values that change if the content of a file changes."""
        others = [[file.path, files.version(file)] for beside in self.others.values() for file in beside]
        if self.expected:
            return [*([files.name(one.path), str(one.bytes), one.crc32c] for one in self.expected), *others]
        return [*([file.path, files.version(file)] for file in self.files), *others]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def find_split(where: str, split: str | None = None) -> SplitFiles:
    """Find the files of one split. Defaults to `train` or the only split.

    `where` is the folder of a dataset or of a split, a flat folder of TFRecords, a single file, or a pattern. Raises
    InfeedError if the dataset or the split does not exist, or the file names show that files are missing.
    """
    place, folder = where.rstrip("/") or where, files.name(where.rstrip("/"))
    if folder.startswith(names.SPLIT_FOLDER) and files.is_folder(place):
        place, split = place.rpartition("/")[0] or ".", split or folder.removeprefix(names.SPLIT_FOLDER)
    if files.exists(files.join(place, names.MANIFEST)) and names.folder_splits(place):
        manifest = Manifest.read(place)
        name = _choose(manifest.splits, split, place)
        expected = tuple(shard.expected(place) for shard in manifest.splits[name].shards)
        check_listed(names.split_dir(place, name), {files.name(one.path) for one in expected})
        others = {} if manifest.schema else _others(_folders(place), name)
        listed = tuple(files.stat(one.path) for one in expected)
        found = SplitFiles(place, name, listed, expected, manifest.schema, others)
    else:
        by_split = _by_split(place)
        name = _choose(by_split, split, place)
        split_files = tuple(by_split[name])
        shapes = declared_shapes(split_files[0].path.rpartition("/")[0] or ".") if split_files else {}
        found = SplitFiles(place, name, split_files, others=_others(by_split, name), shapes=shapes)
        if files.is_folder(place):  # a file or a pattern may select only some of the files
            _check_numbers(found)
    if not found.expected:
        _check_beginnings(found)
    return found


def _others(by_split: Mapping[str, Sequence[FileStat]], name: str) -> dict[str, tuple[FileStat, ...]]:
    """Return the files of all other splits, sorted by split."""
    return {split: tuple(by_split[split]) for split in sorted(by_split) if split != name}


def _by_split(place: str) -> Mapping[str, list[FileStat]]:
    if not files.exists(place):
        if not _GLOB.search(place):
            raise InfeedError("there is no such folder or file", where=place, do="use the path of TFRecords")
        return _matching(place)
    if files.is_folder(place) and names.folder_splits(place):
        return _folders(place)
    by_split = flat_files(place)[1]
    if not by_split:
        do = (
            "use a folder with Split-* folders, or with files such as data-train.tfrecord-00000-of-00002, or "
            "a pattern. infeed.ingest converts other files"
        )
        raise InfeedError("there are no TFRecord files", where=place, do=do)
    return by_split


def _folders(root: str) -> Mapping[str, list[FileStat]]:
    if files.exists(files.join(root, names.UNFINISHED)):
        do = "wait for its writer, or write it again if the writer was killed"
        raise InfeedError("the dataset is not complete", where=root, do=do)
    return {split: files.glob(names.split_dir(root, split), "*") for split in names.folder_splits(root)}


def _matching(pattern: str) -> Mapping[str, list[FileStat]]:
    """Return the files that match a pattern, by the split in their names."""
    folder, slash, _ = _GLOB.split(pattern)[0].rpartition("/")
    below = pattern[len(folder) + len(slash) :]
    by_split: dict[str, list[FileStat]] = {}
    for file in files.glob(folder or slash or ".", below):
        # mnist-train.tfrecord-00000-of-00002 -> train
        last = _ENDS.sub("", files.name(file.path)).rpartition("-")[2]
        by_split.setdefault("all" if not last or last.isdigit() else last, []).append(file)
    if not by_split:
        raise InfeedError("no file matches the pattern", where=pattern, do="check the folder and the spelling")
    return by_split


def _choose(splits: Mapping[str, object], asked: str | None, place: str) -> str:
    default = _DEFAULT if _DEFAULT in splits else next(iter(splits)) if len(splits) == 1 else None
    name = asked or default
    if name is None or name not in splits:
        what = f"there is no split {asked!r}" if asked else f"there are {len(splits)} splits"
        raise InfeedError(what, where=place, do=f"set split= to one of {', '.join(sorted(splits))}")
    return name


def _check_numbers(found: SplitFiles) -> None:
    """Raise InfeedError if the counts in the file names show missing files, for example after an interrupted copy."""
    numbered = [_NUMBERED.match(files.name(file.path)) for file in found.files]
    groups = defaultdict[tuple[str, str], set[str]](set)
    for name in filter(None, numbered):
        groups[name["stem"], name["count"]].add(name["number"])
    for (stem, count), numbers in groups.items():
        if len(numbers) < int(count):
            what = f"only {len(numbers):,} of {int(count):,} files {stem}*-of-{count} exist"
            do = "copy or write the others too, or select the existing ones by a pattern"
            raise InfeedError(what, where=f"{found.place}, split {found.split}", do=do)


def _check_beginnings(found: SplitFiles) -> None:
    """Raise InfeedError for a file that is not a TFRecord."""
    for file in found.files:
        if file.size and not is_gzip(file.path):
            with files.open_input(file.path) as opened:
                head = bytes(opened.read(HEADER_BYTES))
            if not is_header(head):
                what, do = (
                    "the file does not begin like a TFRecord file",
                    "select only TFRecords, or write the file again",
                )
                raise InfeedError(what, where=file.path, do=do)
