"""The state of a project's input changes with its files, and with nothing else."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from infeed.components.kubeflow.message import pack
from infeed.pipelines.config import Resolved
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.steps.input_state import main

CONFIG = """
source: csv
data: {data}
label: y
features: [{{kind: z_score, column: x}}, {{kind: label, column: y}}]
model: model.py:build_model
"""
ROWS = "x,y\n" + "1,no\n2,yes\n3,no\n" * 10


def packed(folder: Path, data: str) -> str:
    (folder / "model.py").write_text("def build_model(spec):\n    raise NotImplementedError\n")
    (folder / "config.yaml").write_text(CONFIG.format(data=folder / data))
    config = resolve(read_project(str(folder / "config.yaml")), Overrides(root=str(folder)))
    return pack(dataclasses.replace(Resolved.of(config), ingest=config.ingest_options).to_json())


def state(folder: Path, project: str, data: Path) -> str:
    file = folder / "out" / "state"
    main(["--project", project, "--data", str(data), "--input_fingerprint", str(file)])
    return file.read_text()


def test_a_changed_file_has_another_state_and_an_unchanged_one_the_same(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text(ROWS)
    project = packed(tmp_path, "data.csv")
    before = state(tmp_path, project, data)
    assert state(tmp_path, project, data) == before
    os.utime(data, ns=(1, 1))
    assert state(tmp_path, project, data) != before


def test_a_new_span_has_another_state(tmp_path: Path) -> None:
    for span in (1, 2):
        (tmp_path / f"span-{span}.csv").write_text(ROWS)
    project = packed(tmp_path, "span-{SPAN}.csv")
    before = state(tmp_path, project, tmp_path)
    (tmp_path / "span-3.csv").write_text(ROWS)
    assert state(tmp_path, project, tmp_path) != before


def test_data_that_are_not_there_are_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.csv").write_text(ROWS)
    project = packed(tmp_path, "data.csv")
    with pytest.raises(SystemExit) as ended:
        state(tmp_path, project, tmp_path / "absent.csv")
    assert ended.value.code == 2
    assert "absent.csv" in capsys.readouterr().err
