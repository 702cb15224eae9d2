"""Text for terminals and pages; `tests/pipelines/console/test_terminal.py` covers what a terminal shows."""

from __future__ import annotations

import pytest

from infeed.components.base.plain_text import one_line, plain


@pytest.mark.parametrize("text", ["\x1b", "\x07", "\x9b", "\r", "\u202e", "\udcff", "\u2066"])
def test_characters_that_a_terminal_would_obey_are_written_as_python_writes_them(text: str) -> None:
    assert plain(f"a{text}b\tc\n") == f"a{text.encode('unicode_escape').decode()}b\tc\n"


def test_a_cell_of_a_table_has_one_line() -> None:
    assert one_line("a\nb\tc\r\x1b") == "a\\nb\\tc\\r\\x1b"
