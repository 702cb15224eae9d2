"""What `infeed doctor` finds on this machine, and in an image beside it: one `Finding` a fact.

No check can stop the others. None imports TensorFlow or TFX in this process; what costs seconds runs beside it. A
finding names the kind and place of credentials, never their content. An image is compared with this machine because a
job is compiled by the one and run by the other.
"""

from __future__ import annotations

import enum
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, get_args

from packaging.requirements import Requirement

from infeed.components.feed.capacity import Machine
from infeed.components.units import size
from infeed.pipelines.containers import EngineName, find_engine, problem

# What the finding is needed for; the order in which they are shown.
Purpose = Literal["run", "compile", "build", "submit", "image"]
_OURS, _TFX = "tfx-infeed", "tfx"
_STACK = ("tfx", "tensorflow", "keras", "apache-beam", "protobuf", "pyarrow", "numpy")
_DEVICE_SECONDS = 120
# TFX's imports alone take one gigabyte, a pipeline of the two examples three.
_LITTLE_MEMORY, _LITTLE_DISK = 4e9, 10e9

_LIST_DEVICES = """
import json, tensorflow as tf
kinds = [device.device_type for device in tf.config.list_physical_devices()]
print(json.dumps({kind: kinds.count(kind) for kind in kinds}))
"""
# Where Kubernetes mounts the token of a pod that talks to Kubeflow Pipelines, as kfp's client looks for it.
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_VENDOR = Path("/sys/class/dmi/id/product_name")
_GOOGLE = "Google credentials"
_LOGIN = "For Vertex AI: gcloud auth application-default login."
# Runs here and in the image, so that both are looked at in one way. `code` is over all our own source files.
_INVENTORY = """
import hashlib, importlib.metadata as metadata, importlib.util as util, json, pathlib, platform
code = hashlib.sha256()
for package in ("components", "pipelines", "templates"):
    spec = util.find_spec("infeed." + package) if util.find_spec("infeed") else None
    for folder in spec.submodule_search_locations if spec else ():
        for file in sorted(pathlib.Path(folder).rglob("*.py")):
            code.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
versions = {}
for package in ("tfx-infeed", "tfx", "tensorflow", "keras", "apache-beam", "ml-metadata", "protobuf", "numpy"):
    try:
        versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
beam_worker = pathlib.Path("/opt/apache/beam/boot").exists()
found = {"python": platform.python_version(), "versions": versions, "code": code.hexdigest()}
print(json.dumps({**found, "beam_worker": beam_worker}))
"""
_IMAGE_SECONDS = 600  # it may have to be pulled first


class Level(enum.Enum):
    """How much it matters."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Attributes:
      purpose: what it is needed for.
      name: what was looked at.
      found: in words, with versions or sizes; never a secret.
      level: a problem keeps its purpose from working, a warning only may.
      do: what the user can do about it; empty where all is well.
    """

    purpose: Purpose
    name: str
    found: str
    level: Level = Level.OK
    do: str = ""


Check = Callable[[], Iterable[Finding]]


def examine(checks: Sequence[tuple[Purpose, Check]]) -> list[Finding]:
    """Runs all checks side by side, since some wait for other programs; the findings are in the order of the checks."""
    with ThreadPoolExecutor(max_workers=max(1, len(checks))) as pool:
        return [finding for findings in pool.map(lambda check: _survive(*check), checks) for finding in findings]


def _survive(purpose: Purpose, check: Check) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # whatever it is: the other checks are worth having
        name = getattr(check, "__name__", purpose).replace("_", " ")
        return [Finding(purpose, name, f"{type(error).__name__}: {error}", Level.PROBLEM, "Report this as a bug.")]


def python_and_stack() -> Iterator[Finding]:
    """Whether the versions are those that this package was made for, by its own list of dependencies."""
    libc = " ".join(platform.libc_ver())
    yield Finding("run", "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}, {libc}")
    stack = ", ".join(f"{name} {version_of(name) or '(none)'}" for name in _STACK)
    unmet = list(unmet_requirements(_OURS))
    if unmet:
        do = f"Set up an environment of its own: pip install '{_OURS}[{_TFX}]'."
        yield Finding("run", "packages", f"{stack}; not as required: {', '.join(unmet)}", Level.PROBLEM, do)
    else:
        yield Finding("run", "packages", stack)


def unmet_requirements(package: str) -> Iterator[str]:
    """Each requirement of `package` and its pipelines for this Python that is not met, with what is installed."""
    for requirement in map(Requirement, requires(package) or ()):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", _TFX)):
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


def credentials(environment: Mapping[str, str], home: Path, vendor: Path = _VENDOR) -> Iterator[Finding]:
    """Findings for Kubeflow and for Google; the arguments are the process's own but in tests."""
    yield _kubeflow(environment)
    yield _google(environment, home, vendor)


def _kubeflow(environment: Mapping[str, str]) -> Finding:
    token = Path(environment.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    found = "service account token of a pod" if token else "none, which is enough where the host asks for none"
    return Finding("submit", "Kubeflow credentials", found)


def _google(environment: Mapping[str, str], home: Path, vendor: Path) -> Finding:
    """In the order of Application Default Credentials, https://google.aip.dev/auth/4110."""
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    gcloud = Path(
        environment.get("CLOUDSDK_CONFIG", home / ".config" / "gcloud"), "application_default_credentials.json"
    )
    if named:
        return _file(Path(named), "named by GOOGLE_APPLICATION_CREDENTIALS")
    if gcloud.is_file():
        return _file(gcloud, "of gcloud")
    if vendor.is_file() and "Google" in vendor.read_text():
        return Finding("submit", _GOOGLE, "service account of this machine")
    return Finding("submit", _GOOGLE, "none", Level.WARNING, _LOGIN)


def _file(file: Path, origin: str) -> Finding:
    """`service_account`, `authorized_user` or `external_account`, as the file itself says."""
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("submit", _GOOGLE, f"a file {origin}, not readable: {error!r}", Level.PROBLEM, _LOGIN)
    return Finding("submit", _GOOGLE, f"{kind}, {origin}")


@dataclass(frozen=True)
class Inventory:
    """Versions by package, a digest of this package's own code, and whether Beam's workers can be started there."""

    python: str
    versions: dict[str, str]
    code: str
    beam_worker: bool = False


def image_findings(image: str, *, for_dataflow: bool = False) -> Iterator[Finding]:
    """Compares an image with this environment; pulls it where it is not here.

    Args:
      image: its name.
      for_dataflow: whether Dataflow's workers are to run in it too.
    """
    engine = find_engine()
    command = engine.run(image, ["python", "-c", _INVENTORY])
    done = subprocess.run(command, capture_output=True, text=True, timeout=_IMAGE_SECONDS)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        do = f"Build it with infeed build, or see that {engine.name} can pull it."
        yield Finding("image", image, f"nothing can be run in it here: {words}", Level.PROBLEM, do)
        return
    there, here = _inventory(done.stdout), _inventory(_run_here())
    yield Finding("image", image, f"{engine.size(image)}, Python {there.python} (here {here.python})")
    yield from compare(there, here)
    if for_dataflow and not there.beam_worker:
        do = "Put it on top of the image, as docs/image.md tells."
        yield Finding("image", "Beam worker", "Dataflow cannot start it: no /opt/apache/beam/boot", Level.PROBLEM, do)


def compare(there: Inventory, here: Inventory) -> Iterator[Finding]:
    """One finding for each package of the image that is also here, and one for our own code."""
    yield _own_code(there, here)
    for package, installed in here.versions.items():
        if package == _OURS:
            continue
        inside = there.versions.get(package)
        if inside is None:
            do = "Build the image with infeed build, or install it there."
            yield Finding("image", package, f"not in the image, {installed} here", Level.PROBLEM, do)
        elif package == _TFX and _minor(inside) != _minor(installed):
            do = "A job compiled by one TFX and run by another is worth a rehearsal: infeed rehearse JOB --image IMAGE."
            yield Finding("image", package, f"{inside} in the image, {installed} here", Level.WARNING, do)
        else:
            yield Finding("image", package, inside if inside == installed else f"{inside} (here {installed})")


def _own_code(there: Inventory, here: Inventory) -> Finding:
    inside, installed = there.versions.get(_OURS), here.versions.get(_OURS)
    do = "Build it anew: infeed build."
    if inside is None:
        return Finding("image", _OURS, "not in the image: no step of ours can run", Level.PROBLEM, do)
    if inside != installed:
        return Finding("image", _OURS, f"{inside} in the image, {installed} here", Level.PROBLEM, do)
    if there.code != here.code:
        return Finding("image", _OURS, f"{inside} in both, but its code is not the same", Level.PROBLEM, do)
    return Finding("image", _OURS, f"{inside}, the same code")


def _minor(version: str) -> Sequence[str]:
    return version.split(".")[:2]


def _inventory(output: str) -> Inventory:
    return Inventory(**json.loads(output.splitlines()[-1]))


def _run_here() -> str:
    return subprocess.run([sys.executable, "-c", _INVENTORY], capture_output=True, text=True, check=True).stdout
