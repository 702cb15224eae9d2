"""setup.py: the editable install of `make setup`, for Python and for static tools, and the front door `infeed`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """From another folder, with nothing in the environment that would help to find the package."""
    return subprocess.run(command, cwd=cwd, env={}, check=True, capture_output=True, text=True).stdout


def test_this_editable_install_runs_from_the_source_tree(tmp_path: Path) -> None:
    code = "from infeed.components.base import errors; print(errors.__file__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path) == f"{ROOT}/infeed/components/base/errors.py\n"
    assert "Usage: infeed" in run(Path(sys.executable).with_name("infeed"), "--help", cwd=tmp_path)


@pytest.mark.slow
def test_static_tools_follow_the_editable_install(tmp_path: Path) -> None:
    """From anywhere: a wrong argument of a component is seen by mypy, which runs no import hook.

    mypy runs with other options here, so it has a cache of its own: it would replace all that `make check` keeps.
    """
    (tmp_path / "user.py").write_text("from infeed import IngestOptions\n\nIngestOptions(limits=3)\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(sys.executable, "-m", "mypy", "--cache-dir", ROOT / ".mypy_cache" / "installed", "user.py", cwd=tmp_path)
    assert 'Unexpected keyword argument "limits" for "IngestOptions"' in failed.value.stdout


def test_nothing_heavy_is_imported_at_the_front_door(tmp_path: Path) -> None:
    heavy = {"apache_beam", "keras", "numpy", "pyarrow", "tensorflow", "tfx"}
    code = (
        f"import infeed, sys; print(sorted({heavy} & set(sys.modules)), infeed.__version__, 'Trainer' in dir(infeed))"
    )
    assert run(sys.executable, "-c", code, cwd=tmp_path) == f"[] {version('tfx-infeed')} True\n"


def test_each_name_at_the_front_door_is_that_of_the_components(tmp_path: Path) -> None:
    import infeed
    from infeed import components

    assert set(components.__all__) <= set(infeed.__all__)
    assert infeed.IngestOptions is components.IngestOptions
