"""Columns of a split in the cache on this machine. The first load decodes the records into them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.cache import digest, verify
from infeed.components.dataset.column_files import ColumnIndex, kept
from infeed.components.dataset.decode_columns import LISTS
from infeed.components.load.columns import Features, add_missing_features, dataset_columns, pack_columns
from infeed.components.load.find import SplitFiles
from infeed.components.load.options import LoadOptions
from infeed.components.load.shapes import check_lengths, joined, joined_names
from infeed.components.load.spill import decoded_blocks, is_feature_list, spill_records

_FORMAT = 6
_SHOWN = 8  # maximum number of names in a message


def features_of(found: SplitFiles, options: LoadOptions) -> Features:
    """Return the columns of the split. Decode the records first if they are not cached."""
    declared = {column.name: column for column in found.schema}
    for name in options.columns or ():
        if declared and name not in declared:
            raise no_column(name, declared, found.place)
    declared_as = [repr(column) for column in found.schema], sorted(found.shapes.items())
    made_of = [_FORMAT, found.identity, *declared_as, options.columns]
    key = digest([json.dumps(made_of)])
    write = partial(_write, found, options)
    folder = os.fspath(options.cache_dir)
    return kept(folder, key, write, lambda entry, index: Features(str(entry), index), 2.0 * found.bytes)


def _write(found: SplitFiles, options: LoadOptions, folder: Path) -> ColumnIndex:
    verify(found.expected, os.fspath(options.cache_dir))
    spills, missing = folder / "spills", folder / "missing"
    spills.mkdir()
    missing.mkdir()
    # The shape of a feature is known only after its last record, so values go to flat files first.
    paths = [file.path for file in found.files]
    spilled, records = spill_records(paths, spills, options.columns)
    check_lengths(spilled, found.shapes, records, paths)
    features = joined(spilled, found.shapes)
    columns = dataset_columns(found, features, sum(records), options.columns)
    add_missing_features(features, columns, sum(records), missing)
    sequences = {name for name, feature in features.items() if feature.steps is not None}
    names = column_names(features, sequences, options.columns)
    # Without a manifest, only the records say which columns exist.
    for name in options.columns or ():
        if name not in names.values():
            raise no_column(name, _first_names(found), found.place)
    lists = sum(name.startswith(LISTS) for name in names.keys() & sequences)
    features = {names[name]: feature for name, feature in features.items() if name in names}
    columns = {names[name]: column for name, column in columns.items() if name in names}
    if not (features and sum(records)):
        what = "there are no records to read" if not sum(records) else "no record has a value"
        do = "check the writer of the records, or choose another split"
        raise InfeedError(what, where=f"{found.place}, split {found.split}", do=do)
    index = pack_columns(features, records, columns, folder, found.shapes, lists)
    shutil.rmtree(spills)
    shutil.rmtree(missing)
    return index


def _first_names(found: SplitFiles) -> Collection[str]:
    """Return the names of the columns of the first records."""
    first = next(decoded_blocks([file.path for file in found.files]), None)
    columns = first.columns if first else {}
    lists = {name for name, column in columns.items() if is_feature_list(column)}
    return column_names(joined_names(columns, found.shapes), lists).values()


def column_names(
    features: Collection[str], lists: Collection[str], wanted: Collection[str] | None = None
) -> dict[str, str]:
    """Return the name of the column of each feature. `lists` are those of them that are feature lists.

    The column of a feature list has the name of the list, and keeps the prefix `feature_lists/` only if a feature of
    the context has the same name, or `wanted` holds the longer name.
    """
    names = {}
    for name in features:
        short = name.removeprefix(LISTS) if name in lists else name
        names[name] = name if short in features or name in (wanted or ()) else short
    return {name: column for name, column in names.items() if wanted is None or column in wanted}


def no_column(name: str, known: Collection[str], place: str) -> InfeedError:
    shown = ", ".join(sorted(known)[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    do = f"use one of {shown or 'the features of the records'}"
    return InfeedError(f"there is no column {name!r}", where=place, do=do)
