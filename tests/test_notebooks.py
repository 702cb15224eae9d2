"""The notebooks run from top to bottom in IPython, and show what they promise.

A cell with the tag `not-tested` runs a command that other tests run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An IPython in this process, which spares each notebook the start of a kernel and its imports."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # of the cache
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def cells_of(name: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(name: str, shell: Any) -> list[str]:
    """Run a notebook, and return the HTML that its cells showed."""
    from IPython.utils.capture import capture_output

    shown = []
    for cell in cells_of(name):
        source = "".join(cell["source"])
        if "not-tested" in cell["metadata"].get("tags", ()):
            continue
        with capture_output() as captured:
            result = shell.run_cell(source)
        result.raise_error()
        shown += [output.data["text/html"] for output in captured.outputs if "text/html" in output.data]
    return shown


@pytest.mark.slow
def test_the_first_run_learns_the_line(shell: Any) -> None:
    run("first_run", shell)
    assert shell.user_ns["weights"] == pytest.approx([2, -1], abs=0.1)


@pytest.mark.frameworks
def test_the_feed_starts_at_any_step(shell: Any) -> None:
    run("feed_in_jax_and_pytorch", shell)
    assert len(shell.user_ns["rows"]) == 2 * shell.user_ns["data"].steps_per_epoch


@pytest.mark.tfx
def test_components_show_themselves_in_an_interactive_context(shell: Any) -> None:
    shown = run("one_component", shell)
    for what in ("facets-iframe", "Feature name", "srcdoc="):  # statistics, schema, report
        assert any(what in page for page in shown), what


@pytest.mark.parametrize("path", NOTEBOOKS.glob("*.ipynb"), ids=lambda path: path.name)
def test_no_output_is_committed(path: Path) -> None:
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells_of(path.stem))
