"""Covers `components/base/machine.py` as well."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.engine import choice
from infeed.components.engine.choice import Cluster, Work, choose
from infeed.components.engine.engine import Here
from infeed.components.engine.on_beam import OnBeam
from infeed.components.engine.processes import Processes

WORK = Work("evaluates", items=12, bytes=1_300_000_000, bytes_per_process=100_000_000)


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpus", lambda: 8)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 64 << 30)


def cluster(*options: str) -> Cluster:
    def no_pipeline() -> Any:
        raise AssertionError("it is made when the first item is given")

    return Cluster(options, no_pipeline, "/shared")


@pytest.mark.parametrize("runner", ["PortableRunner", "FlinkRunner", "my.module.FnApiRunner", "PrismRunner"])
def test_a_runner_that_is_named_is_used_whatever_the_size(runner: str) -> None:
    for options in ([f"--runner={runner}"], ["--direct_num_workers=2", "--runner", runner]):
        assert isinstance(choose(replace(WORK, bytes=1), cluster(*options)), OnBeam)


@pytest.mark.parametrize(
    "options", [[], ["--runner=DirectRunner"], ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]]
)
def test_a_local_runner_leaves_the_choice_open(options: list[str]) -> None:
    assert choose(WORK, cluster(*options)).place == "on 8 processes"


@pytest.mark.parametrize(
    ("changed", "place", "reason"),
    [
        ({}, "on 8 processes", "one for each core"),
        ({"items": 3}, "on 3 processes", "one for each item"),
        ({"bytes": 250_000_000}, "on 2 processes", "each needs at least 100 MB of input"),
        ({"bytes": 99_999_999}, "in this process", "each needs at least 100 MB of input"),
        ({"memory_per_process": 20 << 30}, "on 3 processes", "each takes up to 21 GB of memory"),
        ({"items": 0}, "in this process", "one for each item"),
        ({"alone": "the model is on a GPU"}, "in this process", "the model is on a GPU"),
    ],
)
def test_as_many_processes_as_pay(
    changed: dict[str, Any], place: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = choose(replace(WORK, **changed))
    assert engine.place == place
    assert caplog.messages[-1].endswith(f"{place}: {reason}")


def test_the_log_of_a_node_has_the_work_and_the_engine_where_tfx_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    choose(WORK, cluster())
    assert caplog.record_tuples == [
        (choice.__name__, logging.WARNING, "evaluates 12 files, 1.3 GB, on 8 processes: one for each core")
    ]


@pytest.mark.parametrize(("given", "kind"), [("1", Here), ("0", Processes), ("4", Processes)])
def test_the_number_of_local_workers_is_beams_option(given: str, kind: type) -> None:
    engine = choose(WORK, cluster(f"--direct_num_workers={given}", "--direct_running_mode=multi_processing"))
    assert isinstance(engine, kind)
    assert engine.place == {"1": "in this process", "0": "on 8 processes", "4": "on 4 processes"}[given]


def test_no_more_processes_than_items_however_many_are_asked_for() -> None:
    assert choose(replace(WORK, items=2, bytes=1), processes=16).place == "on 2 processes"


@pytest.mark.parametrize("given", ["-1", "many"])
def test_a_number_of_workers_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(InfeedError, match=given):
        choose(WORK, cluster(f"--direct_num_workers={given}"))
