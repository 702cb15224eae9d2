"""The newest pushed model, as a command of a step finds it."""

from __future__ import annotations

from pathlib import Path

from infeed.components.trainer.versions import main, newest_version


def test_the_newest_finished_version_is_named_and_without_one_the_serving_folder(tmp_path: Path) -> None:
    serving, found = tmp_path / "serving", tmp_path / "outputs" / "base_model"

    def named() -> str:
        main(["--serving", str(serving), "--base_model", str(found)])
        return found.read_text()

    assert named() == str(serving)
    for version in ("9", "10", "11"):
        (serving / version).mkdir(parents=True)
        if version != "11":
            (serving / version / "saved_model.pb").touch()
    assert named() == str(serving / "10") == newest_version(str(serving / "10"))
    assert newest_version(str(serving / "11")) is None
