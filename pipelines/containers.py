"""Builds and runs images with what the machine has: docker, podman, or buildah with chroot isolation.

The three are called with the same meaning: a command replaces the image's entry point, shares the network of this
machine, and belongs to the user who calls, so that what it writes into a mounted folder does too.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from infeed.components.errors import InfeedError

EngineName = Literal["docker", "podman", "buildah"]

# Says whether the engine works and not only whether it is installed: docker's client is often there without a server.
_PROBES: Mapping[EngineName, tuple[str, ...]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version.Version}}"),
    "buildah": ("info",),
}
_PROBE_SECONDS = 60  # buildah waits while another build writes a layer

# buildah has no `run` of an image, only of a working container, which is taken away again however the command ends.
_BUILDAH_RUN = """\
container=$1
buildah from --quiet --name "$container" "$2" >/dev/null || exit 125
trap 'buildah rm "$container" >/dev/null' EXIT
trap 'exit 143' INT TERM
shift 2
buildah run --isolation chroot "$@"
"""


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine as the container sees it; `source` is made absolute."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{os.path.abspath(self.source)}:{self.target}" + (":ro" if self.read_only else "")


@dataclass(frozen=True)
class Build:
    """One build of a Dockerfile.

    Attributes:
      context: folder with the Dockerfile and all that it copies.
      tag: name of the image to be.
      arguments: of the Dockerfile's ARG lines.
      secrets: file on this machine for each `RUN --mount=type=secret,id=...`; they do not become part of the image.
      labels: of the image to be.
    """

    context: str
    tag: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """The command lines of one container engine."""

    name: EngineName

    def run(
        self, image: str, argv: Sequence[str], *, mounts: Sequence[Mount] = (), env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command that runs `argv` inside `image` and ends with its exit status.

        With buildah a shell round it takes the container away: signal the whole process group to end it.
        """
        options = [f"--user={os.getuid()}:{os.getgid()}", "--network=host"]
        options += [f"--volume={mount}" for mount in mounts]
        # The caller may have no home in the image.
        options += [f"--env={name}={value}" for name, value in {"HOME": "/tmp", **(env or {})}.items()]
        if self.name == "buildah":
            container = f"infeed-{uuid.uuid4().hex[:12]}"
            return ["bash", "-c", _BUILDAH_RUN, "buildah", container, image, *options, container, "--", *argv]
        if self.name == "docker":
            options.append("--init")  # else the command is process 1, which SIGTERM does not end
        if self.name == "podman" and os.getuid():
            options.append("--userns=keep-id")  # else `--user` is a subordinate id
        return [self.name, "run", "--rm", *options, f"--entrypoint={argv[0]}", image, *argv[1:]]

    def build(self, build: Build) -> list[str]:
        """The command that builds; its output is the engine's own log."""
        verb = ["build", "--progress=plain"] if self.name == "docker" else ["build"]
        if self.name == "buildah":
            verb += ["--layers", "--isolation=chroot"]
        arguments = [f"--build-arg={name}={value}" for name, value in build.arguments.items()]
        secrets = [f"--secret=id={name},src={file}" for name, file in build.secrets.items()]
        labels = [f"--label={name}={value}" for name, value in build.labels.items()]
        return [self.name, *verb, *arguments, *secrets, *labels, f"--tag={build.tag}", build.context]

    def digest(self, image: str) -> str:
        """`sha256:...` by which a registry knows the image; it is fetched where it is not here.

        Empty where the engine cannot tell: no registry answers, or the image was made here and never pushed.
        """
        if "@" in image:
            return image.rpartition("@")[2]
        found = self._known_digest(image)
        if not found:
            subprocess.run([self.name, "pull", image], capture_output=True)
            found = self._known_digest(image)
        return found

    def _known_digest(self, image: str) -> str:
        if self.name == "buildah":
            command = ["buildah", "inspect", "--type=image", "--format={{.FromImageDigest}}", image]
        else:
            command = [self.name, "image", "inspect", '--format={{join .RepoDigests "\\n"}}', image]
        found = subprocess.run(command, capture_output=True, text=True).stdout.split()
        names = {_repository(name): digest for name, _, digest in (line.rpartition("@") for line in found)}
        return names.get("" if self.name == "buildah" else _repository(image), "")

    def push(self, tag: str, digest_file: Path) -> list[str]:
        """The command that pushes, with the credentials that the engine was given by its own `login`.

        Args:
          digest_file: where podman and buildah write the digest, which depends on how they compress the layers.
        """
        options = [] if self.name == "docker" else [f"--digestfile={digest_file}"]
        return [self.name, "push", *options, tag]

    def pushed_digest(self, tag: str, digest_file: Path) -> str:
        """`sha256:...` of what was just pushed; empty where the engine does not say it."""
        if self.name == "docker":
            return self._known_digest(tag)
        return digest_file.read_text("utf-8").strip() if digest_file.exists() else ""

    def size(self, tag: str) -> str:
        """How large the image is, in the engine's own words: "3.21 GB"; empty where there is no such image here."""
        command = [self.name, "images", "--format", "{{.Size}}", tag]
        return _last_line(subprocess.run(command, capture_output=True, text=True).stdout)


def find_engine(name: EngineName | None = None) -> Engine:
    """The engine of that name, or the first that works: docker, podman, buildah.

    Raises:
      InfeedError: it does not work, or none does; says why for each.
    """
    asked = get_args(EngineName) if name is None else (name,)
    problems = {}
    for candidate in asked:
        problems[candidate] = problem(candidate)
        if not problems[candidate]:
            return Engine(candidate)
    raise InfeedError(
        "no container engine works: " + "; ".join(f"{name}: {why}" for name, why in problems.items()),
        do="install one (apt-get install buildah, say), or start docker's service",
    )


@functools.cache
def problem(name: EngineName) -> str:
    """Why the engine does not work here; empty where it does."""
    if not shutil.which(name):
        return "not installed"
    try:
        done = subprocess.run([name, *_PROBES[name]], capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return _last_line(done.stderr) or f"exit status {done.returncode}" if done.returncode else ""


def _repository(image: str) -> str:
    """The name without tag and digest, as docker shortens it: `debian` for `docker.io/library/debian:13`."""
    name = re.sub(r"(:[^:/]+)?(@.*)?$", "", image, count=1)
    return name.removeprefix("docker.io/").removeprefix("library/")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
