"""A user's project as one archive, which a step unpacks into its working directory on start.

The name of the archive is its digest, so that a step runs exactly the compiled files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from infeed.components.base.errors import InfeedError
from infeed.components.base.units import size
from infeed.components.dataset import files

VARIABLE = "INFEED_PROJECT"
"""Environment variable of a step with the location of the archive, for example gs://bucket/taxi/project/DIGEST.tar.gz."""
OPTION = "--infeed_project="
"""Option of a step with the same location, because Kubeflow's cache compares only the command line."""
SUFFIX = ".tar.gz"
MOST_BYTES = 20 << 20  # limit for all files together, because each step downloads them
_DAMAGED = (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, RecursionError)  # what tarfile and gzip raise


def pack(folder: Path, names: Iterable[str]) -> bytes:
    """Return an archive of files, named below the folder with `/`. The same names and contents give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(names):
            content = (folder / name).read_bytes()
            entry = tarfile.TarInfo(name)  # no times, owners and modes, so that equal files give equal bytes
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def digest(archive: bytes) -> str:
    """Return the name of an archive."""
    return hashlib.sha256(archive).hexdigest()


def enter() -> None:
    """Download and unpack the archive that `VARIABLE` names, and change to its folder.

    Does nothing if the variable is not set, or the process has already entered. Raise InfeedError if the archive is
    missing, damaged, too large, or contains anything but files below its folder.
    """
    if place := os.environ.pop(VARIABLE, None):
        folder = files.folder_until_exit("infeed-project-")
        unpack(_download(place), folder, place)
        os.chdir(folder)


def _download(place: str) -> bytes:
    held = files.stat(place).size if files.exists(place) else None
    if held is None:
        do = "submit the job with infeed submit, which uploads the archive, or copy the archive there"
        raise InfeedError("the archive of the project is missing", where=place, do=do)
    if held > MOST_BYTES:
        raise _too_large(held, place)
    archive = files.read_bytes(place)
    if digest(archive) != files.name(place).removesuffix(SUFFIX):
        do = "compile the job again, and submit it with infeed submit"
        raise InfeedError("the archive of the project does not have the digest in its name", where=place, do=do)
    return archive


def unpack(archive: bytes, folder: str, where: str) -> None:
    """Write the files of an archive below `folder`. Raise InfeedError for other entries, or if it is too large.

    Only regular files with relative paths are written. Links, devices and paths outside the folder are rejected, as in
    tarfile's filter `data`, which requires Python 3.10.12. Owners and modes are ignored.
    """
    total, most = 0, 2 * MOST_BYTES  # headers of small files may double the size
    try:
        # Never decompress more than the limit: a small archive can expand to any size.
        with gzip.open(io.BytesIO(archive)) as packed:
            content = packed.read(most + 1)
        if len(content) > most:
            raise _too_large(len(content), where)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as entries:
            for entry in entries:
                _check(entry, content, where)
                total += entry.size
                if total > MOST_BYTES:
                    raise _too_large(total, where)
                _write(entries, entry, Path(folder))
    except InfeedError:  # InfeedError is a ValueError, which the next clause catches
        raise
    except _DAMAGED as error:
        raise InfeedError(f"cannot unpack the project: {error}", where=where, do="compile the job again") from error


def _check(entry: tarfile.TarInfo, content: bytes, where: str) -> None:
    # tarfile cuts a name at a zero byte, so compare with the raw field of the header.
    path, field = PurePosixPath(entry.name), content[entry.offset : entry.offset + tarfile.LENGTH_NAME]
    is_cut = b"\0" in field.rstrip(b"\0") or "\0" in entry.name
    is_below = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    is_plain = entry.isreg() and not entry.issparse() and entry.size >= 0 and not is_cut
    if not is_plain or not is_below:
        what = f"the archive of the project contains {entry.name!r}, which is not a file below its folder"
        raise InfeedError(what, where=where, do="compile the job again, and check who can write there")


def _write(entries: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    target, content = folder / entry.name, entries.extractfile(entry)
    assert content, "a regular file has content"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.read())


def _too_large(held: int, where: str) -> InfeedError:
    what = f"the archive of the project contains {size(held)}, but the limit is {size(MOST_BYTES)}"
    return InfeedError(what, where=where, do="compile the job again, without data in the project's folder")
