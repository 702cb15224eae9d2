"""An output folder appears when it is complete, and replaces nothing unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.steps.folders import new_folder


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
