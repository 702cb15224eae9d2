"""File system for TFX's `fileio` in stores that TensorFlow cannot open: `s3://` and `minio://`.

TensorFlow 2.18 and later has no S3 support. TFX components such as Pusher open paths through a registry. This plugin
registers the schemes with pyarrow's client and the environment variables of `dataset.files`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tfx.dsl.io import filesystem
from tfx.dsl.io.filesystem import PathType

from infeed.components.dataset import files
from infeed.components.seams import tfx as tfx_seam


def register() -> None:
    """Register the plugin. Repeated calls have no effect."""
    tfx_seam.add_filesystem(StoreFilesystem, 0)  # the lowest priority wins; TensorFlow's plugin has 10


class StoreFilesystem(filesystem.Filesystem):
    """TFX file system based on pyarrow. An object appears when its writer closes."""

    SUPPORTED_SCHEMES = ["s3://", "minio://"]

    @staticmethod
    def open(name: PathType, mode: str = "r") -> Any:
        store, path = files.store_of(_text(name))
        with _missing_files():
            opened = store.open_input_file(path) if mode.startswith("r") else store.open_output_stream(path)
        return opened if "b" in mode else io.TextIOWrapper(opened, encoding="utf-8")

    @staticmethod
    def copy(src: PathType, dst: PathType, overwrite: bool = False) -> None:
        _check_free(dst, overwrite)
        with _missing_files():
            files.copy(_text(src), _text(dst))

    @staticmethod
    def exists(path: PathType) -> bool:
        return files.exists(_text(path))

    @staticmethod
    def glob(pattern: PathType) -> list[PathType]:
        scheme, _, below = _text(pattern).partition("://")
        bucket, _, parts = below.partition("/")
        return [file.path for file in files.glob(f"{scheme}://{bucket}", parts)]

    @staticmethod
    def isdir(path: PathType) -> bool:
        return files.is_folder(_text(path))

    @staticmethod
    def listdir(path: PathType) -> list[PathType]:
        folder = _text(path).rstrip("/")
        return [*files.list_folders(folder), *(files.name(file.path) for file in files.list_files(folder))]

    @staticmethod
    def makedirs(path: PathType) -> None:
        """Do nothing: an object store has no folders."""

    @staticmethod
    def mkdir(path: PathType) -> None:
        """Do nothing: an object store has no folders."""

    @staticmethod
    def remove(path: PathType) -> None:
        files.remove(_text(path))

    @staticmethod
    def rename(src: PathType, dst: PathType, overwrite: bool = False) -> None:
        _check_free(dst, overwrite)
        with _missing_files():
            files.rename(_text(src), _text(dst))

    @staticmethod
    def rmtree(path: PathType) -> None:
        files.remove(_text(path))

    @staticmethod
    def stat(path: PathType) -> Any:
        """Return `length` in bytes and `mtime_nsec`, the attributes of TensorFlow's FileStatistics that TFX reads."""
        with _missing_files():
            found = files.stat(_text(path))
        return SimpleNamespace(length=found.size, mtime_nsec=found.mtime_ns)

    @staticmethod
    def walk(
        top: PathType, topdown: bool = True, onerror: Any = None
    ) -> Iterator[tuple[PathType, list[PathType], list[PathType]]]:
        folder = _text(top).rstrip("/")
        folders: list[PathType] = [*files.list_folders(folder)]
        names: list[PathType] = [files.name(file.path) for file in files.list_files(folder)]
        if topdown:
            yield top, folders, names
        for one in folders:
            yield from StoreFilesystem.walk(files.join(folder, str(one)), topdown, onerror)
        if not topdown:
            yield top, folders, names


def _text(path: PathType) -> str:
    return path.decode() if isinstance(path, bytes) else path


def _check_free(target: PathType, overwrite: bool) -> None:
    if not overwrite and files.exists(_text(target)):
        raise OSError(f"{_text(target)!r} exists, and overwrite is false")


@contextmanager
def _missing_files() -> Iterator[None]:
    """Raise TFX's NotFoundError in place of FileNotFoundError."""
    try:
        yield
    except FileNotFoundError as error:
        raise filesystem.NotFoundError from error
