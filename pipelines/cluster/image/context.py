"""Build context of an image: its Dockerfile, the pinned packages, a wheel of this package, and the user's project.

The Dockerfile is that of the project, or else that of the templates. The wheel holds the installed files of this
package, so that the image runs the same code as this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import infeed
from infeed.components.base.errors import InfeedError
from infeed.pipelines.project.own_files import check_size, ignoring

_BUILD_TOOLS = ("setuptools==", "wheel==")  # for packages without a wheel; pip would fetch unpinned versions
_PIN = re.compile(r"^[\w.\[\],-]+==[^\s;]+", re.M)
_MOST_BYTES = 100 << 20  # a cluster copies the image to every machine, so it must not hold data
NAME = "tfx-infeed"
PYTHON = "3.13"
"""Python version of the image, which Debian 13 has."""

# Files that setuptools reads. The build uses a copy, because setuptools leaves build/ behind and packs old files in it.
_SOURCES = ("setup.py", "pyproject.toml", "README.md", "infeed")
# Engines reuse a layer only if the same code gives the same bytes.
_BUILT_AT = 315_532_800  # seconds since 1970: the start of 1980, the first year that a zip file can hold
# These files describe the installation on this machine, not the package.
_LOCAL = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")

_JAX = re.compile(r"^\s*(jax(?![\w-])|tfx-infeed\[.*\bjax\b)", re.MULTILINE)


def make_context(
    folder: Path,
    project: Path | None,
    *,
    exclude: Sequence[str] = (),
    with_project: bool = True,
) -> None:
    """Write the build context into the empty `folder`. The Dockerfile of the templates explains the layout.

    `project` is None if all functions are in installed packages, as in templates. For the options see `ImageOptions`.
    Raises InfeedError if the project has more than 100 MiB, which is too large for code.
    """
    files = resources.files("infeed.pipelines.cluster.image")
    own = project / "Dockerfile" if project else None
    dockerfile = own if own and own.is_file() else resources.files("infeed.templates") / "Dockerfile"
    stack = (files / "requirements.txt").read_text("utf-8")
    (folder / "Dockerfile").write_text(dockerfile.read_text("utf-8"), "utf-8")
    (folder / "entrypoint.sh").write_text((files / "entrypoint.sh").read_text("utf-8"), "utf-8")
    (folder / "requirements.txt").write_text(stack, "utf-8")
    entries = re.findall(r"^\S[^\n]*\n(?:[ ][^\n]*\n)*", stack, re.M)  # a line with the version, then lines with hashes
    tools = "".join(entry for entry in entries if entry.startswith(_BUILD_TOOLS))
    (folder / "build-requirements.txt").write_text(tools, "utf-8")
    (folder / "constraints.txt").write_text("\n".join(_PIN.findall(stack)) + "\n", "utf-8")
    (folder / "package").mkdir()
    package_wheel(folder / "package")
    if project and with_project:
        ignored = ignoring(exclude)
        do = "exclude it with --exclude {}, or keep data outside the project's folder"
        check_size(project, ignored, _MOST_BYTES, do)
        shutil.copytree(project, folder / "project", ignore=ignored)
    else:
        (folder / "project").mkdir()
    wanted = project / "requirements.txt" if project else None
    (folder / "project-requirements.txt").write_bytes(wanted.read_bytes() if wanted and wanted.is_file() else b"")


def check_has_jax(project: Path) -> None:
    """Raise InfeedError if the image of a project that trains on JAX would not contain JAX."""
    wanted = project / "requirements.txt"
    text = wanted.read_text("utf-8") if wanted.is_file() else ""
    if not _JAX.search(text) and not (project / "Dockerfile").is_file():
        do = "add jax[tpu] for TPUs, jax[cuda12] for GPUs, or jax for CPUs"
        raise InfeedError("train.backend is 'jax', but the image would have no JAX", where=str(wanted), do=do)


def beam_sdk() -> str:
    """Return the name of Beam's worker image with the Python version and the pinned Beam of the image."""
    lock = (resources.files("infeed.pipelines.cluster.image") / "requirements.txt").read_text("utf-8")
    pinned = re.search(r"^apache-beam==(\S+)", lock, re.M)
    assert pinned, "TFX needs Beam"
    return f"docker.io/apache/beam_python{PYTHON}_sdk:{pinned[1]}"


def package_wheel(folder: Path) -> Path:
    """Write a wheel of this package into `folder`, from the source tree of an editable install or installed files.

    Raises InfeedError if building the source tree fails.
    """
    source = Path(infeed.__file__).resolve().parents[1]
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
        what = f"building the package failed: {done.stderr.strip()[-500:]}"
        raise InfeedError(what, where=str(source), do="run pip wheel --no-deps on that folder")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _from_installed(folder: Path) -> Path:
    """Rebuild the wheel: a zip of the installed files (PEP 427) without the scripts and bytecode that pip made."""
    package = distribution(NAME)
    path = folder / f"{NAME.replace('-', '_')}-{package.version}-py3-none-any.whl"
    files = [
        file
        for file in package.files or ()
        if ".." not in file.parts and file.suffix != ".pyc" and file.name not in _LOCAL
    ]
    record = next(file for file in package.files or () if file.name == "RECORD")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.writestr(_entry(file), Path(str(file.locate())).read_bytes(), zipfile.ZIP_DEFLATED)
        lines = [f"{file.as_posix()},{file.hash.mode}={file.hash.value},{file.size}" for file in files if file.hash]
        wheel.writestr(_entry(record), "\n".join([*lines, f"{record.as_posix()},,", ""]), zipfile.ZIP_DEFLATED)
    return path


def _entry(file: PackagePath) -> zipfile.ZipInfo:
    """Create a zip entry with the date 1980, so that equal code gives equal bytes."""
    entry = zipfile.ZipInfo(file.as_posix())
    entry.external_attr = 0o644 << 16
    return entry
