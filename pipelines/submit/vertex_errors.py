"""What went wrong between here and Vertex AI, in words that say what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import requests
import urllib3
from google.api_core import exceptions
from google.auth import exceptions as auth
from google.protobuf import json_format

from infeed.components.errors import InfeedError
from infeed.pipelines.commands.exits import LostError

_LOGIN = "gcloud auth application-default login, or let GOOGLE_APPLICATION_CREDENTIALS name a key file"
_REQUEST = re.compile(r"^[A-Z]+ https?://\S+: ")  # what google-api-core puts before the server's own words
_LONGEST = 600  # characters of a message


@contextlib.contextmanager
def told(endpoint: str) -> Iterator[None]:
    """Turns what Google's libraries raise into InfeedErrors."""
    try:
        yield
    except auth.DefaultCredentialsError as error:
        raise InfeedError(f"no Google credentials: {_short(error)}", where=endpoint, do=f"run {_LOGIN}") from error
    except auth.RefreshError as error:
        what = f"Google does not accept the credentials: {_short(error.args[0])}"
        raise InfeedError(what, where=endpoint, do=f"renew them: {_LOGIN}") from error
    except exceptions.RetryError as error:
        raise _refused(error.cause, endpoint) from error
    except (exceptions.GoogleAPICallError, requests.RequestException, auth.TransportError) as error:
        raise _refused(error, endpoint) from error
    except json_format.ParseError as error:
        what = f"Vertex AI's client cannot read what is there: {_short(error)}"
        do = "compile the job again in this environment; check --endpoint if one is given"
        raise InfeedError(what, where=endpoint, do=do) from error


@contextlib.contextmanager
def told_when_starting(endpoint: str) -> Iterator[None]:
    """The same round the request that starts a run: Google may have done it, and its answer been lost."""
    try:
        with told(endpoint):
            yield
    except InfeedError as error:
        cause = error.__cause__
        cause = cause.cause if isinstance(cause, exceptions.RetryError) else cause
        if isinstance(cause, (exceptions.ServerError, requests.ReadTimeout)) or _broke_off(cause):
            what = f"it is not known whether the run was started: {error.what}"
            raise LostError(what, where=endpoint, do="look at the list of runs before you submit again") from error
        raise


def _broke_off(error: object) -> bool:
    """Whether a connection was there and ended too soon."""
    inner = error.args[0] if isinstance(error, requests.ConnectionError) and error.args else None
    return isinstance(inner, urllib3.exceptions.ProtocolError)


def _refused(error: Exception | None, endpoint: str) -> InfeedError:
    if not isinstance(error, exceptions.GoogleAPICallError):
        do = "check --region, such as us-central1, and HTTPS_PROXY where a proxy stands between"
        return InfeedError(f"cannot reach Vertex AI: {_last(error)}", where=endpoint, do=do)
    what, do = _advice(error, _short(_REQUEST.sub("", error.message)))
    return InfeedError(what, where=endpoint, do=do)


def _advice(error: exceptions.GoogleAPICallError, said: str) -> tuple[str, str]:
    if any(isinstance(detail, dict) and detail.get("reason") == "SERVICE_DISABLED" for detail in error.details):
        return f"Vertex AI is off in this project: {said}", "gcloud services enable aiplatform.googleapis.com"
    if isinstance(error, exceptions.Unauthorized):
        return f"Google does not accept the credentials: {said}", f"renew them: {_LOGIN}"
    if isinstance(error, exceptions.Forbidden):
        do = "ask for the role roles/aiplatform.user, and roles/iam.serviceAccountUser on the --service-account"
        return f"permission denied: {said}", do
    if isinstance(error, exceptions.TooManyRequests):
        do = "wait for other runs to end, take another --region, or ask for more: gcloud console, IAM & Admin, Quotas"
        return f"over the project's quota: {said}", do
    if isinstance(error, exceptions.NotFound):
        return f"there is no such thing: {said}", "check --project, --region and what the job names"
    if isinstance(error, exceptions.ServerError):
        return f"Vertex AI cannot answer now ({error.code}): {said}", "try again in a while"
    do = "compile the job again for Vertex AI, and check its machines against what the region has"
    return f"Vertex AI refused the run ({error.code}): {said}", do


def _short(text: object) -> str:
    """One line, and none of a page, which a proxy in between has made."""
    said = " ".join(str(text).split())
    return "a page answered" if "<html" in said.lower() else said[:_LONGEST]


def _last(error: Exception | None) -> str:
    """`Connection refused` out of `HTTPSConnectionPool(...): Max retries exceeded with url: ... (Caused by ...)`."""
    return str(error).rpartition(": ")[2].strip(" ')\"") or type(error).__name__
