"""What pip is told on this machine (indexes, certificates), for the time of a build and not one moment longer.

The files are given to the engine as secrets: they are mounted while pip runs, and are in no layer of the image.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The Dockerfile mounts the certificates there.
_CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"
_KEPT = ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout", "retries", "cert")
_SECTIONS = ("global", "install", ":env:")  # later ones win, as for pip itself


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
    found = {key: value for line in listing.splitlines() for key, value in _setting(line)}
    settings = {}
    for section in _SECTIONS:
        for name in _KEPT:
            value = found.get(f"{section}.{name}") or found.get(f"{section}.default-{name}", "")
            remote = " ".join(word for word in value.split() if not word.startswith("file:"))
            if remote:
                settings[name] = remote
    return settings


def _setting(line: str) -> Iterator[tuple[str, str]]:
    key, equals, value = line.partition("=")
    if equals:
        yield key, str(ast.literal_eval(value))


def _config_list() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
