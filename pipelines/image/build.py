"""Builds the image in which the steps of a compiled pipeline run."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.components.errors import InfeedError
from infeed.pipelines.image.containers import Build, Engine, find_engine
from infeed.pipelines.image.context import Accelerator, make_context
from infeed.pipelines.image.settings import pip_secrets

# `#7 [stack 2/3] RUN pip ...` is docker's, `[2/4] STEP 2/3: RUN pip ...` podman's and buildah's.
_STEP = re.compile(
    r"(?:#\d+ \[(?:[\w-]+ )?\d+/\d+\]|(?:\[\d+/\d+\] )?STEP \d+/\d+:) (?P<word>\w+)(?: --mount=\S+)*(?P<rest>.*)"
)
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class ImageOptions:
    """What to build.

    Attributes:
      tag: the image's name.
      base: Debian 13 or a system with the same Python 3.13; the Dockerfile's own by default.
      accelerator: "gpu" adds CUDA's libraries.
      exclude: patterns of the project's files that stay out.
      push: also push it to the registry that its name says.
    """

    tag: str
    base: str | None = None
    accelerator: Accelerator = "none"
    exclude: tuple[str, ...] = ()
    push: bool = False


@dataclass(frozen=True)
class BuiltImage:
    """What was built; `size` in the engine's own words."""

    tag: str
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

        def follow(command: Sequence[str]) -> _Ended:
            return _follow(command, output.write, on_step)

        _build(engine, options, project, Path(scratch), log, follow)
        if options.push:
            on_step(f"push {options.tag}")
            _push(engine, options.tag, log, follow)
    seconds = time.monotonic() - started
    return BuiltImage(options.tag, engine.size(options.tag), engine.name, options.push, round(seconds, 1))


@dataclass(frozen=True)
class _Ended:
    """How an engine's command ended, the instructions it began, and its last words."""

    status: int
    steps: tuple[str, ...]
    words: str


_Follow = Callable[[Sequence[str]], _Ended]


def _build(
    engine: Engine, options: ImageOptions, project: Path | None, scratch: Path, log: Path, follow: _Follow
) -> None:
    context = scratch / "context"
    context.mkdir()
    make_context(context, project, accelerator=options.accelerator, exclude=options.exclude)
    arguments = {"BASE": options.base} if options.base else {}
    ended = follow(engine.build(Build(str(context), options.tag, arguments, pip_secrets(scratch))))
    if not ended.status:
        return
    if all(step.startswith(("FROM", "ARG")) for step in ended.steps):
        raise InfeedError(
            f"the base image cannot be had: {ended.words}",
            where=str(log),
            do="Check its name and the network, log in to its registry, or name one that you have with --base.",
        )
    raise InfeedError(
        f"{engine.name} failed at {ended.steps[-1]!r}: {ended.words}", where=str(log), do="Read on in that log."
    )


def _push(engine: Engine, tag: str, log: Path, follow: _Follow) -> None:
    ended = follow(engine.push(tag))
    if ended.status:
        raise InfeedError(
            f"the image was built, but {tag!r} cannot be pushed: {ended.words}",
            where=str(log),
            do=f"Log in with `{engine.name} login`, and see that the name begins with your registry's.",
        )


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
                for instruction in _instruction(line):
                    steps.append(instruction)
                    on_step(instruction)
        except BaseException:
            process.terminate()
            process.wait()  # it reads what is about to be removed
            raise
    return _Ended(process.returncode, tuple(steps), _last_words(lines))


def _instruction(line: str) -> Iterator[str]:
    match = _STEP.match(line)
    if match:
        yield " ".join([match["word"], *match["rest"].split()])


def _last_words(lines: Iterable[str]) -> str:
    """The last line that speaks of an error: engines end with a summary of their own."""
    spoken = [line for line in lines if line]
    return ([line for line in spoken if _ERROR.search(line)] or spoken or [""])[-1]
