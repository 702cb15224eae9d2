"""Output folders of the steps, and the serving folder of pushed models.

A local folder appears under its name once all files in it are complete.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.evaluation.predictor import model_folder
from infeed.components.example_gen.local import put_folder

BLESSED, NOT_BLESSED = "BLESSED", "NOT_BLESSED"  # files of an evaluation, as TFX names them
_LAST = "saved_model.pb"  # servers ignore a folder without this file
_DEPTH = 100  # folders below a SavedModel


def check_new(folder: str, overwrite: bool) -> None:
    """Raise InfeedError if `folder` is not empty and `overwrite` is false."""
    if not overwrite and files.exists(folder) and (not files.is_folder(folder) or files.list_files(folder, depth=1)):
        raise InfeedError("there is something already", where=folder, do="choose another output, or give --overwrite")


@contextmanager
def new_folder(folder: str, overwrite: bool) -> Iterator[str]:
    """Yield the path to write to: a hidden folder that becomes `folder` at the end, or `folder` itself in a store.

    Raises InfeedError if `folder` is not empty and `overwrite` is false.
    """
    check_new(folder, overwrite)
    if not files.is_local(folder):
        yield folder
        return
    final = os.path.realpath(folder)
    unfinished = os.path.join(os.path.dirname(final), f".{os.path.basename(final)}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        yield unfinished
        if os.path.isdir(unfinished):  # workers other than the chief write nothing
            put_folder(unfinished, final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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
