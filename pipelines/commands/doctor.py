"""`infeed doctor`: check versions and extras, and suggest a fix for each problem.

Checks here, and optionally in an image, give one `Finding` per fact. No check imports TensorFlow or TFX in this
process. The image must match this machine, because this machine compiles the job and the image runs it.
"""

from __future__ import annotations

import contextlib
import enum
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import metadata, requires
from typing import Literal, get_args

import click
from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text

from infeed.components.kubeflow.compiled_with import version_of
from infeed.pipelines.cluster.containers import EngineName, find_engine, problem
from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.console.exit_codes import EXIT_FAILED, Command
from infeed.pipelines.console.paths import InputPath
from infeed.pipelines.console.terminal import Terminal

# Purposes in the order of display.
Purpose = Literal["run", "compile", "build", "submit", "image"]
_OURS, _TFX = "tfx-infeed", "tfx"
_STACK = ("tfx", "tensorflow", "keras", "apache-beam", "protobuf", "pyarrow", "numpy")
_FOR_DEVELOPERS = ("docs", "frameworks", "test")  # extras that no user needs
# Runs on this machine and in the image. `code` is a digest of the source files of this package.
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
print(json.dumps({"python": platform.python_version(), "versions": versions, "code": code.hexdigest()}))
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
    found: str  # result, with versions
    level: Level = Level.OK  # severity. A problem prevents its purpose; a warning may prevent it
    do: str = ""  # advice to the user; empty if nothing is wrong


def machine_findings() -> Iterator[Finding]:
    """Check Python, the installed packages and extras against the requirements of this package, and the engines."""
    yield Finding("run", "Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    yield _stack()
    yield _extras()
    yield _client("kfp", "compile", "TFX's compiler")
    yield _engines()
    yield _client("kfp", "submit", "Kubeflow Pipelines")
    yield _client("google-cloud-aiplatform", "submit", "Vertex AI")


def _stack() -> Finding:
    stack = ", ".join(f"{name} {version_of(name) or '(none)'}" for name in _STACK)
    unmet = [*unmet_requirements(_OURS), *unmet_requirements(_OURS, _TFX)]
    if not unmet:
        return Finding("run", "packages", stack)
    do = f"Create a new virtual environment: pip install '{_OURS}[{_TFX}]'."
    return Finding("run", "packages", f"{stack}; unmet requirements: {', '.join(unmet)}", Level.PROBLEM, do)


def _extras() -> Finding:
    known = [extra for extra in metadata(_OURS).get_all("Provides-Extra") or () if extra not in _FOR_DEVELOPERS]
    missing = [extra for extra in known if any(unmet_requirements(_OURS, extra))]
    found = ", ".join(sorted(set(known) - {*missing})) or "none"
    if not missing:
        return Finding("run", "extras", found)
    return Finding("run", "extras", found, do=f"To add one: pip install '{_OURS}[{'|'.join(missing)}]'.")


def unmet_requirements(package: str, extra: str = "") -> Iterator[str]:
    """Yield each unmet requirement of `package`, or of its extra alone, with the installed version."""
    for requirement in map(Requirement, requires(package) or ()):
        marker = requirement.marker
        is_core = not marker or marker.evaluate({"extra": ""})
        if is_core == bool(extra) or not (is_core or (marker and marker.evaluate({"extra": extra}))):
            continue
        installed = version_of(requirement.name)
        if installed is None:
            yield f"{requirement.name} is missing"
        elif not requirement.specifier.contains(installed, prereleases=True):
            yield f"{requirement.name} {installed}, not {requirement.specifier}"


def _client(package: str, purpose: Purpose, use: str) -> Finding:
    installed = version_of(package)
    if installed:
        return Finding(purpose, use, f"{package} {installed}")
    return Finding(purpose, use, f"{package} is missing", Level.PROBLEM, f"pip install {package}")


def _engines() -> Finding:
    problems = {name: problem(name) for name in get_args(EngineName)}
    if working := [name for name, why in problems.items() if not why]:
        return Finding("build", "container engine", ", ".join(working))
    found = "; ".join(f"{name}: {why}" for name, why in problems.items())
    do = "Install one, for example with apt-get install buildah, or start docker's service."
    return Finding("build", "container engine", found, Level.WARNING, do)


@dataclass(frozen=True)
class Inventory:
    """Package versions, and a digest of this package's code."""

    python: str
    versions: dict[str, str]
    code: str


def image_findings(image: str) -> Iterator[Finding]:
    """Compare an image with this environment, and pull the image if it is not local."""
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
    yield Finding("image", image, f"Python {there.python} (here {here.python})")
    yield from compare(there, here)


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


# The word shows the level. Icon and color only support it.
_LOOKS = {Level.OK: ("✓", "green"), Level.WARNING: ("!", "bold yellow"), Level.PROBLEM: ("✗", "bold red")}


@click.command(name="doctor", cls=Command, examples=("infeed doctor", "infeed doctor taxi.yaml"))
@click.argument("job", type=InputPath(), required=False, metavar="[JOB]")
@click.option("--image", help="Image to compare with the local packages.  [default: the images of JOB]", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, and nothing else.")
def command(job: str | None, image: str | None, as_json: bool) -> None:
    """Check the versions of the packages that pipelines need, and which extras are missing.

    If JOB, a compiled pipeline, is given, its images are compared with the packages that are installed here. The exit
    code is 1 if there is a problem, and 0 if there are only warnings.
    """
    console = Terminal(highlight=False)
    images = (image,) if image else CompiledJob.read(job).images if job else ()
    waiting = console.status("checking") if console.is_interactive and not as_json else contextlib.nullcontext()
    with waiting:
        findings = [*machine_findings(), *(finding for image in images for finding in image_findings(image))]
    problems = {finding.purpose for finding in findings if finding.level is Level.PROBLEM}
    if as_json:
        console.out(json.dumps([{**vars(finding), "level": finding.level.value} for finding in findings], indent=1))
    else:
        console.print(_table(findings))
        if problems:
            console.print(Text(f"\nproblems for: {', '.join(sorted(problems))}", style="bold red"))
        else:
            console.print(Text("\nno problems found", style="green"))
    sys.exit(EXIT_FAILED if problems else 0)


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("purpose", style="dim", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("level", no_wrap=True)
    table.add_column("found", overflow="fold")
    before = None
    for finding in findings:
        sign, style = _LOOKS[finding.level]
        found = Text.assemble(finding.found, (f"\n{finding.do}" if finding.do else "", "bold"))
        heading = finding.purpose if finding.purpose != before else ""
        table.add_row(heading, finding.name, Text(f"{sign} {finding.level.value}", style=style), found)
        before = finding.purpose
    return table
