"""A compiled pipeline as it lies in a file: a PipelineJob in JSON, or a PipelineSpec in YAML.

The formats are those of `kfp` and Vertex AI: in YAML a second document is the platform spec, that of `kfp-kubernetes`.
Functions of the project's own files are named relative to the project's folder (`model.py:build_model`), which is the
working directory of its image: a step runs with that folder as its working directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infeed.components.errors import InfeedError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it

# Schema 2.0 has names of its own for the types; https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1
_TYPES_2_0 = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}

_AROUND = ("labels", "serviceAccount", "network", "encryptionSpec")


@dataclass(frozen=True)
class Parameter:
    """A runtime parameter: its type by the name of schema 2.1, and its default; None where a value has to be given."""

    type: str
    default: Any = None


@dataclass(frozen=True)
class CompiledJob:
    """A compiled pipeline.

    Attributes:
      spec: the PipelineSpec.
      platform: the platform spec, where there is one.
      runtime: the runtimeConfig of a PipelineJob; empty in YAML.
      around: labels, account, network and key of a run, as a PipelineJob has them; empty in YAML.
    """

    spec: Mapping[str, Any]
    platform: Mapping[str, Any] | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> CompiledJob:
        """Reads what `infeed compile`, TFX or kfp wrote.

        Raises:
          InfeedError: there is no such file, or it holds no compiled pipeline.
        """
        documents = _documents(Path(path))
        first, platform = documents[0], documents[1] if len(documents) > 1 else None
        job = first if isinstance(first, dict) and "pipelineSpec" in first else {"pipelineSpec": first}
        spec = job["pipelineSpec"]
        if not isinstance(spec, dict) or not {"pipelineInfo", "deploymentSpec", "root"} <= spec.keys():
            raise _no_job(path, "it has no pipelineInfo, deploymentSpec and root")
        around = {name: job[name] for name in _AROUND if name in job}
        return cls(spec, platform, job.get("runtimeConfig", {}), around)

    @property
    def name(self) -> str:
        """The pipeline's."""
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def schema_version(self) -> str:
        """2.0.0 or 2.1.0."""
        return str(self.spec.get("schemaVersion", ""))

    @property
    def images(self) -> tuple[str, ...]:
        """Every container image that a step runs in."""
        executors = self.spec["deploymentSpec"].get("executors", {}).values()
        return tuple(sorted({executor["container"]["image"] for executor in executors if "container" in executor}))

    @property
    def uses_dataflow(self) -> bool:
        """Whether Dataflow's workers run the image of a step as well."""
        executors = self.spec["deploymentSpec"].get("executors", {}).values()
        args = {arg for executor in executors for arg in executor.get("container", {}).get("args", ())}
        return "--runner=DataflowRunner" in args and any(str(arg).startswith("--sdk_container_image=") for arg in args)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """What may be given when the pipeline is started."""
        declared = self.spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return {name: self._parameter(name, definition) for name, definition in declared.items()}

    def _parameter(self, name: str, definition: Mapping[str, Any]) -> Parameter:
        kind = definition.get("parameterType") or _TYPES_2_0[definition["type"]]
        default = self.runtime.get("parameterValues", {}).get(name, definition.get("defaultValue"))
        typed = self.runtime.get("parameters", {}).get(name)  # schema 2.0: {"intValue": "3"}
        default = next(iter(typed.values())) if typed else default
        return Parameter(kind, int(default) if kind == "NUMBER_INTEGER" and default is not None else default)


def _documents(path: Path) -> list[Any]:
    if not path.is_file():
        raise InfeedError(f"there is no compiled pipeline {path}", do="Make one: infeed compile PROJECT --output FILE.")
    text = path.read_text(encoding="utf-8")
    try:
        return [json.loads(text)] if text.lstrip().startswith("{") else list(yaml.load_all(text, _LOADER)) or [None]
    except (ValueError, yaml.YAMLError) as error:
        raise _no_job(path, str(error)) from error


def _no_job(path: str | Path, reason: str) -> InfeedError:
    return InfeedError(
        f"not a compiled pipeline: {reason}", where=str(path), do="Make one: infeed compile PROJECT --output FILE."
    )
