"""Covers `kfp`: the names of every seam exist, and the reason names one that is gone."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pkgutil
from pathlib import Path

import pytest

from infeed.components import seams
from infeed.components.seams.seam import Seam

pytestmark = pytest.mark.stack

MODULES = [one.name for one in pkgutil.iter_modules(seams.__path__) if one.name != "seam"]
SEAMS = {
    f"{module}.{name}": value
    for module in MODULES
    for name, value in vars(importlib.import_module(f"{seams.__name__}.{module}")).items()
    if isinstance(value, Seam)
}


@pytest.mark.tfx
@pytest.mark.parametrize("name", SEAMS)
def test_every_name_is_as_it_was_read(name: str) -> None:
    import tfx.components  # noqa: F401 - before TFMA

    assert SEAMS[name].available() is None


@pytest.mark.tfx
@pytest.mark.parametrize("name", SEAMS)
def test_each_name_that_is_gone_is_the_reason_and_the_log_has_the_consequence(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    import tfx.components  # noqa: F401 - before TFMA

    seam = SEAMS[name]
    for place, one in enumerate(seam.names):
        gone = renamed(one)
        lacking = dataclasses.replace(seam, names=(*seam.names[:place], gone, *seam.names[place + 1 :]))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert not lacking.usable()
        (record,) = caplog.records
        assert "_taken_away" in record.getMessage()
        assert seam.package in record.getMessage()
        assert seam.instead in record.getMessage()


def renamed(name: str) -> str:
    """The name, with another last part."""
    head, mark, setting = name.partition("@")
    path, parenthesis, parameters = head.partition("(")
    return f"{path}@{setting}_taken_away" if mark else f"{path}_taken_away{parenthesis}{parameters}"


def row(place: str, seam: Seam) -> str:
    """A seam in the table of components/seams/README.md."""
    last = [name.partition(":")[2].partition("(")[0].replace("@", ".") for name in seam.names]
    module = place.partition(".")[0]
    names = ", ".join(f"`{one}`" for one in last) if len(last) <= 6 else f"{len(last)} names, in `seams/{module}.py`"
    return f"| `{place}` | {seam.need} | {names} | {', '.join(seam.versions)} | {seam.instead} |"


def test_the_page_has_every_seam_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "components" / "seams" / "README.md").read_text()
    assert [one for one in (row(*item) for item in SEAMS.items()) if one not in page] == []
