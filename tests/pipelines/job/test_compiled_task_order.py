from __future__ import annotations

from typing import Any

import pytest

from infeed.components.errors import InfeedError
from infeed.pipelines.job.compiled import in_order


def takes(producer: str) -> dict[str, Any]:
    """A task that takes an artifact of another one."""
    return {"inputs": {"artifacts": {"x": {"taskOutputArtifact": {"producerTask": producer}}}}}


def test_tasks_come_after_what_they_need_and_else_by_name() -> None:
    tasks = {
        "b": takes("c"),
        "a": {"inputs": {"parameters": {"x": {"taskFinalStatus": {"producerTask": "d"}}}}},
        "e": {"inputs": {"parameters": {"x": {"taskOutputParameter": {"producerTask": "b"}}}}},
        "c": {"dependentTasks": ["d"]},
        "d": {"inputs": {"parameters": {"x": {"runtimeValue": {"constant": 3}}}}},
    }
    assert in_order(tasks) == ["d", "a", "c", "b", "e"]


def test_a_task_that_is_not_there_is_named() -> None:
    with pytest.raises(InfeedError, match=r"'c'\n.*task dag/b\n.*a, b"):
        in_order({"a": {}, "b": takes("c")}, where="dag/")


def test_a_circle_is_told_round() -> None:
    with pytest.raises(InfeedError, match=r"cycle: (a -> b -> a|b -> a -> b)"):
        in_order({"a": takes("b"), "b": takes("a")})
