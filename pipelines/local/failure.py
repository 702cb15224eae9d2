"""The words of the error that a node died of, without the wrappings that Beam and TFX put round it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from infeed.components.errors import InfeedError

_STEP = re.compile(r" \[while running '[^\n]*'\]")
_FRAMES = re.compile(r'^ +File "[^\n]*", line \d+[^\n]*\n(?: {4}[^\n]*\n)*', re.MULTILINE)
_WRAPPER = re.compile(r"^RuntimeError: (?=[\w.]+(?:Error|Exception|Interrupt)\b)")
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+(?:: |$))")


def own_words(error: BaseException) -> str:
    """What the user is to read of `error`: an InfeedError's text as it stands, anything else as `Type: message`.

    Beam raises a new exception per step, or one whose message is the whole traceback of a worker process.
    """
    for link in _chain(error):
        if isinstance(link, InfeedError):
            return str(link)
    return last_error("".join(traceback.format_exception_only(type(error), error)))


def last_error(text: str) -> str:
    """The error named last in a traceback that is only known as text; a bare message comes back as it is."""
    message = _FRAMES.split(text)[-1]
    message = _WRAPPER.sub("", _STEP.sub("", message).strip())
    return _MODULE.sub("", message).removeprefix(f"{InfeedError.__name__}: ")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
