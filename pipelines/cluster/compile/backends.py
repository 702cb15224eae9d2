"""Settings that older versions of Kubeflow Pipelines' backend ignore or break silently: `infeed compile --kfp VERSION`.

Each rule comes from a real backend or from its source code. docs/kubeflow.md has the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.options import Deploy, Resources

Version = tuple[int, ...]
_RETRIES_OF_ARGO = (2, 17, 0)  # its ConfigMap of Argo sets retryPolicy OnError; 2.16.0 and later commits do not


@dataclass(frozen=True)
class Need:
    """A setting of a node that a backend ignores or breaks before version `since`."""

    setting: str
    is_set: Callable[[Resources], bool]
    since: Version
    before: str  # what an older backend does
    do: str


NEEDS = (
    Need("shared_memory", lambda of: of.shared_memory is not None, (2, 3), "ignores it", "leave it out"),
    Need("pod", lambda of: "affinity" in (of.pod or {}).get("spec", {}), (2, 14), "ignores it", "use node_selector"),
    Need(
        "retries",
        lambda of: bool(of.retries),
        (2, 14),
        "cannot start the step: the name of its pod has capital letters",
        "leave it out",
    ),
    Need(
        "volumes",
        lambda of: any(volume.path for volume in of.volumes or ()),
        (2, 16),
        "mounts the whole volume, without `path`",
        "leave path out, and name the folder in your paths",
    ),
)


def version_of(text: str) -> Version:
    """Parse a version of Kubeflow Pipelines to three numbers: 2.17 is 2.17.0. Raises InfeedError if it is none."""
    if not re.fullmatch(r"\d+(\.\d+){1,2}", text):
        raise InfeedError(f"--kfp is {text!r}", do="give the version of the cluster, such as 2.17.0")
    return tuple(map(int, f"{text}.0".split(".")[:3]))


def check_backend(deploy: Deploy, version: Version) -> str:
    """Return a warning about settings without effect on this version. Empty if all have an effect.

    Raises InfeedError for a setting that this version ignores or breaks.
    """
    for node in deploy.resources:
        resources = deploy.resources_of_step(node)
        for need in NEEDS:
            if need.is_set(resources) and version < need.since:
                shown, least = (".".join(map(str, one)) for one in (version, need.since))
                what = f"Kubeflow Pipelines {shown} {need.before}; {need.setting} needs {least}"
                raise InfeedError(what, where=f"deploy.resources.{node}.{need.setting}", do=need.do)
    retried = any(deploy.resources_of_step(node).retries for node in deploy.resources)
    if retried and version == _RETRIES_OF_ARGO:
        return (
            "retries have no effect on a step that fails: Argo's settings of Kubeflow Pipelines 2.17.0 retry errors of "
            "the cluster alone; remove templateDefaults.retryStrategy from its workflow-controller-configmap"
        )
    return ""
