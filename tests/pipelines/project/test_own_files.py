from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.project.own_files import check_size, ignoring, names_of


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_code_travels_and_secrets_results_and_environments_stay(tmp_path: Path) -> None:
    write(tmp_path, "model.py", "networks/dense.py", "vocabulary.txt", "data.csv")
    write(tmp_path, ".env", ".git/config", "runs/x/log", "rehearsals/x/log", "env/pyvenv.cfg", "a/__pycache__/b.pyc")
    assert names_of(tmp_path, ignoring(["*.csv"])) == ["model.py", "networks/dense.py", "vocabulary.txt"]


def test_too_large_a_project_is_refused_with_its_largest_entry(tmp_path: Path) -> None:
    write(tmp_path, "model.py", "data/part-1.csv", "data/part-2.csv")
    check_size(tmp_path, ignoring([]), 100, "leave out {}")
    with pytest.raises(InfeedError, match=r"largest entry is 'data' \(30 B\)") as error:
        check_size(tmp_path, ignoring([]), 20, "leave out {}")
    assert (error.value.where, error.value.do) == (str(tmp_path), "leave out 'data'")
