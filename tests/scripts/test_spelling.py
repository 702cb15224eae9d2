"""What the spelling checker reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "spelling.py"


@pytest.fixture
def spelling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spelling", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CODE = """colour = array.flags.writeable  # a comment

def paint(favour="grey"):
    '''A docstring.

    Its end.'''
    return f"{favour}"
"""


def test_code_and_its_texts_are_not_read(spelling):
    assert spelling.prose(CODE).split("\n") == ["# a comment", "", "", "A docstring.", "", "    Its end.", "", ""]


def test_all_pages_and_modules_are_read(spelling, tmp_path):
    spelling.write_prose(tmp_path)
    assert (tmp_path / "README.md").read_text() == (spelling.ROOT / "README.md").read_text()
    assert (tmp_path / "components/load/frameworks.py").read_text().startswith("Conversion of NumPy batches")
