"""The versions in docs/compatibility.md are those that setup.py pins, and no page installs from an index."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
COLUMNS = ("3.10", "3.13")  # a Python of each column
PACKAGES = {
    "TFX": "tfx",
    "TensorFlow Transform": "tensorflow-transform",
    "TensorFlow Model Analysis": "tensorflow-model-analysis",
    "TensorFlow": "tensorflow",
    "Apache Beam": "apache-beam",
    "Kubeflow Pipelines' SDK": "kfp",
}
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.fixture(scope="module")
def pinned() -> list[Requirement]:
    """The requirements of the extras tfx and steps."""
    given: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **found: given.update(found))
        runpy.run_path(str(ROOT / "setup.py"))
    return [Requirement(text) for extra in ("tfx", "steps") for text in given["extras_require"][extra]]


def allowed(package: str, python: str, pinned: list[Requirement]) -> SpecifierSet:
    """The versions of a package that setup.py allows on a version of Python."""
    there = [one for one in pinned if not one.marker or one.marker.evaluate({"python_version": python})]
    return SpecifierSet(",".join(str(one.specifier) for one in there if one.name == package))


def table() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "compatibility.md").read_text().partition("\n## Versions")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return {name: cells for name, *cells in rows}


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("column", [0, 1])
def test_a_version_of_the_page_is_one_that_setup_allows(name: str, column: int, pinned: list[Requirement]) -> None:
    versions = allowed(PACKAGES[name], COLUMNS[column], pinned)
    assert str(versions)
    assert versions.contains(table()[name][column])


def test_the_pythons_of_the_page_are_those_of_setup() -> None:
    (supported,) = re.findall(r'python_requires="(.*?)"', (ROOT / "setup.py").read_text())
    found = [f"3.{minor}" for minor in range(8, 16) if f"3.{minor}" in SpecifierSet(supported)]
    first, *_, last = found
    assert table()[""] == [f"Python {first}", f"Python 3.11 to {last}"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_this_package_from_an_index(page: Path) -> None:
    """Anyone could register the name there. An extra of a package that is installed already is not looked up."""
    assert re.findall(r"pip install '?tfx-infeed", page.read_text()) == []
