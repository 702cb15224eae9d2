"""File access for local, gs://, s3:// and hdfs:// paths, based on `pyarrow.fs`.

A path is a `str`: a local path or a URI. Other modules handle paths only with `join` and `name`, so that they work on
any store. Credentials and endpoints come from the usual places of each store's client, including AWS_ENDPOINT_URL_S3,
AWS_ENDPOINT_URL, and STORAGE_EMULATOR_HOST.

An object store has no folders and no rename. An output is first written to a temporary local file and uploaded when
complete. pyarrow cannot abort an upload, so closing a stream early would publish half an object. `rename` copies
within the store and deletes.
"""

from __future__ import annotations

import atexit
import datetime
import errno
import fnmatch
import functools
import logging
import os
import posixpath
import re
import shutil
import stat as stat_module
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.read_errors import RangeReader, StoreFile, failed_reads

_AWS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_ENDPOINTS = {"s3": _AWS, "minio": _AWS, "gs": ("STORAGE_EMULATOR_HOST",)}
_PROTOCOLS = {"s3": "https", "minio": "http", "gs": "http"}  # default protocol of an endpoint
# Kubeflow's store uses the S3 protocol. The address is the default of its launcher since 2.16 (objectstore/config.go).
_KUBEFLOW_STORE = "http://seaweedfs.kubeflow:9000"
_GCS_SECONDS = 120  # of tries of a request to an emulator; Google's client tries for 15 minutes
_ATTEMPTS = 10  # attempts of an S3 request, with growing pauses: throttling lasts up to half a minute
_OBJECT_STORES = {"s3", "gcs", "abfs"}
# Files of Hadoop, Spark, Dask, Windows and macOS that are not data.
_MARKERS = {"_metadata", "_common_metadata", "_temporary", "Thumbs.db", "desktop.ini", "__MACOSX"}
_MARKER_PREFIXES = ("_SUCCESS", "_committed_", "_started_")
_UPLOAD_BYTES = 8 << 20
_COPIES = 8  # files copied in parallel
_DEEPEST = 100  # maximum depth of a copied folder
# User and password, which may contain slashes, before the host. Digits after a colon are a port.
_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/:@\[]*:(?!\d+(?:/|$))\S*@", re.IGNORECASE)
_EITHER = re.compile(r"\{([^{}]*,[^{}]*)\}")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{32}")  # the hidden name of a file that `open_output` writes
_log = logging.getLogger(__name__)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, *_NO_NAME}


@dataclass(frozen=True, order=True)
class FileStat:
    """A regular file: full path, size in bytes, and modification time in nanoseconds since the epoch."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, order=True)
class Irregular:
    """A name that is not a regular file: a dangling link, a pipe, a socket or a device."""

    path: str
    is_link: bool

    @property
    def what(self) -> str:
        if not self.is_link:
            return "this is a pipe, a socket or a device, not a file"
        return f"the link is dangling: it points to {os.readlink(self.path)!r}"


def path_text(path: str | os.PathLike[str], argument: str) -> str:
    """Return a path as text. Raises InfeedError at `argument` (`infeed.load, where`) for other types."""
    if not isinstance(path, str | os.PathLike):
        name = argument.rpartition(" ")[2]
        what = f"{name} is of the type {type(path).__name__}"
        raise InfeedError(what, where=argument, do="use a path, as str or os.PathLike")
    return os.fspath(path)


def join(root: str, *names: str) -> str:
    return posixpath.join(root, *names)


def name(path: str) -> str:
    """Return the last component of a path."""
    return posixpath.basename(path)


def is_hidden(path: str) -> bool:
    """Return whether a name belongs to a tool rather than to the data: `.DS_Store`, `_SUCCESS`, `Thumbs.db`."""
    return name(path) in _MARKERS or name(path).startswith((".", *_MARKER_PREFIXES))


def exists(path: str) -> bool:
    return bool(_info(path).type != fs.FileType.NotFound)


def is_folder(path: str) -> bool:
    return bool(_info(path).type == fs.FileType.Directory)


def stat(path: str) -> FileStat:
    """Return the stat of a regular file. Raises FileNotFoundError if it is not one."""
    info = _info(path)
    if info.type != fs.FileType.File:
        raise FileNotFoundError(path)
    return _stat_of(path, info)


def version(file: FileStat) -> str:
    """Return a text that changes when the file changes. For local files, it includes the inode and the change time."""
    system, inner = store_of(file.path)
    if not _is_local(system):
        return f"{file.size} {file.mtime_ns}"
    found = os.stat(inner)
    return f"{file.size} {file.mtime_ns} {found.st_ctime_ns} {found.st_ino}"


@contextmanager
def unchanged(file: FileStat) -> Iterator[None]:
    """Raise InfeedError if a file changes or vanishes during the body. It replaces any error of the body."""
    _check_unchanged(file)
    try:
        yield
    except Exception as error:  # a change of the file explains any error of its reader
        _check_unchanged(file, error)
        raise
    _check_unchanged(file)


def _check_unchanged(file: FileStat, error: Exception | None = None) -> None:
    now = _info(file.path)
    if now.type != fs.FileType.File:
        what = "the file was removed during the run, or is not visible from this machine"
        do = "keep the file in a place that all workers can read, such as an object store or a network disk"
    elif (now.size, now.mtime_ns or 0) != (file.size, file.mtime_ns):
        what = f"the file changed during the run: from {file.size:,} to {now.size:,} bytes"
        do = "wait until the file is complete, or read a copy, and run again"
    else:
        return
    raise InfeedError(what, where=file.path, do=do) from error


def list_files(folder: str, *, depth: int = 0) -> list[FileStat]:
    """Return regular files in `folder` and up to `depth` levels below, sorted by path. Empty if it does not exist."""
    return sorted(_walk(folder, depth))


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders directly in `folder`, sorted."""
    return sorted(info.base_name for info in _children(folder) if info.type == fs.FileType.Directory)


def glob(root: str, pattern: str) -> list[FileStat]:
    """Return the visible regular files under `root` whose relative path matches `pattern`, sorted by path.

    `*` does not match `/`, `{a/b,c}` matches either text, as in a shell, and hidden names never match. A file with
    exactly this name is the only match, so names may contain brackets.
    """
    if (exact := _stat_exact(root, pattern)) is not None:
        return [exact]
    if (either := _EITHER.search(pattern)) is not None:
        before, after = pattern[: either.start()], pattern[either.end() :]
        return sorted(file for one in either[1].split(",") for file in glob(root, f"{before}{one}{after}"))
    found = _matching(root, *pattern.split("/"))
    return sorted(_stat_of(path, info) for path, info in found if info.type == fs.FileType.File)


def find_irregular(root: str, pattern: str) -> list[Irregular]:
    """Return dangling links, pipes, sockets and devices that match a pattern and that `glob` skips."""
    if _stat_exact(root, pattern) is not None:
        return []
    found = ((path, info.type) for path, info in _matching(root, *pattern.split("/")))
    return sorted(Irregular(path, kind == fs.FileType.NotFound) for path, kind in found if kind != fs.FileType.File)


def relative(path: str, root: str) -> str:
    below = f"{root.rstrip('/')}/"
    if path.startswith(below):  # the fast path, forty times faster
        return path[len(below) :]
    return posixpath.relpath(path, root)


@contextmanager
def open_input(
    path: str, *, mapped: bool = False, ahead: bool = False, stop: int | None = None
) -> Iterator[pa.NativeFile]:
    """Open a seekable binary file.

    Args:
      mapped: memory-map a local file, so that parts can be read alone and remain valid after the file is closed.
      ahead: read an object in large ranges with read-ahead, for sequential reading.
      stop: offset up to which the file will be read, for `ahead`. None for the end.

    Raises:
      InfeedError: permission is denied.
      ReadFailedError: the store failed, now or during reading.
    """
    system, inner = store_of(path)
    with _permission_errors(path), failed_reads(path):
        if _is_local(system):
            with _regular(inner) as handle:
                # Reopen through the handle, because the name may now be a pipe, which would block.
                same = f"/proc/self/fd/{handle}"
                opened = (pa.memory_map if mapped else pa.OSFile)(same if os.path.exists(same) else inner)
        else:
            opened = system.open_input_file(inner)
    with opened as file:
        if _is_object_store(system):
            with RangeReader(file, path, stop) if ahead else StoreFile(file, path) as reader:
                yield pa.PythonFile(reader, "r")
        else:
            yield file


@contextmanager
def _regular(path: str) -> Iterator[int]:
    """Yield a handle for reading, without blocking on a pipe. Raises InfeedError if it is not a regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat_module.S_ISREG(os.fstat(handle).st_mode):
            raise InfeedError("this is a pipe, a device or a folder, not a file", where=path, do="use a file")
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_output(path: str) -> Iterator[pa.NativeFile]:
    """Open a binary file for writing. It becomes visible under its name when complete.

    The folder is created if missing. If the body raises an error, nothing is written, and an existing file is
    unchanged. Raises InfeedError if the disk is full, permission is denied, or the store fails.
    """
    system, inner = store_of(path)
    output = _uploaded(system, inner) if _is_object_store(system) else _renamed(system, inner, path)
    with _failed_writes(path), output as file:
        yield file


@contextmanager
def _failed_writes(path: str) -> Iterator[None]:
    """Convert errors of a full disk and of stores to InfeedError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            do = "free some space, or write to another place. No partial file is left"
            raise InfeedError(f"cannot write: {os.strerror(error.errno)}", where=path, do=do) from error
        if type(error) is OSError and error.errno is None:  # Arrow's clients raise OSError without a number
            do = "check the address, the network and the credentials of the store, and run again"
            raise InfeedError(f"cannot write the file: {_first_line(error)}", where=path, do=do) from error
        raise


@contextmanager
def _renamed(system: fs.FileSystem, inner: str, path: str) -> Iterator[pa.NativeFile]:
    """Write to a hidden name in the same folder, and rename the file at the end."""
    # The dot hides the unfinished file from globs, and the random part separates concurrent attempts.
    unfinished = posixpath.join(posixpath.dirname(inner), f".{name(inner)}.{uuid.uuid4().hex}")  # see _UNFINISHED
    try:
        with _permission_errors(path, _NOT_THERE):
            system.create_dir(posixpath.dirname(inner), recursive=True)
            stream = system.open_output_stream(unfinished, compression=None)  # never compressed, whatever the name
        with stream as file:
            yield file
        with _permission_errors(path, _NOT_THERE):
            system.move(unfinished, inner)
    except BaseException:  # Ctrl-C must not leave a partial file either
        with suppress(OSError):
            system.delete_file(unfinished)
        raise


def remove_unfinished(paths: Iterable[str]) -> None:
    """Remove the leftovers of killed writers of these files. A failed removal is logged."""
    paths = set(paths)
    for folder in {posixpath.dirname(path) for path in paths}:
        if _is_object_store(store_of(folder)[0]):
            continue  # an upload that ends early leaves no object
        with logged_failures(folder):
            for file in list_files(folder):
                found = _UNFINISHED.fullmatch(name(file.path))
                if found and join(folder, found[1]) in paths:
                    remove(file.path)


@contextmanager
def _uploaded(system: fs.FileSystem, inner: str) -> Iterator[pa.NativeFile]:
    """Write to a local temporary file, and upload it at the end."""
    with tempfile.TemporaryDirectory(prefix="infeed-upload-") as folder:
        whole = os.path.join(folder, "whole")
        with pa.OSFile(whole, "wb") as file:
            yield file
        # A single call into C++, which Ctrl-C cannot interrupt. A failed upload leaves no object.
        fs.copy_files(whole, inner, fs.LocalFileSystem(), system, chunk_size=_UPLOAD_BYTES, use_threads=False)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def read_bytes(path: str) -> bytes:
    """Return the content of a small file."""
    if "://" not in path:
        # Three times faster than pyarrow on files of a few kilobytes.
        with _permission_errors(path), _regular(path) as handle, open(handle, "rb", 0, closefd=False) as local:
            return local.read()
    system, inner = store_of(path)
    with failed_reads(path), system.open_input_stream(inner, compression=None) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    """Write a small file under a temporary name, then rename it."""
    with open_output(path) as file:
        file.write(content)


def rename(source: str, target: str) -> None:
    """Move a file, replacing `target`. The folder of the target is created if missing.

    Raises InfeedError if the disk is full or a store fails.
    """
    system, old = store_of(source)
    _, new = store_of(target)
    with _failed_writes(target):
        if not _is_object_store(system):
            system.create_dir(posixpath.dirname(new), recursive=True)
        system.move(old, new)


def remove(path: str) -> None:
    """Remove a file or a folder, if it exists. Raises InfeedError if a store refuses, OSError if this machine does."""
    system, inner = store_of(path)
    kind = _info(path).type
    if kind == fs.FileType.NotFound:
        return
    try:
        (system.delete_dir if kind == fs.FileType.Directory else system.delete_file)(inner)
    except FileNotFoundError:  # a folder in Google Cloud Storage vanishes with its content
        pass
    except OSError as error:
        if not _is_object_store(system):
            raise
        # After a removal, Arrow writes a marker object for the parent folder, which a store may refuse.
        if _info(path).type != fs.FileType.NotFound:
            do = "check the network, and that the credentials of the store allow to delete"
            raise InfeedError(f"cannot remove: {_first_line(error)}", where=path, do=do) from error


def remove_if_empty(folder: str) -> None:
    """Remove the marker objects that deletions leave for empty folders of an object store, including parent folders."""
    system, inner = store_of(folder)
    while _is_object_store(system) and "/" in inner:
        if system.get_file_info(fs.FileSelector(inner, allow_not_found=True)):
            return
        with suppress(OSError):  # the store may reject the marker of the parent folder
            system.delete_dir(inner)
        inner = posixpath.dirname(inner)


@contextmanager
def temporary(path: str) -> Iterator[str]:
    """Remove a file or a folder after the body. A failed removal is logged and does not hide an error of the body."""
    try:
        yield path
    finally:
        with logged_failures(path):
            remove(path)


@contextmanager
def logged_failures(path: str, do: str = "") -> Iterator[None]:
    """Log errors of the operating system and of stores instead of raising them, with the remedy `do`."""
    try:
        yield
    except (OSError, InfeedError) as error:
        _log.warning("cannot remove %s: %s%s", path, error, do and f"; {do}")


def sync(folder: str) -> None:
    """Flush a local folder, with all files and folders in it, to the disk, so that they survive a power loss."""
    for place, _, inside in os.walk(folder):
        for path in (*(os.path.join(place, one) for one in inside), place):
            if not os.path.islink(path):
                sync_names(path)


def sync_names(path: str) -> None:
    """Flush a file, or the names in a local folder, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot
            raise
    finally:
        os.close(handle)


def folder_until_exit(prefix: str) -> str:
    """Create a local temporary folder, which this process removes when it exits."""
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def copy(source: str, target: str) -> None:
    """Copy a file, or a folder with its content, within a store or between stores and this machine.

    Raises FileNotFoundError if `source` does not exist, and InfeedError if a store fails.
    """
    found = _info(source)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(source)
    if found.type == fs.FileType.File:
        _copy_file(source, target)
        return
    below = [relative(file.path, source) for file in list_files(source, depth=_DEEPEST)]
    with ThreadPoolExecutor(_COPIES) as pool:  # each file takes several round trips
        list(pool.map(lambda name: _copy_file(join(source, name), join(target, name)), below))


def _copy_file(source: str, target: str) -> None:
    """Copy one file. pyarrow's copy of a folder would leave folder marker objects in a store."""
    (one, old), (other, new) = store_of(source), store_of(target)
    if _is_object_store(other) and (_is_local(one) or one.equals(other)):
        with _failed_writes(target):
            fs.copy_files(old, new, one, other, chunk_size=_UPLOAD_BYTES, use_threads=False)
        return
    # pyarrow's copy would leave half a file after a failed read.
    with open_input(source, ahead=True) as file, open_output(target) as copied:
        shutil.copyfileobj(file, copied, _UPLOAD_BYTES)


def endpoint_of(path: str) -> str | None:
    """Return the store's address from the environment, such as http://localhost:9000. None for the store's default."""
    scheme = path.partition("://")[0]
    there = (os.environ[name] for name in _ENDPOINTS.get(scheme, ()) if os.environ.get(name))
    return next(there, _KUBEFLOW_STORE if scheme == "minio" else None)


def absolute(path: str) -> str:
    """Return the absolute path of a local path. A URI is unchanged."""
    return path if "://" in path else os.path.abspath(path)


def masked(text: str) -> str:
    """Mask users with passwords in the URIs of a text by asterisks."""
    return _PASSWORD.sub(r"\1***@", text)


def refuse_password(path: str) -> None:
    """Raise InfeedError if a path is a URI with a password, which would appear in logs, errors and artifacts."""
    if (shown := masked(path)) != path:
        do = (
            "remove user and password from the URI, and set them where the store's client reads them, such as in "
            "its environment"
        )
        raise InfeedError("the URI contains a password", where=shown, do=do)


def tensorflow_opens(path: str) -> bool:
    """Return whether TensorFlow can read the path: local or gs://. TensorFlow 2.18 and later reads no other store."""
    scheme, is_uri, _ = path.partition("://")
    return not is_uri or scheme in ("gs", "file")


def is_local(path: str) -> bool:
    return _is_local(store_of(path)[0])


def store_of(path: str) -> tuple[fs.FileSystem, str]:
    """Return pyarrow's file system of a path, and the path within this file system."""
    refuse_password(path)
    scheme, is_uri, rest = path.partition("://")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise _not_utf8(path, path.rpartition("/")[0]) from error
    if not is_uri:
        return fs.LocalFileSystem(), os.path.abspath(path)
    authority, _, below = rest.partition("/")
    system, base = _connect(scheme, authority, endpoint_of(path))
    return system, posixpath.join(base, below).rstrip("/") or base


@functools.cache  # creating a client is slow
def _connect(scheme: str, authority: str, endpoint: str | None) -> tuple[fs.FileSystem, str]:
    if endpoint is not None:
        protocol, _, host = endpoint.rpartition("://")
        return _client(scheme, host, protocol or _PROTOCOLS[scheme]), authority
    try:
        if scheme == "s3":
            return _client(scheme, "", "https", region=fs.resolve_s3_region(authority)), authority
        system, base = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    except (OSError, ValueError) as error:
        do = "check the address, the network and the credentials"
        what = f"cannot reach the store: {_first_line(error)}"
        if "Unrecognized filesystem type" in what:
            what, do = f"{scheme}:// is not read", "download the files first, or use a folder, s3://, gs:// or hdfs://"
        raise InfeedError(what, where=f"{scheme}://{authority}", do=do) from error
    return system, base


def _client(scheme: str, host: str, protocol: str, region: str | None = None) -> fs.FileSystem:
    if scheme == "gs":  # an emulator needs no credentials
        limit = datetime.timedelta(seconds=_GCS_SECONDS)
        return fs.GcsFileSystem(anonymous=True, endpoint_override=host, scheme=protocol, retry_time_limit=limit)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or region
    retry = fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    return fs.S3FileSystem(endpoint_override=host or None, scheme=protocol, region=region, retry_strategy=retry)


def _is_object_store(system: fs.FileSystem) -> bool:
    return system.type_name in _OBJECT_STORES


def _is_local(system: fs.FileSystem) -> bool:
    return isinstance(system, fs.LocalFileSystem)


def _info(path: str) -> fs.FileInfo:
    system, inner = store_of(path)
    with _permission_errors(path, _NO_NAME), failed_reads(path):
        return system.get_file_info(inner)


@contextmanager
def _permission_errors(path: str, also: Set[int] = frozenset()) -> Iterator[None]:
    """Convert permission errors, and errors with the error numbers `also`, to InfeedError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_ALLOWED | also:
            raise
        do = "choose another place"
        if error.errno in _NOT_ALLOWED:
            do = f"change its permissions, {do}, or run as another user"
        raise InfeedError(os.strerror(error.errno), where=path, do=do) from error


def _is_loop(folder: str, info: fs.FileInfo) -> bool:
    """Return whether a folder in `folder` is a link to `folder` or one of its parents. These links add no files."""
    if info.type != fs.FileType.Directory or not os.path.islink(path := posixpath.join(folder, info.base_name)):
        return False
    return f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(path).rstrip('/')}/")


def _children(folder: str) -> list[fs.FileInfo]:
    system, inner = store_of(folder)
    if system.type_name != "gcs":
        with _permission_errors(folder), failed_reads(folder):
            found = list(system.get_file_info(fs.FileSelector(inner, allow_not_found=True)))
        listed = os.listdir(inner) if _is_local(system) and os.path.isdir(inner) else []
        for one in listed:  # Arrow cannot decode other names
            if not one.isascii() and one.encode(errors="surrogateescape") != one.encode(errors="replace"):
                raise _not_utf8(one, inner)
        if listed and len(listed) != len(found):  # Arrow omits dangling links
            missing = sorted(set(listed) - {info.base_name for info in found})
            found += [fs.FileInfo(posixpath.join(inner, one), fs.FileType.NotFound) for one in missing]
        return [info for info in found if not (listed and _is_loop(inner, info))]
    # In Google Cloud Storage, Arrow lists only folders with marker objects, so list their content instead.
    below = system.get_file_info(fs.FileSelector(inner, allow_not_found=True, recursive=True))
    names = {info.path: info.path[len(inner) + 1 :].partition("/")[0] for info in below}
    files = [info for info in below if info.path == posixpath.join(inner, names[info.path])]
    folders = set(names.values()) - {info.base_name for info in files}
    return files + [fs.FileInfo(posixpath.join(inner, folder), fs.FileType.Directory) for folder in folders]


def _not_utf8(name: str, folder: str) -> InfeedError:
    shown = os.fsencode(posixpath.basename(name))
    return InfeedError(f"the name {shown!r} is not UTF-8", where=folder, do="rename the file")


def _walk(folder: str, depth: int) -> Iterator[FileStat]:
    for info in _children(folder):
        path = join(folder, info.base_name)
        if info.type == fs.FileType.File:
            yield _stat_of(path, info)
        elif info.type == fs.FileType.Directory and depth:
            yield from _walk(path, depth - 1)


def _stat_exact(root: str, pattern: str) -> FileStat | None:
    path = join(root, pattern)
    info = _info(path) if not any(map(is_hidden, pattern.split("/"))) else None
    return _stat_of(path, info) if info and info.type == fs.FileType.File else None


def _stat_of(path: str, info: fs.FileInfo) -> FileStat:
    return FileStat(path, info.size, info.mtime_ns or 0)


def _matching(folder: str, part: str, *rest: str) -> Iterator[tuple[str, fs.FileInfo]]:
    """Yield visible names that match, except folders. Dangling links on the way to a match are included."""
    for info in _children(folder):
        if not fnmatch.fnmatchcase(info.base_name, part) or is_hidden(info.base_name):
            continue
        path = join(folder, info.base_name)
        if info.type == fs.FileType.Directory:
            yield from _matching(path, *rest) if rest else ()
        elif not rest or info.type == fs.FileType.NotFound:
            yield path, info
