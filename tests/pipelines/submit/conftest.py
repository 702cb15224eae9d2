from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins and the jobs of this folder are imported by their bare names, and only by tests that use them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


@pytest.fixture
def google_account(private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Google's default credentials: a service account of nobody, with a server that gives it tokens."""
    from stand_in import Answer, StandIn

    tokens = StandIn()
    tokens.fail("POST", "/token", *[Answer({"access_token": "of nobody", "expires_in": 3600})] * 9)
    account = {"type": "service_account", "client_email": "nobody@p.iam.gserviceaccount.com"}
    key_file = tmp_path / "key.json"
    key_file.write_text(json.dumps({**account, "private_key": private_key, "token_uri": f"{tokens.url}/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # google-auth asks Google about the account in a thread
    yield
    tokens.close()
