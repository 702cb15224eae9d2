"""The placeholders of command lines: `{{$}}`, `{{$.inputs.parameters['x']}}`, `{{$.outputs.artifacts['m'].uri}}`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse.store import Artifact
from infeed.pipelines.rehearse.values import Value, as_text

_PLACEHOLDER = re.compile(r"\{\{\$((?:\.\w+|\[[^]]*\])*)\}\}")
_PART = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")

View = Mapping[str, Any]
"""What placeholders may name, nested; the whole ExecutorInput, as JSON, is under the empty name."""


def fill(text: str, view: View) -> str:
    """`text` with its placeholders replaced: strings as they are, all else as JSON.

    Raises:
      InfeedError: there is nothing of that name.
    """
    return _PLACEHOLDER.sub(lambda found: as_text(_look_up(found[1], view)), text)


def fill_arguments(arguments: Sequence[str], view: View) -> list[str]:
    """Fills each argument; `Concat` and `IfPresent` of kfp's container components become what they stand for."""
    return [text for argument in arguments for text in _expand(_structure(argument), view)]


def inputs_view(parameters: Mapping[str, Value], artifacts: Mapping[str, Sequence[Artifact]]) -> View:
    """What placeholders see of a task's inputs; of several artifacts the first."""
    return {
        "parameters": parameters,
        "artifacts": {key: artifact_view(found[0]) for key, found in artifacts.items() if found},
    }


def artifact_view(artifact: Artifact) -> View:
    """Paths are what URIs are: everything is in local folders here."""
    value = os.path.join(artifact.uri, "value")  # where TFX keeps the value of a value artifact
    read = {"value": Path(value).read_text(encoding="utf-8")} if os.path.isfile(value) else {}
    return {**artifact.to_json(), "path": artifact.uri, **read}


def _look_up(path: str, view: View) -> Any:
    found: Any = view if path else view[""]
    try:
        for attribute, key, index in _PART.findall(path):
            found = found[int(index)] if index else found[attribute or key]
    except (KeyError, IndexError, TypeError) as error:
        do = "name an input or output of the component, or one of the constants in kfp.dsl"
        raise InfeedError(f"nothing stands for the placeholder {{{{${path}}}}}", do=do) from error
    return found


def _structure(argument: str) -> Any:
    return json.loads(argument) if argument.startswith(('{"Concat": ', '{"IfPresent": ')) else argument


def _expand(argument: Any, view: View) -> list[str]:
    if isinstance(argument, str):
        return [fill(argument, view)]
    if isinstance(argument, list):
        return [text for part in argument for text in _expand(part, view)]
    if "Concat" in argument:
        return ["".join(_expand(argument["Concat"], view))]
    choice = argument["IfPresent"]
    inputs = view["inputs"]
    present = choice["InputName"] in {**inputs["parameters"], **inputs["artifacts"]}
    return _expand(choice["Then"] if present else choice.get("Else", []), view)
