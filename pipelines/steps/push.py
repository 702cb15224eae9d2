"""Push a model to a serving folder, local or on an object store."""

from __future__ import annotations

import os
import time

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.evaluation.predictor import model_folder

BLESSED, NOT_BLESSED = "BLESSED", "NOT_BLESSED"  # files of an evaluation, as TFX names them
_LAST = "saved_model.pb"  # servers ignore a folder without this file
_DEPTH = 100  # folders below a SavedModel


def is_blessed(evaluation: str) -> bool:
    """Report whether the folder of an evaluation has a blessing. Raises InfeedError if the folder has no evaluation."""
    if files.exists(files.join(evaluation, BLESSED)):
        return True
    if files.exists(files.join(evaluation, NOT_BLESSED)):
        return False
    raise InfeedError("there is no evaluation", where=evaluation, do="give the output of infeed evaluate")


def push(model: str, serving: str) -> str:
    """Copy a model, or the newest of numbered versions, to a new version below `serving`, and return its folder.

    The version number is the time in seconds, as in TFX's Pusher. A local version appears by a rename. In an object
    store, `saved_model.pb` is written last, so that servers ignore an unfinished version.
    """
    source = model_folder(model)
    there = files.list_folders(serving) if files.exists(serving) else []
    # Servers load the highest number, so a version of another clock that is ahead must not win.
    version = str(max(int(time.time()), *(int(name) + 1 for name in there if name.isdigit()), 0))
    target = files.join(serving, version)
    place = target if not files.is_local(serving) else files.join(serving, f".{version}.unfinished")
    inside = [files.relative(file.path, source) for file in files.list_files(source, depth=_DEPTH)]
    for name in sorted(inside, key=lambda name: name == _LAST):
        files.copy(files.join(source, name), files.join(place, name))
    if place != target:
        os.rename(place, target)
    return target
