"""The node that hands the newest pushed model to a Trainer."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.tfx


def test_the_newest_finished_version_is_the_base_model(tmp_path: Path) -> None:
    from tfx.types import standard_artifacts
    from tfx.utils import path_utils

    from infeed.components.trainer.pushed_model import PushedModelExecutor

    model = standard_artifacts.Model()

    def handed_over() -> list[str]:
        PushedModelExecutor().Do({}, {"model": [model]}, {"serving": str(tmp_path / "serving")})
        folder = Path(path_utils.serving_model_path(model.uri))
        return [file.read_text() for file in folder.glob("*.pb")]

    model.uri = str(tmp_path / "first")
    assert handed_over() == []
    for version in ("9", "10", "11"):
        (tmp_path / "serving" / version / "variables").mkdir(parents=True)
        if version != "11":
            (tmp_path / "serving" / version / "saved_model.pb").write_text(version)
    model.uri = str(tmp_path / "second")
    assert handed_over() == ["10"]
