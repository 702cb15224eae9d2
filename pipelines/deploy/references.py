"""References to functions of the project's own files, in a form that holds on every machine.

Here they are absolute, `/home/me/taxi/model.py:build_model`. In a compiled pipeline they are relative, as in
`model.py:build_model`: the working directory of the image is the project's folder.
"""

from __future__ import annotations

import json
import re
from typing import Any


def relative_references(value: Any, folder: str) -> Any:
    """A copy of plain data in which every `folder/x.py:` inside of a text is `x.py:`; other paths stay as they are."""
    written = sorted({folder, json.dumps(folder)[1:-1]})  # options are JSON inside of the data
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, written))})/(?=[^\"\s:]+\.py:)")
    return _replaced(value, pattern)


def _replaced(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub("", value)
    if isinstance(value, dict):
        return {key: _replaced(item, pattern) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, pattern) for item in value]
    return value
