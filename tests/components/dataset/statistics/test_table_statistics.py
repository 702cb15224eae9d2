from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import names, records
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.dataset.statistics import table_statistics
from infeed.components.dataset.statistics.cells import Cells
from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.statistics.table_statistics import (
    Gatherer,
    TableStatistics,
    add,
    key_of,
    statistics_of,
    table_of,
)

TABLE = pa.RecordBatch.from_pydict(
    {
        "fare": pa.array([1.5, None, 0.0, 4.25], pa.float32()),
        "company": pa.array(["a", "b", None, "a"]),
        "stops": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
    }
)


def write(root: Path, *shards: pa.RecordBatch) -> None:
    for index, shard in enumerate(shards):
        path = f"{names.split_dir(str(root), 'train')}/{names.shard_name(index, len(shards), gzip=True)}"
        records.write_records(path, [records.frame_records(encode_examples(shard))], gzip_level=1)


def as_json(found: dict[str, ColumnStatistics]) -> dict[str, str]:
    return {name: json.dumps(column.plain()) for name, column in found.items()}


def test_a_dataset_of_somebody_else_is_read_once_and_left_alone(tmp_path: Path) -> None:
    root, cache = tmp_path / "data", str(tmp_path / "cache")
    write(root, TABLE.slice(0, 1), TABLE.slice(1))
    before = sorted(os.walk(root))
    found = statistics_of(str(root), "train", cache_dir=cache)
    assert as_json(found) == {
        name: json.dumps(ColumnStatistics.of(name, TABLE.column(TABLE.schema.names.index(name))).plain())
        for name in sorted(found)
    }
    assert sorted(found) == ["company", "fare", "stops"]
    assert sorted(os.walk(root)) == before
    kept = [file for file in os.listdir(cache) if file.startswith("statistics-")]
    assert len(kept) == 2


def test_files_that_are_not_divided_are_counted_and_described_in_one_pass(tmp_path: Path) -> None:
    write(tmp_path / "data", TABLE.slice(0, 1), TABLE.slice(1))
    passes: list[int] = []

    def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        there = list(items)
        passes.append(len(there))
        return map(function, there)

    for files_read in ([2], []):
        passes.clear()
        statistics_of(str(tmp_path / "data"), "train", cache_dir=str(tmp_path / "cache"), map_fn=run)
        assert [count for count in passes if count] == files_read


def test_a_table_wider_than_ingest_counts_is_read_on_demand(tmp_path: Path) -> None:
    columns = {f"column_{number:03d}": pa.array([number, None, -number]) for number in range(600)}
    write(tmp_path / "data", pa.RecordBatch.from_pydict(columns))
    found = statistics_of(str(tmp_path / "data"), "train", cache_dir=str(tmp_path / "cache"))
    assert sorted(found) == sorted(columns)
    assert {(column.rows, column.missing, column.mean) for column in found.values()} == {(3, 1, 0.0)}
    assert found["column_599"].maximum == 599


def test_a_shard_that_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = str(tmp_path / "cache")
    write(tmp_path / "one", TABLE.slice(0, 1), TABLE.slice(1))
    first = as_json(statistics_of(str(tmp_path / "one"), "train", cache_dir=cache))
    write(tmp_path / "two", TABLE.slice(0, 1), TABLE.slice(1))
    monkeypatch.setattr("infeed.components.dataset.statistics.table_statistics._read_range", None)
    assert as_json(statistics_of(str(tmp_path / "two"), "train", cache_dir=cache)) == first


def test_damaged_statistics_in_the_cache_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, cache = str(tmp_path / "data"), tmp_path / "cache"
    write(tmp_path / "data", TABLE)
    first = as_json(statistics_of(root, "train", cache_dir=str(cache)))
    [kept] = cache.glob("statistics-*")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert as_json(statistics_of(root, "train", cache_dir=str(cache))) == first
    assert "are damaged" in caplog.text


def test_a_column_of_nothing_at_all_has_a_name_and_no_statistics(tmp_path: Path) -> None:
    write(tmp_path, pa.RecordBatch.from_pydict({"x": [1, None], "nothing": pa.nulls(2)}))
    for _ in ("read", "kept"):
        table = table_of(str(tmp_path), "train", str(tmp_path / "cache"))
        assert (table.without_values, list(table.columns)) == (["nothing"], ["x"])


def test_only_the_columns_that_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, TABLE)
    cache = str(tmp_path / "cache")
    assert list(statistics_of(str(tmp_path), "train", ["stops"], cache)) == ["stops"]
    with pytest.raises(InfeedError, match=r"no column 'x'(.|\n)*'company', 'fare', 'stops'"):
        statistics_of(str(tmp_path), "train", ["x"], cache)
    with pytest.raises(InfeedError, match=r"no split 'test'(.|\n)*use one of train"):
        statistics_of(str(tmp_path), "test", cache_dir=cache)


def test_records_that_are_no_examples_are_an_error(tmp_path: Path) -> None:
    framed = records.frame_records(pa.array([b"nonsense"], pa.large_binary()))
    path = f"{names.split_dir(str(tmp_path), 'train')}/data_tfrecord-00000-of-00001"
    records.write_records(path, [framed], gzip_level=None)
    with pytest.raises(InfeedError, match=r"not a serialized tf.Example(.|\n)*data_tfrecord-00000"):
        statistics_of(str(tmp_path), "train", cache_dir=str(tmp_path / "cache"))


def test_a_corrupt_record_keeps_its_place(tmp_path: Path) -> None:
    write(tmp_path, TABLE)
    [shard] = Path(names.split_dir(str(tmp_path), "train")).iterdir()
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(InfeedError) as raised:
        statistics_of(str(tmp_path), "train", cache_dir=str(tmp_path / "cache"))
    assert "record" in raised.value.where
    assert "type" not in raised.value.do


def test_a_feature_of_two_types_is_an_error(tmp_path: Path) -> None:
    shards = [pa.RecordBatch.from_pydict({"x": pa.array([value])}) for value in (1, "a")]
    write(tmp_path, *shards)
    with pytest.raises(InfeedError, match=r"column 'x' is int, but 'x' is bytes(.|\n)*one type for each feature"):
        statistics_of(str(tmp_path), "train", cache_dir=str(tmp_path / "cache"))


def test_a_column_that_a_part_lacks_is_missing_there() -> None:
    one = TableStatistics(2, {"x": ColumnStatistics.of("x", pa.array([1, 2]))})
    both = add([one, TableStatistics(3, {"y": ColumnStatistics.of("y", pa.array(["a", "b", None]))})])
    assert both.rows == 5
    assert {name: (column.rows, column.missing) for name, column in both.columns.items()} == {"x": (5, 3), "y": (5, 3)}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda plain: plain.update(format=2), "format is 2"),
        (lambda plain: plain.update(rows=3), "has 2 rows of 3"),
        (lambda plain: plain["columns"].append(plain["columns"][0]), "occurs twice"),
        (lambda plain: plain["columns"][0].pop("zeros"), "zeros is missing"),
    ],
)
def test_tampered_statistics_are_an_error_that_names_the_file(tmp_path: Path, damage: object, says: str) -> None:
    path = tmp_path / "statistics-train.json"
    TableStatistics(2, {"x": ColumnStatistics.of("x", pa.array([1, 2]))}).write(str(path), "key")
    assert TableStatistics.read(str(path), "another") is None
    plain = json.loads(path.read_bytes())
    damage(plain)  # type: ignore[operator]
    path.write_text(json.dumps(plain))
    with pytest.raises(InfeedError, match=rf"cannot read the statistics: .*{says}(.|\n)*statistics-train.json"):
        TableStatistics.read(str(path), "key")


def test_a_key_tells_splits_apart() -> None:
    one, other = (Split.of((Shard("Split-train/a", 3, 10, crc),)) for crc in ("00000000", "00000001"))
    assert key_of(one) != key_of(other)


def cells(**columns: list[Any]) -> dict[str, Cells]:
    found = {name: Cells.of(pa.array(values)) for name, values in columns.items()}
    return {name: column for name, column in found.items() if column is not None}


@pytest.mark.parametrize("waiting", [0, 1 << 20])
def test_blocks_give_what_the_whole_gives_however_many_are_put_together(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_statistics, "_WAITING_BYTES", waiting)
    monkeypatch.setattr(table_statistics, "_MANY_ROWS", 0)
    rows = np.random.default_rng(0).integers(0, 50, 900).tolist()
    words = [None if row % 9 == 0 else f"w{row}" for row in rows]
    gathered = Gatherer()
    for start in range(0, 900, 100):
        part = slice(start, start + 100)
        gathered.add(100, cells(number=rows[part], word=words[part]))
    found = gathered.statistics()
    assert found.rows == 900
    assert found.columns["number"].plain() == ColumnStatistics.of("number", pa.array(rows)).plain()
    assert found.columns["word"].plain() == ColumnStatistics.of("word", pa.array(words)).plain()


@pytest.mark.parametrize(("rows", "bound"), [(0, "_WAITING_BYTES"), (10_000, "_WIDE_WAITING_BYTES")])
def test_no_more_than_some_bytes_wait(rows: int, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_statistics, "_MANY_ROWS", rows)
    monkeypatch.setattr(table_statistics, bound, 5_000)
    gathered, waited = Gatherer(), []
    for _ in range(20):
        gathered.add(100, cells(x=list(range(100))))
        waited.append(gathered._bytes)
    assert max(waited) <= 5_000
    assert gathered.statistics().rows == 2_000


def test_a_block_may_lack_a_column() -> None:
    gathered = Gatherer()
    gathered.add(2, cells(x=[1, 2], y=["a", "b"]))
    gathered.add(3, cells(x=[3, 4, 5]))
    gathered.add(1, {})
    found = gathered.statistics()
    assert {name: (column.rows, column.missing) for name, column in found.columns.items()} == {"x": (6, 1), "y": (6, 4)}


def test_a_column_of_another_type_is_refused() -> None:
    gathered = Gatherer()
    gathered.add(1, cells(x=[1]))
    gathered.add(1, cells(x=["a"]))
    with pytest.raises(ValueError, match="'x' is int, but 'x' is bytes"):
        gathered.statistics()


def test_nothing_is_known_of_nothing() -> None:
    assert (Gatherer().statistics().rows, Gatherer().statistics().columns) == (0, {})
