"""kfp's client: credentials, retries, and what goes wrong on the way in words that say what to do."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import kfp_server_api
import requests
import urllib3
from google.auth.exceptions import GoogleAuthError
from kfp import client as kfp_client
from kfp.client import auth
from kfp.client.token_credentials_base import TokenCredentialsBase

from infeed.components.errors import InfeedError
from infeed.pipelines.submit.run import last_words

_CREDENTIALS = (
    "inside the cluster mount a service account token for the audience pipelines.kubeflow.org; elsewhere put one into "
    "a file that KF_PIPELINES_SA_TOKEN_PATH names; behind Identity-Aware Proxy set KF_PIPELINES_IAP_OAUTH2_CLIENT_ID"
)
_ADDRESS = (
    "give the address under which /apis/v2beta1/healthz answers: http://localhost:8888 after `kubectl port-forward -n "
    "kubeflow svc/ml-pipeline 8888`; a whole Kubeflow has it under /pipeline"
)
_LONGEST = 600  # characters of a message: the server nests them
_TRANSIENT = (429, 500, 502, 503, 504)
# A wrong host ends a start at once; while a run is followed, a laptop may change its network.
PROMPT = urllib3.Retry(total=3, connect=1, backoff_factor=0.5, status_forcelist=_TRANSIENT, raise_on_status=False)
PATIENT = PROMPT.new(total=8, connect=8, read=8, backoff_factor=1)
ONCE = urllib3.Retry(total=0, raise_on_status=False)


class Client(kfp_client.Client):
    """kfp's client, with the credentials that it finds by itself and those of a pod."""

    def __init__(self, host: str) -> None:
        if "KF_PIPELINES_APP_OAUTH2_CLIENT_ID" in os.environ and not os.path.exists(auth.LOCAL_KFP_CREDENTIAL):
            raise no_login(host)
        super().__init__(host=host, credentials=_cluster_credentials())

    def _load_config(self, *args: Any, **kwargs: Any) -> kfp_server_api.Configuration:
        config = super()._load_config(*args, **kwargs)
        config.retries = PROMPT  # the constructor of kfp.Client has no argument for it
        return config

    def get_kfp_healthz(self, sleep_duration: int = 0) -> kfp_server_api.V2beta1GetHealthzResponse:
        """kfp's own asks five times, 5 s apart, and then does not say what was wrong."""
        health = get(self.api, "/apis/v2beta1/healthz", "object")
        if not isinstance(health, dict) or "multi_user" not in health:
            raise self.no_api()
        return kfp_server_api.V2beta1GetHealthzResponse(multi_user=health["multi_user"])

    def no_api(self) -> Exception:
        """For the last answer, which was not the API's."""
        host = self.api.configuration.host
        return no_api(host, urljoin(host, self.api.last_response.urllib3_response.geturl()))

    @property
    def api(self) -> kfp_server_api.ApiClient:
        return self._run_api.api_client

    def api_with(self, retries: urllib3.Retry) -> kfp_server_api.ApiClient:
        """The same access with other retries."""
        api, config = copy.copy(self.api), copy.copy(self.api.configuration)
        config.retries = retries
        api.configuration, api.rest_client = config, kfp_server_api.rest.RESTClientObject(config)
        return api


def get(api: kfp_server_api.ApiClient, path: str, response_type: str) -> Any:
    """What the server answers to a GET: kfp's generated methods have other names in each version, and none for logs."""
    return api.call_api(path, "GET", response_type=response_type, auth_settings=["Bearer"], _return_http_data_only=True)


def _cluster_credentials() -> TokenCredentialsBase | None:
    """The token that a pod gets from its cluster, or that the user has put where kfp looks for it."""
    path = os.environ.get(kfp_client.KF_PIPELINES_SA_TOKEN_ENV, kfp_client.KF_PIPELINES_SA_TOKEN_PATH)
    return kfp_client.ServiceAccountTokenVolumeCredentials(path) if os.path.exists(path) else None


@contextlib.contextmanager
def translate_errors(host: str) -> Iterator[None]:
    """Turns what kfp and its HTTP library raise into InfeedErrors."""
    try:
        yield
    except kfp_server_api.ApiException as error:
        raise _refused(error, without_secrets(host)) from error
    except urllib3.exceptions.HTTPError as error:
        raise _unreachable(error, without_secrets(host)) from error
    except (GoogleAuthError, requests.RequestException) as error:  # raised by what fetches tokens for a proxy
        raise InfeedError(f"no Google credentials: {error}", where=without_secrets(host), do=_CREDENTIALS) from error


def may_have_begun(error: BaseException | None) -> bool:
    """Whether the server may have started the run: it failed by itself, or the connection ended too soon."""
    cause = getattr(error, "reason", None) or error
    broke_off = isinstance(cause, (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError))
    return broke_off or getattr(error, "status", 0) >= 500


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
    return InfeedError(f"cannot reach the server: {last_words(cause)}", where=host, do=do)
