"""What a database is asked for: a query, or the name of a table."""

from __future__ import annotations

_SHOWN = 60  # characters of a query


def is_table(query: str) -> bool:
    """A query has a space in it, the name of a table has none."""
    return len(query.split()) == 1


def shown(query: str) -> str:
    """As an error names it: one line, and no long one."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
