import stat
from pathlib import Path

import pytest

from infeed.pipelines.cluster.image import build as build_settings
from infeed.pipelines.cluster.image.build import pip_secrets, pip_settings


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.setattr(build_settings, "_config_list", str)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def test_indexes_proxies_and_certificates_are_taken_over():
    listing = "global.index-url='https://user:word@index.example/simple'\nglobal.proxy='http://proxy:3128'\n"
    assert pip_settings(listing) == {
        "index-url": "https://user:word@index.example/simple",
        "proxy": "http://proxy:3128",
    }


def test_the_environment_wins_over_the_file():
    listing = ":env:.default-timeout='180'\n:env:.index-url='https://b'\nglobal.index-url='https://a'\n"
    assert pip_settings(listing) == {"index-url": "https://b", "timeout": "180"}


def test_folders_of_this_machine_are_left_out():
    listing = "global.find-links='/wheels'\nglobal.extra-index-url='file:///index https://index.example'\n"
    assert pip_settings(listing) == {"extra-index-url": "https://index.example"}


def test_certificates_are_a_secret_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setattr(build_settings, "_config_list", lambda: f"global.cert='{tmp_path}/ca.pem'\n")
    secrets = pip_secrets(tmp_path)
    assert secrets == {"ca.crt": f"{tmp_path}/ca.pem", "pip.conf": f"{tmp_path}/pip.conf"}
    assert "cert = /run/secrets/ca.crt" in (tmp_path / "pip.conf").read_text()


def test_nobody_else_may_read_them(tmp_path):
    assert stat.S_IMODE(Path(pip_secrets(tmp_path)["pip.conf"]).stat().st_mode) == 0o600
