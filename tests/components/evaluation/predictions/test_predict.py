"""What is written is what the model says of each row, beside what the row is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.records import read_records
from infeed.components.evaluation.predictions.layout import PredictOptions, _filler
from infeed.components.evaluation.predictions.predict import ProgressFile, predict, write_predictions

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

X = [-1.0 if i == 4 else i / 2 for i in range(10)]  # what the model makes of the rows of `train`


def values_in(path: str) -> list[dict[str, list[Any]]]:
    """Of each tf.Example in a file, the values of each feature."""
    decoded = (decode_example(record) for record in read_records(path))
    return [{name: list(feature.values) for name, feature in one.features.items()} for one in decoded]


def test_each_row_has_its_keys_its_columns_and_every_output(dataset: str, model: str) -> None:
    options = PredictOptions(keys=("id",), columns=("tags", "x"), splits=("train",), batch_size=4)
    batches = list(predict(dataset, model, options))
    assert [batch.num_rows for batch in batches] == [4, 1, 4, 1]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows[3:5] == [
        {
            "id": "row 3",
            "tags": None,
            "x": 1.5,
            "column": 1.5,
            "double": 3.0,
            "grid": [[1.5] * 3] * 2,
            "large": False,
            "pair": [1.5, -1.5],
            "whole": 1,
            "word": "1.5",
            "words": ["1.5", "-1.5"],
        },
        {
            "id": "row 4",
            "tags": ["a"],
            "x": None,
            "column": -1.0,
            "double": -2.0,
            "grid": [[-1.0] * 3] * 2,
            "large": False,
            "pair": [-1.0, 1.0],
            "whole": -1,
            "word": "-1.0",
            "words": ["-1.0", "1.0"],
        },
    ]


def test_parquet_has_a_file_for_each_shard_and_can_be_read_as_one_table(
    dataset: str, model: str, tmp_path: Path
) -> None:
    options = PredictOptions(keys=("id",), outputs={"twice": "double", "grid": "grid"}, batch_size=2)
    files = write_predictions(dataset, model, str(tmp_path), options)
    assert [path.removeprefix(f"{tmp_path}/") for path in files] == [
        "Split-eval/predictions-00000-of-00001.parquet",
        "Split-train/predictions-00000-of-00002.parquet",
        "Split-train/predictions-00001-of-00002.parquet",
    ]
    assert [pq.read_table(path).column("id").to_pylist()[0] for path in files] == ["row 5", "row 0", "row 5"]
    table = pq.read_table(tmp_path / "Split-train")
    assert table.column_names == ["id", "twice", "grid"]
    assert table.column("twice").to_pylist() == [2 * x for x in X]
    assert table.column("grid").to_pylist() == [[[x] * 3] * 2 for x in X]
    assert pq.ParquetFile(files[0]).num_row_groups == 1  # although it came in three batches


def test_every_output_of_a_model_with_several_has_its_columns(dataset: str, model: str, tmp_path: Path) -> None:
    options = PredictOptions("several", keys=("id",), splits=("train",))
    write_predictions(dataset, model, str(tmp_path / "all"), options)
    table = pq.read_table(tmp_path / "all" / "Split-train")
    outputs = ["price", "sold/class", "sold/probabilities", "tags/class", "tags/probabilities"]
    assert table.column_names == ["id", *outputs]
    rows = table.to_pylist()
    assert [row["price"] for row in rows] == X
    assert [row["sold/class"] for row in rows] == ["yes" if x > 0 else "no" for x in X]
    assert [row["tags/class"] for row in rows[1:5:3]] == [["big", ""], ["", "small"]]
    some = PredictOptions("several", keys=("id",), outputs={"sold": "sold/class"}, splits=("train",))
    write_predictions(dataset, model, str(tmp_path / "some"), some)
    assert pq.read_table(tmp_path / "some" / "Split-train").column_names == ["id", "sold"]


def test_row_groups_are_bounded(dataset: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infeed.components.evaluation.predictions.layout._GROUP_ROWS", 4)
    options = PredictOptions(keys=("id",), outputs={}, splits=("eval",), batch_size=2)
    [file] = write_predictions(dataset, model, str(tmp_path), options)
    assert pq.ParquetFile(file).num_row_groups == 2
    assert pq.read_table(file).num_rows == 5


def test_examples_hold_the_same_and_leave_out_what_is_missing(dataset: str, model: str, tmp_path: Path) -> None:
    options = PredictOptions("bytes", ("id",), ("x", "bytes"), "tfrecord", splits=("train",))
    files = write_predictions(dataset, model, str(tmp_path), options)
    assert [Path(path).name for path in files] == ["predictions-00000-of-00002.gz", "predictions-00001-of-00002.gz"]
    rows = values_in(files[0])
    assert rows[3] == {"bytes": [b"\xff\x03"], "id": [b"row 3"], "x": [1.5], "y": [b"\xff"]}
    assert rows[4] == {"bytes": [b"\xff\x04"], "id": [b"row 4"], "y": [b"\xff"]}


def test_whole_examples_get_the_outputs_as_further_features(dataset: str, model: str, tmp_path: Path) -> None:
    options = PredictOptions(output_format="examples", outputs={"both": "pair"}, splits=("eval",))
    [file] = write_predictions(dataset, model, str(tmp_path), options)
    assert file == f"{tmp_path}/Split-eval/examples-00000-of-00001.gz"
    [given] = Path(dataset, "Split-eval").iterdir()
    expected = [{**row, "both": [x, -x]} for row, x in zip(values_in(str(given)), X[5:], strict=True)]
    assert values_in(file) == expected


def test_a_model_of_features_is_given_them(dataset: str, model: str) -> None:
    found = predict(dataset, model, PredictOptions("features", columns=("pair",), splits=("eval",)))
    assert [row for batch in found for row in batch.to_pylist()] == [
        {"pair": [i, -i], "sum": i / 2} for i in range(5, 10)
    ]


def test_a_shape_that_the_signature_does_not_tell_is_that_of_the_first_batch(dataset: str, model: str) -> None:
    found = predict(dataset, model, PredictOptions("unknown", splits=("eval",)))
    assert [row for batch in found for row in batch.column("y").to_pylist()] == [[x, x] for x in X[5:]]


def test_a_split_without_rows_has_a_file_without_rows(
    make_dataset: Callable[..., str], model: str, tmp_path: Path
) -> None:
    [file] = write_predictions(make_dataset({"x": []}), model, str(tmp_path / "out"), PredictOptions(splits=("eval",)))
    table = pq.read_table(file)
    assert (table.num_rows, table.column_names[0]) == (0, "column")


def test_written_again_all_files_are_the_same(dataset: str, model: str, tmp_path: Path) -> None:
    for output_format in ("parquet", "tfrecord", "examples", "prediction_log"):
        outputs = {} if output_format == "prediction_log" else {"both": "pair"}
        options = PredictOptions(output_format=output_format, outputs=outputs)  # type: ignore[arg-type]
        out = str(tmp_path / output_format)
        once = [Path(path).read_bytes() for path in write_predictions(dataset, model, out, options)]
        assert [Path(path).read_bytes() for path in write_predictions(dataset, model, out, options)] == once
        assert not list(Path(out).glob(".*"))


def test_what_a_killed_run_has_left_is_gone_after_the_next(dataset: str, model: str, tmp_path: Path) -> None:
    folder = tmp_path / "Split-eval"
    folder.mkdir()
    (folder / f".predictions-00000-of-00001.parquet.{'0a1b' * 8}").write_bytes(b"half of it")
    (folder / ".mine").touch()
    write_predictions(dataset, model, str(tmp_path), PredictOptions(splits=("eval",)))
    assert sorted(path.name for path in folder.iterdir()) == [".mine", "predictions-00000-of-00001.parquet"]


def test_what_a_lost_worker_leaves_is_gone_when_the_predictions_are_complete(
    dataset: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, write = tmp_path / "Split-eval" / f".predictions-00000-of-00001.parquet.{'0a1b' * 8}", ProgressFile.write

    def write_beside(progress_file: ProgressFile, finished: int) -> None:
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(b"half of it")
        write(progress_file, finished)

    monkeypatch.setattr(ProgressFile, "write", write_beside)
    write_predictions(dataset, model, str(tmp_path), PredictOptions(splits=("eval",)))
    assert [path.name for path in left.parent.iterdir()] == ["predictions-00000-of-00001.parquet"]


def test_finished_files_of_an_unfinished_run_stay_unless_the_examples_changed(
    make_dataset: Callable[..., str], model: str, tmp_path: Path
) -> None:
    given, out = make_dataset({"x": [[1.0], [2.0], [3.0, 4.0]]}, shards=3), tmp_path / "out"
    options = PredictOptions(splits=("train",))

    def run() -> list[bytes]:
        with pytest.raises(InfeedError):
            write_predictions(given, model, str(out), options)
        return [path.read_bytes() for path in sorted((out / "Split-train").iterdir())]

    whole = run()
    assert len(whole) == 2
    (out / "Split-train" / "predictions-00000-of-00003.parquet").write_bytes(b"kept")
    assert run() == [b"kept", whole[1]]
    os.utime(Path(given, "Split-train", "data_tfrecord-00001-of-00003.gz"), (1, 1))
    assert run() == whole


def test_other_files_in_the_folder_are_left_alone(dataset: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "Split-train").mkdir()
    (tmp_path / "Split-train" / "mine.parquet").touch()
    with pytest.raises(InfeedError, match=r"another file, Split-train/mine.parquet"):
        write_predictions(dataset, model, str(tmp_path))
    assert [path.name for path in tmp_path.rglob("*.*")] == ["mine.parquet"]


def test_a_record_that_the_model_refuses_is_named_and_its_file_does_not_appear(
    make_dataset: Callable[..., str], model: str, tmp_path: Path
) -> None:
    given = make_dataset({"x": [[1.0]] * 5 + [[1.0, 2.0]] + [[1.0]] * 6}, shards=3)
    message = r"(?s)Key: x.*where: .*Split-train/data_tfrecord-00001-of-00003.gz, record 1\n"
    with pytest.raises(InfeedError, match=message):
        write_predictions(given, model, str(tmp_path / "out"), PredictOptions(splits=("train",)))
    assert [path.name for path in (tmp_path / "out").rglob("*.parquet")] == ["predictions-00000-of-00003.parquet"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PredictOptions(splits=("test",)), "there is no split 'test'"),
        (PredictOptions(keys=("name",)), "there is no column 'name'"),
        (PredictOptions("other"), "the model has no signature 'other'"),
        (PredictOptions("scalar"), r"output 'y' has the shape \[\]"),
        (PredictOptions("constant"), r"output 'y' has the shape \[2\], without the 5 rows"),
        (PredictOptions("features", output_format="prediction_log"), "signature 'features' takes features"),
        (PredictOptions("features", outputs={"x": "sum"}, keys=("x",)), "'x' is a column of the examples and one of"),
        (PredictOptions("whole"), "column 'number' has rows without a value, but"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    dataset: str, model: str, tmp_path: Path, options: PredictOptions, message: str
) -> None:
    with pytest.raises(InfeedError, match=message):
        write_predictions(dataset, model, str(tmp_path / "out"), options)
    assert not (tmp_path / "out").exists()


DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "int32", "uint8", "bool", "string")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 4), (3, 2, 2), (3, 0)])
def test_tensor_protos_are_those_that_tensorflow_makes(dtype: str, shape: tuple[int, ...]) -> None:
    import tensorflow as tf

    kind = tf.as_dtype(dtype)
    numbers = np.arange(np.prod(shape)).reshape(shape)
    array = numbers.astype("S").astype(object) if dtype == "string" else numbers.astype(kind.as_numpy_dtype)
    proto = tf.make_tensor_proto(1.0)
    fill = _filler(proto, array)
    for row, values in enumerate(array):
        fill(row)
        assert proto == tf.make_tensor_proto(values, kind, (1, *shape[1:]))
