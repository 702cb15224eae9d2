"""Output folders of the steps. A local folder appears under its name once all files in it are complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.example_gen.local import put_folder


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
