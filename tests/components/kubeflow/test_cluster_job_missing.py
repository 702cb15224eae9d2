from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.components.kubeflow.cluster_job import explain, is_news
from infeed.components.kubeflow.training_job import APIS, Place

PLACE = Place("infeed-a1", "team")


def warning(second: int, message: str, name: str = "infeed-a1-node-0", **times: Any) -> SimpleNamespace:
    when = datetime(2026, 11, 27, 17, 10, second, tzinfo=timezone.utc)
    given = {"last_timestamp": when, "event_time": None, **times}
    return SimpleNamespace(involved_object=SimpleNamespace(name=name), reason="FailedCreate", message=message, **given)


@pytest.mark.parametrize(
    ("created", "events", "reasons"),
    [
        (None, [], "the cluster gives no reason"),
        (None, None, "the step may not list events"),
        (None, [warning(5, "new"), warning(3, "old")], "FailedCreate: new"),
        (None, [warning(5, "job"), warning(3, "set", "infeed-a1")], "FailedCreate: set; FailedCreate: job"),
        ("2026-11-27T17:10:04Z", [warning(3, "of an earlier attempt")], "the cluster gives no reason"),
        ("2026-11-27T17:10:04Z", [warning(3, "earlier"), warning(4, "of this one")], "FailedCreate: of this one"),
        (None, [warning(5, "timeless", last_timestamp=None)], "the cluster gives no reason"),
    ],
)
def test_the_newest_warning_about_each_object_is_the_reason(
    created: str | None, events: list[Any] | None, reasons: str
) -> None:
    found = {"metadata": {"creationTimestamp": created}} if created else {}
    assert explain(APIS["jobset"], PLACE, found, events).partition("; see: ")[0] == reasons


def test_conditions_that_hold_come_first() -> None:
    conditions = [
        {"type": "Suspended", "status": "True", "message": "jobset is suspended"},
        {"type": "StartupPolicyCompleted", "status": "False", "message": "no"},
    ]
    told = explain(APIS["jobset"], PLACE, {"status": {"conditions": conditions}}, [warning(1, "quota")])
    assert told == (
        "Suspended: jobset is suspended; FailedCreate: quota; "
        "see: kubectl describe --namespace team jobset/infeed-a1 job/infeed-a1-node-0"
    )


def test_the_name_of_a_pod_is_no_news() -> None:
    told = 'FailedCreate: Error creating: pods "infeed-a1-node-0-{}" is forbidden: {}'
    assert not is_news(told.format("0-x7k2p", "quota"), told.format("1-abcde", "quota"))
    assert is_news(told.format("0-x7k2p", "quota"), told.format("0-x7k2p", "PodSecurity"))
    assert is_news(told.format("0-x7k2p", "quota"), "")
