"""This very package as a wheel, so that an image holds the code that was tried here and not a release like it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import PackagePath, distribution
from pathlib import Path

from infeed.components.errors import InfeedError

NAME = "tfx-infeed"

# What setuptools reads of a checkout. Built from a copy: it leaves build/ behind, and packs what an older build left.
_SOURCES = ("setup.py", "pyproject.toml", "README.md", "components", "pipelines", "templates")
# The same code has to give the same bytes, or an engine builds the layer anew.
_BUILT_AT = 315_532_800  # seconds since 1970: the beginning of 1980, the first year that a zip can hold
# Says how the package came onto this machine, which is nobody's business in the image.
_LOCAL = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


def package_wheel(folder: Path) -> Path:
    """Writes the wheel into `folder`: of the source tree where this runs from one (`pip install --editable`), else of
    the installed files.

    Raises:
      InfeedError: the source tree cannot be built.
    """
    source = Path(__file__).resolve().parents[2]
    return _from_source(source, folder) if (source / "setup.py").is_file() else _from_installed(folder)


def _from_source(source: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory() as copy:
        for name in _SOURCES:
            if (source / name).is_dir():
                shutil.copytree(source / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source / name, copy)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(_BUILT_AT)}
        done = subprocess.run([*command, "--wheel-dir", folder, copy], capture_output=True, text=True, env=env)
    if done.returncode:
        raise InfeedError(
            f"the package cannot be built: {done.stderr.strip()[-500:]}",
            where=str(source),
            do="Try: pip wheel --no-deps on that folder.",
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _from_installed(folder: Path) -> Path:
    """A wheel is a zip of what pip unpacked (PEP 427), but for the scripts and bytecode that pip made itself."""
    package = distribution(NAME)
    path = folder / f"{NAME.replace('-', '_')}-{package.version}-py3-none-any.whl"
    files = [file for file in package.files or () if _came_from_the_wheel(file)]
    record = next(file for file in package.files or () if file.name == "RECORD")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.writestr(_entry(file), Path(str(file.locate())).read_bytes(), zipfile.ZIP_DEFLATED)
        lines = [f"{file.as_posix()},{file.hash.mode}={file.hash.value},{file.size}" for file in files if file.hash]
        wheel.writestr(_entry(record), "\n".join([*lines, f"{record.as_posix()},,", ""]), zipfile.ZIP_DEFLATED)
    return path


def _entry(file: PackagePath) -> zipfile.ZipInfo:
    """Of 1980, whenever the file was installed."""
    entry = zipfile.ZipInfo(file.as_posix())
    entry.external_attr = 0o644 << 16
    return entry


def _came_from_the_wheel(file: PackagePath) -> bool:
    return ".." not in file.parts and file.suffix != ".pyc" and file.name not in _LOCAL
