"""References to functions of the project's own files, in a form that holds on every machine.

Here they are absolute, `/home/me/taxi/model.py:build_model`. In a compiled pipeline they are relative, as in
`model.py:build_model`: the working directory of the image is the project's folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infeed.components.errors import InfeedError


def check_references(functions: Mapping[str, str], folder: str) -> None:
    """Raises InfeedError for a function in a file outside of `folder`, which the image of the project does not have.

    Args:
      functions: references, by the option that names them.
      folder: of the project.
    """
    for option, text in functions.items():
        module, _, _ = text.partition(":")
        if module.endswith(".py") and not Path(os.path.normpath(module)).is_relative_to(folder):
            raise InfeedError(
                f"{option} is in {os.path.normpath(module)}, which the project's image does not have",
                where=f"option {option}",
                do=f"Move it into {folder}, or install it as a package and name it as package.module:function.",
            )


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
