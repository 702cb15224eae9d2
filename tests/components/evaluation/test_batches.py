from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.reading import ShardRange
from infeed.components.evaluation.batches import (
    Batch,
    KnownColumn,
    SliceSpec,
    Values,
    batches_of,
    input_shards,
    known_columns,
    slice_rows,
)


def test_shards_come_split_by_split(dataset: str) -> None:
    found = input_shards([dataset], None)
    assert [(shard.split, Path(shard.path).name) for shard in found] == [
        ("eval", "data_tfrecord-00000-of-00001.gz"),
        ("train", "data_tfrecord-00000-of-00002.gz"),
        ("train", "data_tfrecord-00001-of-00002.gz"),
    ]
    assert [shard.split for shard in input_shards([dataset], ["eval"])] == ["eval"]


def test_a_split_that_is_not_there_is_refused(dataset: str) -> None:
    with pytest.raises(InfeedError, match=r"no split 'test'(?s:.*)use one of 'eval', 'train'"):
        input_shards([dataset], ["train", "test"])


def test_batches_hold_at_most_so_many_rows_and_say_where_they_are(dataset: str) -> None:
    shard = input_shards([dataset], ["eval"])[0]
    found = list(batches_of(shard, 2))
    assert [(batch.start, len(batch.records)) for batch in found] == [(0, 2), (2, 2), (4, 1)]
    assert found[1].where() == f"{shard.path}, records 2 to 3"
    assert found[1].where(1) == f"{shard.path}, record 3"
    assert [word.as_py() for batch in found for word in batch.columns["id"].flatten()] == [
        b"row %d" % i for i in range(5, 10)
    ]


def test_large_records_make_small_batches(dataset: str) -> None:
    [shard] = input_shards([dataset], ["eval"])
    sizes = [len(batch.records[0]) for batch in batches_of(shard, 1)]
    assert [len(batch.records) for batch in batches_of(shard, 100, 2 * max(sizes))] == [2, 2, 1]
    assert [len(batch.records) for batch in batches_of(shard, 100, 1)] == [1] * 5  # one record is never too large


def test_columns_are_known_over_all_splits(dataset: str) -> None:
    assert known_columns(input_shards([dataset], None)) == {
        "bytes": KnownColumn("bytes", is_list=False, is_text=False, some_missing=False),
        "id": KnownColumn("bytes", is_list=False, is_text=True, some_missing=False),
        "number": KnownColumn("int", is_list=False, is_text=False, some_missing=True),
        "pair": KnownColumn("int", is_list=True, is_text=False, some_missing=False),
        "tags": KnownColumn("bytes", is_list=True, is_text=True, some_missing=True),
        "x": KnownColumn("float", is_list=False, is_text=False, some_missing=True),
    }


def test_a_column_of_two_types_is_refused(make_dataset: Callable[..., str], dataset: str) -> None:
    other = make_dataset({"id": [1, 2]})
    with pytest.raises(InfeedError, match="column 'id' is bytes and int"):
        known_columns(input_shards([dataset, other], ["train"]))


def test_records_that_are_no_examples_are_refused_where_columns_are_asked_for() -> None:
    with pytest.raises(InfeedError, match=r"(?s)not a serialized tf.Example.*shard.gz, records 5 to 5"):
        _ = Batch("shard.gz", 5, [b"\xff"]).columns


def test_a_damaged_shard_is_named_with_the_record(make_dataset: Callable[..., str]) -> None:
    path = Path(make_dataset({"id": ["a", "b"]}), "Split-train", "data_tfrecord-00000-of-00001.gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InfeedError, match=r"data_tfrecord-00000-of-00001.gz, record \d"):
        list(batches_of(ShardRange("train", str(path)), 10))


COLUMNS = ("a", "b", "c")
rows = st.lists(st.tuples(*[st.lists(st.sampled_from("xyz"), max_size=3)] * 3), min_size=1, max_size=12)
crosses = st.sets(st.sampled_from(COLUMNS), max_size=3)
values = st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from("xyz"), max_size=2)


def column(lists: list[list[Any]]) -> Values:
    flat = [value for inside in lists for value in inside]
    return Values(np.repeat(np.arange(len(lists)), [len(inside) for inside in lists]), np.array(flat, object))


@given(table=rows, crossed=crosses, given_values=values)
def test_rows_are_in_the_slices_of_all_their_values(
    table: Any, crossed: set[str], given_values: dict[str, str]
) -> None:
    spec = SliceSpec(tuple(sorted(crossed - given_values.keys())), tuple(sorted(given_values.items())))
    columns = {name: column([[v.encode() for v in row[i]] for row in table]) for i, name in enumerate(COLUMNS)}
    expected: dict[Any, list[int]] = {}
    for number, row in enumerate(table):
        of_row = {name: sorted(set(row[i])) for i, name in enumerate(COLUMNS)}
        if all(value in of_row[name] for name, value in given_values.items()):
            for parts in itertools.product(*([(name, value) for value in of_row[name]] for name in spec.columns)):
                expected.setdefault(tuple(sorted([*spec.values, *parts])), []).append(number)
    (found,) = slice_rows([spec], len(table), columns.get)
    assert {key: inside.tolist() for key, inside in found.items()} == expected


def test_without_columns_it_is_all_rows() -> None:
    assert slice_rows([SliceSpec((), ())], 3, {}.get)[0][()].tolist() == [0, 1, 2]


def test_a_column_that_the_batch_lacks_has_no_slices() -> None:
    assert slice_rows([SliceSpec(("a",), ()), SliceSpec((), (("a", 1),))], 3, {}.get) == [{}, {}]


def test_numbers_are_values_too() -> None:
    numbers = Values.of(np.array([[5, 5], [5, 7]]))
    (found,) = slice_rows([SliceSpec(("n",), ())], 2, {"n": numbers}.get)
    assert {key: inside.tolist() for key, inside in found.items()} == {(("n", 5),): [0, 1], (("n", 7),): [1]}


def test_values_of_several_models_are_one_column() -> None:
    both = Values.of(np.array([1, 2])).joined(Values.of(np.array([1, 3])))
    (found,) = slice_rows([SliceSpec(("n",), ())], 2, {"n": both}.get)
    assert {key[0][1]: inside.tolist() for key, inside in found.items()} == {1: [0], 2: [1], 3: [1]}


def test_a_spec_of_tfma_says_what_its_values_look_like() -> None:
    class Spec:
        feature_keys = ["b", "a"]
        feature_values = {"n": "5", "f": "0.5", "t": "five", "v": "1.2.3"}

    spec = SliceSpec.of(Spec)
    assert spec.columns == ("a", "b")
    assert dict(spec.values) == {"n": 5, "f": 0.5, "t": "five", "v": "1.2.3"}
    assert str(SliceSpec(("a",), (("n", 5),))) == "n = 5 and each value of a"


def test_a_value_that_is_no_text_is_an_error() -> None:
    with pytest.raises(InfeedError, match=r"a value of column 'a' is not UTF-8: b'\\xff'"):
        slice_rows([SliceSpec(("a",), ())], 1, {"a": column([[b"\xff"]])}.get)
