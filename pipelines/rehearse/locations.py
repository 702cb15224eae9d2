"""Places that a job names and this machine does not have: buckets, and folders that are mounted on the cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infeed.components.errors import InfeedError

_REMOTE = re.compile(r"\b(?:gs|s3|minio|hdfs|abfss?)://[\w.-][^\s\"'\\,;)}\]]*")


@dataclass(frozen=True)
class Map:
    """Wherever the job says `source` or something below it, the rehearsal says `target`.

    A location mapped to itself is used as it is, with whatever credentials the steps find.
    """

    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Map:
        """Reads `gs://bucket=/folder`.

        Raises:
          InfeedError: it has not two sides.
        """
        source, _, target = text.partition("=")
        if not source or not target:
            raise InfeedError(f"--map {text!r} has not two sides", do="write --map gs://bucket=/folder")
        there = target.rstrip("/") if "://" in target else os.path.abspath(target)  # steps have folders of their own
        return cls(source.rstrip("/") if not source.endswith("://") else source, there)


class Locations:
    """Several maps; the longest source that fits is the one that counts."""

    def __init__(self, maps: Sequence[Map]) -> None:
        ordered = sorted(maps, key=lambda map_: len(map_.source), reverse=True)
        self._targets = {map_.source: map_.target for map_ in ordered}
        self._pattern = re.compile("|".join(map(_prefix, self._targets))) if maps else None

    @property
    def folders(self) -> list[str]:
        """The targets on this machine."""
        return [target for target in self._targets.values() if "://" not in target]

    def apply(self, value: Any) -> Any:
        """`value`, which is JSON, with every string in it mapped; locations inside of longer texts too."""
        if isinstance(value, dict):
            return {key: self.apply(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.apply(item) for item in value]
        if isinstance(value, str) and self._pattern:
            return self._pattern.sub(lambda found: self._target(found[0]), value)
        return value

    def check_no_others(self, spec: Any) -> None:
        """Raises InfeedError if the job, mapped already, still names a location that is not on this machine."""
        found = sorted({location for location in _remote(spec) if not self._is_kept(location)})
        if found:
            scheme, _, path = found[0].partition("://")
            bucket = f"{scheme}://{path.split('/')[0]}"
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InfeedError(
                f"the job names {found[0]}{more}, not on this machine",
                do=f"say what stands for it: --map {bucket}=FOLDER (or --map {bucket}={bucket} to use it as it is)",
            )

    def _target(self, source: str) -> str:
        target = self._targets[source]
        return f"{target}/" if source.endswith("://") and not target.endswith("://") else target

    def _is_kept(self, location: str) -> bool:
        kept = (target for source, target in self._targets.items() if source == target)
        return any(location.startswith(target) for target in kept)


def _prefix(source: str) -> str:
    return re.escape(source) if source.endswith("://") else re.escape(source) + r"(?![\w.-])"


def _remote(value: Any) -> Iterator[str]:
    """Locations in what a job hands to its steps; their commands are programs, which may name what they like."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in ("command", "description", "instanceSchema") else _remote(item)
    elif isinstance(value, list):
        for item in value:
            yield from _remote(item)
    elif isinstance(value, str):
        yield from _REMOTE.findall(value)
