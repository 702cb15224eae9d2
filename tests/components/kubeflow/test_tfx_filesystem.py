"""TFX's `fileio` in an S3 store, which TensorFlow cannot open; compared with TFX's own calls."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


@pytest.fixture
def bucket(s3: str) -> str:
    from infeed.components.kubeflow import tfx_filesystem

    tfx_filesystem.register()
    return s3


def test_files_are_written_read_and_listed(bucket: str) -> None:
    from tfx.dsl.io import fileio

    with fileio.open(f"{bucket}/a/text.txt", "w") as file:
        file.write("Bern\n")
    with fileio.open(f"{bucket}/a/b/bytes", "wb") as file:
        file.write(b"\x00\x01")
    assert fileio.open(f"{bucket}/a/text.txt").read() == "Bern\n"
    assert fileio.open(f"{bucket}/a/b/bytes", "rb").read() == b"\x00\x01"
    assert sorted(fileio.listdir(f"{bucket}/a")) == ["b", "text.txt"]
    assert fileio.glob(f"{bucket}/a/*.txt") == [f"{bucket}/a/text.txt"]
    assert [*fileio.walk(f"{bucket}/a")] == [(f"{bucket}/a", ["b"], ["text.txt"]), (f"{bucket}/a/b", [], ["bytes"])]
    assert fileio.isdir(f"{bucket}/a/b")
    assert not fileio.exists(f"{bucket}/c")


def test_a_missing_file_is_tfx_own_error(bucket: str) -> None:
    from tfx.dsl.io import fileio

    with pytest.raises(fileio.NotFoundError):
        fileio.open(f"{bucket}/missing", "rb")


def test_a_folder_is_copied_to_the_store_as_pusher_copies_it(bucket: str, tmp_path: Path) -> None:
    from tfx.dsl.io import fileio
    from tfx.utils import io_utils

    (tmp_path / "model" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "model" / "variables" / "variables.index").write_bytes(b"index")
    io_utils.copy_dir(str(tmp_path / "model"), f"{bucket}/serving/1")
    assert fileio.open(f"{bucket}/serving/1/variables/variables.index", "rb").read() == b"index"
    with pytest.raises(OSError, match="serving/1/saved_model"):
        fileio.copy(str(tmp_path / "model" / "saved_model.pb"), f"{bucket}/serving/1/saved_model.pb")
    fileio.rmtree(f"{bucket}/serving")
    assert not fileio.exists(f"{bucket}/serving/1")
