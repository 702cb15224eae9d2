"""Checkpoints in an S3 store: what reaches the store after each save, and what comes back."""

from pathlib import Path

import pytest

from infeed.components.dataset import files
from infeed.components.trainer.checkpoint import CheckpointMirror


def save(mirror: CheckpointMirror, number: int) -> None:
    """Write the files of a checkpoint of TensorFlow, and remove the one two before."""
    folder = Path(mirror.local)
    for ending in ("index", "data-00000-of-00001"):
        (folder / f"ckpt-{number}.{ending}").write_bytes(b"%d" % number)
        (folder / f"ckpt-{number - 2}.{ending}").unlink(missing_ok=True)
    (folder / "checkpoint").write_text(f"ckpt-{number}")


def opened(folder: str) -> CheckpointMirror:
    mirror = CheckpointMirror.of(folder)
    assert mirror is not None
    return mirror


def names(folder: str) -> list[str]:
    return [files.name(file.path) for file in files.list_files(folder)]


@pytest.mark.parametrize("folder", ["/mnt/disk/checkpoints", "gs://bucket/checkpoints", "runs/checkpoints"])
def test_tensorflow_opens_other_places_itself(folder: str) -> None:
    assert CheckpointMirror.of(folder) is None


def test_the_store_holds_what_this_machine_holds(s3: str) -> None:
    mirror = opened(f"{s3}/run")
    for number in (1, 2, 3):
        save(mirror, number)
        mirror.upload()
    assert names(f"{s3}/run") == [
        "checkpoint",
        "ckpt-2.data-00000-of-00001",
        "ckpt-2.index",
        "ckpt-3.data-00000-of-00001",
        "ckpt-3.index",
    ]
    assert files.read_bytes(f"{s3}/run/checkpoint") == b"ckpt-3"


def test_another_machine_goes_on_from_the_store(s3: str) -> None:
    first = opened(f"{s3}/run")
    save(first, 1)
    first.upload()
    second = opened(f"{s3}/run")
    assert sorted(path.name for path in Path(second.local).iterdir()) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]
    second.remove()
    assert names(f"{s3}/run") == []
    assert list(Path(opened(f"{s3}/run").local).iterdir()) == []
