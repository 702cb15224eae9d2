"""Long parameters of a step, compressed: Linux limits one argument of a command to 128 KiB.

Kubeflow and Vertex AI hand all parameters of a step to its container in one argument, as JSON. The features of a table
with thousands of columns do not fit.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

_PREFIX = "infeed+gzip:"


def pack(text: str) -> str:
    """Return the text compressed, in ASCII. The same text gives the same result."""
    return _PREFIX + base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def is_packed(value: Any) -> bool:
    """Report whether the value is a text that `pack` compressed."""
    return isinstance(value, str) and value.startswith(_PREFIX)


def unpack(value: Any) -> Any:
    """Return the text that `pack` compressed; any other value as it is."""
    if not is_packed(value):
        return value
    return gzip.decompress(base64.b64decode(value.removeprefix(_PREFIX))).decode()
