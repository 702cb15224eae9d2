from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from infeed.components.dataset.shards import Part
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
