"""What the steps of a run on Vertex AI wrote: Cloud Logging has it, over REST, and Vertex AI's own API does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import google.auth.credentials
from google.auth.transport.requests import AuthorizedSession

LOGGING = "https://logging.googleapis.com"
_SECONDS = 30.0
_LINES = 1_000  # the most that Cloud Logging gives at once


class CloudLogs:
    """Reads the logs of custom jobs in one project.

    Its methods raise requests.RequestException or GoogleAuthError where Google refuses or cannot be reached.
    """

    def __init__(self, credentials: google.auth.credentials.Credentials, project: str) -> None:
        self._session = AuthorizedSession(credentials)
        self._project = project
        self._read_up_to: dict[str, str] = {}

    def new_lines(self, job: str) -> Sequence[str]:
        """Those since the last call for the same job. What arrives with an earlier time than those is left out."""
        after = self._read_up_to.get(job)
        entries = self._entries(log_filter(job, after), "timestamp asc", _LINES)
        if entries:
            self._read_up_to[job] = entries[-1]["timestamp"]
        return [_text(entry) for entry in entries]

    def tail(self, job: str, lines: int) -> Sequence[str]:
        return [_text(entry) for entry in reversed(self._entries(log_filter(job), "timestamp desc", lines))]

    def _entries(self, wanted: str, order: str, most: int) -> Sequence[dict[str, Any]]:
        """https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list"""
        body = {"resourceNames": [f"projects/{self._project}"], "filter": wanted, "orderBy": order, "pageSize": most}
        answer = self._session.post(f"{LOGGING}/v2/entries:list", json=body, timeout=_SECONDS)
        answer.raise_for_status()
        entries: Sequence[dict[str, Any]] = answer.json().get("entries", [])
        return entries


def log_filter(job: str, after: str | None = None) -> str:
    """In Logging's query language: the entries of a custom job, given by its resource name."""
    wanted = f'resource.type="ml_job" AND resource.labels.job_id="{job.rpartition("/")[2]}"'
    return wanted if after is None else f'{wanted} AND timestamp>"{after}"'


def _text(entry: dict[str, Any]) -> str:
    return str(entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", "")).rstrip()
