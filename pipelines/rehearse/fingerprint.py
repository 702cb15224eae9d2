"""When a step would do again what it did before: the key of Kubeflow's cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from infeed.pipelines.rehearse.dag import Task
from infeed.pipelines.rehearse.scope import Bundle
from infeed.pipelines.rehearse.store import Artifact


def fingerprint(task: Task, inputs: Bundle, planned: Mapping[str, Artifact], image: str) -> str:
    """A digest of the inputs, of what is to come out, and of the container.

    The parts are those of GenerateCacheKey in Kubeflow's backend/src/v2/cacheutils/cache.go: artifacts that go in count
    by name, those that come out without their place, the command line before its placeholders are filled. The values
    themselves are this store's own.

    Args:
      image: that the step runs in here.
    """
    assert task.executor is not None
    container = task.executor["container"]
    declared = task.component.get("outputDefinitions", {}).get("parameters", {})
    key = {
        "inputArtifactNames": {k: [artifact.name for artifact in found] for k, found in inputs.artifacts.items()},
        "inputParameterValues": dict(inputs.parameters),
        "outputArtifactsSpec": {k: [dict(a.type), dict(a.metadata)] for k, a in planned.items()},
        "outputParametersSpec": declared,
        "containerSpec": [image, [*container.get("command", []), *container.get("args", [])], container.get("env", [])],
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
