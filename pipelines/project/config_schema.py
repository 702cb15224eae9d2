"""JSON schema of `config.yaml`, which editors use to complete and check the file.

This is a separate module because importing pydantic takes 0.1 s. Only `infeed schema` and `infeed new` need it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from infeed.components.base.annotations import help_of
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.features import AnyFeature
from infeed.pipelines.config import Blessing
from infeed.pipelines.project.config_file import Settings
from infeed.pipelines.project.ingest_settings import HELP, IngestSettings

FILE = "config.schema.json"
COMMENT = f"# yaml-language-server: $schema={FILE}\n"  # first line of a config.yaml next to its schema

# Settings that `Settings` reads as plain data, and their classes.
_KINDS: Mapping[str, Any] = {
    "settings": Settings,
    "train": TrainOptions,
    "feed": FeedOptions,
    "ingest": IngestSettings,
    "features": tuple[AnyFeature, ...],
    "augment": Augment,
    "normalise": Normalise,
    "blessing": Blessing,
}
# Settings that may be the name of a function that returns the value.
_BY_FUNCTION = ("source", "features", "augment", "blessing", "hparams")


@functools.cache
def config_schema() -> str:
    """Return the schema as JSON."""
    adapters = [(name, "validation", TypeAdapter(kind)) for name, kind in _KINDS.items()]
    parts, found = TypeAdapter.json_schemas(adapters, schema_generator=_Described)  # type: ignore[arg-type]
    definitions = found["$defs"]
    schemas = {name: parts[name, "validation"] for name in _KINDS}
    schemas |= {name: definitions[one["$ref"].rpartition("/")[2]] for name, one in schemas.items() if "$ref" in one}
    properties = schemas["settings"]["properties"]
    for name in ("ingest", "features", "augment", "normalise", "blessing"):
        properties[name] |= _optional(schemas[name])
    # `train` contains both the options of training and of its feed.
    together = schemas["train"]["properties"] | schemas["feed"]["properties"]
    del together["feed"]
    properties["train"] |= _optional({**schemas["train"], "properties": together})
    own = {"type": "object", "properties": {"kind": {"pattern": ":"}}, "required": ["kind"]}  # a user's class
    properties["features"]["items"] = {"anyOf": [properties["features"]["items"], own]}
    properties["hparams"] |= {"type": "object"}
    schemas["settings"]["required"].remove("data")  # a function as source stands in place of it
    for name in _BY_FUNCTION:
        value = {key: properties[name].pop(key) for key in list(properties[name]) if key != "description"}
        properties[name]["anyOf"] = [value, {"type": "string"}]
    properties["source"]["anyOf"][1]["pattern"] = ":"
    for name, one in schemas["ingest"]["properties"].items():
        one["description"] = HELP[name]
        if one.get("type") == "array":  # a single value may replace a list, and shares by split
            one["type"] = ["array", "string", "number", "object"]
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "config.yaml of tfx-infeed"}
    return json.dumps(_numbers_as_text(made | schemas["settings"] | {"$defs": definitions}))


def _optional(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without required settings, because the run decides the missing ones."""
    return {name: value for name, value in part.items() if name not in ("required", "title", "description")}


def _numbers_as_text(value: Any) -> Any:
    """Accept a number for text, as `schema.read` does."""
    if isinstance(value, list):
        return [_numbers_as_text(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _numbers_as_text(one) for name, one in value.items()}
    return made | {"type": ["string", "number"]} if made.get("type") == "string" and "enum" not in made else made


class _Described(GenerateJsonSchema):
    """Schema with the docstring of a dataclass as the description of its options."""

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made = super().dataclass_schema(schema)
        made |= {"description": (schema["cls"].__doc__ or "").partition("\n")[0], "additionalProperties": False}
        for name, one in made["properties"].items():
            one.pop("title", None)
            one |= {"description": help_of(schema["cls"])[name]} if name in help_of(schema["cls"]) else {}
        return made

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
        return {"type": "string"}  # a function, which a file sets by name
