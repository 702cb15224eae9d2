"""Places that a job names and this machine does not have: buckets, and folders that are mounted on the cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.job.parameters import mapped

_LOCAL = re.compile(r"(?<![\w:/.-])(?:/[\w.-]+){2,}")
_OF_EVERY_IMAGE = ("/bin/", "/dev/", "/etc/", "/lib/", "/opt/", "/proc/", "/sys/", "/usr/")
_REMOTE = re.compile(r"\b(?:gs|s3|minio|hdfs|abfss?)://[\w.-][^\s\"'\\,;)}\]]*")


@dataclass(frozen=True)
class PathMapping:
    """Wherever the job says `source` or something below it, the rehearsal says `target`.

    A location mapped to itself is used as it is, with whatever credentials the steps find.
    """

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> PathMapping:
        """Reads `gs://bucket=/folder`, or `/folder` alone for one that is used as it is.

        Raises:
          InfeedError: it has not two sides, and is no folder.
        """
        source, equals, target = text.partition("=")
        if source.startswith("/") and not equals:
            target = source
        if not source or not target:
            raise InfeedError(f"--map {text!r} has not two sides", do="write --map gs://bucket=/folder")
        there = target.rstrip("/") if "://" in target else os.path.abspath(target)  # steps have folders of their own
        return cls(source.rstrip("/") if not source.endswith("://") else source, there)


class Locations:
    """Several maps; the longest source that fits is the one that counts."""

    def __init__(self, maps: Sequence[PathMapping]) -> None:
        ordered = sorted(maps, key=lambda map_: len(map_.source), reverse=True)
        self._targets = {map_.source: map_.target for map_ in ordered}
        self._pattern = re.compile("|".join(map(_prefix, self._targets))) if maps else None

    @property
    def folders(self) -> list[str]:
        """The targets on this machine."""
        return [target for target in self._targets.values() if "://" not in target]

    def apply(self, value: Any) -> Any:
        """`value`, which is JSON, with every string in it mapped; locations inside of longer texts too."""
        return mapped(value, self._in_text)

    def check_no_others(self, spec: Any) -> None:
        """Raises InfeedError if the job, mapped already, still names a location that is not on this machine."""
        remote = (location for text in _strings(spec) for location in _REMOTE.findall(text))
        found = sorted({location for location in remote if not self._is_kept(location)})
        if found:
            scheme, _, path = found[0].partition("://")
            bucket = f"{scheme}://{path.split('/')[0]}"
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InfeedError(
                f"the job names {found[0]}{more}, not on this machine",
                do=f"say what stands for it: --map {bucket}=FOLDER (or --map {bucket}={bucket} to use it as it is)",
            )

    def check_seen(self, values: Any, mounted: Sequence[str]) -> None:
        """Raises InfeedError if `values` of the job, mapped already, name a place of this machine outside of `mounted`.

        An image sees nothing else: what a step looks for there it would not find, and what it writes would be gone.
        """
        named = {path for text in _strings(values) for path in _LOCAL.findall(text) if _is_of_this_machine(path)}
        unseen = sorted(path for path in named if not any(_is_in(path, folder) for folder in mounted))
        if unseen:
            more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
            maps = " ".join(f"--map {folder}" for folder in _round(unseen))
            raise InfeedError(f"the image does not see {unseen[0]}{more}, of this machine", do=f"add {maps}")

    def _in_text(self, value: Any) -> Any:
        if not (isinstance(value, str) and self._pattern):
            return value
        return self._pattern.sub(lambda found: self._target(found[0]), value)

    def _target(self, source: str) -> str:
        target = self._targets[source]
        return f"{target}/" if source.endswith("://") and not target.endswith("://") else target

    def _is_kept(self, location: str) -> bool:
        kept = (target for source, target in self._targets.items() if source == target)
        return any(location.startswith(target) for target in kept)


def _prefix(source: str) -> str:
    return re.escape(source) if source.endswith("://") else re.escape(source) + r"(?![\w.-])"


def _strings(value: Any) -> Iterator[str]:
    """What a job hands to its steps; their commands are programs, which may name what they like."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in ("command", "description", "instanceSchema") else _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def _is_of_this_machine(path: str) -> bool:
    """Whether it is here, or could be made here in a folder that is."""
    parent = os.path.dirname(path)
    here = os.path.exists(path) or (parent.count("/") > 1 and os.path.isdir(parent))
    return here and not path.startswith(_OF_EVERY_IMAGE)


def _round(paths: Sequence[str]) -> list[str]:
    """The folders to mount so that all of the paths are seen."""
    folders = sorted({path if os.path.isdir(path) else os.path.dirname(path) for path in paths})
    return [one for one in folders if not any(_is_in(one, other) for other in folders if other != one)]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
