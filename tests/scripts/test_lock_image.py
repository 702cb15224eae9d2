from __future__ import annotations

from pathlib import Path

from infeed.pipelines.cluster.image.build import PYTHON


def test_the_stack_is_pinned_for_the_python_of_the_image() -> None:
    assert f"--python-version {PYTHON} " in (Path(__file__).parents[2] / "scripts" / "lock-image.sh").read_text()
