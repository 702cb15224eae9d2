"""Records -> the values of each feature end to end, in files: what is known before anybody knows their shapes.

FOLDER/0.values     of feature 0 the values of all records, end to end: float32, int64, or bytes
FOLDER/0.counts     how many values each record has, int64
FOLDER/0.sizes      of bytes, how long each value is, int64
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infeed.components.dataset import example_types
from infeed.components.dataset.column_files import mapped
from infeed.components.dataset.records import data_of
from infeed.components.errors import InfeedError
from infeed.components.load.decoding import REMEDY, DecodedBlock, decoded_blocks

Kind = Literal["bytes", "float32", "int64"]
_KINDS: dict[pa.DataType, Kind] = {pa.float32(): "float32", pa.int64(): "int64", pa.large_binary(): "bytes"}


@dataclass
class SpilledFeature:
    """One feature, as far as it is known: its files, and how many values a record has at least and at most."""

    stem: str
    kind: Kind
    rows: int = 0
    values: int = 0
    least: int = np.iinfo(np.int64).max
    most: int = 0
    nulls: int = 0

    def add(self, column: pa.Array) -> None:
        """A column of lists, [records]."""
        counts, items = example_types.item_counts(column), column.flatten()
        self._append("counts", counts)
        if self.kind == "bytes":
            self._append("sizes", pc.binary_length(items).to_numpy(zero_copy_only=False).astype(np.int64))
            self._append("values", data_of(items))
        else:
            self._append("values", items.to_numpy(zero_copy_only=False))
        self.rows, self.values = self.rows + len(counts), self.values + len(items)
        self.least = min(self.least, int(counts.min(initial=self.least)))
        self.most, self.nulls = max(self.most, int(counts.max(initial=0))), self.nulls + int((counts == 0).sum())

    def add_missing(self, rows: int) -> None:
        """So many records that do not have it."""
        if rows:
            self._append("counts", np.zeros(rows, np.int64))
            self.rows, self.nulls, self.least = self.rows + rows, self.nulls + rows, 0

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Values of each record, int64 [rows]."""
        return mapped(f"{self.stem}.counts", "int64", self.rows)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Of bytes, how long each value is, int64 [values]."""
        return mapped(f"{self.stem}.sizes", "int64", self.values)

    @property
    def data(self) -> npt.NDArray[Any]:
        """The values end to end; of bytes uint8 [all of them]."""
        path = Path(f"{self.stem}.values")
        return mapped(str(path), "uint8", path.stat().st_size) if self.kind == "bytes" else self._numbers()

    def _numbers(self) -> npt.NDArray[Any]:
        return mapped(f"{self.stem}.values", self.kind, self.values)

    def _append(self, name: str, values: Any) -> None:
        # Not held open: there may be more features than a process may have open files.
        with open(f"{self.stem}.{name}", "ab") as file:
            file.write(np.ascontiguousarray(values).data if isinstance(values, np.ndarray) else values)


def spill_records(
    paths: Sequence[str], folder: Path, wanted: Sequence[str] | None, threads: int | None = None
) -> tuple[dict[str, SpilledFeature], list[int]]:
    """Reads all records once: the features, sorted by name, and how many records each file holds.

    Args:
      paths: TFRecord files.
      folder: where the values go.
      wanted: names of features; None for all.
      threads: how many decode; None for one a core.

    Raises:
      InfeedError: a file is corrupt, a record is no tf.Example, or a feature changes its type; with file and record.
    """
    features: dict[str, SpilledFeature] = {}
    held = [0] * len(paths)
    for block in decoded_blocks(paths, threads):
        _add(features, block, folder, wanted, paths[block.file])
        held[block.file] += block.records
    return dict(sorted(features.items())), held


def _add(
    features: dict[str, SpilledFeature], block: DecodedBlock, folder: Path, wanted: Sequence[str] | None, path: str
) -> None:
    rows = next((one.rows for one in features.values()), 0)
    for name, column in block.columns.items():
        if wanted is not None and name not in wanted:
            continue
        kind = _KINDS[column.type.value_type]
        feature = features.get(name)
        if feature is None:
            feature = features[name] = SpilledFeature(f"{folder}/{len(features)}", kind)
            feature.add_missing(rows)
        if feature.kind != kind:
            number = next(number for number, one in enumerate(column) if one.is_valid)
            what = f"feature {name!r} is {kind}, and {feature.kind} in the records before"
            raise InfeedError(what, where=f"{path}, record {block.first + number}", do=REMEDY)
        feature.add(column)
    for name in features.keys() - block.columns.keys():
        features[name].add_missing(block.records)
