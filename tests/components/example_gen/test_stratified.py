"""The rows of an exact split are those that ingest writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets, ByLabel, ByRecord, SplitBy
from infeed.components.example_gen import spills
from infeed.components.example_gen.chosen import choose_rows
from infeed.components.example_gen.formats import open_patterns
from infeed.components.example_gen.ingest import Job, ingest
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.stratified import stratified_rows


@pytest.mark.parametrize("split_by", [ByLabel("y"), ByRecord("", exact=True)])
@pytest.mark.parametrize("run_bytes", [1, 3_000, 1 << 20])
@pytest.mark.parametrize("files", [("train",), ("train", "test")])
def test_they_are_found_without_writing_them(
    tmp_path: Path,
    files: tuple[str, ...],
    split_by: SplitBy,
    run_bytes: int,
    read_split: Callable[[str, str], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spills, "_RUN_BYTES", run_bytes)
    for number, name in enumerate(files):
        rows = "".join(f"{name}{i},{i},{'rare' if i % 25 == 0 else 'ab'[i % 2]}\n" for i in range(400 >> number))
        (tmp_path / f"{name}.csv").write_text("text,x,y\n" + rows)
    patterns: dict[str | None, str] = {None: "train.csv", **{name: f"{name}.csv" for name in files[1:]}}
    options = IngestOptions(split_by=split_by, filter="x > 5", shuffle_seed=3, block_bytes=2_000)
    buckets = Buckets((("train", 3), ("eval", 1)))
    names = (*buckets.names, *files[1:])
    source = open_patterns("csv", str(tmp_path), patterns, options, {})
    job = Job.of(source, root=str(tmp_path / "out"), splits=names, buckets=buckets, options=options)
    ingest(source.tasks, job)
    for split in buckets.names:
        found = stratified_rows(source, len(names), buckets, options, split)
        assert len(found) > 1  # blocks
        expected = []
        for task in source.tasks:
            for number, batch in enumerate(source.read(task.payload, bad_rows=BadRows()), start=1):
                chosen = choose_rows(batch, options, "", BadRows())
                if (task.order, number) in found:
                    expected += encode_examples(chosen.take(found[task.order, number].tolist())).to_pylist()
        assert sorted(read_split(str(tmp_path / "out"), split)) == sorted(expected)
