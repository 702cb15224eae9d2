"""The benchmark of ingestion runs each contender that needs no other package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infeed.components.dataset.manifest import Manifest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the scripts import one another by name


@pytest.mark.tfx
@pytest.mark.parametrize("form", ["csv", "parquet", "png"])
def test_each_format_is_ingested_without_beam(form: str, tmp_path: Path) -> None:
    import ingest

    data, out = tmp_path / "data", tmp_path / "out"
    ingest.TABLES[form](data, 30, 3) if form in ingest.TABLES else ingest.write_images(data, 30, form)
    ingest.make_contenders(form, out)["infeed without Beam"].run(data)
    splits = Manifest.read(str(out)).splits.values()
    assert sum(shard.records for split in splits for shard in split.shards) == 30
