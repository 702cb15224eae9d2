"""The folder that an image is built in: the Dockerfile, the pinned stack, this package and the user's project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from importlib import resources
from pathlib import Path
from typing import Literal

from infeed.components.errors import InfeedError
from infeed.pipelines.image.wheel import package_wheel

Accelerator = Literal["none", "gpu"]

# Never part of a project's code: hidden files may hold secrets, and `runs` is where pipelines write.
_LEFT_OUT = (".*", "__pycache__", "runs", "*.egg-info")
_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"
_MOST_BYTES = 100 << 20  # of code; data in an image is copied to every machine of the cluster


def make_context(
    folder: Path, project: Path | None, *, accelerator: Accelerator = "none", exclude: Sequence[str] = ()
) -> None:
    """Fills the empty `folder`; see the Dockerfile for what is where.

    Args:
      folder: to be given to the container engine.
      project: the user's folder; None where all functions are part of installed packages, as a template's are.
      accelerator: "gpu" adds CUDA's libraries, some 4 GB.
      exclude: names or patterns of the project's files that stay out of the image.

    Raises:
      InfeedError: the project is too large to be code alone.
    """
    files = resources.files("infeed.pipelines.image")
    locks = ["requirements.txt"] + (["requirements-gpu.txt"] if accelerator == "gpu" else [])
    (folder / "Dockerfile").write_text((files / "Dockerfile").read_text("utf-8"), "utf-8")
    (folder / "requirements.txt").write_text("".join((files / lock).read_text("utf-8") for lock in locks), "utf-8")
    (folder / "package").mkdir()
    package_wheel(folder / "package")
    _copy_project(project, folder / "project", exclude)
    wanted = folder / "project" / "requirements.txt"
    (folder / "project-requirements.txt").write_bytes(wanted.read_bytes() if wanted.is_file() else b"")


def _copy_project(project: Path | None, target: Path, exclude: Sequence[str]) -> None:
    if project is None:
        target.mkdir()
        return
    ignored = _ignoring([*_LEFT_OUT, *exclude])
    sizes = {name: _bytes(project / name, ignored) for name in _kept(project, ignored)}
    if sum(sizes.values()) > _MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InfeedError(
            f"the project is {_megabytes(sum(sizes.values()))}, most of it in {largest!r} "
            f"({_megabytes(sizes[largest])}): too much for code",
            where=str(project),
            do=f"Leave it out with --exclude {largest!r}, or keep data outside the project's folder.",
        )
    shutil.copytree(project, target, ignore=ignored)


def _ignoring(patterns: Sequence[str]) -> Callable[[str, list[str]], set[str]]:
    """As `shutil.ignore_patterns`, and virtual environments, whatever they are called."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if any(fnmatch(name, pattern) for pattern in patterns) or Path(folder, name, _VIRTUAL_ENVIRONMENT).exists()
        }

    return ignored


def _kept(folder: Path, ignored: Callable[[str, list[str]], set[str]]) -> Iterable[str]:
    names = os.listdir(folder)
    return sorted(set(names) - ignored(str(folder), names))


def _bytes(path: Path, ignored: Callable[[str, list[str]], set[str]]) -> int:
    if path.is_dir():
        return sum(_bytes(path / name, ignored) for name in _kept(path, ignored))
    return path.stat().st_size


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"
