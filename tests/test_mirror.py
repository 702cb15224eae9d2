"""Each module of the product has its tests at the same place, or a test file says that it covers the module."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path.relative_to(ROOT)
    for folder in ("components", "pipelines", "templates")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "__init__.py"
)


def named_after(module: Path) -> list[Path]:
    """`test_<module>.py` and `test_<module>_<aspect>.py` at the module's place."""
    folder = ROOT / "tests" / module.parent
    return [*folder.glob(f"test_{module.stem}.py"), *folder.glob(f"test_{module.stem}_*.py")]


@cache
def docstrings() -> dict[Path, str]:
    """What test files say of themselves, where they say what they cover."""
    tests = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in (ROOT / "tests").rglob("test_*.py")}
    return {path: docstring for path, docstring in tests.items() if "overs" in docstring}


def is_covered(module: Path) -> bool:
    """Does a test file say so? One in the same folder names the module, one elsewhere its path."""

    def name(test: Path) -> str:
        return module.stem if test.parent == ROOT / "tests" / module.parent else module.as_posix()

    return any(f"`{name(test)}`" in docstring for test, docstring in docstrings().items())


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_its_tests(module: Path) -> None:
    assert named_after(module) or is_covered(module)


def test_files_that_are_begun_first_because_they_take_long_are_there() -> None:
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "tests" / "conftest.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LONG"
    )
    files = [path.as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in names if not any(file.endswith(f"/{name}") for file in files)] == []
