"""Columns of a whole dataset, so that all splits have the same columns, types and shapes.

A manifest lists the columns. Datasets of TFX and TFDS have no manifest, so the first load of a split also counts the
values of the other splits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from infeed.components.dataset.manifest import Column, ColumnType
from infeed.components.errors import InfeedError
from infeed.components.load.find import SplitFiles
from infeed.components.load.spill import FeatureCounts, Kind, SpilledFeature, count_features

_TYPES: dict[Kind, ColumnType] = {"bytes": "bytes", "float32": "float", "int64": "int"}
_KINDS = {column: kind for kind, column in _TYPES.items()}
_log = logging.getLogger(__name__)


def dataset_columns(
    found: SplitFiles, own: Mapping[str, FeatureCounts], records: int, wanted: Sequence[str] | None
) -> dict[str, Column]:
    """Return the columns of the dataset by name.

    Args:
      found: split to load, with the files of the other splits.
    """
    if found.schema:
        return {column.name: column for column in found.schema if wanted is None or column.name in wanted}
    counted: dict[str, FeatureCounts] = {}
    before = 0
    for features, rows in ((own, records), *_other_splits(found, wanted)):
        for name, feature in features.items():
            if name not in counted:
                counted[name] = FeatureCounts(feature.kind)
                counted[name].add_missing(before)
            counted[name].merge(feature)
        for name in counted.keys() - features.keys():
            counted[name].add_missing(rows)
        before += rows
    columns = {}
    for name, feature in counted.items():  # as ingest: a missing value does not change the shape of single values
        fixed = feature.most and (feature.least == feature.most or feature.most == 1)
        columns[name] = Column(name, _TYPES[feature.kind], (feature.most,) if fixed else None, feature.nulls)
    return columns


def add_missing_features(
    features: dict[str, SpilledFeature], columns: Mapping[str, Column], records: int, folder: Path
) -> None:
    """Add the columns that no record of the split holds, without a value in each of its `records` rows."""
    for name in sorted(columns.keys() - features.keys()):
        features[name] = SpilledFeature(_KINDS[columns[name].type], stem=f"{folder}/{len(features)}")
        features[name].add_missing(records)


def _other_splits(found: SplitFiles, wanted: Sequence[str] | None) -> Iterator[tuple[Mapping[str, FeatureCounts], int]]:
    """Count the features and the records of each other split."""
    for split, others in found.others.items():
        try:
            features, held = count_features([file.path for file in others], wanted)
        except InfeedError as error:
            _log.warning("split %r is not readable, so columns that only this split has are omitted: %s", split, error)
            continue
        yield features, sum(held)
