from __future__ import annotations

import dataclasses
import json

from infeed.pipelines.console.nodes import NodeState
from infeed.pipelines.submit.run import RunState, RunStatus, Step

DONE = Step("ExampleGen", NodeState.DONE, 3.0)
FAILED = Step("Trainer", NodeState.FAILED, 9.0, error="no data", jobs=("pod-1",), log="kubectl logs pod-1")


def test_the_first_step_that_failed_is_the_one_that_is_told() -> None:
    later = dataclasses.replace(FAILED, name="Pusher")
    assert RunStatus(RunState.FAILED, (DONE, FAILED, later)).failed is FAILED


def test_a_run_may_fail_without_a_step_that_did() -> None:
    assert RunStatus(RunState.FAILED, (DONE,), "the quota is used up").failed is None


def test_a_step_goes_through_json_as_it_is() -> None:
    assert json.loads(json.dumps(dataclasses.asdict(FAILED))) == {
        "name": "Trainer",
        "state": "failed",
        "seconds": 9.0,
        "error": "no data",
        "note": "",
        "progress": "",
        "jobs": ["pod-1"],
        "log": "kubectl logs pod-1",
    }
