"""Inputs and outputs of a step: parameters and artifacts, and ExecutorInput and ExecutorOutput as JSON.

A step's command line contains placeholders for the inputs and outputs: `{{$}}`, `{{$.inputs.parameters['x']}}`,
`{{$.outputs.artifacts['m'].uri}}`.

https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto defines the messages. Artifacts and
output parameters have the file layout of Kubeflow's launcher (backend/src/v2/component/launcher_v2.go).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import local_path, mapped, present, title_of
from infeed.pipelines.cluster.job import parameters as values
from infeed.pipelines.cluster.job.compiled import Task
from infeed.pipelines.cluster.job.parameters import Value, as_text
from infeed.pipelines.console.nodes import NodeState

_PLACEHOLDER = re.compile(r"\{\{\$((?:\.\w+|\[[^]]*\])*)\}\}")
_VALUES = {f"tfx.{name}" for name in ("Boolean", "Bytes", "Float", "Integer", "JsonValue", "String")}  # files
_PART = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")

Kfp = Literal["2.5", "2.14", "2.15", "2.17"]
"""First version of Kubeflow Pipelines for each form of the messages."""
LOGS = "executor-logs"
"""Output that the driver adds to every step."""
_LOST_TYPE = {"instanceSchema": ""}
_FIELDS = {"parameters", "artifacts", "parameterValues", "parameter_values"}
_ARTIFACT_FIELDS = {
    *("name", "type", "uri", "properties", "customProperties", "custom_properties"),
    *("metadata", "customPath", "custom_path"),
}
_CORRECT = "correct what the step writes: Kubeflow's launcher fails the step after it has succeeded"

PathOf = Callable[[str], str]
View = Mapping[str, Any]
"""Nested values for placeholders. The empty name is the whole ExecutorInput as JSON."""


@dataclass(frozen=True)
class Artifact:
    """A RuntimeArtifact, from a step or an importer."""

    # Unique in the store: RUN/NODE/KEY, and RUN/NODE/ for an importer. Metadata, as of a blessing, may hold it.
    name: str
    type: Mapping[str, Any]  # ArtifactTypeSchema: `{"schemaTitle": ...}` or `{"instanceSchema": YAML}`
    uri: str  # folder or file of the artifact
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name of the type, such as `tfx.Model` or `system.Dataset`."""
        return title_of(self.type)

    @property
    def is_there(self) -> bool:
        """Whether the artifact exists. Artifacts in buckets always count as existing."""
        return "://" in self.uri or os.path.exists(self.uri)

    def to_json(self) -> dict[str, Any]:
        """Return the artifact as in an ExecutorInput."""
        return {"name": self.name, "type": dict(self.type), "uri": self.uri, "metadata": dict(self.metadata)}


@dataclass(frozen=True)
class TaskIO:
    """Inputs or outputs of a task: parameters and artifacts by key."""

    parameters: Mapping[str, Value] = field(default_factory=dict)
    artifacts: Mapping[str, Sequence[Artifact]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskResult:
    """Result of a task. `note` is a short remark."""

    state: NodeState
    outputs: TaskIO = TaskIO()
    error: str = ""
    note: str = ""

    @property
    def succeeded(self) -> bool:
        return self.state in (NodeState.DONE, NodeState.CACHED)


@dataclass(frozen=True)
class AttemptDir:
    """Output folder of one attempt."""

    folder: str  # local folder for messages
    name: str  # prefix of the artifacts' names in the store
    artifacts: str = ""  # folder or URI of the artifacts, each named by its key; by default `folder`
    kfp: Kfp | None = None  # version of Kubeflow Pipelines; None for Vertex AI
    pod: str = ""  # disk of the pod, if the artifacts are in a store
    root: str = ""  # folder or URI of all artifacts of the run
    attempt: int = 1

    @property
    def output_file(self) -> str:
        """File of the ExecutorOutput, which the driver and then the step write."""
        if self.kfp is None:
            return os.path.join(self.folder, "executor_output.json")
        if since(self.kfp, "2.15"):
            beside = (self.pod and local_path(self.artifacts, self.pod)) or self.folder
            return os.path.join(beside, "output_metadata.json")
        return os.path.join(self.pod or self.folder, "tmp", "kfp_outputs", "output_metadata.json")

    @property
    def logs(self) -> str:
        """Path or URI of the file that Kubeflow's launcher makes for the log of the step."""
        assert self.kfp, "Vertex AI has no such output"
        return os.path.join(self.artifacts or self.folder, logs_name(self.kfp, self.attempt))

    def parameter_file(self, key: str) -> str:
        """Return the file of an output parameter, for containers that write no ExecutorOutput."""
        if self.pod:
            return os.path.join(self.pod, "tmp", "kfp", "outputs", key)
        return os.path.join(self.folder, "output_parameters", key)


def planned_outputs(task: Task, attempt_dir: AttemptDir) -> dict[str, Artifact]:
    """Return the output artifacts of the step by key, before the step runs."""
    return {
        key: Artifact(
            name=f"{attempt_dir.name}/{key}",
            type=spec["artifactType"],
            uri=os.path.join(attempt_dir.artifacts or attempt_dir.folder, key),
            metadata=spec.get("metadata", {}),
        )
        for key, spec in task.outputs("artifacts").items()
    }


def executor_input(
    inputs: TaskIO, outputs: Mapping[str, Artifact], task: Task, attempt_dir: AttemptDir, legacy: bool
) -> Any:
    """Return the ExecutorInput message. If `legacy`, parameters are typed as in schema 2.0."""
    if legacy:
        parameters = {"parameters": {key: values.to_legacy(value) for key, value in inputs.parameters.items()}}
    else:
        parameters = {"parameterValues": whole_numbers(dict(inputs.parameters))}
    return {
        "inputs": {
            **parameters,
            "artifacts": {k: {"artifacts": [a.to_json() for a in found]} for k, found in inputs.artifacts.items()},
        },
        "outputs": {
            "parameters": {key: {"outputFile": attempt_dir.parameter_file(key)} for key in task.outputs("parameters")},
            "artifacts": {key: {"artifacts": [artifact.to_json()]} for key, artifact in outputs.items()},
            "outputFile": attempt_dir.output_file,
        },
    }


def view(
    message: Any, inputs: TaskIO, outputs: Mapping[str, Artifact], job: Mapping[str, Any], path_of: PathOf = str
) -> View:
    """Return the values of the placeholders in the step's command line. `path_of` maps a URI to its local path."""
    files = {key: {"output_file": one["outputFile"]} for key, one in message["outputs"].get("parameters", {}).items()}
    return {
        **job,
        "": message,
        "inputs": inputs_view(inputs, path_of),
        "outputs": {
            "parameters": files,
            "artifacts": {key: artifact_view(artifact, path_of) for key, artifact in outputs.items()},
            "output_file": message["outputs"]["outputFile"],
        },
    }


def read_output(attempt_dir: AttemptDir) -> Any:
    """Read the ExecutorOutput, for Kubeflow with the checks of its launcher. Empty if the step wrote none."""
    try:
        text = Path(attempt_dir.output_file).read_text(encoding="utf-8")
        return read_strictly(text, attempt_dir.output_file, attempt_dir.root) if attempt_dir.kfp else json.loads(text)
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        do = "write an ExecutorOutput in JSON from the step"
        raise InfeedError(f"not JSON: {error}", where=attempt_dir.output_file, do=do) from error


def output_values(output: Any) -> dict[str, Any]:
    """Return the parameters in an ExecutorOutput of schema 2.0 or 2.1."""
    legacy = {key: values.legacy_value(typed) for key, typed in output.get("parameters", {}).items()}
    return {**legacy, **output.get("parameterValues", {})}


def finished_outputs(planned: Mapping[str, Artifact], output: Any, task: Task, attempt_dir: AttemptDir) -> TaskIO:
    """Return the outputs, updated from the ExecutorOutput. Raises InfeedError if a parameter was not written."""
    given = output_values(output)
    parameters = {
        key: given[key] if key in given else _read_parameter(key, spec, attempt_dir)
        for key, spec in task.outputs("parameters").items()
    }
    return TaskIO(parameters, {key: [artifact] for key, artifact in updated(planned, output).items()})


def updated(planned: Mapping[str, Artifact], output: Any) -> dict[str, Artifact]:
    """Return the artifacts with the URIs and metadata in an ExecutorOutput."""
    said = {key: found["artifacts"][0] for key, found in output.get("artifacts", {}).items() if found.get("artifacts")}
    return {
        key: dataclasses.replace(
            artifact,
            uri=said.get(key, {}).get("uri") or artifact.uri,
            metadata={**artifact.metadata, **said.get(key, {}).get("metadata", {})},
        )
        for key, artifact in planned.items()
    }


def _read_parameter(key: str, spec: Mapping[str, Any], attempt_dir: AttemptDir) -> Any:
    path = attempt_dir.parameter_file(key)
    if not os.path.isfile(path):
        raise InfeedError(f"the step did not write its output parameter {key!r}", where=path, do="write it there")
    with open(path, encoding="utf-8") as file:
        return values.parse(file.read(), values.declared_type(spec), f"parameter {key}")


def fill(text: str, view: View) -> str:
    """Replace the placeholders in `text` by strings or JSON. Raises InfeedError if a placeholder has no value."""
    return _PLACEHOLDER.sub(lambda found: as_text(_look_up(found[1], view)), text)


def fill_arguments(arguments: Sequence[str], view: View) -> list[str]:
    """Replace the placeholders in each argument, and expand kfp's `Concat` and `IfPresent`."""
    structures = ('{"Concat": ', '{"IfPresent": ')
    parsed = [json.loads(one) if one.startswith(structures) else one for one in arguments]
    return [text for argument in parsed for text in _expand(argument, view)]


def inputs_view(inputs: TaskIO, path_of: PathOf = str) -> View:
    """Return a task's inputs for placeholders. An input with several artifacts shows the first."""
    artifacts = {key: artifact_view(found[0], path_of) for key, found in inputs.artifacts.items() if found}
    return {"parameters": inputs.parameters, "artifacts": artifacts}


def artifact_view(artifact: Artifact, path_of: PathOf = str) -> View:
    path = path_of(artifact.uri)
    is_value = artifact.title in _VALUES and os.path.isfile(path)
    read = {"value": Path(path).read_text(encoding="utf-8")} if is_value else {}
    return {**artifact.to_json(), "path": path, **read}


def _look_up(path: str, view: View) -> Any:
    found: Any = view if path else view[""]
    try:
        for attribute, key, index in _PART.findall(path):
            found = found[int(index)] if index else found[attribute or key]
    except (KeyError, IndexError, TypeError) as error:
        do = "use an input or output of the component, or a constant in kfp.dsl"
        raise InfeedError(f"the placeholder {{{{${path}}}}} has no value", do=do) from error
    return found


def _expand(argument: Any, view: View) -> list[str]:
    if isinstance(argument, str):
        return [fill(argument, view)]
    if isinstance(argument, list):
        return [text for part in argument for text in _expand(part, view)]
    if "Concat" in argument:
        return ["".join(_expand(argument["Concat"], view))]
    choice = argument["IfPresent"]
    inputs = view["inputs"]
    is_given = choice["InputName"] in {**inputs["parameters"], **inputs["artifacts"]}
    return _expand(choice["Then"] if is_given else choice.get("Else", []), view)


# Messages of Kubeflow's driver and launcher, by version. ML Metadata loses the types of artifacts, booleans and lists.
# The launcher parses the ExecutorOutput as protobuf's JSON and rejects other values. The tests compare the functions
# with messages of real versions in `tests/data/kubeflow`.


def since(kfp: Kfp, version: Kfp) -> bool:
    """Report whether `kfp` is `version` or a later one."""
    number, least = (tuple(map(int, one.split("."))) for one in (kfp, version))
    return number >= least


def logs_name(kfp: Kfp, attempt: int) -> str:
    """Return the last part of the URI of the logs. `attempt` counts from 1."""
    return f"{LOGS}-{attempt - 1}" if since(kfp, "2.17") else LOGS


def handed(message: Any, kfp: Kfp, logs_uri: str, number_of: Callable[[str], int]) -> Any:
    """Return an ExecutorInput as the driver passes it to a step.

    `number_of` returns the id of an input artifact in the metadata store, from the artifact's name.
    """
    inputs, outputs = message["inputs"], message["outputs"]
    taken = {**inputs, "artifacts": _each(inputs["artifacts"], lambda _, one: _input(one, number_of(one["name"])))}
    logs = {"artifacts": [{"type": {"schemaTitle": "system.Artifact"}, "uri": logs_uri, "metadata": {}}]}
    written = {
        "parameters": outputs["parameters"],
        "artifacts": _each({**outputs["artifacts"], LOGS: logs}, lambda key, one: _output(one, key, kfp)),
        "outputFile": outputs["outputFile"],
    }
    return {"inputs": present(taken), "outputs": present(written)}


def _each(artifacts: Mapping[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    return {key: {"artifacts": [change(key, one) for one in found["artifacts"]]} for key, found in artifacts.items()}


def _input(artifact: Mapping[str, Any], number: int) -> dict[str, Any]:
    provider = artifact["uri"].partition("://")[0] if "://" in artifact["uri"] else "s3"
    session = json.dumps({"Provider": provider, "Params": {"fromEnv": "true"}}, separators=(",", ":"))
    kept = {name: kept_value(value) for name, value in artifact["metadata"].items()}
    key = artifact["name"].rpartition("/")[2]  # empty for an artifact of an importer, which has no display name
    metadata = {**present({"display_name": key}), "store_session_info": session, **kept}
    return {"name": str(number), "type": _LOST_TYPE, "uri": artifact["uri"], "metadata": metadata}


def _output(artifact: Mapping[str, Any], key: str, kfp: Kfp) -> dict[str, Any]:
    named = {"name": key} if since(kfp, "2.15") else {}
    declared = {"type": artifact["type"], "uri": artifact["uri"]}
    return {**named, **declared, **present({"metadata": whole_numbers(artifact["metadata"])})}


def kept_value(value: Any) -> Any:
    """Return a metadata value as ML Metadata returns it: booleans as integers, lists and objects wrapped."""
    if isinstance(value, bool):
        return int(value)
    whole = whole_numbers(value)
    if isinstance(value, (list, dict)):
        return {"list" if isinstance(value, list) else "struct": whole}
    return whole


def whole_numbers(value: Any) -> Any:
    """Return JSON data with 3 in place of 3.0, because protobuf's JSON writes the shortest form."""
    return mapped(value, lambda one: int(Decimal(repr(one))) if isinstance(one, float) and one.is_integer() else one)


def read_strictly(text: str, where: str, root: str) -> Any:
    """Read an ExecutorOutput as the launcher does, and return it.

    `root` is the folder of the run's artifacts. Raises InfeedError for NaN and infinities, null in metadata, unknown
    fields, and a URI outside the root.
    """

    def refuse(what: str) -> InfeedError:
        return InfeedError(f"the launcher refuses the ExecutorOutput: {what}", where=where, do=_CORRECT)

    def constant(name: str) -> Any:
        raise refuse(f"invalid value {name}")

    output = json.loads(text, parse_constant=constant)
    for unknown in output.keys() - _FIELDS:
        raise refuse(f"unknown field {unknown!r}")
    for key, found in output.get("artifacts", {}).items():
        for one in found.get("artifacts", ()):
            for unknown in one.keys() - _ARTIFACT_FIELDS:
                raise refuse(f"unknown field {unknown!r} of artifact {key!r}")
            if any(value is None for value in one.get("metadata", {}).values()):
                raise refuse(f"null in the metadata of artifact {key!r}")
            uri = one.get("uri") or root
            if uri != root and not uri.startswith(f"{root.rstrip('/')}/"):
                raise refuse(f"the URI {uri!r} of artifact {key!r} is outside the run's root {root!r}")
    return output
