"""When a run may take the results of the last one; that `infeed run` does so is in tests/pipelines/test_run.py."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infeed.components.evaluation.model_report.scores import Guess
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import ZScore
from infeed.components.transform.kinds.text import Subwords
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.console.nodes import NodeReport, NodeState, RunReport
from infeed.pipelines.local import outcome
from infeed.pipelines.local.outcome import NodeOutput, RunOutcome, digest_of, keeping_last_run, remember, same_run

NODES = ("CsvExampleGen", "Trainer", "latest_blessed_model")


@pytest.fixture
def config(taxi: PipelineConfig, tmp_path: Path) -> PipelineConfig:
    """A project after its first run."""
    (tmp_path / "data.csv").write_text("x,y\n1,0\n")
    (tmp_path / "helper.py").write_text("UNITS = 3\n")
    (tmp_path / "model.py").write_text("import helper\n\n\ndef build(spec):\n    return helper.UNITS\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metadata.sqlite").write_bytes(b"what TFX has written down")
    (tmp_path / "run" / "artifact").mkdir()
    train = TrainOptions(f"{tmp_path}/model.py:build", label="y")
    return dataclasses.replace(
        taxi,
        root=str(tmp_path / "run"),
        data=str(tmp_path / "data.csv"),
        features=(ZScore("x"), Label("y")),
        train=train,
    )


@pytest.fixture
def full_outcome(run_outcome: RunOutcome) -> RunOutcome:
    guesses = {"accuracy": Guess(0.6, "always '0'")}
    return dataclasses.replace(run_outcome, guesses=guesses, caution="33 test rows are few")


@pytest.fixture
def ran(config: PipelineConfig, full_outcome: RunOutcome, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    outputs = {("Trainer", "model"): NodeOutput(f"{config.root}/artifact", {}), ("Old", "x"): NodeOutput("/gone", {})}
    monkeypatch.setattr(outcome, "latest_outputs", lambda config: outputs)
    report = RunReport(tuple(NodeReport(name, NodeState.DONE, 2.0) for name in NODES), 6.0)
    remember(config, digest_of(config), report, full_outcome, ["latest_blessed_model"])
    return config


def is_same(config: PipelineConfig) -> bool:
    return same_run(config, digest_of(config)) is not None


def test_a_run_of_the_same_has_the_outcome_of_the_last_and_all_nodes_from_the_cache(
    ran: PipelineConfig, full_outcome: RunOutcome
) -> None:
    last = same_run(ran, digest_of(ran))
    assert last is not None
    assert last.outcome == full_outcome
    told: list[tuple[NodeReport, ...]] = []
    report = last.report(lambda nodes: told.append(tuple(nodes)))
    states = {node.name: node.state for node in report.nodes}
    assert states == dict.fromkeys(NODES, NodeState.CACHED) | {"latest_blessed_model": NodeState.DONE}
    assert report.succeeded
    assert told[-1] == report.nodes


def edit(path: Path, text: str) -> None:
    """Within one tick of the file system's clock, too."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1, before + 1))


def last_run(folder: Path) -> str:
    return (folder / "run" / "last_run.json").read_text()


CHANGES: dict[str, Callable[[Path], object]] = {
    "the data": lambda folder: edit(folder / "data.csv", "x,y\n2,0\n"),
    "the model": lambda folder: edit(folder / "model.py", "def build(spec):\n    return 4\n"),
    "what the model imports": lambda folder: edit(folder / "helper.py", "UNITS = 4\n"),
    "the metadata": lambda folder: edit(folder / "run" / "metadata.sqlite", "another run"),
    "an artifact that is gone": lambda folder: (folder / "run" / "artifact").rmdir(),
    "a file of another version": lambda folder: edit(folder / "run" / "last_run.json", '{"made_of": ""}'),
    "a file from before scores had intervals": lambda folder: edit(
        folder / "run" / "last_run.json", re.sub(r'"(rows|split)": [^,]*,', "", last_run(folder))
    ),
    "a broken file": lambda folder: edit(folder / "run" / "last_run.json", "{"),
    "no file": lambda folder: (folder / "run" / "last_run.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_changes_on_disk_is_for_tfx_to_decide(
    ran: PipelineConfig, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    assert is_same(ran)
    change(tmp_path)
    assert not is_same(ran)


def test_metadata_may_change_in_what_no_run_depends_on(ran: PipelineConfig, tmp_path: Path) -> None:
    with keeping_last_run(ran.root, ran.metadata):
        CHANGES["the metadata"](tmp_path)
    assert is_same(ran)


def test_a_change_before_that_stays_a_change(ran: PipelineConfig, tmp_path: Path) -> None:
    CHANGES["the metadata"](tmp_path)
    with keeping_last_run(ran.root, ran.metadata):
        edit(Path(ran.metadata), "once more")
    assert not is_same(ran)


@pytest.mark.parametrize(
    "change",
    [
        {"features": (Label("y"),)},
        {"blessing": Blessing("accuracy", 0.7)},
        {"max_wait_fraction": 0.5},
        {"source_options": {"delimiter": ";"}},
        {"train": TrainOptions("model:build", label="y", epochs=3)},
    ],
)
def test_another_config_is_another_run(
    ran: PipelineConfig, change: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_same(dataclasses.replace(ran, **change))


def test_another_version_of_this_package_is_another_run(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "feed.py").write_text("TIERS = 3\n")
    monkeypatch.setattr(outcome, "_ROOMS", [tmp_path / "package"])
    before = digest_of(config)
    assert digest_of(config) == before
    edit(tmp_path / "package" / "feed.py", "TIERS = 4\n")
    assert digest_of(config) != before


@pytest.mark.parametrize(
    "change", [{"warm_start": True}, {"enable_cache": False}, {"data": "gs://b/x.csv"}, {"root": "gs://b"}]
)
def test_runs_that_are_never_alike_have_no_digest(config: PipelineConfig, change: dict[str, object]) -> None:
    changed = dataclasses.replace(config, **change)
    assert digest_of(changed) == ""
    assert same_run(changed, "") is None


def test_every_file_of_a_folder_counts_and_of_a_pattern_whatever_it_may_match(
    config: PipelineConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "2024"
    (folder / "may").mkdir(parents=True)
    (folder / "may" / "rides.csv").write_text("x,y\n1,0\n")
    for data in (str(folder), f"{folder}/m*/rides.csv"):
        of_folder = dataclasses.replace(config, data=data)
        before = digest_of(of_folder)
        edit(folder / "may" / "rides.csv", "x,y\n1,1\n")
        assert digest_of(of_folder) != before


def test_a_list_of_pictures_counts_with_the_files_beside_it(config: PipelineConfig, tmp_path: Path) -> None:
    listed = dataclasses.replace(config, source="images")
    (tmp_path / "cat.png").write_bytes(b"1")
    before = digest_of(listed)
    edit(tmp_path / "cat.png", "2")
    assert digest_of(listed) != before


def test_a_file_that_a_feature_reads_counts(config: PipelineConfig, tmp_path: Path) -> None:
    (tmp_path / "pieces.txt").write_text("[UNK]\n")
    reads = dataclasses.replace(config, features=(Subwords("x", str(tmp_path / "pieces.txt")), Label("y")))
    before = digest_of(reads)
    edit(tmp_path / "pieces.txt", "[UNK]\ncat\n")
    assert digest_of(reads) != before


def test_nothing_heavy_is_imported_for_it() -> None:
    program = (
        "import infeed.pipelines.local.outcome, sys\n"
        "print(sorted({'tensorflow', 'tfx', 'apache_beam', 'keras', 'ml_metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
