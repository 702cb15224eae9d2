from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.dataset.bounds import FolderBounds
from infeed.components.errors import InfeedError


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


@pytest.mark.parametrize("path", ["part/a.csv", "inside.csv", "part/../part/a.csv"])
def test_a_file_or_a_link_within_the_folder_is_inside(data: Path, path: str) -> None:
    assert FolderBounds(str(data)).outside(f"{data}/{path}") == ""


@pytest.mark.parametrize("path", ["outside.csv", "linked/b.csv", "../secret.csv", "..", "part/../../secret.csv"])
def test_what_leads_out_is_told_with_its_place(data: Path, path: str) -> None:
    found = FolderBounds(str(data)).outside(f"{data}/{path}")
    assert Path(found).is_relative_to(data.parent)
    assert not Path(found).is_relative_to(data)
    with pytest.raises(InfeedError) as raised:
        FolderBounds(str(data)).check(f"{data}/{path}")
    assert raised.value.where == f"{data}/{path}"
    assert found in raised.value.what


def test_a_neighbor_whose_name_begins_alike_is_outside(data: Path) -> None:
    assert FolderBounds(str(data)).outside(f"{data}2.csv") == f"{data}2.csv"


def test_a_folder_may_itself_be_a_link(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(data)
    assert FolderBounds(str(link)).outside(f"{link}/part/a.csv") == ""
    assert FolderBounds(str(link)).outside(f"{link}/outside.csv") == str(tmp_path / "secret.csv")


def test_in_a_store_names_decide(data: Path) -> None:
    bounds = FolderBounds("s3://bucket/data")
    assert bounds.outside("s3://bucket/data/a.png") == ""
    assert bounds.outside("s3://bucket/data/../secret.png") == "s3://bucket/secret.png"
    assert bounds.outside("s3://other/data/a.png") == "s3://other/data/a.png"


def test_it_can_be_allowed(data: Path) -> None:
    FolderBounds(str(data), allow=True).check(f"{data}/outside.csv")
