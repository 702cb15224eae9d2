"""Resolvers and importers: the tasks that find or name artifacts, and start nothing.

TFX compiles its `LatestBlessedModelStrategy` to two resolvers, for the newest good blessing and for the model that it
is about, and `LatestArtifactStrategy` to one. Each asks ML Metadata by a filter of comparisons joined with AND.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from infeed.components.errors import InfeedError
from infeed.pipelines.rehearse import placeholders, values
from infeed.pipelines.rehearse.dag import Spec, Task
from infeed.pipelines.rehearse.scope import Bundle
from infeed.pipelines.rehearse.store import Artifact, Store

Test = Callable[[Artifact], bool]

_COMPARISON = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"([^"]*)"|([\w.+-]+))\s*""")


def resolve(task: Task, inputs: Bundle, store: Store, pipeline: str, job: Spec) -> Bundle:
    """The newest artifacts of that pipeline which pass each filter; an empty list where there are none."""
    assert task.executor is not None
    view = {**job, "inputs": placeholders.inputs_view(inputs.parameters, inputs.artifacts)}
    found: dict[str, list[Artifact]] = {}
    for key, query in task.executor["resolver"].get("outputArtifactQueries", {}).items():
        if any(not artifacts for artifacts in inputs.artifacts.values()):
            found[key] = []  # it would look for what an earlier resolver has not found
            continue
        tests = _tests(placeholders.fill(query["filter"], view))
        passing = [artifact for artifact in store.newest(pipeline) if all(test(artifact) for test in tests)]
        found[key] = passing[: int(query.get("limit", 1))]
    return Bundle(artifacts=found)


def import_artifact(task: Task, inputs: Bundle, store: Store, pipeline: str, job: Spec, name: str) -> Bundle:
    """The artifact that an importer names; the one imported before, unless it is to be imported again."""
    assert task.executor is not None
    importer = task.executor["importer"]
    view = {**job, "inputs": placeholders.inputs_view(inputs.parameters, inputs.artifacts)}
    metadata = _fill_all(importer.get("metadata", {}), view)
    artifact = Artifact(name, importer["typeSchema"], _uri(importer["artifactUri"], inputs, view), metadata)
    if not importer.get("reimport"):
        same = (a for a in store.newest(pipeline) if (a.type, a.uri) == (artifact.type, artifact.uri))
        artifact = next((a for a in same if a.metadata == metadata), artifact)
    [key] = task.component["outputDefinitions"]["artifacts"]
    return Bundle(artifacts={key: [artifact]})


def _uri(source: Spec, inputs: Bundle, view: placeholders.View) -> str:
    name = source.get("runtimeParameter")
    value = inputs.parameters.get(name) if name else values.constant(source)
    return placeholders.fill(str(value), view)


def _fill_all(value: Any, view: placeholders.View) -> Any:
    if isinstance(value, dict):
        return {_fill_all(key, view): _fill_all(item, view) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_all(item, view) for item in value]
    return placeholders.fill(value, view) if isinstance(value, str) else value


def _tests(text: str) -> list[Test]:
    tests = []
    for comparison in text.split(" AND "):
        parts = _COMPARISON.fullmatch(comparison)
        if not parts:
            do = "the rehearsal knows comparisons with = that are joined by AND, as TFX's resolvers make them"
            raise InfeedError(f"cannot read the filter {comparison!r}", where=text, do=do)
        tests.append(_test(parts[1], parts[3] if parts[2] is None else parts[2]))
    return tests


def _test(field: str, wanted: str) -> Test:
    if field == "state":
        return lambda artifact: wanted == ("LIVE" if artifact.is_there else "DELETED")
    if field == "schema_title":
        return lambda artifact: artifact.title == wanted
    if field == "name":
        return lambda artifact: artifact.name == wanted
    _, key, kind = f"{field}..".split(".")[:3]
    if not field.startswith("metadata.") or kind not in ("number_value", "string_value", "bool_value"):
        raise InfeedError(f"cannot filter by {field!r}", do="filter by schema_title, state, name or metadata")
    return lambda artifact: _is(artifact.metadata.get(key), wanted, kind)


def _is(value: Any, wanted: str, kind: str) -> bool:
    if kind == "number_value":
        return isinstance(value, (int, float)) and value == float(wanted)
    return value is not None and values.as_text(value) == wanted
