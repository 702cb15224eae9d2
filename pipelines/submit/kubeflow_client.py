"""kfp's client as this package needs it: retries, and words that come from the server itself."""

from __future__ import annotations

import copy
import os
from typing import Any
from urllib.parse import urljoin

import kfp_server_api
import urllib3
from kfp import client as kfp_client
from kfp.client import auth
from kfp.client.token_credentials_base import TokenCredentialsBase

from infeed.pipelines.submit.kubeflow_errors import no_api, no_login

_TRANSIENT = (429, 500, 502, 503, 504)
# A wrong host is told at once; while a run is followed, a laptop may change its network.
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
