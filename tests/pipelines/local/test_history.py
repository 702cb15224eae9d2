"""What is written about a run, and read back: at its start, at its end, and after a kill."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

import infeed
from infeed.components.base.errors import InfeedError
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.console.nodes import NodeReport, NodeState, RunReport
from infeed.pipelines.local import history
from infeed.pipelines.local.history import begin, find_root, finish, forget, is_running, only_process, read_runs
from infeed.pipelines.local.outcome import NodeOutput, RunOutcome

DONE = RunReport((NodeReport("CsvExampleGen", NodeState.DONE, 2.0), NodeReport("Trainer", NodeState.DONE, 4.0)), 6.0)


@pytest.fixture
def config(taxi: PipelineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    """The config of a project whose ExampleGen has written six rows."""
    csv.write_csv(pa.table({"x": range(6), "y": [0, 1] * 3}), tmp_path / "data.csv")
    infeed.ingest(tmp_path / "data.csv", tmp_path / "examples", splits={"train": 1})
    outputs = {("CsvExampleGen", "examples"): NodeOutput(str(tmp_path / "examples"), {})}
    monkeypatch.setattr(history, "latest_outputs", lambda config: outputs)
    (tmp_path / "root").mkdir()
    return dataclasses.replace(taxi, root=str(tmp_path / "root"), data=str(tmp_path / "data.csv"))


def test_a_run_is_recorded_at_its_start_and_at_its_end(config: PipelineConfig, run_outcome: RunOutcome) -> None:
    run = begin(config)
    assert [(one.number, one.status) for one in read_runs(config.root)] == [(1, "stopped")]
    finish(run, config, DONE, run_outcome)
    (found,) = read_runs(config.root)
    assert (found.status, found.outcome, found.nodes, found.seconds) == ("pushed", run_outcome, DONE.nodes, 6.0)
    assert found.config["train"]["label"] == "y"
    assert "survey" not in found.config


def test_the_fingerprint_is_of_the_records(config: PipelineConfig, tmp_path: Path) -> None:
    for _ in range(2):
        finish(begin(config), config, DONE, None)
    csv.write_csv(pa.table({"x": range(1, 7), "y": [0, 1] * 3}), tmp_path / "data.csv")
    infeed.ingest(tmp_path / "data.csv", tmp_path / "examples", splits={"train": 1}, overwrite=True)
    finish(begin(config), config, DONE, None)
    third, second, first = read_runs(config.root)
    assert [run.rows for run in (first, third)] == [{"train": 6}] * 2
    assert first.fingerprint == second.fingerprint != third.fingerprint


def test_a_failed_run_names_its_node_and_without_ingest_has_no_data(config: PipelineConfig) -> None:
    failed = RunReport((NodeReport("CsvExampleGen", NodeState.FAILED, error="no"), NodeReport("Trainer")), 1.0)
    finish(begin(config), config, failed, None)
    (run,) = read_runs(config.root)
    assert (run.status, run.rows, run.fingerprint) == ("CsvExampleGen failed", {}, "")


def test_a_model_that_is_not_blessed_is_not_pushed(config: PipelineConfig, run_outcome: RunOutcome) -> None:
    finish(begin(config), config, DONE, dataclasses.replace(run_outcome, blessed=False, pushed=None))
    assert read_runs(config.root)[0].status == "not blessed"


def test_numbers_are_never_used_again_while_a_later_run_is_there(config: PipelineConfig) -> None:
    first = begin(config)
    begin(config)
    forget(first, config.root)
    assert begin(config).number == 3


def test_an_entry_of_another_version_is_skipped(config: PipelineConfig, caplog: pytest.LogCaptureFixture) -> None:
    begin(config)
    Path(config.root, "history", "0002.json").write_text('{"number": 2, "color": "red"}')
    assert [run.number for run in read_runs(config.root)] == [1]
    assert "0002.json" in caplog.text


def test_only_one_process_uses_a_root(config: PipelineConfig) -> None:
    assert not is_running(config.root)
    with only_process(config.root):
        assert is_running(config.root)
        with pytest.raises(InfeedError) as raised, only_process(config.root):
            pass
    assert config.root in str(raised.value.where)


def test_the_only_root_is_found_and_several_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InfeedError, match="no run"):
        find_root(None)
    (tmp_path / "runs" / "taxi" / "history").mkdir(parents=True)
    assert find_root(None) == "runs/taxi"
    (tmp_path / "runs" / "flowers" / "history").mkdir(parents=True)
    with pytest.raises(InfeedError, match="2 roots") as raised:
        find_root(None)
    assert "runs/flowers" in str(raised.value.do)
    assert find_root("runs/flowers") == "runs/flowers"
    with pytest.raises(InfeedError, match="no run"):
        find_root(str(tmp_path))
