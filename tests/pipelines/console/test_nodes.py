from __future__ import annotations

import json
from dataclasses import asdict

from infeed.pipelines.console.nodes import NodeReport, NodeState, RunReport

DONE = NodeReport("ImageExampleGen", NodeState.DONE, 1.9)
FAILED = NodeReport("Trainer", NodeState.FAILED, 0.5, error="no model function 'build'")
WAITING = NodeReport("Pusher")


def test_a_report_is_json_as_it_stands() -> None:
    nodes = json.loads(json.dumps(asdict(RunReport((DONE,), seconds=2.0))))["nodes"]
    (node,) = nodes
    assert (node["name"], node["state"], node["seconds"], node["error"]) == ("ImageExampleGen", "done", 1.9, None)
    assert (node["note"], node["progress"]) == ("", "")


def test_a_run_succeeded_unless_a_node_failed() -> None:
    assert RunReport((DONE,), 2.0).succeeded
    assert not RunReport((DONE, FAILED, WAITING), 2.0).succeeded


def test_a_run_names_the_node_that_stopped_it() -> None:
    assert RunReport((DONE, FAILED, WAITING), 2.0).failed is FAILED
    assert RunReport((DONE,), 2.0).failed is None
