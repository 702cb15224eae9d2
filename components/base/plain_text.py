"""Escaping of characters that would control a terminal or a page. Names, values and errors come from files."""

from __future__ import annotations

import re

# Control characters except tab and newline, marks of text direction, and surrogates, which represent the bytes of file
# names that are not UTF-8.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Escape the control characters of a text as Python does, for example `\x1b[2J`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    r"""Escape line breaks and tabs as well, for a cell of a table or a name within a sentence."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")
