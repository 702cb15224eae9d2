from __future__ import annotations

import json
from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import ByColumns, ByLabel, ByName, ByTime


@pytest.mark.parametrize(
    "options",
    [
        IngestOptions(shards=ShardOptions(count=3), compression="none", shuffle_seed=None, compat="tfx"),
        IngestOptions(columns=("a", "b"), filter="a > 1", on_bad_row="reject", bad_row_limit=5),
        IngestOptions(split_by=ByColumns(("user", "day"), salt="s")),
        IngestOptions(split_by=ByLabel("label"), balance=Balance("label", ("train", "extra"), "under")),
        IngestOptions(split_by=ByTime("when", ("2020-01-01",))),
        IngestOptions(split_by=ByName("usage")),
    ],
)
def test_options_travel_as_json(options: IngestOptions) -> None:
    assert schema.read(IngestOptions, json.loads(json.dumps(schema.to_plain(options)))) == options


def test_uncompressed_has_no_level() -> None:
    assert IngestOptions(level=6).gzip_level == 6
    assert IngestOptions(compression="none").gzip_level is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "zip"}, "compression is 'zip'"),
        ({"compat": "v1"}, "use one of none, tfx"),
        ({"level": 10}, "level is 10"),
        ({"shuffle_seed": -1}, "shuffle_seed is -1"),
        ({"block_bytes": 10}, "at least 1024"),
        ({"on_bad_row": "skip"}, "use one of fail, reject"),
        ({"bad_row_limit": -1}, "bad_row_limit is -1"),
        ({"columns": ()}, "one or more"),
        ({"columns": ("a", "b", "a")}, "distinct"),
        ({"split_by": ByLabel("y"), "shuffle_seed": None}, "shuffle_seed is None"),
        ({"balance": Balance("y"), "shuffle_seed": None}, "shuffle_seed is None"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        IngestOptions(**options)


def test_impossible_parts() -> None:
    with pytest.raises(InfeedError, match="sampling is 'both'"):
        Balance("y", sampling="both")  # type: ignore[arg-type]
    with pytest.raises(InfeedError, match="columns is empty"):
        ByColumns(())
