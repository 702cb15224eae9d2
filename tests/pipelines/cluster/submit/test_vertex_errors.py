"""What a live server answers is in test_vertex.py."""

from __future__ import annotations

import pytest
import requests
import urllib3
from google.api_core import exceptions
from google.auth import exceptions as auth

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.submit.run import starting
from infeed.pipelines.console.exit_codes import LostError

pytestmark = pytest.mark.slow  # importing google-cloud-aiplatform alone takes seconds

ENDPOINT = "https://us-central1-aiplatform.googleapis.com"


def told(error: Exception) -> InfeedError:
    from infeed.pipelines.cluster.submit.vertex import translate_errors

    with pytest.raises(InfeedError) as caught, translate_errors(ENDPOINT):
        raise error
    assert caught.value.where == ENDPOINT
    return caught.value


@pytest.mark.parametrize(
    ("error", "what", "do"),
    [
        (auth.DefaultCredentialsError("none found"), "no Google credentials: none found", "run gcloud auth"),
        (auth.RefreshError("expired"), "credentials: expired", "renew them: gcloud"),
        (exceptions.Unauthorized("expired"), "credentials: expired", "renew them: gcloud"),
        (exceptions.Forbidden("not you"), "permission denied: not you", "roles/aiplatform.user"),
        (exceptions.NotFound("no bucket"), "not found: no bucket", "--region"),
        (exceptions.TooManyRequests("L4"), "quota: L4", "Quotas"),
        (exceptions.BadGateway("busy"), "(502): busy", "try again"),
        (exceptions.BadRequest("bad spec"), "(400): bad spec", "compile the job again"),
        (requests.ConnectionError("x: Connection refused"), "cannot reach Vertex AI: Connection refused", "--region"),
        (auth.TransportError("x: no route"), "cannot reach Vertex AI: no route", "HTTPS_PROXY"),
    ],
)
def test_each_refusal_says_what_to_do(error: Exception, what: str, do: str) -> None:
    found = told(error)
    assert found.what.endswith(what)
    assert do in (found.do or "")


def test_a_service_that_is_off_is_told_from_a_permission() -> None:
    error = exceptions.Forbidden("off", errors=(), details=[{"reason": "SERVICE_DISABLED"}])
    assert told(error).do == "gcloud services enable aiplatform.googleapis.com"


def test_of_a_request_that_was_repeated_the_last_refusal_is_told() -> None:
    assert told(exceptions.RetryError("timeout", exceptions.Forbidden("not you"))).what == "permission denied: not you"


def test_a_page_is_not_shown_and_a_long_message_is_cut() -> None:
    assert told(exceptions.BadGateway("<HTML>proxy</HTML>")).what.endswith("web page")
    assert len(told(exceptions.BadRequest("x" * 10_000)).what) < 700


def test_the_address_before_googles_own_words_is_left_out() -> None:
    assert told(exceptions.Forbidden("POST https://a.b/c?d: not you")).what == "permission denied: not you"


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (exceptions.ServiceUnavailable("busy"), True),
        (exceptions.RetryError("timeout", exceptions.ServiceUnavailable("busy")), True),
        (requests.ReadTimeout("slow"), True),
        (requests.ConnectionError(urllib3.exceptions.ProtocolError("broken")), True),
        (requests.ConnectionError("refused"), False),
        (exceptions.Forbidden("not you"), False),
    ],
)
def test_a_start_whose_answer_was_lost_is_not_called_a_refusal(error: Exception, is_lost: bool) -> None:
    from infeed.pipelines.cluster.submit.vertex import may_have_begun, translate_errors

    with pytest.raises(InfeedError) as caught, starting(translate_errors(ENDPOINT), may_have_begun):
        raise error
    assert isinstance(caught.value, LostError) is is_lost
