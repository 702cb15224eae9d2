"""Archive of the user's project. A step unpacks it before it uses the files.

Only these steps name the archive, so a changed file does not invalidate the cache of the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine.beam_runner import Named
from infeed.components.engine.project_archive import MOST_BYTES, OPTION, SUFFIX, VARIABLE, digest, pack
from infeed.pipelines.cluster.job.compiled import IN_PLACE, STEP, Task
from infeed.pipelines.cluster.job.project import archive_beside
from infeed.pipelines.project.own_files import check_size, ignoring, names_of

_TRAINING = "ai_platform_training_args"  # key in the custom_config of a Trainer that starts a custom job


def ship(tasks: Iterable[Task], folder: Path, exclude: Sequence[str], *, root: str, job_file: str) -> None:
    """Write the archive of a project beside the job file, and set its URI in the steps that use it.

    The URI is in the folder `project` below `root`, the folder of everything that the pipeline writes; `infeed submit`
    uploads the archive. Raises InfeedError if the project is too large, or Beam's workers on a cluster need its files.
    """
    ignored = ignoring((*exclude, Path(job_file).name, archive_beside("*").name))
    check_size(folder, ignored, MOST_BYTES, "exclude it: deploy.exclude: [{}], or keep data outside the folder")
    archive = pack(folder, names_of(folder, ignored))
    place = files.join(root, "project", f"{digest(archive)}{SUFFIX}")
    for task in tasks:
        _name(place, task)
    files.write_bytes(str(archive_beside(job_file)), archive)


def _name(place: str, task: Task) -> None:
    container, variable = task.container, {"name": VARIABLE, "value": place}
    assert container is not None, "only a container runs the user's code"
    runner = Named.of([str(one) for one in container.get("args", ())])
    if runner.is_cluster:
        what = f"workers of {runner.short_name} run the project's code in {task.name}, and do not fetch its archive"
        do = "set deploy.project: image, so that the image of the workers holds the project"
        raise InfeedError(what, where="deploy.project", do=do)
    container["env"] = [*container.get("env", ()), variable]
    container["args"] = [*container.get("args", ()), f"{OPTION}{place}"]
    if tuple(container["command"][: len(STEP)]) != STEP:  # TFX's own entry point, on Vertex AI
        container["command"] = [*STEP, IN_PLACE]
    # TFX starts the machines of a custom job from the step's parameters.
    value = task.spec.get("inputs", {}).get("parameters", {}).get("custom_config", {}).get("runtimeValue", {})
    config = json.loads(value["constant"]) if _TRAINING in str(value.get("constant")) else {}
    for pool in config.get(_TRAINING, {}).get("job_spec", {}).get("worker_pool_specs", ()):
        pool["container_spec"]["env"] = [*pool["container_spec"].get("env", ()), variable]
    if config:
        value["constant"] = json.dumps(config, sort_keys=True)
