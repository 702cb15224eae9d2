"""What is kept of the last build."""

from __future__ import annotations

from pathlib import Path

import pytest

from infeed.pipelines.image.build import BuiltImage, last_built, remember

BUILT = BuiltImage("taxi:1", "taxi@sha256:7", "debian@sha256:5", "3.4GB", "docker", pushed=True, seconds=1.0)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_last_build_of_a_project_is_known_by_its_tag() -> None:
    remember(BUILT, "taxi")
    assert last_built("taxi:1", "taxi") == BUILT
    assert last_built("taxi:2", "taxi") is None
    assert last_built("taxi:1", "other") is None


@pytest.mark.parametrize("text", ["", "{", '{"tag": "taxi:1"}'])
def test_a_record_that_cannot_be_read_counts_as_none(text: str) -> None:
    remember(BUILT, "taxi")
    Path("runs/taxi/image.json").write_text(text)
    assert last_built("taxi:1", "taxi") is None
