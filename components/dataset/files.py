"""The one place that touches a file system: thin over `pyarrow.fs`, which serves local, gs://, s3:// and hdfs:// paths.

A path is a plain local path or a URI, always a `str`. Everything above this module handles paths with `join` and
`name` only, so that what works on a laptop works on a bucket. Credentials and endpoints are found as the clients of
each store find them; that includes AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL for S3, STORAGE_EMULATOR_HOST for Google's.

An object store has no folders and no rename: an object appears whole once its writer closes, so it is written under its
own name; `rename` copies within the store and deletes.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import posixpath
import stat as stat_module
import uuid
from collections.abc import Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from infeed.components.dataset.read_ahead import RangeReader, StoreFile
from infeed.components.dataset.read_errors import failed_reads
from infeed.components.errors import InfeedError

_AWS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_ENDPOINTS = {"s3": _AWS, "minio": _AWS, "gs": ("STORAGE_EMULATOR_HOST",)}
_PROTOCOLS = {"s3": "https", "minio": "http", "gs": "http"}  # of an endpoint that names none
# Kubeflow's own store speaks S3's protocol; the address is the default of its launcher (objectstore/config.go).
_KUBEFLOW_STORE = "http://minio-service.kubeflow:9000"
_ATTEMPTS = 10  # of a request to S3, with growing pauses: a store that is told to slow down needs half a minute
_OBJECT_STORES = {"s3", "gcs", "abfs"}
# Of Hadoop, Spark and its committers, and Dask: beside the data, and no data themselves.
# And of Windows and macOS, which write them into folders of pictures and into archives.
_MARKERS = {"_metadata", "_common_metadata", "_temporary", "Thumbs.db", "desktop.ini", "__MACOSX"}
_MARKER_PREFIXES = ("_SUCCESS", "_committed_", "_started_")
_UPLOAD_BYTES = 8 << 20
_COPIES = 8  # files at the same time
_DEEPEST = 100  # folders below a folder that is copied
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, *_NO_NAME}


@dataclass(frozen=True)
class FileStat:
    """A regular file: its full path, size in bytes and time of last change in nanoseconds since the epoch."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Irregular:
    """A name that stands for no file: a link that leads nowhere, or else a pipe, a socket or a device."""

    path: str
    is_link: bool

    @property
    def what(self) -> str:
        if not self.is_link:
            return "a pipe, a socket or a device, not a file"
        return f"a link that leads nowhere: it points to {os.readlink(self.path)!r}"


def path_text(path: str | os.PathLike[str], argument: str) -> str:
    """A path as text.

    Args:
      argument: whose value it is, such as `infeed.load, where`.

    Raises:
      InfeedError: it is neither text nor a path.
    """
    if not isinstance(path, str | os.PathLike):
        name = argument.rpartition(" ")[2]
        raise InfeedError(f"{name} is {path!r}", where=argument, do="give a folder or a file, as text or a path")
    return os.fspath(path)


def join(root: str, *names: str) -> str:
    """`root/name/...`, for URIs and local paths alike."""
    return posixpath.join(root, *names)


def name(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(path)


def is_hidden(path: str) -> bool:
    """True for what tools leave behind rather than what people mean as data: `.DS_Store`, `_SUCCESS`, `Thumbs.db`."""
    return name(path) in _MARKERS or name(path).startswith((".", *_MARKER_PREFIXES))


def exists(path: str) -> bool:
    """True for a file or a folder."""
    return bool(_info(path).type != fs.FileType.NotFound)


def is_folder(path: str) -> bool:
    return bool(_info(path).type == fs.FileType.Directory)


def stat(path: str) -> FileStat:
    """Raises FileNotFoundError unless `path` is a regular file."""
    info = _info(path)
    if info.type != fs.FileType.File:
        raise FileNotFoundError(path)
    return FileStat(path, info.size, info.mtime_ns or 0)


def version(file: FileStat) -> str:
    """Another one after every change of a file; of a local one also where its size and time of change stay."""
    system, inner = _resolve(file.path)
    if not _is_local(system):
        return f"{file.size} {file.mtime_ns}"
    found = os.stat(inner)
    return f"{file.size} {file.mtime_ns} {found.st_ctime_ns} {found.st_ino}"


@contextmanager
def unchanged(file: FileStat) -> Iterator[None]:
    """For reading inside: what is read is the file as it was when it was found.

    Raises:
      InfeedError: it has grown, was cut, written anew or removed, whatever that made of the reading.
    """
    _check_unchanged(file)
    try:
        yield
    except Exception as error:
        _check_unchanged(file, error)
        raise
    _check_unchanged(file)


def _check_unchanged(file: FileStat, error: Exception | None = None) -> None:
    now = _info(file.path)
    if now.type != fs.FileType.File:
        what = "the file was removed while it was read, or cannot be seen from this machine"
        do = "read a file that stays, from a place that all workers see: an object store or a network disk"
    elif (now.size, now.mtime_ns or 0) != (file.size, file.mtime_ns):
        what = f"the file changed while it was read: {file.size:,} bytes then, {now.size:,} now"
        do = "wait until the file is written, or read a copy of it, and run again"
    else:
        return
    raise InfeedError(what, where=file.path, do=do) from error


def list_files(folder: str, *, depth: int = 0) -> list[FileStat]:
    """Regular files in `folder` and down to `depth` folders below it, sorted by path; empty where it does not exist."""
    return sorted(_walk(folder, depth), key=lambda found: found.path)


def list_folders(folder: str) -> list[str]:
    """Names of the folders directly inside `folder`, sorted."""
    return sorted(info.base_name for info in _children(folder) if info.type == fs.FileType.Directory)


def glob(root: str, pattern: str) -> list[FileStat]:
    """Visible regular files under `root` whose relative path matches `pattern`, part by part; sorted by path.

    `*` stays within one part of the path, as in a shell; what `is_hidden` tells never matches. A file of the very name
    is the only match, so that a name may hold brackets.
    """
    if (exact := _exact(root, pattern)) is not None:
        return [exact]
    found = [(path, info) for path, info in _matching(root, *pattern.split("/")) if info.type == fs.FileType.File]
    return sorted((FileStat(path, info.size, info.mtime_ns or 0) for path, info in found), key=lambda file: file.path)


def find_irregular(root: str, pattern: str) -> list[Irregular]:
    """What `glob` passes over although its name matches, sorted by path: dangling links, pipes, sockets, devices."""
    if _exact(root, pattern) is not None:
        return []
    found = [(path, info.type) for path, info in _matching(root, *pattern.split("/")) if info.type != fs.FileType.File]
    return sorted(
        (Irregular(path, is_link=kind == fs.FileType.NotFound) for path, kind in found), key=lambda one: one.path
    )


def relative(path: str, root: str) -> str:
    """`path` seen from `root`."""
    below = f"{root.rstrip('/')}/"
    if path.startswith(below):  # nearly always, and forty times faster
        return path[len(below) :]
    return posixpath.relpath(path, root)


@contextmanager
def open_input(
    path: str, *, mapped: bool = False, ahead: bool = False, stop: int | None = None
) -> Iterator[pa.NativeFile]:
    """A seekable binary file.

    Args:
      mapped: maps a local file into memory, so that a part of it is read without the rest; what is read stays valid
        after the file is closed.
      ahead: reads one of an object store in large ranges, the next ones ahead; for sequential reading.
      stop: place to which it will be read, for `ahead`; None for the end.

    Raises:
      InfeedError: it may not be read.
      ReadFailedError: the store failed, now or while the file is read.
    """
    system, inner = _resolve(path)
    with _refusals(path), failed_reads(path):
        opened = _open_local(inner, mapped) if _is_local(system) else system.open_input_file(inner)
    with opened as file:
        if _is_object_store(system):
            with RangeReader(file, path, stop) if ahead else StoreFile(file, path) as reader:
                yield pa.PythonFile(reader, "r")
        else:
            yield file


def _open_local(path: str, mapped: bool) -> pa.NativeFile:
    with _regular(path) as handle:
        # The same file by its handle: under its name a pipe may lie by now, which would block.
        same = f"/proc/self/fd/{handle}"
        return (pa.memory_map if mapped else pa.OSFile)(same if os.path.exists(same) else path)


@contextmanager
def _regular(path: str) -> Iterator[int]:
    """The handle of a file that is open for reading; a pipe is opened without waiting for its writer.

    Raises:
      InfeedError: it is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat_module.S_ISREG(os.fstat(handle).st_mode):
            raise InfeedError("a pipe, a device or a folder, not a file", where=path, do="write its content to a file")
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_output(path: str) -> Iterator[pa.NativeFile]:
    """A binary file that appears under its name only once it is whole: a temporary name, then a rename.

    The folder is made where it is missing. When the body raises, nothing is left behind.

    Raises:
      InfeedError: there is no room left to write, or it is not allowed.
    """
    system, inner = _resolve(path)
    unfinished = inner
    if not _is_object_store(system):
        with _refusals(path, _NOT_THERE):
            system.create_dir(posixpath.dirname(inner), recursive=True)
        # A dot in front keeps the unfinished file out of every glob; the random part keeps two attempts apart.
        unfinished = posixpath.join(posixpath.dirname(inner), f".{name(inner)}.{uuid.uuid4().hex}")
    try:
        with _refusals(path, _NOT_THERE):
            # Without compression, whatever the name. Google's client uploads each write by itself.
            buffer = _UPLOAD_BYTES if _is_object_store(system) else None
            stream = system.open_output_stream(unfinished, compression=None, buffer_size=buffer)
        with stream as file:
            yield file
        if unfinished != inner:
            with _refusals(path, _NOT_THERE):
                system.move(unfinished, inner)
    except BaseException as error:
        _delete_quietly(system, unfinished)
        if isinstance(error, OSError) and error.errno in _FULL:
            do = "make room, or write to another place; nothing half-written was kept"
            raise InfeedError(f"no room left to write: {os.strerror(error.errno)}", where=path, do=do) from error
        if type(error) is OSError and error.errno is None:  # Arrow gives the errors of its clients no number
            do = "check the address, the network and the credentials of the store, and run again"
            raise InfeedError(f"the file could not be written: {_first_line(error)}", where=path, do=do) from error
        raise


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def read_bytes(path: str) -> bytes:
    """The whole content of a small file."""
    if "://" not in path:
        # Three times faster than pyarrow on files of a few kilobytes.
        with _refusals(path), _regular(path) as handle, open(handle, "rb", buffering=0, closefd=False) as local:
            return local.read()
    system, inner = _resolve(path)
    with failed_reads(path), system.open_input_stream(inner, compression=None) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    """Writes a small file under a temporary name, then renames it."""
    with open_output(path) as file:
        file.write(content)


def rename(source: str, target: str) -> None:
    """Moves one file, replacing `target`; the target's folder is made where it is missing."""
    system, old = _resolve(source)
    _, new = _resolve(target)
    if not _is_object_store(system):
        system.create_dir(posixpath.dirname(new), recursive=True)
    system.move(old, new)


def remove(path: str) -> None:
    """Removes a file or a whole folder; nothing happens where there is none."""
    system, inner = _resolve(path)
    kind = _info(path).type
    if kind == fs.FileType.Directory:
        with suppress(FileNotFoundError):  # after all that is inside, the folder: Google's store may have none
            system.delete_dir(inner)
    elif kind != fs.FileType.NotFound:
        system.delete_file(inner)


def copy(source: str, target: str) -> None:
    """Copy a file, or a folder with everything below it, within a store or between stores and this machine.

    Raises:
      FileNotFoundError: `source` does not exist.
      OSError: a store failed.
    """
    found = _info(source)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(source)
    if found.type == fs.FileType.File:
        _copy_file(source, target)
        return
    below = [relative(file.path, source) for file in list_files(source, depth=_DEEPEST)]
    with ThreadPoolExecutor(_COPIES) as pool:  # a file takes a few round trips to a store
        list(pool.map(lambda name: _copy_file(join(source, name), join(target, name)), below))


def _copy_file(source: str, target: str) -> None:
    """Copy one file. pyarrow's copy of a folder leaves objects in a store that stand for folders."""
    one, old = _resolve(source)
    other, new = _resolve(target)
    if not _is_object_store(other):
        other.create_dir(posixpath.dirname(new), recursive=True)
    fs.copy_files(old, new, one, other, chunk_size=_UPLOAD_BYTES, use_threads=False)


def store_of(path: str) -> tuple[fs.FileSystem, str]:
    """Return pyarrow's file system of a path, and the path within this file system."""
    return _resolve(path)


def absolute(path: str) -> str:
    """The same place for who works in another folder; a URI stays as it is."""
    return path if "://" in path else os.path.abspath(path)


def is_local(path: str) -> bool:
    """Whether a path lies on this machine's own file system."""
    return _is_local(_resolve(path)[0])


def _resolve(path: str) -> tuple[fs.FileSystem, str]:
    scheme, is_uri, rest = path.partition("://")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise _not_utf8(path, path.rpartition("/")[0]) from error
    if not is_uri:
        return fs.LocalFileSystem(), os.path.abspath(path)
    authority, _, below = rest.partition("/")
    endpoints = [os.environ[name] for name in _ENDPOINTS.get(scheme, ()) if os.environ.get(name)]
    if scheme == "minio":
        endpoints.append(_KUBEFLOW_STORE)
    system, base = _connect(scheme, authority, endpoints[0] if endpoints else None)
    return system, posixpath.join(base, below).rstrip("/") or base


@functools.cache  # a client of a store takes a while to make
def _connect(scheme: str, authority: str, endpoint: str | None) -> tuple[fs.FileSystem, str]:
    if endpoint is not None:
        protocol, _, host = endpoint.rpartition("://")
        return _client(scheme, host, protocol or _PROTOCOLS[scheme]), authority
    try:
        if scheme == "s3":
            return _client(scheme, "", "https", region=fs.resolve_s3_region(authority)), authority
        system, base = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    except (OSError, ValueError) as error:
        told = str(error).partition("\n")[0]
        do = "check the address, the network and the credentials"
        raise InfeedError(f"cannot reach it: {told}", where=f"{scheme}://{authority}", do=do) from error
    return system, base


def _client(scheme: str, host: str, protocol: str, region: str | None = None) -> fs.FileSystem:
    if scheme == "gs":  # an emulator asks for no credentials; its client tries again for a quarter of an hour
        return fs.GcsFileSystem(anonymous=True, endpoint_override=host, scheme=protocol)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or region
    retry = fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    return fs.S3FileSystem(endpoint_override=host or None, scheme=protocol, region=region, retry_strategy=retry)


def _is_object_store(system: fs.FileSystem) -> bool:
    return system.type_name in _OBJECT_STORES


def _is_local(system: fs.FileSystem) -> bool:
    return isinstance(system, fs.LocalFileSystem)


def _info(path: str) -> fs.FileInfo:
    system, inner = _resolve(path)
    with _refusals(path, _NO_NAME), failed_reads(path):
        return system.get_file_info(inner)


@contextmanager
def _refusals(path: str, also: Set[int] = frozenset()) -> Iterator[None]:
    """What the system does not allow, as an InfeedError; errors with the numbers `also`, too."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_ALLOWED | also:
            raise
        do = "choose another place"
        if error.errno in _NOT_ALLOWED:
            do = f"change its permissions, {do}, or run as somebody who may"
        raise InfeedError(os.strerror(error.errno), where=path, do=do) from error


def _children(folder: str) -> list[fs.FileInfo]:
    system, inner = _resolve(folder)
    if system.type_name != "gcs":
        with _refusals(folder), failed_reads(folder):
            found = list(system.get_file_info(fs.FileSelector(inner, allow_not_found=True)))
        return [*found, *_unlisted(inner, found)] if _is_local(system) else found
    # Of Google's store Arrow lists a folder only where an object marks it, so this asks what lies in them.
    below = system.get_file_info(fs.FileSelector(inner, allow_not_found=True, recursive=True))
    names = {info.path: info.path[len(inner) + 1 :].partition("/")[0] for info in below}
    files = [info for info in below if info.path == posixpath.join(inner, names[info.path])]
    folders = set(names.values()) - {info.base_name for info in files}
    return files + [fs.FileInfo(posixpath.join(inner, folder), fs.FileType.Directory) for folder in folders]


def _unlisted(folder: str, listed: list[fs.FileInfo]) -> list[fs.FileInfo]:
    """Links that lead nowhere, which Arrow leaves out of a folder's list.

    Raises:
      InfeedError: a name that is not UTF-8, which Arrow lists and cannot decode.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for found in names:
        if not found.isascii() and not _is_utf8(found):
            raise _not_utf8(found, folder)
    if len(names) == len(listed):
        return []
    missing = sorted(set(names) - {info.base_name for info in listed})
    return [fs.FileInfo(posixpath.join(folder, found), fs.FileType.NotFound) for found in missing]


def _is_utf8(name: str) -> bool:
    return name.encode(errors="surrogateescape") == name.encode(errors="replace")


def _not_utf8(name: str, folder: str) -> InfeedError:
    shown = os.fsencode(posixpath.basename(name))
    return InfeedError(f"a name that is not UTF-8: {shown!r}", where=folder, do="rename it")


def _walk(folder: str, depth: int) -> Iterator[FileStat]:
    for info in _children(folder):
        path = join(folder, info.base_name)
        if info.type == fs.FileType.File:
            yield FileStat(path, info.size, info.mtime_ns or 0)
        elif info.type == fs.FileType.Directory and depth:
            yield from _walk(path, depth - 1)


def _exact(root: str, pattern: str) -> FileStat | None:
    path = join(root, pattern)
    info = _info(path) if not any(map(is_hidden, pattern.split("/"))) else None
    return FileStat(path, info.size, info.mtime_ns or 0) if info and info.type == fs.FileType.File else None


def _matching(folder: str, part: str, *rest: str) -> Iterator[tuple[str, fs.FileInfo]]:
    """Visible names that match, but folders; names on the way to a match are folders, unless they lead nowhere."""
    for info in _children(folder):
        if not fnmatch.fnmatchcase(info.base_name, part) or is_hidden(info.base_name):
            continue
        path = join(folder, info.base_name)
        if info.type == fs.FileType.Directory:
            yield from _matching(path, *rest) if rest else ()
        elif not rest or info.type == fs.FileType.NotFound:
            yield path, info


def _delete_quietly(system: fs.FileSystem, path: str) -> None:
    with suppress(OSError):
        system.delete_file(path)
