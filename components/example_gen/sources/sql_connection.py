"""Connections to databases, whose secrets stay in the environment: out of errors, logs and everything that travels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy import exc, pool

from infeed.components.errors import InfeedError

_HIDDEN = "***"


@contextmanager
def connect(variable: str) -> Iterator[sa.Connection]:
    """A connection to the database whose URL the environment variable `variable` holds.

    Raises:
      InfeedError: no such variable, URL, driver or database, or whatever the database refuses while it is connected.
    """
    url = _url_of(variable)
    engine = _engine(url, variable)
    try:
        with engine.connect() as connection:
            yield connection
    except exc.SQLAlchemyError as error:
        raise _told(error, url, variable) from None  # its context may quote the URL
    finally:
        engine.dispose()


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


def _url_of(variable: str) -> str:
    url = os.environ.get(variable)
    if not url:
        raise InfeedError(
            f"the environment variable {variable} is not set",
            where="connection_env",
            do=f"export {variable}=postgresql+psycopg://user:password@host/database, or the like, on every worker",
        )
    return url


def _engine(url: str, variable: str) -> sa.Engine:
    try:
        return sa.create_engine(url, poolclass=pool.NullPool, hide_parameters=True)
    except exc.NoSuchModuleError as error:
        raise _told(error, url, variable, do="check the part of the URL before ://") from None
    except ImportError as error:
        raise _told(error, url, variable, do=f"pip install {error.name}, or name another driver in the URL") from None
    except (exc.ArgumentError, ValueError, TypeError):
        raise InfeedError(
            "not a SQLAlchemy URL",
            where=f"the environment variable {variable}",
            do="give dialect+driver://user:password@host:port/database, with / and @ in the password as %2F and %40",
        ) from None


def _told(
    error: Exception, url: str, variable: str, do: str = "check the query, and that the database is there"
) -> InfeedError:
    said = getattr(error, "orig", None) or error
    text = " ".join(without_secrets(str(said), url).split())
    return InfeedError(f"{type(said).__name__}: {text}", where=f"the database of {variable}", do=do)
