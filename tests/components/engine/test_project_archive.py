from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.engine import project_archive
from infeed.components.engine.project_archive import VARIABLE, digest, enter, pack, unpack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "taxi" / "networks").mkdir(parents=True)
    (tmp_path / "taxi" / "model.py").write_text("x = 1\n")
    (tmp_path / "taxi" / "networks" / "dense.py").write_text("y = 2\n")
    return tmp_path / "taxi"


NAMES = ["model.py", "networks/dense.py"]


def published(folder: Path, archive: bytes, name: str = "") -> str:
    place = folder / f"{name or digest(archive)}.tar.gz"
    place.write_bytes(archive)
    return str(place)


def made(*entries: tarfile.TarInfo, content: bytes = b"") -> bytes:
    """An archive as somebody else may make it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return gzip.compress(packed.getvalue())


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def test_the_same_files_are_the_same_bytes_whenever_they_were_written(project: Path) -> None:
    first = pack(project, NAMES)
    os.utime(project / "model.py", (0, 0))
    (project / "model.py").chmod(0o700)
    assert pack(project, reversed(NAMES)) == first
    (project / "model.py").write_text("x = 2\n")
    assert digest(pack(project, NAMES)) != digest(first)


def test_a_step_works_in_the_folder_of_the_files(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, published(tmp_path, pack(project, NAMES)))
    enter()
    assert Path("model.py").read_text() == "x = 1\n"
    assert Path("networks/dense.py").read_text() == "y = 2\n"
    here = Path.cwd()
    enter()  # a second call, or a child, finds nothing to do
    assert (Path.cwd(), VARIABLE in os.environ) == (here, False)


def test_without_an_archive_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    enter()
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize(
    ("name", "archive", "value"),
    [
        ("a" * 64, None, "missing"),
        ("a" * 64, b"other", "digest"),
        ("", b"no gzip", "cannot unpack"),
        ("", gzip.compress(b"no tar" * 500), "cannot unpack"),
    ],
)
def test_an_archive_that_is_not_the_compiled_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, archive: bytes | None, value: str
) -> None:
    place = published(tmp_path, archive, name) if archive else str(tmp_path / f"{name}.tar.gz")
    monkeypatch.setenv(VARIABLE, place)
    with pytest.raises(InfeedError, match=value) as error:
        enter()
    assert error.value.where == place


@pytest.mark.parametrize(
    "bad",
    [
        entry("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry("hard", type=tarfile.LNKTYPE, linkname="../../etc/passwd"),
        entry("/etc/cron.d/x", size=1),
        entry("../x", size=1),
        entry("a/../../x", size=1),
        entry("device", type=tarfile.CHRTYPE),
        entry("pipe", type=tarfile.FIFOTYPE),
        entry("folder", type=tarfile.DIRTYPE),
        entry("sparse", type=tarfile.GNUTYPE_SPARSE, size=1),
    ],
    ids=lambda info: info.name,
)
def test_links_devices_and_paths_outside_are_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    target = tmp_path / "into"
    target.mkdir()
    with pytest.raises(InfeedError, match=repr(bad.name)) as error:
        unpack(made(bad, content=b"x"), str(target), "gs://b/x")
    assert error.value.where == "gs://b/x"
    assert list(tmp_path.rglob("*")) == [target]


@pytest.mark.parametrize("headers", [{}, {"path": "a\0b"}])
def test_a_name_that_a_zero_byte_cuts_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    with pytest.raises(InfeedError, match="not a file below its folder"):
        unpack(made(entry("a" if headers else "a\0b", size=1, pax_headers=headers), content=b"x"), str(tmp_path), "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "headers",
    [
        entry("a", size=-512).tobuf(tarfile.GNU_FORMAT) + entry("b").tobuf(),  # Python may take a later one for the end
        entry("a", type=tarfile.XHDTYPE).tobuf() * 3_000,
    ],
    ids=["a size that leads back", "headers of headers"],
)
def test_headers_without_end_are_an_error(tmp_path: Path, headers: bytes) -> None:
    with pytest.raises(InfeedError) as error:
        unpack(gzip.compress(headers), str(tmp_path), "gs://b/x")
    assert error.value.where == "gs://b/x"


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="cannot unpack"):
        unpack(made(entry("a", size=1), entry("a/b", size=1), content=b"x"), str(tmp_path), "gs://b/x")


def test_more_than_a_step_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_archive, "MOST_BYTES", 50_000)
    large = made(entry("large", size=60_000), content=bytes(60_000))
    bomb = gzip.compress(bytes(10_000_000))
    for archive in (large, bomb):
        with pytest.raises(InfeedError, match="50 kB"):
            unpack(archive, str(tmp_path), "gs://b/x")
    monkeypatch.setattr(project_archive, "MOST_BYTES", 10)
    monkeypatch.setenv(VARIABLE, published(tmp_path, large))
    with pytest.raises(InfeedError, match="10 B"):
        enter()
    assert not (tmp_path / "large").exists()
