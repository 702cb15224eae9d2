"""Explanations of missing machines: the training job is suspended, or Kubernetes rejects its pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from infeed.components.kubeflow.training_job import NODE, Api, Place

_POD = re.compile(r'pods "[^"]*"')


def job_names(place: Place) -> tuple[str, ...]:
    """Return the names of the objects that create pods: the JobSet or TrainJob, and the Job of the machines."""
    return place.name, f"{place.name}-{NODE}-0"


def explain(api: Api, place: Place, found: Mapping[str, Any], events: Iterable[Any] | None) -> str:
    """Return why machines are missing, and a command that shows details.

    `found` is the job object. `events` are the warnings about `job_names`, or None if the step may not list events.
    """
    conditions = (one for one in found.get("status", {}).get("conditions", ()) if one["status"] == "True")
    reasons = [f"{one['type']}: {one.get('message', '')}" for one in conditions]
    if events is None:
        reasons.append("the step may not list events")
    else:
        reasons += _newest(events, found.get("metadata", {}).get("creationTimestamp"))
    return f"{'; '.join(reasons) or 'the cluster gives no reason'}; see: {_describe(api, place)}"


def is_news(why: str, before: str) -> bool:
    """Report whether two explanations differ in more than the pod name, which changes with each pod."""
    return _POD.sub("", why) != _POD.sub("", before)


def _newest(events: Iterable[Any], created: str | None) -> list[str]:
    """Return the newest warning about each object. Older warnings may be about an earlier attempt."""
    begin = datetime.fromisoformat(created.replace("Z", "+00:00")) if created else None
    newest: dict[str, str] = {}
    for event in sorted((each for each in events if _time(each)), key=_time):
        if begin is None or _time(event) >= begin:
            newest[event.involved_object.name] = f"{event.reason}: {event.message}"
    return list(newest.values())


def _time(event: Any) -> Any:
    return event.last_timestamp or event.event_time


def _describe(api: Api, place: Place) -> str:
    job_set, job = job_names(place)
    objects = " ".join(f"{kind}/{job_set}" for kind in dict.fromkeys((api.kind.lower(), "jobset")))
    return f"kubectl describe --namespace {place.namespace} {objects} job/{job}"
