"""The spills of many runs as columns, some 32 bytes for each run, split and label.

Paths and labels are stored once each. `divide_by_label` and `balance_labels` work on whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from infeed.components.example_gen.spills import Label, Spill, Stratum

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Spills:
    """Spills in input order, whose fields are those of `Spill`.

    Attributes:
      files: (split, path) of each file. The split is None until labels are divided.
      file: index of each spill's file.
      stratum: index of each spill's stratum in `strata`.
    """

    files: Sequence[tuple[str | None, str]]
    strata: Sequence[Stratum]
    file: Numbers
    stratum: Numbers
    start: Ints
    records: Ints
    bytes: Ints

    @classmethod
    def of(cls, spills: Iterable[Spill]) -> Spills:
        files, strata = dict[tuple[str | None, str], int](), dict[Stratum, int]()
        rows = [
            (
                files.setdefault((spill.split, spill.path), len(files)),
                strata.setdefault(spill.strata, len(strata)),
                spill.start,
                spill.records,
                spill.bytes,
            )
            for spill in spills
        ]
        file, stratum, *sizes = np.array(rows, np.int64).reshape(-1, 5).T
        return cls(tuple(files), tuple(strata), file.astype(np.int32), stratum.astype(np.int32), *map(np.copy, sizes))

    @classmethod
    def joined(cls, parts: Sequence[Spills]) -> Spills:
        if not parts:
            return cls.of([])
        strata = dict[Stratum, int]()
        known = [[strata.setdefault(labels, len(strata)) for labels in part.strata] for part in parts]
        first = np.cumsum([0, *(len(part.files) for part in parts)])
        return cls(
            [file for part in parts for file in part.files],
            list(strata),
            np.concatenate([part.file + np.int32(before) for part, before in zip(parts, first, strict=False)]),
            np.concatenate([np.array(new, np.int32)[part.stratum] for part, new in zip(parts, known, strict=True)]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "records", "bytes")),
        )

    def __len__(self) -> int:
        return len(self.file)

    def __iter__(self) -> Iterator[Spill]:
        columns = (self.file, self.stratum, self.start, self.records, self.bytes)
        for file, stratum, start, records, size in zip(*(column.tolist() for column in columns), strict=True):
            split, path = self.files[file]
            yield Spill(split, path, start, records, size, self.strata[stratum])

    def of_split(self, split: str | None) -> Spills:
        is_of_split = np.array([name == split for name, _ in self.files], bool)
        return self if is_of_split.all() else self.take(np.flatnonzero(is_of_split[self.file]))

    def take(self, numbers: Ints) -> Spills:
        """Return the spills at these indices, in this order."""
        sizes = (column[numbers] for column in (self.start, self.records, self.bytes))
        return Spills(self.files, self.strata, self.file[numbers], self.stratum[numbers], *sizes)

    def cut(self, start: Ints, stop: Ints) -> Spills:
        """Return records `start` to `stop` of each spill, without empty ones. Bytes are estimated from the average."""
        kept = np.flatnonzero(start < stop)
        found, start, records = self.take(kept), start[kept], (stop - start)[kept]
        sizes = found.bytes * records // found.records
        return replace(found, start=found.start + start, records=records, bytes=sizes)

    def labels(self, number: int) -> tuple[Numbers, list[Label]]:
        """Return the label index of each spill, and all labels. 0 is the stratified split, 1 the balance."""
        labels = dict[Label, int]()
        of_stratum = [labels.setdefault(stratum[number], len(labels)) for stratum in self.strata]
        return np.array(of_stratum, np.int32)[self.stratum], list(labels)
