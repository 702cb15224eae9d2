"""A model is pushed as a new version, here and on a store; an unblessed one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.steps.folders import is_blessed, push


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    return str(folder)


def test_versions_are_pushed_in_order_and_whole(model: str, tmp_path: Path) -> None:
    serving = str(tmp_path / "serving")
    first, second = push(model, serving), push(model, serving)
    assert [files.join(serving, name) for name in files.list_folders(serving)] == [first, second]
    assert Path(second, "variables", "variables.index").read_bytes() == b"weights"


def test_the_newest_version_is_pushed_on(model: str, tmp_path: Path) -> None:
    pushed = push(push(model, str(tmp_path / "staging")), str(tmp_path / "serving"))
    assert Path(pushed, "saved_model.pb").read_bytes() == b"graph"


def test_a_store_has_the_graph_last(model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "is_local", lambda path: False)
    written: list[str] = []
    copy = files.copy

    def noted(source: str, target: str) -> None:
        written.append(target)
        copy(source, target)

    monkeypatch.setattr(files, "copy", noted)
    target = push(model, str(tmp_path / "serving"))
    assert written == [files.join(target, "variables/variables.index"), files.join(target, "saved_model.pb")]


def test_a_folder_without_a_model_or_an_evaluation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InfeedError) as error:
        push(str(tmp_path), str(tmp_path / "serving"))
    assert error.value.where == str(tmp_path)
    with pytest.raises(InfeedError) as error:
        is_blessed(str(tmp_path))
    assert error.value.where == str(tmp_path)
