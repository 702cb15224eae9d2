"""The options of ingest, as a command line and a config say them."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import Balance, IngestOptions, ShardOptions
from infeed.components.dataset.splits import ByColumns, ByLabel, ByName, ByRecord, ByTime
from infeed.pipelines.project.ingest_settings import over, read_ingest


def test_nothing_said_is_the_default() -> None:
    assert read_ingest({}).options == IngestOptions()
    assert read_ingest({}).shares is None


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"split_by": "user"}, {"split_by": ByColumns(("user",))}),
        ({"split_by": ["user", "day"], "split_salt": "b"}, {"split_by": ByColumns(("user", "day"), "b")}),
        ({"split_salt": "b"}, {"split_by": ByRecord("b")}),
        (
            {"split_time": "day", "cut": "06/01/2020", "time_format": "%m/%d/%Y"},
            {"split_by": ByTime("day", ("06/01/2020",), "%m/%d/%Y")},
        ),
        ({"split_label": "y"}, {"split_by": ByLabel("y")}),
        ({"split_time": "day", "cut": datetime.date(2020, 6, 1)}, {"split_by": ByTime("day", ("2020-06-01",))}),
        ({"split_time": "year", "cuts": [2020]}, {"split_by": ByTime("year", ("2020",))}),
        ({"split_name": "usage"}, {"split_by": ByName("usage")}),
        ({"columns": "a,b"}, {"columns": ("a", "b")}),
        ({"columns": ["a", "b,c"]}, {"columns": ("a", "b,c")}),
        ({"filter": "a > 0", "required": "a"}, {"filter": "a > 0", "required": ("a",)}),
        ({"balance": "y", "balance_by": "under"}, {"balance": Balance("y", sampling="under")}),
        ({"shards": 4}, {"shards": ShardOptions(count=4)}),
        ({"compression": "none", "level": 3, "compat": "tfx"}, {"compression": "none", "level": 3, "compat": "tfx"}),
        ({"no_shuffle": True, "no_statistics": True}, {"shuffle_seed": None, "statistics": False}),
        ({"shuffle_seed": 7, "on_bad_row": "reject"}, {"shuffle_seed": 7, "on_bad_row": "reject"}),
    ],
)
def test_each_setting_is_an_option(given: dict[str, Any], options: dict[str, Any]) -> None:
    assert read_ingest(given, "ingest").options == dataclasses.replace(IngestOptions(), **options)


@pytest.mark.parametrize("split", [["train=2", "eval"], {"train": 2, "eval": 1}])
def test_splits_are_named_with_their_shares(split: Any) -> None:
    assert read_ingest({"split": split}).shares == read_ingest({"splits": split}).shares == {"train": 2, "eval": 1}


@pytest.mark.parametrize(
    ("given", "where", "word"),
    [
        ({"splitt": {}}, "ingest", "did you mean 'split'"),
        ({"level": 12}, "ingest.level", "level is 12"),
        ({"shards": 0}, "ingest", "is 0"),
        ({"split": ["train=many"]}, "ingest.split train=many", "'many'"),
        ({"split": ["a", "a"]}, "ingest.split", "'a'"),
        ({"cut": "2020"}, "", "ingest.cut without ingest.split_time"),
        ({"time_format": "%Y"}, "", "ingest.time_format without ingest.split_time"),
        ({"split_time": "day", "cut": "1", "time_format": "%Q"}, "ingest.time_format", "'%Q'"),
        ({"split_salt": "b", "split_label": "y"}, "ingest", "by record and by label"),
        ({"split_by": "a", "split_label": "b"}, "ingest", "by columns and by label"),
        ({"compat": "tf"}, "ingest.compat", "'tf'"),
    ],
)
def test_a_mistake_names_the_setting(given: dict[str, Any], where: str, word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        read_ingest(given, "ingest")
    assert raised.value.where.startswith(where)


def test_the_command_line_wins_over_the_file_and_replaces_its_rule() -> None:
    in_file = {"split_time": "day", "cuts": ["2020"], "level": 3}
    assert over(in_file, {"level": 1}) == {"split_time": "day", "cut": ["2020"], "level": 1}
    assert over(in_file, {"split_by": ("user",)}) == {"split_by": ("user",), "level": 3}
