"""Builds and runs container images with docker, podman, or buildah with chroot isolation.

With each engine, a command replaces the image's entry point, shares the network of this machine, and runs as the
current user, so that this user owns the files in mounted folders.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from infeed.components.base.errors import InfeedError

EngineName = Literal["docker", "podman", "buildah"]

# Probes that need a working engine, because docker's client is often installed without a server.
_PROBES: Mapping[EngineName, tuple[str, ...]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version.Version}}"),
    "buildah": ("info",),
}
_PROBE_SECONDS = 60  # buildah waits while another build writes a layer

# buildah runs only working containers, not images. The trap removes the container however the command ends.
_BUILDAH_RUN = """\
container=$1
buildah from --quiet --name "$container" "$2" >/dev/null || exit 125
trap 'buildah rm "$container" >/dev/null' EXIT
trap 'exit 143' INT TERM
shift 2
buildah run --isolation chroot "$@"
"""


@dataclass(frozen=True)
class Engine:
    """Command lines of one container engine."""

    name: EngineName

    def run(
        self, image: str, argv: Sequence[str], *, folders: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the command that runs `argv` in `image`, with folders at their paths, and exits with its status.

        With buildah, a shell removes the container afterwards: to end the command, signal its process group.
        """
        options = [f"--user={os.getuid()}:{os.getgid()}", "--network=host"]
        options += [f"--volume={path}:{path}" for path in map(os.path.abspath, folders)]
        # The current user may have no home folder in the image.
        options += [f"--env={name}={value}" for name, value in {"HOME": "/tmp", **(env or {})}.items()]
        if self.name == "buildah":
            container = f"infeed-{uuid.uuid4().hex[:12]}"
            return ["bash", "-c", _BUILDAH_RUN, "buildah", container, image, *options, container, "--", *argv]
        if self.name == "docker":
            options.append("--init")  # SIGTERM does not end process 1
        if self.name == "podman" and os.getuid():
            options.append("--userns=keep-id")  # without it, `--user` is a subordinate id
        return [self.name, "run", "--rm", *options, f"--entrypoint={argv[0]}", image, *argv[1:]]

    def build(
        self,
        context: str,
        tag: str,
        *,
        arguments: Mapping[str, str],
        secrets: Mapping[str, str],
        target: str,
    ) -> list[str]:
        """Return the command that builds an image from a folder with a Dockerfile, and prints the engine's log.

        Args:
          arguments: values of the Dockerfile's ARG instructions.
          secrets: local file for each `RUN --mount=type=secret,id=...`. The image does not contain secrets.
          target: stage of the Dockerfile.
        """
        verb = ["build", "--progress=plain"] if self.name == "docker" else ["build"]
        if self.name == "buildah":
            verb += ["--layers", "--isolation=chroot"]
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        given += [f"--secret=id={name},src={file}" for name, file in secrets.items()]
        return [self.name, *verb, *given, f"--target={target}", f"--tag={tag}", context]


def find_engine() -> Engine:
    """Return the first of docker, podman and buildah that works.

    Raises InfeedError if no engine works. The error gives the reason for each engine.
    """
    problems = {}
    for name in get_args(EngineName):
        problems[name] = problem(name)
        if not problems[name]:
            return Engine(name)
    raise InfeedError(
        "no container engine works: " + "; ".join(f"{name}: {why}" for name, why in problems.items()),
        do="install one, for example with apt-get install buildah, or start docker's service",
    )


@functools.cache
def problem(name: EngineName) -> str:
    """Return why the engine does not work here, or an empty string if it works."""
    if not shutil.which(name):
        return "not installed"
    try:
        done = subprocess.run([name, *_PROBES[name]], capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
