from __future__ import annotations

from typing import Any

import pytest

from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.errors import InfeedError


def test_options_travel_as_json() -> None:
    options = IngestOptions(shards=ShardOptions(count=3), compression="none", shuffle_seed=None, compat="tfx")
    assert IngestOptions.from_json(options.to_json()) == options


def test_uncompressed_has_no_level() -> None:
    assert IngestOptions(level=6).gzip_level == 6
    assert IngestOptions(compression="none").gzip_level is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "zip"}, "compression='zip'"),
        ({"compat": "v1"}, "choose one of none, tfx"),
        ({"level": 10}, "level=10"),
        ({"shuffle_seed": -1}, "shuffle_seed=-1"),
        ({"block_bytes": 10}, "at least 1024 bytes"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        IngestOptions(**options)
