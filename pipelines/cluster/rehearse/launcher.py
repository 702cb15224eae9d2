"""Emulates Kubeflow's launcher: downloads the inputs of a step from the store, and uploads its outputs.

On a cluster, each step has a pod, whose disk is lost after the step. In a rehearsal, the disk is a folder below the
root, which is removed after the step. `INFEED_LAUNCHER_ROOT` has its path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.kubeflow.message import ROOT_VARIABLE, local_path
from infeed.pipelines.cluster.rehearse.executor_io import Artifact

_DEPTH = 100  # folders below an artifact


@dataclass(frozen=True)
class Pod:
    """Disk of one attempt of a step."""

    folder: str | None = None  # parent of `gcs`, `minio` and `s3`; None if the artifacts are on this machine
    downloads_all: bool = True  # before 2.14, the launcher downloads only the first artifact of each input

    @property
    def environment(self) -> Mapping[str, str]:
        return {ROOT_VARIABLE: self.folder} if self.folder else {}

    def path(self, uri: str) -> str:
        """Return the path of an artifact for the step: a local path if the launcher supports the scheme."""
        return (self.folder and local_path(uri, self.folder)) or uri

    def download(self, inputs: Mapping[str, Sequence[Artifact]]) -> None:
        """Download the artifacts of each input, as the launcher does.

        Raises InfeedError for an artifact that is not in the store.
        """
        for key, found in inputs.items():
            for artifact in found if self.downloads_all else found[:1]:
                path = self.path(artifact.uri)
                if path != artifact.uri:
                    _download(artifact.uri, path, key)

    def upload(self, outputs: Mapping[str, Sequence[Artifact]]) -> None:
        """Upload the outputs that exist. Raises InfeedError if a file is missing in the store afterwards."""
        for key, found in outputs.items():
            for artifact in found:
                path = self.path(artifact.uri)
                if path != artifact.uri and os.path.exists(path):
                    files.copy(path, artifact.uri)
                    _check_complete(path, artifact.uri, key)


@contextmanager
def pod_below(folder: Path | None, *, downloads_all: bool = True) -> Iterator[Pod]:
    """Yield a new pod, and remove its disk afterwards. Without a folder, the steps open the artifacts directly."""
    if folder is None:
        yield Pod()
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield Pod(str(folder), downloads_all)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(uri: str, path: str, key: str) -> None:
    try:
        if files.exists(uri):  # the launcher ignores an artifact without files
            files.copy(uri, path)
    except (InfeedError, OSError) as error:
        why = error.what if isinstance(error, InfeedError) else error
        do = "check the store, and rehearse again"
        raise InfeedError(f"cannot download the input {key!r}: {why}", where=uri, do=do) from error


def _check_complete(path: str, uri: str, key: str) -> None:
    sent, there = _sizes(path), _sizes(uri)
    lost = sorted(name for name, size in sent.items() if there.get(name) != size)
    if lost:
        what = f"the store lost {lost[0]} of the output {key!r}" + (f" and {len(lost) - 1} more" if lost[1:] else "")
        do = "check the store; Kubeflow's launcher does not notice the loss, and the next step fails"
        raise InfeedError(what, where=files.join(uri, lost[0]), do=do)


def _sizes(place: str) -> dict[str, int]:
    """Return the sizes of a file, or of all files below a folder, by their path below `place`."""
    if not files.is_folder(place):
        return {"": files.stat(place).size} if files.exists(place) else {}
    return {files.relative(file.path, place): file.size for file in files.list_files(place, depth=_DEPTH)}
