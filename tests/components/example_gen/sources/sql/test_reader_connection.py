from __future__ import annotations

import traceback

import pytest
import sqlalchemy as sa

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.sources.sql.adbc import driver_arguments
from infeed.components.example_gen.sources.sql.reader import SqlOptions, connect, without_secrets

URL = "postgresql+psycopg://ann:p%40ss%2Fword@localhost:1/db?sslpassword=t0ken"


def told(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that a user or a log would see of a connection that fails."""
    monkeypatch.setenv("DATABASE", url)
    with pytest.raises(InfeedError) as caught, connect("DATABASE") as database:
        database.fetch_row(sa.text("SELECT 1"))
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        URL,
        "password p@ss/word is wrong",
        "password p%40ss%2Fword is wrong",
        "postgresql+psycopg://ann:p%40ss%2Fword@localhost:1/db?sslpassword=t0ken is down",
        "t0ken is worth nothing",
    ],
)
def test_no_secret_stays_in_a_text(text: str) -> None:
    hidden = without_secrets(text, URL)
    assert "***" in hidden
    for secret in ("p@ss", "p%40ss", "t0ken"):
        assert secret not in hidden


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (URL.replace("?sslpassword=t0ken", ""), "Connection refused"),
        ("sqlite+nothing://ann:p%40ss@host/db", "plugin"),
        ("nonsense p@ss", "not a SQLAlchemy URL"),
        ("postgresql+psycopg://ann:p%40ss@host:port/db", "not a SQLAlchemy URL"),
        ("oracle+oracledb://ann:p%40ss@host/db", "pip install oracledb"),
        (URL.replace("+psycopg", "+adbc").replace("?sslpassword=t0ken", ""), "Connection refused"),
        ("postgresql+adbc://ann:p%40ss@host/db?nothing=p%40ss", "invalid URI query parameter"),
        ("oracle+adbc://ann:p%40ss@host/db", "pip install adbc-driver-oracle"),
    ],
)
def test_what_goes_wrong_is_told_without_the_secret(url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = told(url, monkeypatch)
    assert says in shown
    assert "DATABASE" in shown
    assert "p@ss" not in shown
    assert "p%40ss" not in shown


def test_a_secret_given_for_a_name_is_not_quoted() -> None:
    with pytest.raises(InfeedError, match="not the name of an environment variable") as caught:
        SqlOptions(URL)
    assert "p%40ss" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "uri", "options"),
    [
        ("sqlite+adbc:///a.db", "a.db", {}),
        ("sqlite+adbc:////data/a b.db", "/data/a b.db", {}),
        ("duckdb+adbc://", ":memory:", {}),
        ("postgresql+adbc://ann:p%40ss@/db?host=%2Frun", "postgresql://ann:p%40ss@/db?host=%2Frun", {}),
        ("flightsql+adbc://?uri=grpc://host:1&username=ann", "grpc://host:1", {"username": "ann"}),
    ],
)
def test_what_adbcs_driver_is_given(url: str, uri: str, options: dict[str, str]) -> None:
    assert driver_arguments(sa.make_url(url)) == (uri, options)
