"""Builds the image in which the steps of a compiled pipeline run.

The settings that pip has here (indexes, certificates) go to the engine as secrets: they are mounted while pip
runs, and are in no layer of the image.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.components.errors import InfeedError
from infeed.pipelines.containers import Build, Engine, find_engine
from infeed.pipelines.image.context import Accelerator, make_context

# `#7 [stack 2/3] RUN pip ...` is docker's, `[2/4] STEP 2/3: RUN pip ...` podman's and buildah's.
_STEP = re.compile(
    r"(?:#\d+ \[(?:[\w-]+ )?\d+/\d+\]|(?:\[\d+/\d+\] )?STEP \d+/\d+:) (?P<word>\w+)(?: --mount=\S+)*(?P<rest>.*)"
)
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

BASE = "docker.io/library/debian:trixie-slim"
_LABELS = "org.opencontainers.image.base"  # the names that the Open Container Initiative has for what an image is on

OnStep = Callable[[str], None]
# The Dockerfile mounts the certificates there.
_CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"
_KEPT = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "retries", "cert")
_SECTIONS = ("global", "install", ":env:")  # later ones win, as for pip itself


@dataclass(frozen=True)
class ImageOptions:
    """What to build.

    Attributes:
      tag: the image's name.
      base: Debian 13 or a system with the same Python 3.13; `NAME@sha256:...` is always the same one.
      accelerator: "gpu" adds CUDA's libraries.
      exclude: patterns of the project's files that stay out.
      push: also push it to the registry that its name says.
    """

    tag: str
    base: str = BASE
    accelerator: Accelerator = "none"
    exclude: tuple[str, ...] = ()
    push: bool = False


@dataclass(frozen=True)
class BuiltImage:
    """What was built.

    Attributes:
      tag: the image's name.
      image: the same by its digest, which never names another image; the tag where no registry has it, or the
        engine does not tell.
      base: what it was built on, with its digest where the engine knows it: the next build is given it as it stands.
      size: in the engine's own words.
    """

    tag: str
    image: str
    base: str
    size: str
    engine: str
    pushed: bool
    seconds: float


def build_image(project: Path | None, options: ImageOptions, log: Path, on_step: OnStep) -> BuiltImage:
    """Builds, and pushes where that is asked for.

    Args:
      project: the user's folder; None for this package alone.
      log: file for all that the engine says.
      on_step: called with each instruction of the Dockerfile as it begins.

    Raises:
      InfeedError: no container engine works, the base cannot be had, a step fails, or the registry refuses.
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
            pushed = _push(engine, options.tag, Path(scratch), log, follow)
    return BuiltImage(
        options.tag,
        _by_digest(options.tag, pushed),
        _by_digest(options.base, digest),
        engine.size(options.tag),
        engine.name,
        options.push,
        round(time.monotonic() - started, 1),
    )


def _by_digest(base: str, digest: str) -> str:
    """`debian:13` as `debian@sha256:...`, where the digest is known."""
    return f"{re.sub(r'(:[^:/]+)?(@.*)?$', '', base, count=1)}@{digest}" if digest else base


@dataclass(frozen=True)
class _Ended:
    """How an engine's command ended, the instructions it began, and its last words."""

    status: int
    steps: tuple[str, ...]
    words: str


_Follow = Callable[[Sequence[str]], _Ended]


def _build(
    engine: Engine,
    options: ImageOptions,
    digest: str,
    project: Path | None,
    scratch: Path,
    log: Path,
    follow: _Follow,
) -> None:
    context = scratch / "context"
    context.mkdir()
    make_context(context, project, accelerator=options.accelerator, exclude=options.exclude)
    labels = {f"{_LABELS}.name": options.base.partition("@")[0]} | ({f"{_LABELS}.digest": digest} if digest else {})
    # docker asks the registry anew for a name; the others take what is here, and that may have been made here.
    base = _by_digest(options.base, digest) if engine.name == "docker" else options.base
    build = Build(str(context), options.tag, {"BASE": base}, pip_secrets(scratch), labels)
    ended = follow(engine.build(build))
    if not ended.status:
        return
    if all(step.startswith(("FROM", "ARG")) for step in ended.steps):
        raise InfeedError(
            f"the base image cannot be had: {ended.words}",
            where=str(log),
            do="check its name and the network, log in to its registry, or name one that you have with --base",
        )
    raise InfeedError(
        f"{engine.name} failed at {ended.steps[-1]!r}: {ended.words}", where=str(log), do="read on in that log"
    )


def _push(engine: Engine, tag: str, scratch: Path, log: Path, follow: _Follow) -> str:
    """Returns the digest, where the engine tells it."""
    digest_file = scratch / "digest"
    ended = follow(engine.push(tag, digest_file))
    if ended.status:
        raise InfeedError(
            f"the image was built, but {tag!r} cannot be pushed: {ended.words}",
            where=str(log),
            do=f"log in with `{engine.name} login`, and see that the name begins with your registry's",
        )
    return engine.pushed_digest(tag, digest_file)


def _follow(command: Sequence[str], write: Callable[[str], object], on_step: OnStep) -> _Ended:
    steps: list[str] = []
    lines: deque[str] = deque(maxlen=50)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None, "asked for above"
    with process:
        try:
            for line in process.stdout:
                write(line)
                lines.append(line.strip())
                if match := _STEP.match(line):
                    steps.append(" ".join([match["word"], *match["rest"].split()]))
                    on_step(steps[-1])
        except BaseException:
            process.terminate()
            process.wait()  # it reads what is about to be removed
            raise
    return _Ended(process.returncode, tuple(steps), _last_words(lines))


def _last_words(lines: Iterable[str]) -> str:
    """The last line that speaks of an error: engines end with a summary of their own."""
    spoken = [line for line in lines if line]
    return ([line for line in spoken if _ERROR.search(line)] or spoken or [""])[-1]


def pip_secrets(folder: Path) -> dict[str, str]:
    """Writes pip's settings into `folder`, for nobody else to read; the file for each id that the Dockerfile mounts.

    Environment variables (`PIP_INDEX_URL`) count as well. Folders of this machine are left out: a build cannot see
    them.
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
    """The settings worth having in a build, from what `pip config list` prints: `global.index-url='https://...'`."""
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
