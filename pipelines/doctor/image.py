"""What an image holds, beside what is installed here: a job is compiled by the one and run by the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infeed.pipelines.containers import find_engine
from infeed.pipelines.doctor.checks import Finding, Level

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
_OURS, _TFX = "tfx-infeed", "tfx"
_SECONDS = 600  # an image that has to be pulled first


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        do = f"Build it with infeed build, or see that {engine.name} can pull it."
        yield Finding("image", image, f"nothing can be run in it here: {words}", Level.PROBLEM, do)
        return
    there, here = _inventory(done.stdout), _inventory(_run([sys.executable, "-c", _INVENTORY]))
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


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
