"""An output folder appears when it is complete, and replaces nothing unasked; versions are pushed whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.steps.folders import is_blessed, new_folder, push


def write(folder: str, text: str) -> None:
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "file").write_text(text)


def test_a_folder_appears_in_the_end(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()  # an empty one may be there
    with new_folder(str(output), overwrite=False) as folder:
        write(folder, "new")
        assert not (output / "file").exists()
    assert (output / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [output]


def test_nothing_is_left_of_a_step_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(str(tmp_path / "output"), overwrite=False) as folder:
        write(folder, str(1 / 0))
    assert not list(tmp_path.iterdir())


def test_files_are_replaced_only_if_asked(tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    write(output, "old")
    with pytest.raises(InfeedError) as error, new_folder(output, overwrite=False):
        pass
    assert error.value.where == output
    with new_folder(output, overwrite=True) as folder:
        write(folder, "new")
    assert Path(output, "file").read_text() == "new"


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
