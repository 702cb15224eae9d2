"""What went wrong between here and Kubeflow Pipelines, in words that say what to do."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import kfp_server_api
import requests
import urllib3
from google.auth.exceptions import GoogleAuthError

from infeed.components.errors import InfeedError
from infeed.pipelines.commands.exits import LostError

_CREDENTIALS = (
    "inside the cluster mount a service account token for the audience pipelines.kubeflow.org; elsewhere put one into "
    "a file that KF_PIPELINES_SA_TOKEN_PATH names; behind Identity-Aware Proxy set KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"
)
_ADDRESS = (
    "give the address under which /apis/v2beta1/healthz answers: http://localhost:8888 after `kubectl port-forward -n "
    "kubeflow svc/ml-pipeline 8888`; a whole Kubeflow has it under /pipeline"
)
_LONGEST = 600  # characters of a message: the server nests them
_LOOK = "look at the list of runs before you submit again"


@contextlib.contextmanager
def told(host: str) -> Iterator[None]:
    """Turns what kfp and its HTTP library raise into InfeedErrors."""
    try:
        yield
    except kfp_server_api.ApiException as error:
        raise _refused(error, without_secrets(host)) from error
    except urllib3.exceptions.HTTPError as error:
        raise _unreachable(error, without_secrets(host)) from error
    except (GoogleAuthError, requests.RequestException) as error:  # raised by what fetches tokens for a proxy
        raise InfeedError(f"no Google credentials: {error}", where=without_secrets(host), do=_CREDENTIALS) from error


@contextlib.contextmanager
def told_when_starting(host: str) -> Iterator[None]:
    """The same round the request that starts a run: the server may have done it, and its answer been lost."""
    try:
        with told(host):
            yield
    except InfeedError as error:
        cause = error.__cause__
        if getattr(cause, "status", 0) >= 500 or _broke_off(cause):
            raise LostError(
                f"it is not known whether the run was started: {error.what}", where=error.where, do=_LOOK
            ) from cause
        raise


def _broke_off(error: BaseException | None) -> bool:
    """Whether a connection was there and ended too soon."""
    cause = getattr(error, "reason", None) or error
    return isinstance(cause, (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError))


def no_api(host: str, answered: str) -> InfeedError:
    """Something answers at `host`, and not the API. `answered` is the address that did, redirects followed."""
    asked = without_secrets(host)
    if urlsplit(answered).netloc != urlsplit(host).netloc:
        return InfeedError(f"sent to a login at {without_secrets(answered)}", where=asked, do=_CREDENTIALS)
    what = "a page answered where the API of Kubeflow Pipelines should: a login, or the user interface"
    return InfeedError(what, where=asked, do=f"{_ADDRESS}; if it is a login, {_CREDENTIALS}")


def no_login(host: str) -> InfeedError:
    """kfp would ask for a login, on a screen that is kept quiet."""
    what = "kfp has to log in as you at Identity-Aware Proxy, and asks for that on the terminal"
    return InfeedError(
        what, where=without_secrets(host), do=f"do it once: kfp --endpoint {without_secrets(host)} run list"
    )


def without_secrets(url: str) -> str:
    """Without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _refused(error: kfp_server_api.ApiException, host: str) -> InfeedError:
    said = _message(error)
    if error.status == 401:
        return InfeedError(f"no valid credentials: {said}", where=host, do=_CREDENTIALS)
    if error.status == 403:
        do = "ask for the role kubeflow-edit in the namespace, or give one of yours with --namespace"
        return InfeedError(f"permission denied: {said}", where=host, do=do)
    if error.status in (404, 405, 501):
        return InfeedError(f"no API of Kubeflow Pipelines 2 here: {said}", where=host, do=_ADDRESS)
    if error.status == 429 or error.status >= 500:
        return InfeedError(
            f"the server cannot answer now ({error.status}): {said}", where=host, do="try again in a while"
        )
    do = "if it is the job that cannot be read, compile it again with a kfp that is no newer than the server"
    return InfeedError(f"the server refused the run ({error.status}): {said}", where=host, do=do)


def _message(error: kfp_server_api.ApiException) -> str:
    """The server's own words; of a page, which a proxy in between has made, only the status."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        answer = json.loads(body)
        said = answer.get("message") or answer.get("error_message") or answer.get("error")
    except (ValueError, AttributeError):
        said = body if body and "<" not in body else None
    return " ".join(str(said or error.reason).split())[:_LONGEST]


def _unreachable(error: urllib3.exceptions.HTTPError, host: str) -> InfeedError:
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, urllib3.exceptions.SSLError):
        do = "check that --host begins with http:// or https:// as the server does, and that its certificate is known"
    elif isinstance(cause, urllib3.exceptions.ProxyError):
        do = "check HTTPS_PROXY and NO_PROXY"
    else:
        do = f"check that it runs, and {_ADDRESS}"
    return InfeedError(f"cannot reach the server: {_last(cause)}", where=host, do=do)


def _last(cause: BaseException) -> str:
    """`Connection refused` out of `<HTTPConnection object at 0x7f...>: Failed to establish a new connection: ...`."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(cause).rpartition(": ")[2]).strip(" ')\"") or type(cause).__name__
