"""Arguments of steps stay below Linux's limit."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import ARGUMENT, unpack
from infeed.pipelines.cluster.compile.arguments import LIMIT, shorten
from infeed.pipelines.cluster.job.compiled import STEP, Task, read_tasks

WIDE = json.dumps([{"column": f"sensor_{number:04d}", "kind": "z_score"} for number in range(3_000)])
TFX = ["python", "-m", "tfx.entry"]


def step(driver: bool = False, **constants: Any) -> Task:
    """A step with constants as parameters, behind TFX's entry point."""
    parameters = {name: {"runtimeValue": {"constant": value}} for name, value in constants.items()}
    container: dict[str, Any] = {"image": "i", "command": [*TFX], "args": [ARGUMENT, "{{$}}"]}
    if driver:
        container["lifecycle"] = {"preCacheCheck": {"command": ["driver"]}}
    spec = {
        "components": {"Transform": {"executorLabel": "e"}},
        "deploymentSpec": {"executors": {"e": {"container": container}}},
        "root": {
            "dag": {
                "tasks": {
                    "Transform": {
                        "taskInfo": {"name": "Transform"},
                        "componentRef": {"name": "Transform"},
                        "inputs": {"parameters": parameters},
                    }
                }
            }
        },
    }
    [task] = read_tasks(spec)
    return task


def constant(task: Task, name: str) -> Any:
    return task.spec["inputs"]["parameters"][name]["runtimeValue"]["constant"]


def test_the_features_of_three_thousand_columns_fit() -> None:
    task = step(features=WIDE, label="kind", epochs=3.0)
    assert len(WIDE) > LIMIT
    shorten(task, launcher=True)
    assert len(constant(task, "features")) < LIMIT // 4
    assert unpack(constant(task, "features")) == WIDE
    assert (constant(task, "label"), constant(task, "epochs")) == ("kind", 3.0)
    assert task.container is not None
    assert task.container["command"] == [*STEP]


def test_without_a_launcher_the_artifacts_keep_their_uris() -> None:
    task = step(features=WIDE)
    shorten(task, launcher=False)
    assert task.container is not None
    assert task.container["command"] == [*STEP, "--in-place"]


def test_short_parameters_stay_readable() -> None:
    task = step(features=WIDE[:1_000])
    shorten(task, launcher=True)
    assert constant(task, "features") == WIDE[:1_000]
    assert task.container is not None
    assert task.container["command"] == TFX


@pytest.mark.parametrize("driver", [False, True])
def test_what_is_still_too_long_is_refused(driver: bool) -> None:
    noise = random.Random(0)
    text = WIDE if driver else "".join(noise.choices("0123456789abcdef", k=4 * LIMIT))
    with pytest.raises(InfeedError, match="parameter features") as error:
        shorten(step(driver, features=text), launcher=True)
    assert error.value.where == "step Transform"
