"""What a live server answers is in test_kubeflow.py."""

from __future__ import annotations

import kfp_server_api
import pytest
import requests
import urllib3

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.submit.kubeflow import may_have_begun, no_api, no_login, translate_errors, without_secrets
from infeed.pipelines.cluster.submit.run import starting
from infeed.pipelines.console.exit_codes import LostError

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # importing kfp alone takes seconds

HOST = "https://me:secret@kubeflow.example/pipeline?token=1#runs"


def refusal(status: int, body: object = None, reason: str = "Reason") -> kfp_server_api.ApiException:
    error = kfp_server_api.ApiException(status=status, reason=reason)
    error.body = body
    return error


def told(error: Exception) -> InfeedError:
    with pytest.raises(InfeedError) as caught, translate_errors(HOST):
        raise error
    assert caught.value.__cause__ is error
    assert "secret" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "what", "do"),
    [
        (401, "no valid credentials: Reason", "KF_PIPELINES_SA_TOKEN_PATH"),
        (403, "permission denied: Reason", "kubeflow-edit"),
        (404, "no API of Kubeflow Pipelines 2 here: Reason", "healthz"),
        (429, r"\(429\): Reason", "later"),
        (503, r"\(503\): Reason", "later"),
        (400, r"\(400\): Reason", "compile it again"),
    ],
)
def test_each_refusal_says_what_to_do(status: int, what: str, do: str) -> None:
    error = told(refusal(status))
    assert error.where == "https://kubeflow.example/pipeline"
    with pytest.raises(InfeedError, match=rf"{what}(.|\n)*{do}"):
        raise error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"message": "no such\\n experiment"}', "no such experiment"),
        ('{"error_message": "old server"}', "old server"),
        (b'{"error": "bytes"}', "bytes"),
        ("<html>a login</html>", "Reason"),
        ("plain words", "plain words"),
        (None, "Reason"),
        ("[1]", "[1]"),
    ],
)
def test_the_words_are_the_servers_own_unless_a_page_answered(body: object, said: str) -> None:
    assert told(refusal(403, body)).what == f"permission denied: {said}"


def test_a_message_that_nests_others_is_cut() -> None:
    assert len(told(refusal(400, "x" * 10_000)).what) < 700


def test_what_fetches_tokens_is_told_as_credentials() -> None:
    assert told(requests.ConnectionError("no route")).what == "no Google credentials: no route"


def test_a_certificate_and_a_proxy_have_advice_of_their_own() -> None:
    assert "certificate" in (told(urllib3.exceptions.SSLError("self-signed")).do or "")
    assert "HTTPS_PROXY" in (told(urllib3.exceptions.ProxyError("403", OSError())).do or "")


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (refusal(503), True),
        (urllib3.exceptions.ProtocolError("Connection broken"), True),
        (urllib3.exceptions.ReadTimeoutError(None, "/", "timed out"), True),  # type: ignore[arg-type]
        (refusal(403), False),
        (urllib3.exceptions.SSLError("self-signed"), False),
    ],
)
def test_a_start_whose_answer_was_lost_is_not_called_a_refusal(error: Exception, is_lost: bool) -> None:
    with pytest.raises(InfeedError) as caught, starting(translate_errors(HOST), may_have_begun):
        raise error
    assert isinstance(caught.value, LostError) is is_lost


def test_a_login_is_told_from_a_wrong_address() -> None:
    assert no_api(HOST, "https://login.example/?from=me").what.endswith("login at https://login.example/")
    assert no_api(HOST, HOST).what.startswith("the server returned a web page")
    assert no_login(HOST).do == "log in once: kfp --endpoint https://kubeflow.example/pipeline run list"


def test_no_address_is_shown_with_what_it_carries() -> None:
    assert without_secrets(HOST) == "https://kubeflow.example/pipeline"
