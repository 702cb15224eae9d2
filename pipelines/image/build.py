"""Builds the container image of a compiled pipeline's steps.

The local settings of pip (indexes, certificates) go to the engine as secrets. The engine mounts them while pip runs,
and no layer of the image contains them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.pipelines.containers import Engine, find_engine
from infeed.pipelines.image.context import Accelerator, beam_sdk, make_context

# docker prints `#7 [stack 2/3] RUN pip ...`; podman and buildah print `[2/4] STEP 2/3: RUN pip ...`.
_STEP = re.compile(
    r"(?:#\d+ \[(?:[\w-]+ )?\d+/\d+\]|(?:\[\d+/\d+\] )?STEP \d+/\d+:) (?P<word>\w+)(?: --mount=\S+)*(?P<rest>.*)"
)
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

BASE = "docker.io/library/debian:trixie-slim"
_LABELS = "org.opencontainers.image.base"  # label names of the Open Container Initiative for the base image

OnStep = Callable[[str], None]
# Dataflow mounts folders that only root may write: https://github.com/pangeo-data/pangeo-docker-images/pull/360.
_WORKER_USERS = {"dataflow": "0"}
_CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"  # mounted by the Dockerfile
_KEPT = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "retries", "cert")
_SECTIONS = ("global", "install", ":env:")  # a later section overrides an earlier one, as in pip


@dataclass(frozen=True)
class ImageOptions:
    """Options of an image build."""

    tag: str  # name of the image
    base: str = BASE  # base image, Debian 13 or a system with the same Python 3.13. `NAME@sha256:...` pins the base
    accelerator: Accelerator = "none"  # "gpu" adds CUDA's libraries
    exclude: tuple[str, ...] = ()  # patterns of project files to exclude
    push: bool = False  # whether to push the image to the registry in its name
    with_project: bool = True  # whether the image holds the project's files
    runner: str = ""  # runner of `deploy.beam` whose workers run the image; empty for none


@dataclass(frozen=True)
class BuiltImage:
    """Result of an image build."""

    tag: str  # name of the image
    image: str  # name of the image with its digest, or the tag if the digest is unknown
    base: str  # base image, with its digest if known. The name works as `base` of the next build
    size: str  # size that the engine prints
    engine: str
    pushed: bool
    seconds: float


def build_image(project: Path | None, options: ImageOptions, log: Path, on_step: OnStep) -> BuiltImage:
    """Build an image, and push it if `options.push` is true; without a project, an image of this package only.

    `log` receives the engine's output, and `on_step` each instruction of the Dockerfile when it starts. Raises
    InfeedError if no container engine works, the base is not available, a step fails, or the registry rejects the push.
    """
    started = time.monotonic()
    engine = find_engine()
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, log.open("w", encoding="utf-8", buffering=1) as output:
        follow = functools.partial(_follow, write=output.write, on_step=on_step)
        on_step(f"look up {options.base}")
        digest = engine.digest(options.base)
        _build(engine, options, digest, project, Path(scratch), log, follow)
        pushed = ""
        if options.push:
            on_step(f"push {options.tag}")
            digest_file = Path(scratch) / "digest"
            ended = follow(engine.push(options.tag, digest_file))
            if ended.status:
                what = f"built the image, but cannot push {options.tag!r}: {ended.words}"
                do = f"log in with `{engine.name} login`, and check that the image name starts with your registry"
                raise InfeedError(what, where=str(log), do=do)
            pushed = engine.pushed_digest(options.tag, digest_file)
    return BuiltImage(
        options.tag,
        _by_digest(options.tag, pushed),
        _by_digest(options.base, digest),
        engine.size(options.tag),
        engine.name,
        options.push,
        round(time.monotonic() - started, 1),
    )


def remember(built: BuiltImage, project: str) -> None:
    """Record the built image of a project, so that `infeed compile` can use its digest."""
    files.write_bytes(_record(project), json.dumps(dataclasses.asdict(built), indent=1).encode())


def last_built(tag: str, project: str) -> BuiltImage | None:
    """Return the last build of the project if it built `tag` and the digest is known."""
    try:
        built = schema.read_json(BuiltImage, files.read_bytes(_record(project)))
    except (FileNotFoundError, ValueError, InfeedError):  # no record, or a record of another release
        return None
    return built if built.tag == tag and "@" in built.image else None


def _record(project: str) -> str:
    return str(Path("runs", project, "image.json"))


def _by_digest(base: str, digest: str) -> str:
    """Convert `debian:13` to `debian@sha256:...` if the digest is known."""
    return f"{re.sub(r'(:[^:/]+)?(@.*)?$', '', base, count=1)}@{digest}" if digest else base


@dataclass(frozen=True)
class _Ended:
    """Exit status of an engine's command, the instructions that it started, and its last message."""

    status: int
    steps: tuple[str, ...]
    words: str


_Follow = Callable[[Sequence[str]], _Ended]


def _build(
    engine: Engine, options: ImageOptions, digest: str, project: Path | None, scratch: Path, log: Path, follow: _Follow
) -> None:
    context = scratch / "context"
    context.mkdir()
    make_context(
        context, project, accelerator=options.accelerator, exclude=options.exclude, with_project=options.with_project
    )
    labels = {f"{_LABELS}.name": options.base.partition("@")[0]} | ({f"{_LABELS}.digest": digest} if digest else {})
    # docker looks up a name in the registry again. The others use the local image, which may never have been pushed.
    base = _by_digest(options.base, digest) if engine.name == "docker" else options.base
    arguments, target = {"BASE": base}, "steps"
    if options.runner:
        arguments |= {"BEAM_SDK": beam_sdk(), "WORKER_USER": _WORKER_USERS.get(options.runner, "1000")}
        target = "worker"
    command = engine.build(
        str(context), options.tag, arguments=arguments, secrets=pip_secrets(scratch), labels=labels, target=target
    )
    ended = follow(command)
    if not ended.status:
        return
    if all(step.startswith(("FROM", "ARG")) for step in ended.steps):
        do = "check its name and the network, log in to its registry, or use a local image with --base"
        raise InfeedError(f"the base image {options.base} is not available: {ended.words}", where=str(log), do=do)
    raise InfeedError(f"{engine.name} failed at {ended.steps[-1]!r}: {ended.words}", where=str(log), do="read that log")


def _follow(command: Sequence[str], write: Callable[[str], object], on_step: OnStep) -> _Ended:
    steps: list[str] = []
    lines: deque[str] = deque(maxlen=50)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                write(line)
                lines.append(line.strip())
                if match := _STEP.match(line):
                    steps.append(" ".join([match["word"], *match["rest"].split()]))
                    on_step(steps[-1])
        except BaseException:  # Ctrl-C as well
            process.terminate()
            process.wait()  # the engine reads a folder that the caller is about to remove
            raise
    spoken = [line for line in lines if line]
    # Engines print a summary after the error.
    words = ([line for line in spoken if _ERROR.search(line)] or spoken or [""])[-1]
    return _Ended(process.returncode, tuple(steps), words)


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
