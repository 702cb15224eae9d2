"""Find copied pictures: copies in another split inflate the score, copies in another class contradict the label."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from infeed.components.dataset import files
from infeed.components.example_gen.sources.folders import FileRef
from infeed.pipelines.surveys import RepeatedPictures

# Compared at the start of files of equal size; compressed pictures that agree in this much are equal.
_COMPARED_BYTES = 1 << 16
_EXAMPLES = 2


def find_repeated_pictures(images: Sequence[FileRef], patterns: Mapping[str, str]) -> RepeatedPictures:
    """Find copies by comparing the contents of files of equal size; other files are not read.

    Args:
      images: all pictures.
      patterns: file pattern of each split that has its own folder; empty if the shares divide the pictures.
    """
    folders = [pattern.partition("/")[0] + "/" for pattern in patterns.values()]

    def split_of(image: FileRef) -> str:
        return next((folder for folder in folders if image.filename.startswith(folder)), "")

    groups = list(_equal(images))
    divided = [group for group in groups if not folders or len(set(map(split_of, group))) > 1]
    contrary = [group for group in groups if len({image.text for image in group}) > 1]
    return RepeatedPictures(
        divided=sum(map(len, divided)),
        contrary=sum(map(len, contrary)),
        example=tuple(image.filename for group in [*contrary, *divided][:1] for image in group[:_EXAMPLES]),
    )


def _equal(images: Sequence[FileRef]) -> Iterator[list[FileRef]]:
    """Yield groups of two or more pictures with equal content."""
    sizes = defaultdict[int, list[FileRef]](list)
    for image in images:
        sizes[image.size].append(image)
    for size, alike in sizes.items():
        if size and len(alike) > 1:
            contents = defaultdict[bytes, list[FileRef]](list)
            for image in alike:
                contents[_digest(image.path)].append(image)
            yield from (group for group in contents.values() if len(group) > 1)


def _digest(path: str) -> bytes:
    with files.open_input(path) as file:
        return hashlib.sha256(file.read(_COMPARED_BYTES)).digest()
