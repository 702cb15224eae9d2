"""The checks of this machine. None imports TensorFlow or TFX in this process; what costs seconds runs beside it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import get_args

from packaging.requirements import Requirement

from infeed.components.feed.capacity import size
from infeed.components.feed.machine import Machine
from infeed.pipelines.doctor.credentials import credentials
from infeed.pipelines.doctor.findings import Check, Finding, Level, Purpose
from infeed.pipelines.image.containers import EngineName, problem

_PACKAGE = "tfx-infeed"
_STACK = ("tfx", "tensorflow", "keras", "apache-beam", "protobuf", "pyarrow", "numpy")
_DEVICE_SECONDS = 120
# TFX's imports alone take one gigabyte, a pipeline of the two examples three.
_LITTLE_MEMORY, _LITTLE_DISK = 4e9, 10e9

_LIST_DEVICES = """
import json, tensorflow as tf
kinds = [device.device_type for device in tf.config.list_physical_devices()]
print(json.dumps({kind: kinds.count(kind) for kind in kinds}))
"""


def python_and_stack() -> Iterator[Finding]:
    """Whether the versions are those that this package was made for, by its own list of dependencies."""
    libc = " ".join(platform.libc_ver())
    yield Finding("run", "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}, {libc}")
    stack = ", ".join(f"{name} {version_of(name) or '(none)'}" for name in _STACK)
    unmet = list(unmet_requirements(_PACKAGE))
    if unmet:
        do = f"Set up an environment of its own: pip install {_PACKAGE}."
        yield Finding("run", "packages", f"{stack}; not as required: {', '.join(unmet)}", Level.PROBLEM, do)
    else:
        yield Finding("run", "packages", stack)


def unmet_requirements(package: str) -> Iterator[str]:
    """Each requirement of `package` for this Python that is not met, with what is installed instead."""
    for requirement in map(Requirement, requires(package) or ()):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = version_of(requirement.name)
        if installed is None:
            yield f"{requirement.name} is missing"
        elif not requirement.specifier.contains(installed, prereleases=True):
            yield f"{requirement.name} {installed}, not {requirement.specifier}"


def version_of(package: str) -> str | None:
    """The installed version, if any."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def devices() -> Iterator[Finding]:
    """The GPUs and TPUs that TensorFlow can use, beside those that the machine has."""
    command = [sys.executable, "-c", _LIST_DEVICES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEVICE_SECONDS)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding("run", "devices", f"TensorFlow does not start: {words}", Level.PROBLEM, "Install it anew.")
        return
    seen = json.loads(done.stdout.splitlines()[-1])
    found = ", ".join(f"{count} {kind}" for kind, count in seen.items())
    if nvidia_driver() and "GPU" not in seen:
        do = "Install CUDA's libraries: pip install 'tensorflow[and-cuda]' at the version that is installed."
        yield Finding("run", "devices", f"{found}; an NVIDIA driver, but no GPU for TensorFlow", Level.WARNING, do)
    else:
        yield Finding("run", "devices", found)


def nvidia_driver() -> bool:
    """Whether the kernel has NVIDIA's driver, or a container was given its tool."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def room() -> Iterator[Finding]:
    """Cores, memory and disk that this process may use."""
    machine = Machine.here()
    yield Finding("run", "CPU", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}")
    yield _enough("memory", machine.memory_bytes, _LITTLE_MEMORY, "Use a machine or a container limit with more.")
    yield _enough(
        "disk", shutil.disk_usage(".").free, _LITTLE_DISK, "Make room, or run from a folder on a larger disk."
    )


def _enough(name: str, count: float, least: float, do: str) -> Finding:
    if count < least:
        return Finding("run", name, f"{size(count)}: little for TFX", Level.WARNING, do)
    return Finding("run", name, size(count))


def compilers() -> Iterator[Finding]:
    """What compiling needs beside TFX."""
    yield _client("compile", "kfp", "TFX's compiler")


def clients() -> Iterator[Finding]:
    """What a submission needs, and as whom it would be made."""
    yield _client("submit", "kfp", "Kubeflow Pipelines")
    yield _client("submit", "google-cloud-aiplatform", "Vertex AI")
    yield from credentials(os.environ, Path.home())


def _client(purpose: Purpose, package: str, use: str) -> Finding:
    installed = version_of(package)
    if installed:
        return Finding(purpose, use, f"{package} {installed}")
    return Finding(purpose, use, f"{package} is missing", Level.PROBLEM, f"pip install {package}")


def engines() -> Iterator[Finding]:
    """Which container engines work."""
    problems = {name: problem(name) for name in get_args(EngineName)}
    working = [name for name, why in problems.items() if not why]
    if working:
        yield Finding("build", "container engine", ", ".join(working))
    else:
        found = "; ".join(f"{name}: {why}" for name, why in problems.items())
        do = "Install one (apt-get install buildah, say), or start docker's service."
        yield Finding("build", "container engine", found, Level.WARNING, do)


CHECKS: tuple[tuple[Purpose, Check], ...] = (
    ("run", python_and_stack),
    ("run", devices),
    ("run", room),
    ("compile", compilers),
    ("build", engines),
    ("submit", clients),
)
