"""Versions of the packages that compiled a job. Its steps compare them with the image."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

VARIABLE = "INFEED_COMPILED_WITH"
"""Environment variable of a step, as `pip freeze` writes versions: `tfx==1.16.0 apache-beam==2.67.0`."""
_log = logging.getLogger(__name__)


def variables() -> dict[str, str]:
    """Return the environment variable that records the installed versions."""
    found = ((package, version_of(package)) for package in ("tfx", "apache-beam", "tfx-infeed"))
    return {VARIABLE: " ".join(f"{package}=={installed}" for package, installed in found if installed)}


def warn(environment: Mapping[str, str] = os.environ) -> None:
    """Log a warning for each package of another minor version than the one that compiled the job."""
    for requirement in environment.get(VARIABLE, "").split():
        package, _, recorded = requirement.partition("==")
        installed = version_of(package)  # base components need no TFX
        if installed and installed.split(".")[:2] != recorded.split(".")[:2]:
            _log.warning(
                "the job was compiled with %s %s, but this image has %s: build the image with the compiling "
                "versions, or compile again with the versions of the image",
                package,
                recorded,
                installed,
            )


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
