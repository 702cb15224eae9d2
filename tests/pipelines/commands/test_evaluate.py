"""Checks of `infeed evaluate` before TensorFlow is imported. `test_steps.py` covers evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import infeed
from infeed.pipelines.cli import main


@pytest.mark.parametrize("option", ["--model", "--baseline"])
def test_a_column_of_another_type_than_in_training_ends_with_2(tmp_path: Path, option: str) -> None:
    for name, types in (("typed", {"zip": "bytes"}), ("other", {})):
        (tmp_path / name / "assets.extra").mkdir(parents=True)
        described = {"columns": ["zip"], "types": types, "source_options": {}}
        (tmp_path / name / "assets.extra" / "raw_columns.json").write_text(json.dumps(described))
        (tmp_path / name / "saved_model.pb").write_bytes(b"no model")
    (tmp_path / "new.csv").write_text("zip\n01234\n00042\n")
    (tmp_path / "config.yaml").write_text("label: y\n")
    infeed.ingest(tmp_path / "new.csv", tmp_path / "data", splits={"test": 1})
    models = {"--model": "other", option: "typed"}
    words = [str(word) for name, model in models.items() for word in (name, tmp_path / model)]
    place = [str(tmp_path / "config.yaml"), "--dataset", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["evaluate", *place, *words])
    assert done.exit_code == 2
    for word in ("'zip'", "int", "bytes", str(tmp_path / "data"), 'types={"zip": "bytes"}'):
        assert word in done.output
