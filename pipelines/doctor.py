"""Checks of `infeed doctor`: this machine, and optionally an image, with one `Finding` per fact.

A failing check does not stop the others. No check imports TensorFlow or TFX in this process. A finding names the type
and place of credentials, never their content. The image must match this machine, because this machine compiles the
job and the image runs it.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path
from typing import Literal, get_args

from packaging.requirements import Requirement

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.engine.beam_runner import BEAM_RUNNERS
from infeed.components.feed.capacity import Machine
from infeed.components.kubeflow.compiled_with import version_of
from infeed.pipelines.containers import EngineName, find_engine, problem
from infeed.pipelines.job.compiled import CompiledJob

# Purposes in the order of display.
Purpose = Literal["run", "compile", "build", "submit", "image"]
_OURS, _TFX, _BEAM = "tfx-infeed", "tfx", "apache-beam"
_STACK = ("tfx", "tensorflow", "keras", "apache-beam", "protobuf", "pyarrow", "numpy")
_DEVICE_SECONDS = 120
# Importing TFX takes 1 GB, and running an example pipeline takes 3 GB.
_LITTLE_MEMORY, _LITTLE_DISK = 4e9, 10e9

_LIST_DEVICES = """
import json, tensorflow as tf
kinds = [device.device_type for device in tf.config.list_physical_devices()]
print(json.dumps({kind: kinds.count(kind) for kind in kinds}))
"""
# Kubernetes mounts the token of a pod for Kubeflow Pipelines here, and kfp's client reads it.
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_VENDOR = Path("/sys/class/dmi/id/product_name")
_GOOGLE = "Google credentials"
_LOGIN = "For Vertex AI: gcloud auth application-default login."
# Runs on this machine and in the image. `code` is a digest of the source files of this package.
_INVENTORY = """
import hashlib, importlib.metadata as metadata, importlib.util as util, json, os, pathlib, platform
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
clients = {"gs://": "GcsFileSystem", "s3://": "S3FileSystem"}
try:
    from pyarrow import fs
    stores = [scheme for scheme, client in clients.items() if hasattr(fs, client)]
except ImportError:
    stores = []
found = {"python": platform.python_version(), "versions": versions, "code": code.hexdigest(), "stores": stores}
print(json.dumps({**found, "beam_worker": beam_worker, "beam_sdk": os.environ.get("BEAM_SDK", "")}))
"""
_IMAGE_SECONDS = 600  # the engine may need to pull the image


class Level(enum.Enum):
    """Severity of a finding."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine or the image."""

    purpose: Purpose  # what depends on the fact
    name: str
    found: str  # result, with versions or sizes; never a secret
    level: Level = Level.OK  # severity. A problem prevents its purpose; a warning may prevent it
    do: str = ""  # advice to the user; empty if nothing is wrong


Check = Callable[[], Iterable[Finding]]


def examine(checks: Sequence[tuple[Purpose, Check]]) -> list[Finding]:
    """Run all checks in parallel, because some wait for other programs, and return the findings in order."""
    with ThreadPoolExecutor(max_workers=max(1, len(checks))) as pool:
        return [finding for findings in pool.map(lambda check: _findings_of(*check), checks) for finding in findings]


def _findings_of(purpose: Purpose, check: Check) -> list[Finding]:
    try:
        return list(check())
    except InfeedError as error:
        found, do = error.what, f"{error.do[:1].upper()}{error.do[1:]}."
    except Exception as error:  # a check may fail in any way, and must not hide the findings of the others
        found, do = f"{type(error).__name__}: {error}", "Report this as a bug."
    function = check.func if isinstance(check, functools.partial) else check
    name = str(getattr(function, "__name__", "check")).removesuffix("_findings").replace("_", " ")
    return [Finding(purpose, name, found, Level.PROBLEM, do)]


def root_findings(job: CompiledJob) -> Iterator[Finding]:
    """Check that the steps of a job can open its root. Raises InfeedError if they cannot."""
    job.check_store(job.target)
    if job.root:
        yield Finding("submit", "root", job.root)


def python_and_stack() -> Iterator[Finding]:
    """Check Python and the installed packages against the requirements of this package."""
    libc = " ".join(platform.libc_ver())
    yield Finding("run", "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}, {libc}")
    stack = ", ".join(f"{name} {version_of(name) or '(none)'}" for name in _STACK)
    unmet = list(unmet_requirements(_OURS))
    if unmet:
        do = f"Create a new virtual environment: pip install '{_OURS}[{_TFX}]'."
        yield Finding("run", "packages", f"{stack}; unmet requirements: {', '.join(unmet)}", Level.PROBLEM, do)
    else:
        yield Finding("run", "packages", stack)


def unmet_requirements(package: str) -> Iterator[str]:
    """Yield each unmet requirement of `package` and its extra `tfx`, with the installed version."""
    for requirement in map(Requirement, requires(package) or ()):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", _TFX)):
            continue
        installed = version_of(requirement.name)
        if installed is None:
            yield f"{requirement.name} is missing"
        elif not requirement.specifier.contains(installed, prereleases=True):
            yield f"{requirement.name} {installed}, not {requirement.specifier}"


def devices() -> Iterator[Finding]:
    """Check which GPUs and TPUs TensorFlow can use."""
    command = [sys.executable, "-c", _LIST_DEVICES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEVICE_SECONDS)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding("run", "devices", f"TensorFlow does not start: {words}", Level.PROBLEM, "Reinstall it.")
        return
    seen = json.loads(done.stdout.splitlines()[-1])
    found = ", ".join(f"{count} {kind}" for kind, count in seen.items())
    if nvidia_driver() and "GPU" not in seen:
        do = "Install CUDA's libraries: pip install 'tensorflow[and-cuda]' at the installed version."
        yield Finding("run", "devices", f"{found}; NVIDIA driver found, but no GPU in TensorFlow", Level.WARNING, do)
    else:
        yield Finding("run", "devices", found)


def nvidia_driver() -> bool:
    """Report whether the kernel has NVIDIA's driver, or the container has nvidia-smi."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def room() -> Iterator[Finding]:
    """Check the cores, memory and disk space that this process may use."""
    machine = Machine.here()
    yield Finding("run", "CPU", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}")
    yield _enough("memory", machine.memory_bytes, _LITTLE_MEMORY, "Use a larger machine or container limit.")
    yield _enough("disk", shutil.disk_usage(".").free, _LITTLE_DISK, "Free disk space, or run on a larger disk.")


def _enough(name: str, count: float, least: float, do: str) -> Finding:
    if count < least:
        return Finding("run", name, f"{size(count)}: little for TFX", Level.WARNING, do)
    return Finding("run", name, size(count))


def compilers() -> Iterator[Finding]:
    """Check the packages for compiling, besides TFX."""
    yield _client("compile", "kfp", "TFX's compiler")


def clients() -> Iterator[Finding]:
    """Check the platform clients and credentials for submitting."""
    yield _client("submit", "kfp", "Kubeflow Pipelines")
    yield _client("submit", "google-cloud-aiplatform", "Vertex AI")
    yield from credentials(os.environ, Path.home())


def _client(purpose: Purpose, package: str, use: str) -> Finding:
    installed = version_of(package)
    if installed:
        return Finding(purpose, use, f"{package} {installed}")
    return Finding(purpose, use, f"{package} is missing", Level.PROBLEM, f"pip install {package}")


def engines() -> Iterator[Finding]:
    """Check which container engines work."""
    problems = {name: problem(name) for name in get_args(EngineName)}
    working = [name for name, why in problems.items() if not why]
    if working:
        yield Finding("build", "container engine", ", ".join(working))
    else:
        found = "; ".join(f"{name}: {why}" for name, why in problems.items())
        do = "Install one, for example with apt-get install buildah, or start docker's service."
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
    """Yield the findings on credentials for Kubeflow and Google."""
    token = Path(environment.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    found = "service account token of a pod" if token else "none, which is enough for a host without login"
    yield Finding("submit", "Kubeflow credentials", found)
    yield _google(environment, home, vendor)


def _google(environment: Mapping[str, str], home: Path, vendor: Path) -> Finding:
    """Check the places of Application Default Credentials in order, https://google.aip.dev/auth/4110."""
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    folder = environment.get("CLOUDSDK_CONFIG", home / ".config" / "gcloud")
    gcloud = Path(folder, "application_default_credentials.json")
    if named:
        return _file(Path(named), "named by GOOGLE_APPLICATION_CREDENTIALS")
    if gcloud.is_file():
        return _file(gcloud, "of gcloud")
    if vendor.is_file() and "Google" in vendor.read_text():
        return Finding("submit", _GOOGLE, "service account of this machine")
    return Finding("submit", _GOOGLE, "none", Level.WARNING, _LOGIN)


def _file(file: Path, origin: str) -> Finding:
    """Report the type of a credentials file: `service_account`, `authorized_user` or `external_account`."""
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("submit", _GOOGLE, f"unreadable file {origin}: {error!r}", Level.PROBLEM, _LOGIN)
    return Finding("submit", _GOOGLE, f"{kind}, {origin}")


@dataclass(frozen=True)
class Inventory:
    """Package versions, a digest of this package's code, stores that it opens, and Beam's program for workers."""

    python: str
    versions: dict[str, str]
    code: str
    beam_worker: bool = False  # whether the program exists
    beam_sdk: str = ""  # image of Beam from which `infeed build` took it; empty if unknown
    stores: Sequence[str] = ()


def image_findings(image: str, *, beam_runner: str = "") -> Iterator[Finding]:
    """Compare an image with this environment, and pull the image if it is not local.

    `beam_runner` is the runner whose workers run the image, such as DataflowRunner; empty for none.
    """
    engine = find_engine()
    command = engine.run(image, ["python", "-c", _INVENTORY])
    done = subprocess.run(command, capture_output=True, text=True, timeout=_IMAGE_SECONDS)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        do = f"Build it with infeed build, or check that {engine.name} can pull it."
        yield Finding("image", image, f"cannot run Python in the image: {words}", Level.PROBLEM, do)
        return
    mine = subprocess.run([sys.executable, "-c", _INVENTORY], capture_output=True, text=True, check=True)
    there, here = (Inventory(**json.loads(output.splitlines()[-1])) for output in (done.stdout, mine.stdout))
    yield Finding("image", image, f"{engine.size(image)}, Python {there.python} (here {here.python})")
    yield from compare(there, here)
    if missing := [scheme for scheme in ("gs://", "s3://") if scheme not in there.stores]:
        do = "Install pyarrow from PyPI in the image, whose wheels have these clients."
        yield Finding("image", "object stores", f"cannot open {', '.join(missing)}", Level.PROBLEM, do)
    else:
        yield Finding("image", "object stores", ", ".join(there.stores))
    if beam_runner:
        yield _beam_worker(there, here, beam_runner)


def _beam_worker(there: Inventory, here: Inventory, runner: str) -> Finding:
    """Compare the Beam of the image, of its program for workers, and of this machine.

    The steps of a job start the work, so what differs here is a problem only for commands on this machine.
    """
    name, inside, installed = "Beam worker", there.versions.get(_BEAM), here.versions.get(_BEAM)
    fits = f"apache/beam_python{'.'.join(_minor(there.python))}_sdk:{inside}"
    do = "Set deploy.beam in the config, and rebuild the image: infeed build."
    if not there.beam_worker:
        level = Level.PROBLEM if runner == BEAM_RUNNERS["dataflow"] else Level.WARNING
        return Finding("image", name, f"missing /opt/apache/beam/boot, which starts workers of {runner}", level, do)
    if there.beam_sdk and not there.beam_sdk.endswith(fits):
        return Finding("image", name, f"from {there.beam_sdk}, but the image has {fits}", Level.PROBLEM, do)
    if inside != installed:
        do = f"To start work on these workers from here, such as infeed ingest --runner, install {_BEAM} {inside}."
        return Finding("image", name, f"Beam {inside}, {installed or 'none'} here", Level.WARNING, do)
    return Finding("image", name, f"Beam {inside} in the image, for its workers and here")


def compare(there: Inventory, here: Inventory) -> Iterator[Finding]:
    """Yield one finding for this package's code, and one for each other package that is installed here."""
    yield _own_code(there, here)
    for package, installed in here.versions.items():
        if package == _OURS:
            continue
        inside = there.versions.get(package)
        if inside is None:
            do = "Build the image with infeed build, or install the package in the image."
            yield Finding("image", package, f"not in the image, {installed} here", Level.PROBLEM, do)
        elif package == _TFX and _minor(inside) != _minor(installed):
            do = "The image runs the job with another TFX. Rehearse the job: infeed rehearse JOB --image IMAGE."
            yield Finding("image", package, f"{inside} in the image, {installed} here", Level.WARNING, do)
        else:
            yield Finding("image", package, inside if inside == installed else f"{inside} (here {installed})")


def _own_code(there: Inventory, here: Inventory) -> Finding:
    inside, installed = there.versions.get(_OURS), here.versions.get(_OURS)
    do = "Rebuild the image: infeed build."
    if inside is None:
        return Finding("image", _OURS, "not in the image, so its steps cannot run", Level.PROBLEM, do)
    if inside != installed:
        return Finding("image", _OURS, f"{inside} in the image, {installed} here", Level.PROBLEM, do)
    if there.code != here.code:
        return Finding("image", _OURS, f"{inside} in both, but the code differs", Level.PROBLEM, do)
    return Finding("image", _OURS, f"{inside}, same code")


def _minor(version: str) -> Sequence[str]:
    return version.split(".")[:2]
