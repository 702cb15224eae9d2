from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, errors="surrogateescape")


def found(root: Path, pattern: str) -> list[str]:
    return [files.relative(file.path, str(root)) for file in files.glob(str(root), pattern)]


def test_glob_matches_part_by_part_and_sorts(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "a.txt", "deep/c.csv")
    assert found(tmp_path, "*.csv") == ["a.csv", "b.csv"]
    assert found(tmp_path, "*/*.csv") == ["deep/c.csv"]
    assert found(tmp_path, "deep/c.csv") == ["deep/c.csv"]


def test_glob_leaves_out_what_tools_leave_behind(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", ".DS_Store", ".hidden/b.csv", "cat/1.png", "cat/.1.png.part", "_mine.csv")
    touch(tmp_path, "_SUCCESS", "_metadata", "_common_metadata", "_committed_7", "_started_7", "_temporary/0")
    assert found(tmp_path, "*") == ["_mine.csv", "a.csv"]
    assert found(tmp_path, "*/*") == ["cat/1.png"]


def test_a_uri_names_the_same_file_as_a_path(tmp_path: Path) -> None:
    files.write_bytes(f"file://{tmp_path}/new/a", b"text")
    assert files.read_bytes(f"file://{tmp_path}/new/a") == files.read_bytes(f"{tmp_path}/new/a") == b"text"


def test_what_a_killed_writer_left_is_removed_and_other_hidden_files_stay(tmp_path: Path) -> None:
    program = f"""
import os, signal
from infeed.components.dataset import files
with files.open_output({str(tmp_path / "a.gz")!r}) as file:
    file.write(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program])
    [left] = os.listdir(tmp_path)
    assert left.startswith(".a.gz.")
    others = [".a.gz", ".a.gz.part", f".b.gz.{'0' * 32}", "a.gz"]
    touch(tmp_path, *others)
    files.remove_unfinished([f"{tmp_path}/a.gz", f"{tmp_path}/none/a.gz"])
    assert sorted(os.listdir(tmp_path)) == others


def test_remove_takes_files_folders_and_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "file", "folder/file")
    for name in ("file", "folder", "never was"):
        files.remove(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == []


def test_a_temporary_folder_ends_with_its_process() -> None:
    code = "from infeed.components.dataset import files; print(files.folder_until_exit('infeed-test-'))"
    folder = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(folder).name.startswith("infeed-test-")
    assert not Path(folder).exists()


def test_rename_makes_the_folder_and_replaces(tmp_path: Path) -> None:
    touch(tmp_path, "a")
    files.write_bytes(f"{tmp_path}/to/b", b"old")
    files.rename(f"{tmp_path}/a", f"{tmp_path}/to/b")
    assert files.read_bytes(f"{tmp_path}/to/b") == b"a"


def test_stat_of_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.stat(f"{tmp_path}/nothing")
    assert files.list_files(f"{tmp_path}/nothing") == []


def write_half(path: str, error: Exception) -> None:
    """Fails in the middle of a file, whose path shows until then what it showed before."""
    before = files.read_bytes(path) if files.exists(path) else None
    with files.open_output(path) as file:
        file.write(bytes(20 << 20))  # more than one part of an upload
        assert (files.read_bytes(path) if files.exists(path) else None) == before
        raise error


FULL = (InfeedError, r"(?s)cannot write: .*/a\n.*free some space")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("worker lost"), (RuntimeError, "worker lost")),
        (OSError(errno.ENOSPC, "x"), FULL),
        (OSError(errno.EDQUOT, "x"), FULL),
    ],
)
def test_a_file_appears_whole_or_not_at_all_and_a_full_disk_is_told(
    tmp_path: Path, error: Exception, raised: Any
) -> None:
    with pytest.raises(raised[0], match=raised[1]):
        write_half(f"{tmp_path}/a", error)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("refused", [errno.EACCES, errno.EROFS])
def test_what_is_not_allowed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    def refuse(*_: Any, **__: Any) -> Any:  # whoever runs the tests may be root, to whom nothing is closed
        raise OSError(refused, "refused")

    class Closed(fs.LocalFileSystem):
        open_output_stream = refuse

    monkeypatch.setattr(files, "store_of", lambda path: (Closed(), path))
    monkeypatch.setattr(os, "open", refuse)
    for use in (files.open_input, files.open_output):
        with pytest.raises(InfeedError, match=rf"(?s){os.strerror(refused)}.*/a\n.*do:"), use(f"{tmp_path}/a"):
            pass


def test_a_path_that_cannot_be_written_or_looked_up_is_an_error_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(os.listdir(tmp_path))
    for path in ("/proc/none/x", f"{tmp_path}/file/x", f"{tmp_path}/folder", f"{tmp_path}/{'n' * 300}"):
        with pytest.raises(InfeedError) as raised:
            files.write_bytes(path, b"x")
        assert raised.value.where == path
    with pytest.raises(InfeedError, match="too long"):
        files.exists(f"{tmp_path}/{'n' * 300}")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "gs")])
def store(request: pytest.FixtureRequest) -> str:
    """A place of its own in an object store."""
    return str(request.getfixturevalue(request.param))


def test_an_object_store_serves_what_a_disk_does(store: str) -> None:
    files.write_bytes(f"{store}/deep/a.csv", b"x\n1\n")
    files.write_bytes(f"{store}/b.csv", b"x\n")
    files.write_bytes(f"{store}/_SUCCESS", b"")
    assert [files.relative(file.path, store) for file in files.glob(store, "*")] == ["b.csv"]
    assert [(files.relative(file.path, store), file.size) for file in files.glob(store, "*/*.csv")] == [
        ("deep/a.csv", 4)
    ]
    assert files.read_bytes(f"{store}/deep/a.csv") == b"x\n1\n"
    assert (files.exists(f"{store}/deep"), files.is_folder(f"{store}/deep"), files.list_folders(store)) == (
        True,
        True,
        ["deep"],
    )
    with files.open_input(f"{store}/deep/a.csv", mapped=True) as file:
        file.seek(2)
        assert file.read() == b"1\n"


def test_an_object_is_renamed_by_copy_and_leaves_nothing(store: str) -> None:
    files.write_bytes(f"{store}/unfinished/a", b"text")
    files.rename(f"{store}/unfinished/a", f"{store}/whole/a")
    files.remove(f"{store}/unfinished")
    assert files.list_folders(store) == ["whole"]
    assert [file.path for file in files.list_files(f"{store}/whole")] == [f"{store}/whole/a"]
    with pytest.raises(FileNotFoundError):
        files.stat(f"{store}/unfinished/a")


def test_a_store_that_nobody_knows() -> None:
    with pytest.raises(InfeedError, match=r"(?s)gopher:// is not read.*where: gopher://host"):
        files.exists("gopher://host/a")


def test_bytes_stay_as_they_are_whatever_the_name(store: str) -> None:
    files.write_bytes(f"{store}/a.gz", b"not gzip")
    assert files.stat(f"{store}/a.gz").size == len(b"not gzip")
    assert files.read_bytes(f"{store}/a.gz") == b"not gzip"


def test_a_file_of_the_very_name_is_the_only_match_although_the_name_has_wildcards(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].csv", "a1.csv", "b1.csv")
    assert found(tmp_path, "a[1].csv") == ["a[1].csv"]
    assert found(tmp_path, "[ab]1.csv") == ["a1.csv", "b1.csv"]


def test_a_name_that_is_not_utf8_is_told_and_one_beside_it_does_no_harm(tmp_path: Path) -> None:
    touch(tmp_path, "\udcff.csv", "ä.csv")
    assert found(tmp_path, "ä.csv") == ["ä.csv"]
    for look in (lambda: found(tmp_path, "*"), lambda: files.exists(f"{tmp_path}/\udcff.csv")):
        with pytest.raises(InfeedError, match=rf"b'\\xff\.csv' is not UTF-8\n  where: {tmp_path}\n"):
            look()


@pytest.mark.parametrize("read", [files.read_bytes, lambda path: files.open_input(path).__enter__()])
def test_a_pipe_in_place_of_a_file_is_an_error_and_is_not_waited_for(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(InfeedError, match="a pipe") as raised:
        read(str(tmp_path / "a.csv"))
    assert raised.value.where == str(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "use",
    [
        files.exists,
        files.read_bytes,
        files.list_files,
        lambda path: files.glob(path, "*"),
        lambda path: files.write_bytes(path, b""),
    ],
)
def test_a_store_that_does_not_answer_is_an_error_with_its_path(
    use: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    files._connect.cache_clear()
    with pytest.raises(InfeedError, match=r"cannot (read|write) the file") as error:
        use("s3://bucket/folder")
    files._connect.cache_clear()
    assert error.value.where.startswith("s3://bucket/folder")


def test_a_failed_writer_leaves_the_object_that_was_there_and_shows_no_half(store: str, tmp_path: Path) -> None:
    files.write_bytes(f"{store}/a", b"good")
    for name in ("a", "b"):  # there before, and not
        with pytest.raises(RuntimeError, match="worker lost"):
            write_half(f"{store}/{name}", RuntimeError("worker lost"))
    assert files.read_bytes(f"{store}/a") == b"good"
    assert [file.path for file in files.list_files(store)] == [f"{store}/a"]


def test_an_upload_that_a_store_refuses_is_an_error_and_leaves_the_object_that_was_there(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_bytes(f"{s3}/a", b"good")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("AWS Error ACCESS_DENIED during UploadPart operation")

    monkeypatch.setattr(files.fs, "copy_files", refuse)
    with pytest.raises(InfeedError, match="ACCESS_DENIED") as raised:
        files.write_bytes(f"{s3}/a", b"new")
    assert raised.value.where == f"{s3}/a"
    assert files.read_bytes(f"{s3}/a") == b"good"


READS = {"exists": files.exists, "list_files": files.list_files, "read_bytes": files.read_bytes}
WRITES = {
    "remove": files.remove,
    "write_bytes": lambda path: files.write_bytes(path, b"new"),
    "rename": lambda path: files.rename(path, f"{path}-2"),
    "copy": lambda path: files.copy(path, f"{path}-2"),
}


@pytest.mark.parametrize("use", [*READS, *WRITES])
def test_whatever_a_store_refuses_is_an_error_with_the_object_and_the_reason(
    s3: str, s3_refusing: list[Callable[..., bool]], use: str
) -> None:
    files.write_bytes(f"{s3}/a", b"good")
    s3_refusing.append(lambda method, *_: use in READS or method not in ("GET", "HEAD"))
    with pytest.raises(InfeedError, match=r"(?i)access.denied") as raised:
        (READS | WRITES)[use](f"{s3}/a")
    s3_refusing.clear()
    assert raised.value.where.startswith(f"{s3}/a")
    assert files.read_bytes(f"{s3}/a") == b"good"


class MarkerRefused:
    """A store like S3 that refuses the marker object which Arrow writes for the folder of a removed file."""

    type_name = "s3"

    def __init__(self, stays: bool) -> None:
        self._local, self._stays = fs.LocalFileSystem(), stays

    def get_file_info(self, path: str) -> fs.FileInfo:
        return self._local.get_file_info(path)

    def delete_file(self, path: str) -> None:
        if not self._stays:
            self._local.delete_file(path)
        raise OSError("When creating key 'out/': AWS Error ACCESS_DENIED")

    delete_dir = delete_file


@pytest.mark.parametrize("stays", [False, True])
def test_a_marker_that_a_store_refuses_is_no_failed_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    touch(tmp_path, "a")
    monkeypatch.setattr(files, "store_of", lambda path: (MarkerRefused(stays), path))
    with pytest.raises(InfeedError, match="ACCESS_DENIED") if stays else nullcontext():
        files.remove(f"{tmp_path}/a")
    assert (tmp_path / "a").exists() is stays


def test_no_marker_objects_stay_in_place_of_an_empty_folder(s3: str) -> None:
    files.write_bytes(f"{s3}/kept/a", b"")
    files.write_bytes(f"{s3}/kept/one/two/a", b"")
    files.remove(f"{s3}/kept/one/two/a")
    files.remove_if_empty(f"{s3}/kept/one/two")
    assert (files.list_folders(f"{s3}/kept"), len(files.list_files(f"{s3}/kept", depth=9))) == ([], 1)


def test_a_failed_removal_of_temporary_files_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise OSError("cannot be removed")

    monkeypatch.setattr(files, "remove", refuse)
    with pytest.raises(RuntimeError, match="the reason"), files.temporary(str(tmp_path)):
        raise RuntimeError("the reason")
    assert f"cannot remove {tmp_path}" in caplog.text


@pytest.mark.parametrize("scheme", ["s3", "gs", "hdfs", "https", "ftp", "minio", "abfs", "postgresql+psycopg"])
@pytest.mark.parametrize("user", ["KEY:", "KEY:a/", "KEY:@", ":", "KEY:8020"])
def test_a_password_in_a_uri_is_refused_and_shown_nowhere(scheme: str, user: str) -> None:
    password = str(len(scheme) * 123_456_789)
    for look in (files.exists, files.read_bytes, files.list_files, files.is_local):
        with pytest.raises(InfeedError, match="password") as raised:
            look(f"{scheme}://{user}{password}@host/folder/a")
        assert raised.value.where == f"{scheme}://***@host/folder/a"
        assert password not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "path",
    [
        "hdfs://host:8020/user@home/a:b@c",
        "hdfs://user@host:8020/a",
        "abfs://container@account.dfs.core.windows.net/a",
        "s3://bucket/a:b@c",
        "/data/a:b@c",
        "http://[::1]:9000/a@b",
        "file:///a:b@c",
    ],
)
def test_a_path_without_a_password_is_none(path: str) -> None:
    files.refuse_password(path)


def test_files_and_names_of_a_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a", "below/b")
    os.symlink("nowhere", tmp_path / "link")
    flushed: list[str] = []
    monkeypatch.setattr(files.os, "fsync", lambda handle: flushed.append(os.readlink(f"/proc/self/fd/{handle}")))
    files.sync(str(tmp_path))
    inside = ("a", "below", "below/b")
    assert sorted(flushed) == sorted([str(tmp_path), *(str(tmp_path / one) for one in inside)])


class Broken:
    """A file whose connection is lost after its first bytes."""

    def __init__(self) -> None:
        self._parts = iter([b"half"])

    def read(self, size: int) -> bytes:
        try:
            return next(self._parts)
        except StopIteration:
            raise OSError("connection lost") from None


def test_a_copy_that_fails_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a")
    monkeypatch.setattr(files, "open_input", lambda path, ahead: nullcontext(Broken()))
    with pytest.raises(InfeedError, match="connection lost"):
        files.copy(f"{tmp_path}/a", f"{tmp_path}/b")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.slow
def test_a_folder_is_copied_between_stores_and_disk(s3: str, gs: str, tmp_path: Path) -> None:
    touch(tmp_path, "here/a", "here/deep/b")
    for source, target in ((f"{tmp_path}/here", s3), (s3, gs), (gs, f"{gs}-2"), (f"{gs}-2", f"{tmp_path}/there")):
        files.copy(source, target)
        found = [(files.relative(file.path, target), file.size) for file in files.list_files(target, depth=2)]
        assert found == [("a", 6), ("deep/b", 11)]
