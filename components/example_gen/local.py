"""`infeed.ingest`, and what it needs beside the steps of `ingest`: an engine, and an OUTPUT that appears whole.

OUTPUT is written beside, and takes the place of nothing but a dataset: in one step where the file system can exchange
two names, elsewhere by three renames. A process that is killed between them leaves the old folder under a hidden name,
from which `mend` puts it back.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.dataset.store_lock import alone_on_store
from infeed.components.engine.choice import Work, choose
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.formats import guess_format, open_source
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.settling import settled
from infeed.components.locks import alone

DEFAULT_SPLITS = {"train": 2, "eval": 1}
BYTES_PER_PROCESS = 32 << 20  # of input: about 1.7 s of reading and writing CSV, where a process takes 0.8 s to start
_WAIT = "wait for it, or choose another OUTPUT"
_HERE = -100  # AT_FDCWD: paths are as usual
_EXCHANGE = 2  # RENAME_EXCHANGE
_LOCK = ".ingest.lock"  # of a dataset on an object store
_FILES = {names.MANIFEST, names.REJECTS, names.UNFINISHED}


def ingest(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    splits: Mapping[str, int] | None = None,
    options: IngestOptions | None = None,
    workers: int | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Writes a folder, a file or a pattern as sharded TFRecords, as the command `infeed ingest` does.

    Args:
      source: what to read.
      output: folder of the dataset; it appears whole.
      format: of the source; by default the names of its files decide.
      source_options: those of the format, by name.
      splits: their names and shares; {"train": 2, "eval": 1} by default.
      options: how records are written.
      workers: processes; by default as many as pay.
      overwrite: whether to replace the dataset at `output`.

    Returns:
      What the dataset holds.

    Raises:
      InfeedError: an option, the source or its rows, or there is something at `output` already.
    """
    _check_kind("splits", splits, Mapping, 'give names and shares, such as {"train": 2, "eval": 1}')
    _check_kind("source_options", source_options, Mapping, 'give names and values, such as {"delimiter": ";"}')
    _check_kind("options", options, IngestOptions, "give IngestOptions(...)")
    _check_kind("workers", workers, int, "give a number of processes, or leave it out")
    if workers is not None and workers < 1:
        raise InfeedError(f"workers is {workers}", where="infeed.ingest, workers", do="give 1 or more, or leave it out")
    place, into = files.path_text(source, "infeed.ingest, source"), files.path_text(output, "infeed.ingest, output")
    options, buckets = options or IngestOptions(), Buckets(tuple((splits or DEFAULT_SPLITS).items()))
    check_output(into, overwrite)
    kind = format or guess_format(place)
    opened = open_source(place, kind, options, source_options or {}, "source_options", sampled=True)
    with unfinished(into, overwrite) as root, choose(work_of(opened), processes=workers) as engine:

        def attempt(source: OpenedSource) -> Manifest:
            job = steps.Job.of(source, root=root, splits=buckets.names, buckets=buckets, options=options)
            return steps.ingest(source.tasks, job, map_fn=engine.map)

        return settled(opened, attempt)


def work_of(opened: OpenedSource) -> Work:
    """What an engine for the tasks of a source is chosen for."""
    return Work("reads", len(opened.tasks), opened.provenance.bytes, BYTES_PER_PROCESS, noun="task")


def _check_kind(argument: str, given: object, kind: type, do: str) -> None:
    if not (given is None or isinstance(given, kind)):
        raise InfeedError(f"{argument} is {given!r}", where=f"infeed.ingest, {argument}", do=do)


def check_output(output: str, overwrite: bool) -> None:
    """Raises InfeedError where OUTPUT holds anything but a dataset, or one that is not to be replaced."""
    if not files.exists(output):
        return
    if not files.is_folder(output):
        raise InfeedError("OUTPUT is a file", where=output, do="choose another: a dataset is a folder")
    inside = files.list_folders(output) + [files.name(file.path) for file in files.list_files(output)]
    inside = [name for name in inside if name != _LOCK]
    strangers = [name for name in inside if not _is_ours(name)]
    if strangers:
        do = "choose another OUTPUT; --overwrite replaces datasets, and nothing else"
        raise InfeedError(f"{min(strangers)!r} lies there, which is no part of a dataset", where=output, do=do)
    if inside and not overwrite:
        do = "choose another OUTPUT, or give --overwrite (of infeed.ingest overwrite=True)"
        raise InfeedError("there is something already", where=output, do=do)


def _is_ours(name: str) -> bool:
    return name in _FILES or name.startswith(names.SPLIT_FOLDER) or names.is_statistics(name)


@contextmanager
def unfinished(output: str, overwrite: bool) -> Iterator[str]:
    """Yields where to write until all is done: on a store, OUTPUT, which is unfinished until it has its manifest.

    A local OUTPUT is written beside, under a hidden name, and takes its place in the end. From the check of what lies
    there to the end nobody else writes to the same OUTPUT.

    Raises:
      InfeedError: another process is writing there, something is there already, or it is not allowed.
    """
    if not files.is_local(output):
        with alone_on_store(files.join(output, _LOCK), where=output, do=_WAIT):
            check_output(output, overwrite)
            yield output
        return
    with _locked(output) as (path, folder):
        check_output(output, overwrite)
        folder.mkdir(exist_ok=True)
        try:
            yield str(folder)
            check_output(output, overwrite)  # who takes no lock may have written there
            with _told(output):
                put_folder(str(folder), str(path))
        finally:
            files.remove(str(folder))


@contextmanager
def _locked(output: str) -> Iterator[tuple[Path, Path]]:
    """(OUTPUT, the folder in which it is written), where what a killed process left at OUTPUT is set right."""
    path = Path(os.path.realpath(output))  # a link stays, and leads to the new dataset
    with _told(output):
        _make_folder(path.parent)
    lock = path.with_name(f".{path.name}.lock")
    with alone(lock, doing="another process is writing there", where=output, do=_WAIT):
        mend(str(path))
        yield path, path.with_name(f".{path.name}.unfinished")


def clean(output: str) -> list[str]:
    """Remove what processes that were killed have left of OUTPUT: temporary files, and shards without a manifest.

    Returns:
      What was removed. A whole dataset stays.

    Raises:
      InfeedError: another process is writing there, or something else than a dataset lies there.
    """
    check_output(output, overwrite=True)
    removed, left = steps.remove_left_scratch(), list[str]()
    if not files.is_local(output):
        with alone_on_store(files.join(output, _LOCK), where=output, do=_WAIT):
            left = _left_in(output)
            _remove(left)
    elif os.path.isdir(os.path.dirname(os.path.realpath(output))):
        with _locked(output) as (_, folder):
            left = [str(folder)] if folder.exists() else []
            _remove(left)
    return removed + left


def _left_in(output: str) -> list[str]:
    whole = files.exists(files.join(output, names.MANIFEST))
    folders = files.list_folders(output)
    parts = [
        name for name in folders if name == names.UNFINISHED or (not whole and name.startswith(names.SPLIT_FOLDER))
    ]
    return [files.join(output, name) for name in parts]


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        files.remove(path)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


@contextmanager
def _told(output: str) -> Iterator[None]:
    """What the system does not allow, as an InfeedError."""
    try:
        yield
    except OSError as error:
        do = "choose another OUTPUT, or change the permissions"
        raise InfeedError(f"cannot write there: {error.strerror}", where=output, do=do) from error


def put_folder(source: str, target: str) -> None:
    """Gives a folder another name. What had it is removed afterwards, and is under one of the two names until then.

    Raises:
      OSError: it cannot be done; whatever had the name still has it.
    """
    if not os.path.lexists(target):
        os.rename(source, target)
        return
    try:
        _exchange(source, target)
    except OSError:  # of a kernel or a file system that cannot
        _exchange_by_renames(source, target)
    files.remove(source)


def mend(target: str) -> None:
    """Sets right what a process left that was killed between two renames; nobody else may be at it."""
    between = _between(target)
    if os.path.lexists(between):
        if os.path.lexists(target):
            files.remove(between)
        else:
            os.rename(between, target)


def _exchange(one: str, other: str) -> None:
    """Both names change hands at once; nobody ever sees one of them missing."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # glibc has it since 2.28
        raise OSError("no renameat2")
    if library.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


def _exchange_by_renames(one: str, other: str) -> None:
    between = _between(other)
    os.rename(other, between)
    try:
        os.rename(one, other)
    except OSError:
        os.rename(between, other)
        raise
    os.rename(between, one)


def _between(target: str) -> str:
    folder, last = os.path.split(os.path.abspath(target))
    return os.path.join(folder, f".{last}.replaced")
