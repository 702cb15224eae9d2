"""The site: built without a warning, with all public names and commands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infeed import components
from infeed.pipelines.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_each_public_name_is_in_the_reference(site: Path) -> None:
    pages = [(site / f"{name}.html").read_text() for name in ("components", "options", "features", "reference")]
    anchors = set(re.findall(r'id="infeed\.[\w.]*\.(\w+)"', "".join(pages)))
    assert {*components.__all__, "ingest", "inspect", "load", "create_pipeline"} - anchors == set()


@pytest.mark.slow
def test_each_command_and_its_options_are_in_the_reference(site: Path) -> None:
    page = (site / "command-line.html").read_text()
    for name, command in main.commands.items():
        assert f'id="infeed-{name}"' in page
        assert {option for one in command.params for option in one.opts if option.startswith("--")} - set(
            re.findall(r"--[a-z][\w-]*", page)
        ) == set()


def test_the_first_screen_runs_a_table() -> None:
    assert "infeed run tabular --data FILE --label COLUMN" in (ROOT / "docs" / "index.md").read_text()[:200]


def test_the_manual_is_small() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    by_hand = [re.sub(r"<!-- made by .*?<!-- end -->", "", page, flags=re.DOTALL) for page in pages]
    assert len(pages) <= 26
    assert sum(len(page.splitlines()) for page in by_hand) <= 3600


@pytest.mark.slow
def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    for page in ("index.html", "reference.html"):
        assert re.findall(r'<(?:script|link)[^>]*(?:src|href)="(?:https?:)?//', (site / page).read_text()) == []


def test_every_page_is_in_the_navigation() -> None:
    pages = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(pages)
    assert yaml.safe_load((ROOT / "mkdocs.yml").read_text())["strict"]
