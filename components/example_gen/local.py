"""The function `infeed.ingest`: choose an engine, run the ingest, and make the output visible atomically.

The output is written to a hidden folder next to its final place and may replace only a dataset. The two folders are
exchanged atomically if the file system supports that, and otherwise by three renames. If the process is killed
between the renames, the old folder has a hidden name, and `mend` restores it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.base.locks import alone
from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import DEFAULT_SHARES, Buckets
from infeed.components.dataset.store_lock import alone_on_store
from infeed.components.engine.choice import Work, choose
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.formats import guess_format, open_data, open_source
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.planning import settled

_WAIT = "wait for it, or choose another OUTPUT"
_HERE = -100  # AT_FDCWD: resolve relative paths as usual
_EXCHANGE = 2  # RENAME_EXCHANGE
_LOCK = ".ingest.lock"  # lock object of a dataset on an object store


def ingest(
    source: Any,
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    splits: Mapping[str, int] | None = None,
    options: IngestOptions | None = None,
    workers: int | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write files, or data with an Arrow interface, as sharded TFRecords, like the command `infeed ingest`.

    Args:
      source: path of a file or folder, a glob pattern, or data of this process: a data frame or table of any library
          with an Arrow interface, a pyarrow.dataset.Dataset, or an iterator of dicts or record batches. One process
          reads such data.
      output: folder of the dataset. It becomes visible when complete.
      format: format of the files. Inferred from their names by default.
      source_options: options of the format, by name. For data of this process, those of `ReaderOptions`.
      splits: names and shares of the splits. Defaults to {"train": 2, "eval": 1}.
      options: how records are written.
      workers: number of processes. Chosen from the size of the input by default.
      overwrite: whether to replace a dataset at `output`.

    Returns:
      The manifest of the dataset.

    Raises:
      InfeedError: an option, the source, or a row is invalid, or `output` exists.
    """
    _check_kind("splits", splits, Mapping, 'use names and shares, such as {"train": 2, "eval": 1}')
    _check_kind("source_options", source_options, Mapping, 'use names and values, such as {"delimiter": ";"}')
    _check_kind("options", options, IngestOptions, "give IngestOptions(...)")
    _check_kind("workers", workers, int, "use a number of processes, or leave it out")
    if workers is not None and workers < 1:
        raise InfeedError(f"workers is {workers}", where="infeed.ingest, workers", do="use 1 or more, or leave it out")
    into = files.path_text(output, "infeed.ingest, output")
    options, buckets = options or IngestOptions(), Buckets(tuple((splits or DEFAULT_SHARES).items()))
    check_output(into, overwrite)  # before the source is opened, which may read all of it
    if isinstance(source, str | os.PathLike):
        place, given = os.fspath(source), source_options or {}
        opened = open_source(place, format or guess_format(place), options, given, "source_options", sampled=True)
    elif format is None:
        opened = open_data(source, options, source_options or {}, "source_options")
    else:
        what = f"format is {format!r}, but source is not a path"
        raise InfeedError(what, where="infeed.ingest, format", do="leave it out, or use a path as source")
    with unfinished(into, overwrite) as root, choose(work_of(opened), processes=workers) as engine:

        def attempt(source: OpenedSource) -> Manifest:
            job = steps.Job.of(source, root=root, splits=buckets.names, buckets=buckets, options=options)
            return steps.ingest(source.tasks, job, map_fn=engine.map)

        return settled(opened, attempt)


def work_of(opened: OpenedSource) -> Work:
    """Describe the tasks of a source, for the choice of an engine."""
    return Work("reads", len(opened.tasks), opened.provenance.bytes, machine.INGEST_BYTES, noun="task")


def _check_kind(argument: str, given: object, kind: type, do: str) -> None:
    if not (given is None or isinstance(given, kind)):
        raise InfeedError(f"{argument} is {given!r}", where=f"infeed.ingest, {argument}", do=do)


def check_output(output: str, overwrite: bool) -> None:
    """Raise InfeedError if OUTPUT is not a dataset, or is a dataset that must not be replaced."""
    if not files.exists(output):
        return
    if not files.is_folder(output):
        raise InfeedError("OUTPUT is a file", where=output, do="choose a folder")
    inside = {*files.list_folders(output), *(files.name(file.path) for file in files.list_files(output))} - {_LOCK}
    strangers = [
        name
        for name in inside - {names.MANIFEST, names.REJECTS, names.UNFINISHED}
        if not (name.startswith(names.SPLIT_FOLDER) or names.is_statistics(name))
    ]
    if strangers:
        what = f"the folder contains {min(strangers)!r}, which is not part of a dataset"
        raise InfeedError(what, where=output, do="choose another OUTPUT. --overwrite replaces only datasets")
    if inside and not overwrite:
        do = "choose another OUTPUT, or use --overwrite (infeed.ingest: overwrite=True)"
        raise InfeedError("OUTPUT exists", where=output, do=do)


@contextmanager
def unfinished(output: str, overwrite: bool) -> Iterator[str]:
    """Yield the folder to write to. It becomes OUTPUT when the body succeeds.

    A local OUTPUT is written under a hidden name next to it. On a store, the folder is OUTPUT itself, unfinished until
    it has a manifest. A lock keeps other processes from writing to the same OUTPUT.

    Raises:
      InfeedError: another process is writing to OUTPUT, OUTPUT exists, or permission is denied.
    """
    with writing_to(output), replacing(output, overwrite) as folder:
        yield folder


@contextmanager
def writing_to(output: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of OUTPUT, after repairing the leftovers of a killed run.

    If another process holds it, wait for it, or raise InfeedError.
    """
    if not files.is_local(output):
        try:
            with alone_on_store(files.join(output, _LOCK), where=output, do=_WAIT, wait=wait):
                yield
        finally:
            with files.logged_failures(output):
                files.remove_if_empty(output)
        return
    path = _place_of(output)
    with _os_errors(output):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file has the place of a folder above, which "File exists" would not say
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from error
    lock = path.with_name(f".{path.name}.lock")
    with alone(lock, doing="another process is writing there", where=output, do=_WAIT, wait=wait):
        mend(str(path))
        yield


@contextmanager
def replacing(output: str, overwrite: bool) -> Iterator[str]:
    """Yield the folder to write to; see `unfinished`. The caller holds the lock."""
    check_output(output, overwrite)
    if not files.is_local(output):
        yield output
        return
    folder = _unfinished_of(output)
    with files.temporary(str(folder)):
        folder.mkdir(exist_ok=True)
        yield str(folder)
        check_output(output, overwrite)  # a program that ignores the lock may have written there
        with _os_errors(output):
            put_folder(str(folder), str(_place_of(output)))


def _place_of(output: str) -> Path:
    return Path(os.path.realpath(output))  # keep a symbolic link, and replace its target


def _unfinished_of(output: str) -> Path:
    path = _place_of(output)
    return path.with_name(f".{path.name}.unfinished")


def clean(output: str) -> list[str]:
    """Remove temporary files and incomplete shards that killed processes left at OUTPUT, and return their paths.

    A complete dataset is kept. Raises InfeedError if another process writes to OUTPUT, or OUTPUT is not a dataset.
    """
    check_output(output, overwrite=True)
    left = list[str]()
    if files.is_local(output) and not _place_of(output).parent.is_dir():
        return left
    with writing_to(output):
        # A rename makes a local dataset visible as a whole. On a store, its shards are visible before its manifest.
        if files.is_local(output):
            left = [str(folder)] if (folder := _unfinished_of(output)).exists() else []
        else:
            whole = files.exists(files.join(output, names.MANIFEST))
            left = [
                files.join(output, name)
                for name in files.list_folders(output)
                if name == names.UNFINISHED or (not whole and name.startswith(names.SPLIT_FOLDER))
            ]
        for path in left:
            files.remove(path)
    return left


@contextmanager
def _os_errors(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        do = "choose another OUTPUT, or change its permissions"
        raise InfeedError(f"cannot write: {error.strerror}", where=output, do=do) from error


def put_folder(source: str, target: str) -> None:
    """Rename a folder, replacing the target atomically if the file system can. The old target is removed afterwards.

    The folder is flushed to disk before the rename, and its new name before the removal of the old target. A power
    loss thus leaves one of the two intact. If the folder cannot be renamed, OSError is raised, and the target is
    unchanged.
    """
    # Without the flush, a power loss could leave the new name with empty files.
    files.sync(source)
    if not os.path.lexists(target):
        os.rename(source, target)
    else:
        try:
            _exchange(source, target)
        except OSError:  # the kernel or the file system does not support it, so three renames swap the folders
            # A process that dies between these renames leaves the old folder at `between`, which `mend` restores.
            between = _backup_path(target)
            os.rename(target, between)
            try:
                os.rename(source, target)
            except OSError:
                os.rename(between, target)
                raise
            os.rename(between, source)
    files.sync_names(os.path.dirname(os.path.abspath(target)))
    files.remove(source)


def mend(target: str) -> None:
    """Restore a folder after a process was killed between two renames. The caller must hold the lock."""
    between = _backup_path(target)
    if os.path.lexists(between):
        if os.path.lexists(target):
            files.remove(between)
        else:
            os.rename(between, target)


def _exchange(one: str, other: str) -> None:
    """Swap two paths atomically."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # glibc older than 2.28
        raise OSError("no renameat2")
    if library.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


def _backup_path(target: str) -> str:
    folder, last = os.path.split(os.path.abspath(target))
    return os.path.join(folder, f".{last}.replaced")
