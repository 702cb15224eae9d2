"""Beam's options of a compiled pipeline, and checks for combinations that are known to fail.

    deploy:
      beam_pipeline_args: [--runner=FlinkRunner, --flink_master=flink:8081, --environment_type=EXTERNAL]

Without a runner, each step runs Beam in its own container.
"""

from __future__ import annotations

from collections.abc import Sequence

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import BEAM_RUNNERS, Named

OPTION = "deploy.beam_pipeline_args"
DATAFLOW = BEAM_RUNNERS["dataflow"]
_IMAGE = "--sdk_container_image="
# Options without which a runner cannot reach its service: one of each group.
_NEEDED = {
    DATAFLOW: (("--project",), ("--region",), ("--temp_location",)),
    BEAM_RUNNERS["flink"]: (("--job_endpoint", "--flink_master"),),
    BEAM_RUNNERS["spark"]: (("--job_endpoint", "--spark_rest_url", "--spark_master_url"),),
}


def cluster_runner(options: Sequence[str]) -> str:
    """Return the cluster's runner that Beam's options name, such as FlinkRunner. Empty if they name none."""
    named = Named.of(options)
    return named.short_name if named.is_cluster else ""


def with_image(options: Sequence[str], image: str) -> list[str]:
    """Return Beam's options, with `image` for the workers of a cluster unless the options name an image."""
    is_given = any(option.startswith(_IMAGE) for option in options)
    added = [f"{_IMAGE}{image}"] if cluster_runner(options) and not is_given else []
    return [*options, *added]


def check_options(options: Sequence[str]) -> None:
    """Raise InfeedError if Beam's options name a cluster's runner without the address of its service."""
    runner = cluster_runner(options)
    names = {option.partition("=")[0] for option in options}
    for group in _NEEDED.get(runner, ()):
        if names.isdisjoint(group):
            what = f"{runner} has no {group[0]}"
            raise InfeedError(what, do=f"add {' or '.join(f'{name}=VALUE' for name in group)}")


def check_places(runner: str, root: str, data: str = "gs://") -> None:
    """Raise InfeedError if workers of a runner cannot use the places of the pipeline.

    Workers write artifacts with TensorFlow, which opens gs:// and local files. They have no access to a pod's disk.
    """
    if not root.startswith("gs://"):
        what = f"workers of {runner} cannot write what TensorFlow saves to {root}"
        do = "use a folder on gs://, or leave the runner out: each step then runs in its own container"
        raise InfeedError(what, where="deploy.root", do=do)
    if runner == DATAFLOW and not data.startswith("gs://"):
        what = f"workers of Dataflow cannot read {data}: they see no local files, and no credentials of the steps"
        raise InfeedError(what, where="deploy.data", do="use a place on gs://")
