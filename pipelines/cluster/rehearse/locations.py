"""Locations in a job, and their replacements in a rehearsal.

A rehearsal rejects buckets and mounted folders that are not on this machine, unless a `PathMapping` replaces them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import is_packed, mapped, pack, unpack

_LOCAL = re.compile(r"(?<![\w:/.~-])(?:/[\w.-]+){2,}")
_OF_EVERY_IMAGE = ("/bin/", "/dev/", "/etc/", "/lib/", "/opt/", "/proc/", "/sys/", "/usr/")
_REMOTE = re.compile(r"\b(?:gs|s3|minio|hdfs|abfss?)://[\w.-][^\s\"'\\,;)}\]]*")


@dataclass(frozen=True)
class PathMapping:
    """Replacement of a path, and of all paths below it, in the job.

    If `source` and `target` are equal, the steps use the location itself, with the credentials of their environment.
    """

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> PathMapping:
        """Parse `gs://bucket=/folder`, or `/folder` for a folder that keeps its path.

        Raises InfeedError if the source or the target is missing.
        """
        source, equals, target = text.partition("=")
        if source.startswith("/") and not equals:
            target = source
        if not source or not target:
            raise InfeedError(f"--map is {text!r}, which is not SOURCE=TARGET", do="use --map gs://bucket=/folder")
        there = target.rstrip("/") if "://" in target else os.path.abspath(target)
        return cls(source.rstrip("/") if not source.endswith("://") else source, there)


class Locations:
    """Path mappings of a rehearsal. The longest matching source wins."""

    def __init__(self, maps: Sequence[PathMapping]) -> None:
        ordered = sorted(maps, key=lambda map_: len(map_.source), reverse=True)
        self._targets = {map_.source: map_.target for map_ in ordered}
        ends = (re.escape(one) + ("" if one.endswith("://") else r"(?![\w.-])") for one in self._targets)
        self._pattern = re.compile("|".join(ends)) if maps else None

    @property
    def folders(self) -> list[str]:
        """Targets on this machine."""
        return [target for target in self._targets.values() if "://" not in target]

    def apply(self, value: Any) -> Any:
        """Return JSON data with the paths in every string replaced, including paths inside longer texts."""
        return mapped(value, self._in_text)

    def check_no_others(self, spec: Any) -> None:
        """Raise InfeedError if the mapped job still names a location that is not on this machine."""
        kept = tuple(target for source, target in self._targets.items() if source == target)
        remote = (location for text in _strings(spec) for location in _REMOTE.findall(text))
        found = sorted({location for location in remote if not location.startswith(kept)})
        if found:
            scheme, _, path = found[0].partition("://")
            bucket = f"{scheme}://{path.split('/')[0]}"
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            do = f"map it to a folder: --map {bucket}=FOLDER (or --map {bucket}={bucket} to use the bucket itself)"
            raise InfeedError(f"the job names {found[0]}{more}, not on this machine", do=do)

    def check_seen(self, values: Any, mounted: Sequence[str]) -> None:
        """Raise InfeedError if `values` of the mapped job name local paths outside the mounted folders.

        A step in an image cannot read such paths, and the files that it writes there are lost.
        """
        named = {path for text in _strings(values) for path in _LOCAL.findall(text) if _is_of_this_machine(path)}
        unseen = sorted(path for path in named if not any(_is_in(path, folder) for folder in mounted))
        if unseen:
            more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
            folders = sorted({path if os.path.isdir(path) else os.path.dirname(path) for path in unseen})
            outer = [one for one in folders if not any(_is_in(one, other) for other in folders if other != one)]
            maps = " ".join(f"--map {folder}" for folder in outer)
            raise InfeedError(f"the image cannot read {unseen[0]}{more} of this machine", do=f"add {maps}")

    def _in_text(self, value: Any) -> Any:
        if not (isinstance(value, str) and self._pattern):
            return value
        if is_packed(value):
            return pack(self._in_text(unpack(value)))
        return self._pattern.sub(lambda found: self._target(found[0]), value)

    def _target(self, source: str) -> str:
        target = self._targets[source]
        return f"{target}/" if source.endswith("://") and not target.endswith("://") else target


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a job except commands, because programs may contain any path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in ("command", "description", "instanceSchema") else _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield unpack(value)


def _is_of_this_machine(path: str) -> bool:
    """Report whether the path exists, or its parent folder does."""
    parent = os.path.dirname(path)
    here = os.path.exists(path) or (parent.count("/") > 1 and os.path.isdir(parent))
    return here and not path.startswith(_OF_EVERY_IMAGE)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
