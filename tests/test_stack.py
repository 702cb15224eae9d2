"""Which long tests the image runs: those marked `stack` too, and those marked `image`, which run nowhere else.

What is marked `stack` can differ by version of TFX and its like. The quick tests run in the image in any case.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for top in ("components", "pipelines", "templates") for path in (ROOT / top).rglob("*.py"))
_LONG = "(tfx or slow) and not (frameworks or alone or image)"
_IMAGE = "not (frameworks or alone) and (stack or image or not (tfx or slow))"


def marks(test: Path) -> set[str]:
    return set(re.findall(r"pytest\.mark\.(\w+)", test.read_text()))


def named_after(module: Path) -> list[Path]:
    """`test_<module>.py` and `test_<module>_<aspect>.py` at the module's place."""
    folder = ROOT / "tests" / module.parent.relative_to(ROOT)
    return [*folder.glob(f"test_{module.stem}.py"), *folder.glob(f"test_{module.stem}_*.py")]


def runs_in_image(test: Path) -> bool:
    found = marks(test)
    return bool(found & {"stack", "image"}) or not found & {"tfx", "slow"}


def imports(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text))
    return {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def uses_private_names(module: Path) -> bool:
    text, seams = module.read_text(), "infeed.components.seams"
    return seams in text and any(name.startswith(seams) for name in imports(text))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("module", filter(uses_private_names, MODULES), ids=relative)
def test_what_uses_private_names_of_another_package_is_tried_in_the_image(module: Path) -> None:
    tests = named_after(module)
    assert not tests or any(map(runs_in_image, tests))


@pytest.mark.parametrize("module", [path for path in MODULES if path.stem in ("component", "executor")], ids=relative)
def test_every_component_and_executor_is_tried_in_the_image(module: Path) -> None:
    assert any(map(runs_in_image, named_after(module)))


@pytest.mark.parametrize("test", sorted((ROOT / "tests").rglob("test_*against*.py")), ids=relative)
def test_every_comparison_with_an_installed_package_is_made_in_the_image(test: Path) -> None:
    assert runs_in_image(test)


@pytest.mark.parametrize("test", sorted((ROOT / "tests/components/seams").rglob("test_*.py")), ids=relative)
def test_every_seam_is_tried_in_the_image(test: Path) -> None:
    assert runs_in_image(test)


def test_what_is_skipped_here_since_it_runs_in_the_image_runs_there() -> None:
    skips = ROOT / "tests" / "conftest.py"
    reasons = re.findall(r'^    "(.+)": "in the image', skips.read_text(), re.MULTILINE)
    skipped = {test for test in (ROOT / "tests").rglob("test_*.py") if any(one in test.read_text() for one in reasons)}
    assert reasons
    assert all(map(runs_in_image, skipped))


def test_every_template_is_run_in_the_image() -> None:
    assert runs_in_image(ROOT / "tests" / "pipelines" / "test_run.py")


def test_both_runs_select_what_the_markers_say() -> None:
    assert f'-m "{_IMAGE}"' in (ROOT / "scripts" / "test-image.sh").read_text()
    assert f'LONG = "{_LONG}"' in (ROOT / "Makefile").read_text()
    known = (ROOT / "tests" / "conftest.py").read_text()  # it leaves out files of which these select nothing
    assert f'LONG = "{_LONG}"' in known
    assert f'IMAGE = "{_IMAGE}"' in known


IN_IMAGE_ONLY = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "image" in marks(path)]


@pytest.mark.parametrize("test", IN_IMAGE_ONLY, ids=relative)
def test_what_is_left_to_the_image_runs_there(test: Path) -> None:
    script = (ROOT / "scripts" / "test-image.sh").read_text()
    left_out = {ROOT / path for path in re.findall(r"--(?:ignore|deselect) ([^ :]+)", script)}
    left_out -= {ROOT / path for path in re.findall(r"INFEED_TEST_IMAGE=.* (tests/\S+\.py)", script)}  # from outside
    assert not any(test.is_relative_to(path) for path in left_out)
    assert not marks(test) & {"frameworks", "alone"}
    assert marks(test) & {"tfx", "slow"}, "the quick tests run it, too"
