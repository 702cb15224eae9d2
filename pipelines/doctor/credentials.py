"""Which credentials a submission would find: their kind and place, never their content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from infeed.pipelines.doctor.findings import Finding, Level

# Where Kubernetes mounts the token of a pod that talks to Kubeflow Pipelines, as kfp's client looks for it.
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_VENDOR = Path("/sys/class/dmi/id/product_name")
_GOOGLE = "Google credentials"
_LOGIN = "For Vertex AI: gcloud auth application-default login."


def credentials(environment: Mapping[str, str], home: Path, vendor: Path = _VENDOR) -> Iterator[Finding]:
    """Findings for Kubeflow and for Google; the arguments are the process's own but in tests."""
    yield _kubeflow(environment)
    yield _google(environment, home, vendor)


def _kubeflow(environment: Mapping[str, str]) -> Finding:
    token = Path(environment.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    found = "service account token of a pod" if token else "none, which is enough where the host asks for none"
    return Finding("submit", "Kubeflow credentials", found)


def _google(environment: Mapping[str, str], home: Path, vendor: Path) -> Finding:
    """In the order of Application Default Credentials, https://google.aip.dev/auth/4110."""
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    gcloud = Path(
        environment.get("CLOUDSDK_CONFIG", home / ".config" / "gcloud"), "application_default_credentials.json"
    )
    if named:
        return _file(Path(named), "named by GOOGLE_APPLICATION_CREDENTIALS")
    if gcloud.is_file():
        return _file(gcloud, "of gcloud")
    if vendor.is_file() and "Google" in vendor.read_text():
        return Finding("submit", _GOOGLE, "service account of this machine")
    return Finding("submit", _GOOGLE, "none", Level.WARNING, _LOGIN)


def _file(file: Path, origin: str) -> Finding:
    """`service_account`, `authorized_user` or `external_account`, as the file itself says."""
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("submit", _GOOGLE, f"a file {origin}, not readable: {error!r}", Level.PROBLEM, _LOGIN)
    return Finding("submit", _GOOGLE, f"{kind}, {origin}")
