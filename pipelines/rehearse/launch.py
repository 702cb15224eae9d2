"""Where the container's command line runs: on this machine, or inside the image."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from infeed.pipelines.image.containers import Mount, run_command


class Launcher(Protocol):
    """Turns the container's command line into one that can be started here."""

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """The command line; `env` is what the job gives the container."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What is added to the environment of that command line."""

    def image(self, given: str) -> str:
        """What stands for the image that the job names; steps of another one are not the same."""


@dataclass(frozen=True)
class Here:
    """As a process of this machine: the current Python is the one of the image.

    Attributes:
      packages: folder for what steps install by pip, as kfp's components in Python do: not into this environment.
    """

    packages: str

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        first = sys.executable if argv[0] in ("python", "python3") else argv[0]
        return [first, *argv[1:]]

    @property
    def environment(self) -> Mapping[str, str]:
        """With the current Python first on the PATH, for shell scripts that call `python3` themselves."""
        return {
            "PATH": _path(os.path.dirname(sys.executable), "PATH"),
            "PIP_TARGET": self.packages,
            "PYTHONPATH": _path(self.packages, "PYTHONPATH"),
        }

    def image(self, given: str) -> str:
        return f"local:{given}"


@dataclass(frozen=True)
class InImage:
    """Inside an image, which sees the given folders under their own names."""

    name: str
    folders: tuple[str, ...]

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        mounts = [Mount(folder, os.path.abspath(folder)) for folder in self.folders]
        return run_command(self.name, argv, mounts=mounts, env=env)

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def image(self, given: str) -> str:
        return self.name


def _path(first: str, variable: str) -> str:
    """`first`, then what the variable holds already."""
    return os.pathsep.join([first, *filter(None, [os.environ.get(variable)])])
