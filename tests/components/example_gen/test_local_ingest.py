"""`infeed.ingest`: the command as a function."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.example_gen.local import ingest


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{row},x\n" for row in range(30)))
    return str(path)


def test_a_file_becomes_a_dataset(table, tmp_path):
    output = str(tmp_path / "out")
    options = IngestOptions(shards=ShardOptions(count=2))
    written = ingest(table, output, splits={"all": 1}, options=options, source_options={"header": True}, workers=1)
    assert written == Manifest.read(output)
    assert [column.name for column in written.schema] == ["a", "b"]
    assert (written.splits["all"].records, len(written.splits["all"].shards)) == (30, 2)


def test_by_default_two_rows_of_three_are_for_training(table, tmp_path):
    assert list(ingest(table, str(tmp_path / "out")).splits) == ["train", "eval"]


def test_rows_without_a_label_are_accounted_for_as_filtered(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,\n2,p\n3,q\n,p\n,\n6,\n")
    options = IngestOptions(labeled=("y",), required=("a",), on_bad_row="reject")
    written = ingest(tmp_path / "t.csv", tmp_path / "out", splits={"all": 1}, options=options)
    assert (written.rows_read, written.filtered, written.rejected.rows) == (6, 3, 1)
    assert written.splits["all"].records == 2


@pytest.mark.parametrize("pattern", ["*.parquet", "empty.parquet"])
def test_an_input_without_rows_is_named(tmp_path, pattern):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    with pytest.raises(InfeedError, match="no rows in the input") as raised:
        ingest(tmp_path / pattern, tmp_path / "out")
    assert raised.value.where == str(tmp_path / pattern)


def test_source_and_output_may_be_paths(table, tmp_path):
    assert ingest(Path(table), tmp_path / "out") == Manifest.read(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": None}, r"type NoneType(.|\n)*source \(NoneType\)"),
        ({"output": ["a"]}, r"output is of the type list(.|\n)*infeed.ingest, output\n"),
        ({"splits": ["train"]}, r"splits is \['train'\](.|\n)*names and shares"),
        ({"options": {"level": 3}}, r"options is {'level': 3}(.|\n)*give IngestOptions"),
        ({"source_options": "a"}, r"source_options is 'a'(.|\n)*names and values"),
        ({"workers": "two"}, r"workers is 'two'(.|\n)*a number of processes"),
        ({"workers": -1}, r"workers is -1(.|\n)*1 or more"),
        ({"format": "cvs"}, r"format is 'cvs'(.|\n)*table.csv\n(.|\n)*use one of csv"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(table, tmp_path, given, said):
    with pytest.raises(InfeedError, match=said):
        ingest(**{"source": table, "output": str(tmp_path / "out"), **given})
    assert not (tmp_path / "out").exists()


def test_what_is_there_stays_unless_it_may_be_replaced(table, tmp_path):
    output = str(tmp_path / "out")
    first = ingest(table, output)
    with pytest.raises(InfeedError, match="OUTPUT exists"):
        ingest(table, output)
    assert ingest(table, output, overwrite=True).splits == first.splits
    with pytest.raises(InfeedError, match="source_options"):
        ingest(table, str(tmp_path / "other"), source_options={"delimeter": ";"})


@pytest.mark.parametrize(("source_bytes", "place"), [(1 << 20, "in this process"), (1 << 40, "on 3 processes")])
def test_more_processes_only_where_they_pay(
    source_bytes: int, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from infeed.components.base import machine
    from infeed.components.engine.choice import choose
    from infeed.components.example_gen.formats import open_source
    from infeed.components.example_gen.local import work_of

    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("a\n1\n")
    opened = open_source(str(tmp_path), "csv", IngestOptions(), {}, "")
    opened = replace(opened, provenance=replace(opened.provenance, bytes=source_bytes))
    monkeypatch.setattr(machine, "cpus", lambda: 8)
    assert choose(work_of(opened)).place == place
