"""Compression of long parameters, because Linux limits a command argument to 128 KiB.

Kubeflow and Vertex AI pass all parameters of a step in one JSON argument. The features of a table with thousands of
columns exceed the limit.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

_PREFIX = "infeed+gzip:"


def pack(text: str) -> str:
    """Compress a text to ASCII. The result is deterministic."""
    return _PREFIX + base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def is_packed(value: Any) -> bool:
    """Return whether `pack` compressed the value."""
    return isinstance(value, str) and value.startswith(_PREFIX)


def unpack(value: Any) -> Any:
    """Decompress a text that `pack` compressed. Return any other value unchanged."""
    if not is_packed(value):
        return value
    return gzip.decompress(base64.b64decode(value.removeprefix(_PREFIX))).decode()
