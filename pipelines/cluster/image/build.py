"""Builds the container image of a compiled pipeline's steps.

The engine gets the local settings of pip (indexes, certificates) as secrets. It mounts them while pip runs, and no
layer of the image contains them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.containers import Engine, find_engine
from infeed.pipelines.cluster.image.context import beam_sdk, make_context
from infeed.pipelines.deploy.options import DATAFLOW

_ERROR = re.compile(r"\berror\b", re.IGNORECASE)

BASE = "docker.io/library/debian:trixie-slim"

# Dataflow mounts folders that only root may write: https://github.com/pangeo-data/pangeo-docker-images/pull/360.
_WORKER_USERS = {DATAFLOW: "0"}
_CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"  # mounted by the Dockerfile
_KEPT = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "retries", "cert")
_SECTIONS = ("global", "install", ":env:")  # a later section overrides an earlier one, as in pip


@dataclass(frozen=True)
class ImageOptions:
    """Options of an image build."""

    tag: str  # name of the image
    base: str = BASE  # base image, Debian 13 or a system with the same Python 3.13. `NAME@sha256:...` pins the base
    exclude: tuple[str, ...] = ()  # patterns of project files to exclude
    push: bool = False  # whether to push the image to the registry in its name
    with_project: bool = True  # whether the image holds the project's files
    runner: str = ""  # runner of a cluster whose workers run the image; empty for none


def build_image(project: Path | None, options: ImageOptions, log: Path) -> Engine:
    """Build an image, and push it if `options.push` is true. Without a project, the image holds only this package.

    `log` receives the engine's output. Returns the engine. Raises InfeedError if no container engine works, the build
    fails, or the registry rejects the push.
    """
    engine = find_engine()
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch, "context")
        context.mkdir()
        make_context(context, project, exclude=options.exclude, with_project=options.with_project)
        arguments, target = {"BASE": options.base}, "steps"
        # Only the workers of a cluster need Beam's own image, which would enlarge that of the steps.
        if options.runner:
            arguments |= {"BEAM_SDK": beam_sdk(), "WORKER_USER": _WORKER_USERS.get(options.runner, "1000")}
            target = "worker"
        secrets = pip_secrets(Path(scratch))
        command = engine.build(str(context), options.tag, arguments=arguments, secrets=secrets, target=target)
        with log.open("w", encoding="utf-8") as output:
            do = f"read that log; check that {options.base} can be pulled, or name another image with --base"
            _run(command, output, f"{engine.name} cannot build {options.tag!r}", do)
            if options.push:
                do = f"log in with `{engine.name} login`, and check that the image name starts with your registry"
                _run([engine.name, "push", options.tag], output, f"cannot push {options.tag!r}", do)
    return engine


def _run(command: Sequence[str], output: IO[str], failure: str, do: str) -> None:
    """Run an engine's command. Raises InfeedError with the engine's last error."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        status = process.wait()
    except BaseException:  # Ctrl-C as well
        process.terminate()
        process.wait()  # the engine reads a folder that the caller is about to remove
        raise
    if status:
        spoken = [line for line in Path(output.name).read_text("utf-8", "replace").splitlines() if line.strip()]
        words = ([line for line in spoken if _ERROR.search(line)] or spoken or ["no message"])[-1]
        raise InfeedError(f"{failure}: {words.strip()}", where=output.name, do=do)


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
