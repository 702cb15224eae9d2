"""The cache of analyzers is laid out as tft's own, which reads it; a damaged or hostile one is not believed."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

import pytest

pytestmark = pytest.mark.tfx

ENTRIES = {b"mean-\xff": [b"[1, 2]"], b"words": [b"a", b"b"], b"nothing": []}


def dataset(name: str = "span-1"):
    from tensorflow_transform.beam import analyzer_cache

    return analyzer_cache.DatasetKey(name)


def test_what_is_written_is_found(tmp_path: Path) -> None:
    from infeed.components.transform.in_process import cache

    cache.write(str(tmp_path), {dataset(): ENTRIES})
    found = cache.find(str(tmp_path), [dataset(), dataset("span-2")])
    assert {key: list(cache.read(paths)) for key, paths in found[dataset()].items()} == ENTRIES
    assert found.keys() == {dataset()}


def test_tft_reads_the_manifest_and_finds_the_files(tmp_path: Path) -> None:
    from tensorflow_transform.beam import analyzer_cache

    from infeed.components.transform.in_process import cache

    cache.write(str(tmp_path), {dataset(): ENTRIES})
    folder = analyzer_cache._get_dataset_cache_path(str(tmp_path), dataset())
    numbers = analyzer_cache._ManifestFile(folder).read()
    assert numbers == {b"mean-\xff": 0, b"words": 1, b"nothing": 2}
    assert {file.name for file in Path(folder).iterdir()} == {
        "MANIFEST",
        *(f"{number}-00000-of-00001.gz" for number in numbers.values()),
    }


def test_more_is_added_to_what_is_there(tmp_path: Path) -> None:
    from infeed.components.transform.in_process import cache

    cache.write(str(tmp_path), {dataset(): {b"one": [b"1"]}})
    cache.write(str(tmp_path), {dataset(): {b"two": [b"2"]}})
    found = cache.find(str(tmp_path), [dataset()])[dataset()]
    assert {key: list(cache.read(paths)) for key, paths in found.items()} == {b"one": [b"1"], b"two": [b"2"]}


class Hostile:
    def __reduce__(self):
        return os.mkdir, (self.folder,)

    def __init__(self, folder: str) -> None:
        self.folder = folder


def test_a_manifest_that_would_call_something_calls_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from infeed.components.transform.in_process import cache

    (tmp_path / "span-1").mkdir()
    (tmp_path / "span-1" / "MANIFEST").write_bytes(pickle.dumps(Hostile(str(tmp_path / "made"))))
    with caplog.at_level(logging.WARNING):
        assert cache.find(str(tmp_path), [dataset()]) == {}
    assert not (tmp_path / "made").exists()
    assert "damaged, so the span is analyzed again: it names posix.mkdir" in caplog.text
