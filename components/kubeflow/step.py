"""Entry point of a step on Kubeflow Pipelines: run TFX's executor on the files that the launcher downloads and uploads.

    python -m infeed.components.kubeflow.step [--in-place] [--job JSON] --executor_class_path NAME
        --json_serialized_invocation_args '{{$}}' ...

TFX's own entry point opens the URIs of artifacts. TensorFlow cannot open `s3://` and `minio://`, and would read
`gs://` files twice. This entry point gives TFX the launcher's local paths, and restores the URIs in the output, so
that no local path reaches the metadata. TFX's own nodes work too. With `--job`, the step runs as a separate job in the
cluster, and this process only follows the job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from infeed.components.base import schema
from infeed.components.dataset import files
from infeed.components.engine import project_archive
from infeed.components.engine.beam_runner import Named
from infeed.components.kubeflow import cluster_job, compiled_with, disk, message, ui
from infeed.components.kubeflow.message import PathMap, artifacts, unpack
from infeed.components.kubeflow.training_job import TrainingJob, job_object

_TFX = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Run TFX's entry point with local paths, in the project's folder, in this pod or as a job.

    With `--in-place`, for platforms without a launcher, artifacts keep their URIs. They also do if a Beam option names
    a cluster runner, because its workers cannot access the pod's disk. `--in-place` or `--job` comes first.
    """
    arguments = [word for word in arguments if not word.startswith(project_archive.OPTION)]
    if arguments[0] == "--job":
        _run_job(json.loads(arguments[1]), arguments[2:])
        return
    from infeed.components.kubeflow import tfx_filesystem
    from infeed.components.seams import tfx as tfx_seam

    compiled_with.warn()
    tfx_filesystem.register()
    tfx_seam.read_values()
    project_archive.enter()
    in_place = arguments[0] == "--in-place"
    arguments = arguments[int(in_place) :]
    received, place = message.read(arguments)
    uris = PathMap({}) if in_place else path_map(arguments, received)
    _make_room(received, uris)
    inputs = [uris.paths[one["uri"]] for one in artifacts(received, "inputs") if one["uri"] in uris.paths]
    disk.check_inputs(inputs, disk.limit_of(), direct=disk.READING_VARIABLE not in os.environ)
    uris = disk.replaced(uris, received, arguments[arguments.index("--executor_class_path") + 1])
    # The compiler compresses parameters that exceed the limit of one argument.
    if values := received["inputs"].get("parameterValues"):
        received["inputs"]["parameterValues"] = {name: unpack(value) for name, value in values.items()}
    of_tfx, shown = ui.split(uris.to_local(received))
    # As `python -m` runs TFX's entry point, which ends with SystemExit.
    sys.argv = [_TFX, *arguments[:place], json.dumps(of_tfx), *arguments[place + 1 :]]
    try:
        runpy.run_module(_TFX, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    given = [of_tfx[kind].get("artifacts", {}) for kind in ("inputs", "outputs")]
    # TFX writes the output file last, so artifacts for the user interface can only be added after it.
    first = {name: found["artifacts"][0]["uri"] for kind in given for name, found in kind.items() if found["artifacts"]}
    pages, path = ui.fill(shown, first), received["outputs"]["outputFile"]
    output = json.loads(files.read_bytes(path))
    whole = {**output, "artifacts": {**output.get("artifacts", {}), **pages}}
    # The launcher uploads by the URIs in the ExecutorOutput.
    files.write_bytes(path, message.accepted(uris.to_uris(whole)).encode())


def path_map(arguments: Sequence[str], received: Any) -> PathMap:
    """Return the local paths of the artifacts. Empty if a Beam option names a cluster runner."""
    if Named.of(arguments).is_cluster:
        return PathMap({})
    return PathMap.of(artifact["uri"] for kind in ("inputs", "outputs") for artifact in artifacts(received, kind))


def _run_job(job: Any, arguments: Sequence[str]) -> None:
    """Run the step as the job `job`. The job's name depends on the outputs, which all attempts share."""
    logging.basicConfig(level=logging.INFO)
    received, _ = message.read(arguments)
    outputs = [artifact["uri"] for artifact in artifacts(received, "outputs")]
    options = schema.read(TrainingJob, job["options"], "deploy.training")
    name = f"infeed-{hashlib.sha256(json.dumps(outputs).encode()).hexdigest()[:12]}"
    command, pod = ["python", "-m", "infeed.components.kubeflow.machine", *arguments], job["pod"]
    if place := os.environ.get(project_archive.VARIABLE):
        pod["spec"]["containers"][0].setdefault("env", []).append({"name": project_archive.VARIABLE, "value": place})
    for path in PathMap.of(outputs).paths.values():  # the launcher uploads these, which stay empty in this pod
        os.makedirs(path, exist_ok=True)
    cluster_job.run(options, name, lambda place: job_object(options, pod, place, command))


def _make_room(received: Any, uris: PathMap) -> None:
    """Create what the launcher omits: later artifacts of an input, and folders of artifacts.

    Values of TFX, such as `tfx.Integer`, are files.
    """
    from tfx.orchestration.kubeflow.v2 import compiler_utils
    from tfx.types.value_artifact import ValueArtifact
    from tfx.utils.import_utils import import_class_by_path

    for artifact in artifacts(received, "inputs", later=True):
        path = uris.paths.get(artifact["uri"])
        if path and not os.path.exists(path):  # the launcher downloads only the first artifact of each input
            _log.info("downloading %s", artifact["uri"])
            disk.download(artifact["uri"], path)
    values = set()
    for artifact in artifacts(received, "outputs"):
        title = message.title_of(artifact.get("type", {}))
        if "." in title and not title.startswith("system."):
            kind = import_class_by_path(compiler_utils.TITLE_TO_CLASS_PATH.get(title, title))
            values |= {artifact["uri"]} if issubclass(kind, ValueArtifact) else set()
    for uri, path in uris.paths.items():
        os.makedirs(os.path.dirname(path) if uri in values or os.path.isfile(path) else path, exist_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
