"""The pages speak of files, modules, commands and options that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from infeed.pipelines.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "templates").glob("*/*.md")])
FOLDERS = ("benchmarks", "components", "docs", "infeed", "pipelines", "scripts", "templates", "tests")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
MODULE = re.compile(r"\binfeed\.((?:components|pipelines|templates)(?:\.\w+)*)")
COMMAND = re.compile(r"^[$ ]*infeed (\w+)(.*?)(?:\s#.*)?$", re.MULTILINE)
OPTION = re.compile(r"(?<= )--[a-z][\w-]*")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def missing(page: str, folder: Path) -> Iterator[str]:
    """What a page names and what does not exist."""
    for path in PATH.findall(page):
        if not (ROOT / path).exists():
            yield path
    for module in MODULE.findall(page):
        *folders, name = module.split(".")
        place = ROOT.joinpath(*folders, name)
        if not (place.exists() or place.with_suffix(".py").exists() or _defines(place.parent, name)):
            yield f"infeed.{module}"
    for link in LINK.findall(page):
        if not (folder / link).exists():
            yield link


def unknown(page: str) -> Iterator[str]:
    """What the command lines of a page ask for and `infeed` does not have."""
    for name, arguments in COMMAND.findall(page):
        command = main.get_command(click.Context(main), name)
        if command is None:
            yield name
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        yield from (f"{name} {option}" for option in OPTION.findall(arguments) if option not in options)


def _defines(place: Path, name: str) -> bool:
    """Whether the module or package `place` has this name in it."""
    files = [place.with_suffix(".py"), place / "__init__.pyi", place / "__init__.py"]
    return any(re.search(rf"\b{name}\b", file.read_text()) for file in files if file.exists())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert [*missing(text, page.parent), *unknown(text)] == []


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("`components/feed/plan.py` and `infeed.components.feed.plan.plan`", []),
        ("`components/feed/plans.py`", ["components/feed/plans.py"]),
        ("`infeed.components.Transform`, `infeed.components.Transporter`", ["infeed.components.Transporter"]),
        (
            "[a](README.md#own) [b](docs/nothing.md) [c](https://example.com/docs/x.md)",
            ["docs/nothing.md", "docs/nothing.md"],
        ),
    ],
)
def test_names_that_do_not_exist_are_found(page: str, wrong: list[str]) -> None:
    assert sorted(missing(page, ROOT)) == wrong


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("infeed run image --data FOLDER  # also --no such comment", []),
        ("    $ infeed run image --date FOLDER", ["run --date"]),
        ("infeed fly away --now", ["fly"]),
        ("and `infeed fly` within a sentence", []),
    ],
)
def test_commands_that_do_not_exist_are_found(page: str, wrong: list[str]) -> None:
    assert list(unknown(page)) == wrong
