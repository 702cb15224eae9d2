"""Where `infeed ingest` writes: beside OUTPUT, which then appears whole, and in place of nothing but a dataset."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infeed.components.dataset import files, names
from infeed.components.errors import InfeedError
from infeed.components.example_gen.bad_rows import REJECTS

_FILES = {names.MANIFEST, REJECTS, names.UNFINISHED}


def check_output(output: str, overwrite: bool) -> None:
    """Raises InfeedError where OUTPUT holds anything but a dataset, or one that is not to be replaced."""
    if not files.exists(output):
        return
    if not files.is_folder(output):
        raise InfeedError("OUTPUT is a file", where=output, do="choose another: a dataset is a folder")
    inside = files.list_folders(output) + [files.name(file.path) for file in files.list_files(output)]
    strangers = [name for name in inside if name not in _FILES and not name.startswith(names.SPLIT_FOLDER)]
    if strangers:
        do = "choose another OUTPUT; --overwrite replaces datasets, and nothing else"
        raise InfeedError(f"{min(strangers)!r} lies there, which is no part of a dataset", where=output, do=do)
    if inside and not overwrite:
        raise InfeedError("there is something already", where=output, do="choose another OUTPUT, or give --overwrite")


@contextmanager
def unfinished(output: str) -> Iterator[str]:
    """Yields where to write until all is done: on a store, OUTPUT, which is unfinished until it has its manifest.

    A local OUTPUT is written beside, under a hidden name, and renamed in the end.

    Raises:
      InfeedError: another process is writing there, or it is not allowed.
    """
    if not files.is_local(output):
        yield output
        return
    path = Path(output).resolve()  # a link stays, and leads to the new dataset
    folder = path.with_name(f".{path.name}.unfinished")
    with _alone(folder, output):
        try:
            yield str(folder)
            files.replace_folder(str(folder), str(path))
        finally:
            files.remove(str(folder))


@contextmanager
def _alone(folder: Path, output: str) -> Iterator[None]:
    """Makes the folder and locks it until the end of this process, however that comes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        do = "choose another OUTPUT, or change the permissions"
        raise InfeedError(f"cannot write there: {error.strerror}", where=output, do=do) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        do = "wait for it, or choose another OUTPUT"
        raise InfeedError("another process is writing there", where=output, do=do) from error
    finally:
        os.close(handle)
