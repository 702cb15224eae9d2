from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.bounds import FolderBounds, count_leading_out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a file, a link inside, links outside, and a linked folder beside it."""
    data = tmp_path / "data"
    (data / "part").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for path in (data / "part/a.csv", tmp_path / "secret.csv", tmp_path / "other/b.csv", tmp_path / "data2.csv"):
        path.write_text("x\n1\n")
    (data / "inside.csv").symlink_to("part/a.csv")
    (data / "outside.csv").symlink_to(tmp_path / "secret.csv")
    (data / "linked").symlink_to(tmp_path / "other")
    return data


@pytest.mark.parametrize("path", ["part/a.csv", "inside.csv", "part/../part/a.csv", "outside.csv", "linked/b.csv"])
def test_a_file_below_the_folder_is_inside_and_so_is_a_link(data: Path, path: str) -> None:
    assert FolderBounds(str(data)).outside(f"{data}/{path}") == ""


@pytest.mark.parametrize("path", ["../secret.csv", "..", "part/../../secret.csv", "linked/../secret.csv", "/etc/hosts"])
def test_a_path_that_leads_out_is_an_error_with_its_place(data: Path, path: str) -> None:
    found = FolderBounds(str(data)).outside(os.path.join(data, path))
    assert not Path(found).is_relative_to(data)
    with pytest.raises(InfeedError) as raised:
        FolderBounds(str(data)).check(os.path.join(data, path))
    assert raised.value.where == os.path.join(data, path)
    assert found in raised.value.what


def test_a_neighbor_whose_name_begins_alike_is_outside(data: Path) -> None:
    assert FolderBounds(str(data)).outside(f"{data}2.csv") == f"{data}2.csv"


def test_a_folder_may_itself_be_a_link(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(data)
    for root, below in itertools.product((link, data), repeat=2):
        bounds = FolderBounds(str(root))
        assert not bounds.outside(f"{below}/part/../part/a.csv")
        assert bounds.outside(f"{below}/../secret.csv") == str(tmp_path / "secret.csv")
    assert not FolderBounds(str(link)).outside(f"{data}/part/a.csv")
    assert count_leading_out(str(link), [f"{link}/part/a.csv"]) == 0


def test_a_relative_folder_has_the_same_bounds(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    assert FolderBounds(".").outside("./part/a.csv") == ""
    assert FolderBounds("part").outside("part/../b.csv") == str(data / "b.csv")


def test_links_that_lead_out_are_counted(data: Path) -> None:
    paths = ["part/a.csv", "inside.csv", "outside.csv", "linked/b.csv"]
    assert [count_leading_out(str(data), [f"{data}/{path}"]) for path in paths] == [0, 0, 1, 1]
    assert count_leading_out(str(data), [f"{data}/{path}" for path in paths]) == 2
    assert count_leading_out("s3://bucket/data", ["s3://bucket/data/a.csv"]) == 0


def test_in_a_store_names_decide(data: Path) -> None:
    bounds = FolderBounds("s3://bucket/data")
    assert bounds.outside("s3://bucket/data/a.png") == ""
    assert bounds.outside("s3://bucket/data/../secret.png") == "s3://bucket/secret.png"
    assert bounds.outside("s3://other/data/a.png") == "s3://other/data/a.png"


def test_it_can_be_allowed(data: Path) -> None:
    FolderBounds(str(data), allow=True).check(f"{data}/../secret.csv")
