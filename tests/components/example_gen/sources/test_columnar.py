from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opened_sources import batches_of, rows_of
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions, Part
from infeed.components.example_gen.formats import open_source
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources.columnar import RowGroups, cut, decoded_type, plan_groups
from infeed.components.example_gen.sources.reader_process import Limits


def test_small_row_groups_go_together() -> None:
    groups = plan_groups("a", [Part(10, 40), Part(10, 40), Part(10, 200), Part(10, 40)], block_bytes=100)
    assert list(groups) == [RowGroups("a", (0, 1), 1), RowGroups("a", (2,), 21), RowGroups("a", (3,), 31)]


@pytest.mark.parametrize("index", [1, 12_424, -1])
def test_an_index_that_a_damaged_dictionary_lacks_is_found(index: int) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(pa.ArrowException, match="out of bounds"):
        list(cut(pa.record_batch([words], names=["word"]), Limits(1 << 20, 1 << 20), "a.parquet", 1))


def test_fixed_size_lists_of_a_dictionary_keep_their_nulls_and_their_type() -> None:
    words = pa.array(["a", "b", None, None, "c", "a"]).dictionary_encode()
    whole = pa.FixedSizeListArray.from_arrays(words, 2)
    column = pc.if_else(pa.array([True, False, True]), whole, pa.scalar(None, whole.type))
    (batch,) = cut(pa.record_batch([column[1:]], names=["c"]), Limits(1 << 20, 1 << 20), "a.parquet", 1)
    assert batch["c"].type == decoded_type(column.type) == pa.list_(pa.string(), 2)
    assert batch["c"].to_pylist() == [None, ["c", "a"]]


def write_arrow(table: pa.Table, path: Path, open_writer: Callable[..., Any], chunk: int) -> None:
    with open_writer(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)


FORMS: dict[str, Callable[[pa.Table, Path, int], None]] = {
    "parquet": lambda table, path, chunk: pq.write_table(table, path, row_group_size=chunk),
    "arrow": lambda table, path, chunk: write_arrow(table, path, pa.ipc.new_file, chunk),
    "arrow stream": lambda table, path, chunk: write_arrow(table, path, pa.ipc.new_stream, chunk),
}
every_form = pytest.mark.parametrize("form", FORMS)


def opened(form: str, folder: Path, *tables: pa.Table, chunk: int = 100, **options: Any) -> OpenedSource:
    """The tables in a file each; `columns` is the option of the format."""
    columns, kind = options.pop("columns", None), form.split()[0]
    for number, table in enumerate(tables):
        FORMS[form](table, folder / f"{number}.{kind}", chunk)
    return open_source(str(folder), kind, IngestOptions(**options), {"columns": columns})


@every_form
def test_a_big_part_of_a_file_comes_in_blocks(form: str, tmp_path: Path) -> None:
    source = opened(form, tmp_path, pa.table({"n": range(2_000)}), chunk=2_000, block_bytes=2_000)
    assert len(source.tasks) == 1
    sizes = [batch.num_rows for batch in batches_of(source)]
    assert max(sizes) < 500
    assert sum(sizes) == 2_000


@every_form
def test_only_the_columns_asked_for_are_read(form: str, tmp_path: Path) -> None:
    unfit = pa.table({"n": [1, 2], "boxes": [[[1]]] * 2, "trip": [{"fare": 0.5, "paid": None}] * 2})
    source = opened(form, tmp_path, unfit, columns=["trip", "n"])
    assert source.schema.names == ["n", "trip.fare", "trip.paid"]
    assert sum(batch.num_rows for batch in batches_of(source)) == 2
    with pytest.raises(InfeedError, match=r"(?s)no column 'far'.*n, boxes, trip\.fare"):
        opened(form, tmp_path, columns=["far"])
    with pytest.raises(InfeedError, match=r"'boxes'(.|\n)*columns=") as error:  # no tf.Example holds lists of lists
        opened(form, tmp_path)
    assert f"{tmp_path}/0." in error.value.where


@every_form
def test_a_file_without_any_of_the_columns_asked_for_still_has_its_rows(form: str, tmp_path: Path) -> None:
    source = opened(form, tmp_path, pa.table({"x": [1]}), pa.table({"y": [2, 3]}), columns=["x"])
    assert rows_of(source) == [{"x": 1}, {"x": None}, {"x": None}]


@every_form
def test_a_bad_value_is_counted_over_the_file(form: str, tmp_path: Path) -> None:
    numbers = pa.array([2**63 if row == 777 else row for row in range(1_000)], pa.uint64())
    source = opened(form, tmp_path, pa.table({"u": numbers}), block_bytes=1_024)
    with pytest.raises(InfeedError, match="9223372036854775808 does not fit") as error:
        list(batches_of(source))
    assert error.value.where == f"{tmp_path}/0.{form.split()[0]}, line 778, column 'u'"
    assert sum(batch.num_rows for batch in batches_of(source, BadRows("reject", 1))) == 999


@pytest.mark.parametrize("name", ["table.parquet", "table.arrow", "table.feather"])
def test_a_pickled_type_is_refused_and_not_run(name: str, pickled_column: Path) -> None:
    kind = "parquet" if name == "table.parquet" else "arrow"
    with pytest.raises(InfeedError, match="Python extension type") as error:
        open_source(f"{pickled_column}/{name}", kind, IngestOptions(), {})
    assert error.value.where == f"{pickled_column}/{name}"
    assert not (pickled_column / "it-was-run").exists()
