"""Records that cannot become columns: the error names file and record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import record_blocks
from infeed.components.dataset.encode import encode_examples
from infeed.components.load import spill
from infeed.components.load.spill import spill_records


def example(**features) -> bytes:
    columns = [pa.array([value]) for value in features.values()]
    return encode_examples(pa.record_batch(columns, list(features)))[0].as_py()


GOOD = example(x=1, y="a")
# A SequenceExample whose feature list `z` has an integer, or none.
SEQUENCE = GOOD + b"\x12\x10\x0a\x0e\x0a\x01z\x12\x09\x0a\x00\x0a\x05\x1a\x03\x0a\x01\x07"
EMPTY = GOOD + b"\x12\x09\x0a\x07\x0a\x01z\x12\x02\x0a\x00"
FLOATS = GOOD + b"\x12\x11\x0a\x0f\x0a\x01z\x12\x0a\x0a\x08\x12\x06\x0a\x04\x00\x00\x80\x3f"


@pytest.mark.parametrize("block", [1, 2, 8], ids="{} records decoded at a time".format)
@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([GOOD, GOOD, b"\xff no Example"], r"not a serialized tf.Example"),
        ([GOOD, SEQUENCE, FLOATS], r"feature 'feature_lists/z' is float(32)?, but int(64)? in earlier records"),
        ([GOOD, SEQUENCE, SEQUENCE[:-1]], r"not a serialized tf.Example"),
        ([GOOD, GOOD, b"\x1a\x03abc"], r"not a serialized tf.Example: the record has no features"),
        ([GOOD, GOOD, example(x=1.5, y="a")], r"feature 'x' is float(32)?, but int(64)? in earlier records"),
    ],
)
def test_a_record_that_does_not_fit(write, tmp_path, monkeypatch, block, records, said):
    monkeypatch.setattr(record_blocks, "_RECORDS", block)
    path = write("a.tfrecord", records)
    with pytest.raises(InfeedError, match=rf"{said}(.|\n)*where: {path}, record 2\n(.|\n)*write tf.Examples"):
        spill_records([path], tmp_path, None)


@pytest.mark.parametrize(
    ("lists", "record", "before"),
    [
        ([{"z": [[1], [1.5]]}], 0, "an earlier step of the record"),
        ([{"z": [[1]]}, {"z": [[], [1.5], [2]]}], 1, "earlier records"),
    ],
)
def test_a_list_of_two_types_names_where_the_other_type_is(write, wire, tmp_path, lists, record, before):
    path = write("a.tfrecord", [wire.sequence_example({}, one) for one in lists])
    with pytest.raises(InfeedError, match=rf"'feature_lists/z' is float, but int in {before}\n.*, record {record}\n"):
        spill_records([path], tmp_path, None)


A_LIST, ITS_NAME = ({}, {"z": [[1]]}), ({"feature_lists/z": [1]}, {})
NO_KIND = ({}, {"z": [None]})
BOTH = ({"feature_lists/z": [1]}, {"z": [[1]]})


@pytest.mark.parametrize("block", [1, 2, 8], ids="{} records decoded at a time".format)
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize(
    "records",
    [
        [A_LIST, A_LIST, ITS_NAME],
        [ITS_NAME, ITS_NAME, A_LIST],
        [A_LIST, A_LIST, BOTH],
        [({}, {}), A_LIST, BOTH],
        [ITS_NAME, ITS_NAME, NO_KIND, A_LIST],
    ],
)
def test_a_feature_with_the_name_of_a_list_is_named(write, wire, tmp_path, monkeypatch, block, unpacked, records):
    monkeypatch.setattr(record_blocks, "_RECORDS", block)
    payloads = [wire.sequence_example(*one) for one in records]
    if unpacked:
        payloads[2] += b"\x7a\x03abc"  # an unknown field, so that the record is decoded alone
    path = write("a.tfrecord", payloads)
    with pytest.raises(
        InfeedError, match="feature 'feature_lists/z' has the name of a column of feature lists"
    ) as error:
        spill_records([path], tmp_path, None)
    assert error.value.where == f"{path}, record 2"


def test_a_list_without_a_kind_whose_name_a_feature_has_is_named(write, wire, tmp_path):
    rewritten = wire.sequence_example({}, {"z": [None]}) + b"\x7a\x03abc"
    path = write("a.tfrecord", [wire.sequence_example(*ITS_NAME), rewritten])
    with pytest.raises(InfeedError, match="'feature_lists/z'") as error:
        spill_records([path], tmp_path, None)
    assert error.value.where == f"{path}, record 1"


@pytest.mark.parametrize("block", [1, 2, 8], ids="{} records decoded at a time".format)
def test_a_step_of_another_type_is_in_the_first_record_with_a_value(write, wire, tmp_path, monkeypatch, block):
    monkeypatch.setattr(record_blocks, "_RECORDS", block)
    lists = [{}, {"z": []}, {"z": [None]}, {"z": [None, [1.5]]}]
    first = write("a.tfrecord", [wire.sequence_example({}, {"z": [[1]]})] * 2)
    second = write("b.tfrecord", [wire.sequence_example({"x": [1]}, one) for one in lists])
    with pytest.raises(InfeedError, match="'feature_lists/z' is float32, but int64 in earlier records") as error:
        spill_records([first, second], tmp_path, None)
    assert error.value.where == f"{second}, record 3"


def test_a_bad_record_that_cannot_be_told_is_within_its_block(write, tmp_path, monkeypatch):
    monkeypatch.setattr(record_blocks, "_RECORDS", 2)
    path = write("a.tfrecord", [GOOD, GOOD, GOOD, example(x=2)])

    def refuse(block: record_blocks.RecordBlock) -> None:
        if example(x=2) in block.payloads(np.arange(len(block))):
            raise ValueError("odd")

    monkeypatch.setattr(spill, "_check_examples", refuse)
    with pytest.raises(InfeedError, match="odd") as error:
        spill_records([path], tmp_path, None)
    assert error.value.where == f"{path}, records 2 to 3"


def test_a_feature_that_comes_later_was_missing_before(write, tmp_path, monkeypatch):
    monkeypatch.setattr(record_blocks, "_RECORDS", 2)
    paths = [write("a.tfrecord", [example(x=1)] * 3), write("b.tfrecord", [b"", example(y="b"), example(x=2, y="c")])]
    features, records = spill_records(paths, tmp_path, None)
    assert records == [3, 3]
    assert {name: one.counts.tolist() for name, one in features.items()} == {
        "x": [1, 1, 1, 0, 0, 1],
        "y": [0, 0, 0, 0, 1, 1],
    }
    assert {name: (one.least, one.most, one.nulls) for name, one in features.items()} == {
        "x": (0, 1, 2),
        "y": (0, 1, 4),
    }
    assert (features["x"].data.tolist(), bytes(features["y"].data)) == ([1, 1, 1, 2], b"bc")


@pytest.mark.parametrize("block", [1, 2, 8], ids="{} records decoded at a time".format)
def test_a_feature_list_has_the_counts_of_its_steps_even_before_its_first_value(write, tmp_path, monkeypatch, block):
    monkeypatch.setattr(record_blocks, "_RECORDS", block)
    features, _ = spill_records([write("a.tfrecord", [GOOD, EMPTY, SEQUENCE])], tmp_path, None)
    found = features["feature_lists/z"]
    assert (found.kind, found.counts.tolist(), found.nulls) == ("int64", [0, 1, 2], 1)
    assert found.steps is not None
    assert (found.steps.counts.tolist(), found.data.tolist()) == ([0, 0, 1], [7])


def test_a_file_that_is_cut_off(write, tmp_path):
    path = write("a.tfrecord", [GOOD] * 3)
    with open(path, "r+b") as file:
        file.truncate(len(GOOD) + 20)
    with pytest.raises(InfeedError, match=rf"truncated record(.|\n)*{path}, record 1"):
        spill_records([path], tmp_path, None)


def test_the_files_are_the_same_however_many_threads_decode(write, tmp_path, monkeypatch):
    monkeypatch.setattr(record_blocks, "_RECORDS", 3)
    paths = [
        write(f"{file}.tfrecord", [example(x=file * 20 + row, y=f"{row}" * row) for row in range(20)])
        for file in range(3)
    ]
    found = []
    for threads in (1, 4):
        folder = tmp_path / f"{threads}"
        folder.mkdir()
        assert spill_records(paths, folder, None, threads)[1] == [20, 20, 20]
        found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert found[0] == found[1]
    assert found[0].keys() == {"0.counts", "0.values", "1.counts", "1.sizes", "1.values"}


def test_an_unknown_field_is_skipped(write, tmp_path):
    path = write("a.tfrecord", [GOOD, GOOD + b"\x7a\x03abc", b"\x78\x05" + GOOD])
    features, records = spill_records([path], tmp_path, None)
    assert (records, features["x"].counts.tolist()) == ([3], [1, 1, 1])
