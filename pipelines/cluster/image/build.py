"""Builds the container image of a compiled pipeline's steps.

The engine gets the local settings of pip (indexes, certificates) as secrets. It mounts them while pip runs, and no
layer of the image contains them. The build context holds the Dockerfile, which is that of the project or else that of
the templates, the pinned packages, a wheel of this package, and the user's project. The wheel holds the installed files
of this package, so that the image runs the same code as this machine.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackagePath, distribution
from pathlib import Path
from typing import IO

import infeed
from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import BEAM_RUNNERS
from infeed.pipelines.cluster.containers import Engine, find_engine
from infeed.pipelines.project.own_files import check_size, ignoring

_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

BASE = "docker.io/library/debian:trixie-slim"

# Dataflow mounts folders that only root may write: https://github.com/pangeo-data/pangeo-docker-images/pull/360.
_WORKER_USERS = {BEAM_RUNNERS["dataflow"]: "0"}
_CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"  # mounted by the Dockerfile
_KEPT = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "retries", "cert")
_SECTIONS = ("global", "install", ":env:")  # a later section overrides an earlier one, as in pip

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


@dataclass(frozen=True)
class ImageOptions:
    """Options of an image build."""

    tag: str  # name of the image
    base: str = BASE  # base image, Debian 13 or a system with the same Python 3.13. `NAME@sha256:...` pins the base
    exclude: tuple[str, ...] = ()  # patterns of project files to exclude
    push: bool = False  # whether to push the image to the registry in its name
    with_project: bool = True  # whether the image holds the project's files
    runner: str = ""  # runner of a cluster whose workers run the image; empty for none


def build_image(project: Path | None, options: ImageOptions, log: Path) -> Engine:
    """Build an image, and push it if `options.push` is true. Without a project, the image holds only this package.

    `log` receives the engine's output. Returns the engine. Raises InfeedError if no container engine works, the build
    fails, or the registry rejects the push.
    """
    engine = find_engine()
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch, "context")
        context.mkdir()
        make_context(context, project, exclude=options.exclude, with_project=options.with_project)
        arguments, target = {"BASE": options.base}, "steps"
        # Only the workers of a cluster need Beam's own image, which would enlarge that of the steps.
        if options.runner:
            arguments |= {"BEAM_SDK": beam_sdk(), "WORKER_USER": _WORKER_USERS.get(options.runner, "1000")}
            target = "worker"
        secrets = pip_secrets(Path(scratch))
        command = engine.build(str(context), options.tag, arguments=arguments, secrets=secrets, target=target)
        with log.open("w", encoding="utf-8") as output:
            do = f"read that log; check that {options.base} can be pulled, or name another image with --base"
            _run(command, output, f"{engine.name} cannot build {options.tag!r}", do)
            if options.push:
                do = f"log in with `{engine.name} login`, and check that the image name starts with your registry"
                _run([engine.name, "push", options.tag], output, f"cannot push {options.tag!r}", do)
    return engine


def _run(command: Sequence[str], output: IO[str], failure: str, do: str) -> None:
    """Run an engine's command. Raises InfeedError with the engine's last error."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        status = process.wait()
    except BaseException:  # Ctrl-C as well
        process.terminate()
        process.wait()  # the engine reads a folder that the caller is about to remove
        raise
    if status:
        spoken = [line for line in Path(output.name).read_text("utf-8", "replace").splitlines() if line.strip()]
        words = ([line for line in spoken if _ERROR.search(line)] or spoken or ["no message"])[-1]
        raise InfeedError(f"{failure}: {words.strip()}", where=output.name, do=do)


def pip_secrets(folder: Path) -> dict[str, str]:
    """Write pip's settings to private files in `folder` and return the file of each secret id in the Dockerfile.

    The settings include environment variables (`PIP_INDEX_URL`), but no local folders, which a build cannot read.
    """
    settings = pip_settings(_config_list())
    secrets = {}
    certificates = settings.get("cert") or os.environ.get("SSL_CERT_FILE")
    if certificates and Path(certificates).is_file():
        secrets["ca.crt"] = certificates
        settings["cert"] = _CERTIFICATES_IN_BUILD
    file = folder / "pip.conf"
    file.touch(mode=0o600)
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()), "utf-8")
    return {**secrets, "pip.conf": str(file)}


def pip_settings(listing: str) -> dict[str, str]:
    """Parse the output of `pip config list`, such as `global.index-url='https://...'`, to settings for a build."""
    pairs = (line.partition("=") for line in listing.splitlines())
    found = {key: str(ast.literal_eval(value)) for key, equals, value in pairs if equals}
    settings = {}
    for section in _SECTIONS:
        for name in _KEPT:
            value = found.get(f"{section}.{name}") or found.get(f"{section}.default-{name}", "")
            remote = " ".join(word for word in value.split() if not word.startswith("file:"))
            if remote:
                settings[name] = remote
    return settings


def _config_list() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
