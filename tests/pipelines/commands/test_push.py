"""`infeed push` prints where the model is; an evaluation without blessing ends with 3."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from infeed.pipelines.commands.push import command


def test_a_blessed_model_is_pushed_and_another_is_not(tmp_path: Path) -> None:
    model, evaluation = tmp_path / "model", tmp_path / "evaluation"
    model.mkdir()
    (model / "saved_model.pb").touch()
    evaluation.mkdir()
    (evaluation / "NOT_BLESSED").touch()
    arguments = [str(model), str(tmp_path / "serving"), "--evaluation", str(evaluation), "--json"]
    refused, allowed = (CliRunner().invoke(command, [*arguments, *more]) for more in ([], ["--allow-unblessed"]))
    assert (refused.exit_code, allowed.exit_code) == (3, 0)
    (evaluation / "NOT_BLESSED").rename(evaluation / "BLESSED")
    pushed = CliRunner().invoke(command, arguments)
    assert Path(json.loads(pushed.stdout)["pushed"], "saved_model.pb").exists()
