"""Connections to databases, whose secrets stay in the environment: out of errors, logs and everything that travels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy import exc

from infeed.components.errors import InfeedError
from infeed.components.example_gen.sources import sql_adbc, sql_alchemy
from infeed.components.example_gen.sources.sql_database import Database, RefusedError

_HIDDEN = "***"


@contextmanager
def connect(variable: str) -> Iterator[Database]:
    """A connection to the database whose URL the environment variable `variable` holds.

    Raises:
      InfeedError: no such variable, URL, driver or database, or whatever the database refuses while it is connected.
    """
    text = _text_of(variable)
    url = _parse(text, variable)
    way = sql_adbc if url.drivername.endswith("+adbc") else sql_alchemy
    try:
        with way.open_database(url) as database:
            yield database
    except RefusedError as refused:
        said = " ".join(without_secrets(str(refused.said), text).split())
        raise InfeedError(
            f"{type(refused.said).__name__}: {said}", where=f"the database of {variable}", do=refused.do
        ) from None


def without_secrets(text: str, url: str) -> str:
    """`text` without the URL and without the password in it, however that is quoted."""
    secrets = {url}
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        secrets.add(url.rpartition("@")[0].rpartition(":")[2])
    else:
        in_query = [value for values in parsed.normalized_query.values() for value in values]
        secrets |= {str(parsed.password or ""), parsed.render_as_string(hide_password=False), *in_query}
    for secret in sorted(secrets | {quote(one, safe="") for one in secrets} | {quote_plus(one) for one in secrets}):
        text = text.replace(secret, _HIDDEN) if secret else text
    return text


def _text_of(variable: str) -> str:
    text = os.environ.get(variable)
    if not text:
        raise InfeedError(
            f"the environment variable {variable} is not set",
            where="connection_env",
            do=f"export {variable}=postgresql+psycopg://user:password@host/database, or the like, on every worker",
        )
    return text


def _parse(text: str, variable: str) -> sa.URL:
    try:
        return sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise InfeedError(
            "not a SQLAlchemy URL",
            where=f"the environment variable {variable}",
            do="give dialect+driver://user:password@host:port/database, with / and @ in the password as %2F and %40",
        ) from None
