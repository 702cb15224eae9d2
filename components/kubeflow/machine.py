"""Entry point of a machine of a training job: does the work of Kubeflow's launcher for its step.

    python -m infeed.components.kubeflow.machine --executor_class_path NAME --json_serialized_invocation_args MESSAGE

The launcher downloads inputs to the disk of the step's pod, which other machines cannot access. So each machine
downloads the inputs, and the chief uploads the outputs.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow import message, step
from infeed.components.kubeflow.message import artifacts
from infeed.components.kubeflow.training_job import INDEX

_STARTS = 3600.0  # seconds until the names of all machines resolve: the cluster may have to add nodes
_LOOK = 2.0
_PLACE_OF_MODEL = "Format-Serving"  # tfx.utils.path_utils
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Download the inputs, run TFX's entry point, and upload the outputs from the chief.

    Raise InfeedError if another machine does not start, and OSError if a store failed.
    """
    received, place = message.read(arguments)
    uris = step.path_map(arguments, received)
    for artifact in artifacts(received, "inputs"):
        path = uris.paths.get(artifact["uri"])
        if path and files.exists(artifact["uri"]):
            _log.info("downloading %s", artifact["uri"])
            files.copy(artifact["uri"], path)
    outputs = {one["uri"]: uris.paths[one["uri"]] for one in artifacts(received, "outputs") if one["uri"] in uris.paths}
    is_chief = os.environ.get(INDEX, "0") == "0"
    # Only the chief exports a model, but TFX's executor raises if the model's folder is missing on any machine.
    for path in outputs.values() if not is_chief else ():
        os.makedirs(os.path.join(path, _PLACE_OF_MODEL), exist_ok=True)
    wait_for_names(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        # The waiting step writes Kubeflow's output file, so TFX's output of this machine goes to a temporary file.
        received["outputs"]["outputFile"] = os.path.join(scratch, "output.json")
        step.main([*arguments[:place], json.dumps(received), *arguments[place + 1 :]])
    for uri, path in outputs.items() if is_chief else ():
        _log.info("uploading %s", uri)
        files.copy(path, uri)


def wait_for_names(environ: Mapping[str, str]) -> None:
    """Wait until the names of all machines in TF_CONFIG resolve. Raise InfeedError if one does not within an hour.

    Kubernetes names a pod once it is scheduled.
    """
    until = time.monotonic() + _STARTS
    for address in json.loads(environ["TF_CONFIG"])["cluster"]["worker"]:
        host, _, port = address.rpartition(":")
        while True:
            with suppress(socket.gaierror):
                if socket.getaddrinfo(host, int(port)):
                    break
            if time.monotonic() > until:
                do = "check with kubectl that all pods of the job run"
                raise InfeedError(f"the machine {host} did not start", where="TF_CONFIG", do=do)
            time.sleep(_LOOK)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(sys.argv[1:])
