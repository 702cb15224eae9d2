"""Asked are models of a few lines that have the signatures and the names of exported ones.

Covers the command too: `pipelines/commands/predict.py`. It starts cold where its errors are compared word by word, and
elsewhere with TensorFlow imported before.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.pipelines.predict.output import Columns
from infeed.pipelines.predict.predict import predict, write_table

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

INFEED = Path(sys.executable).with_name("infeed")


Command = Callable[..., "subprocess.CompletedProcess[str]"]
Save = Callable[..., Path]


@pytest.fixture
def command(warm: Mapping[str, str]) -> Command:
    """command("predict", ...) -> the ended process."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **warm}
        return subprocess.run([INFEED, *map(str, words)], env=environment, capture_output=True, text=True, check=False)

    return run


def asked(model: Path, *inputs: Path, **settings: Any) -> dict[str, Any]:
    """Input, by its name alone -> the answer, or why there is none."""
    given = predict(str(model), [str(path) for path in inputs], settings)
    return {one.input.rpartition("/")[2]: one.error or one.value for one in given}


@pytest.fixture(scope="module")
def of_table(tmp_path_factory: pytest.TempPathFactory, save: Save) -> Path:
    """Adds its columns; what is missing shows in the answer."""
    import tensorflow as tf

    def answer(features: Any) -> Any:
        words = tf.cast(tf.strings.length(features["word"]), tf.float32)
        return {"prediction": features["x"] + 10 * tf.cast(features["n"], tf.float32) + 100 * words}

    spec = {"x": tf.float32, "n": tf.int64, "word": tf.string}
    return save(tmp_path_factory.mktemp("table"), spec, answer)


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory: pytest.TempPathFactory, save: Save) -> Path:
    import tensorflow as tf

    def answer(features: Any) -> Any:
        def decode(one: Any) -> Any:
            return tf.reduce_mean(tf.cast(tf.io.decode_image(one, 1, expand_animations=False), tf.float32))

        light = tf.map_fn(decode, features["image/encoded"], tf.float32) / 255
        sure = tf.stack([1 - light, light], 1)
        return {"probabilities": sure, "class": tf.gather(["dark", "light"], tf.argmax(sure, 1))[:, tf.newaxis]}

    return save(tmp_path_factory.mktemp("pictures"), {"image/encoded": tf.string}, answer)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    Image.new("L", (8, 8), 255).save(tmp_path / "in" / "a.png")
    Image.effect_noise((64, 64), 50).save(tmp_path / "in" / "broken.png")
    (tmp_path / "in" / "broken.png").write_bytes((tmp_path / "in" / "broken.png").read_bytes()[:-900])
    (tmp_path / "in" / "c.png").write_text("no picture")
    Image.new("L", (8, 8)).save(tmp_path / "in" / "d.webp")
    Image.new("L", (8, 8)).save(tmp_path / "in" / "deep" / "e.jpg")
    (tmp_path / "in" / "notes.txt").write_text("beside the pictures")
    return tmp_path / "in"


def test_rows_that_cannot_be_answered_are_told_and_the_others_are_answered(of_table: Path, tmp_path: Path) -> None:
    rows = "x,n,word\n1,1,a\nabc,1,a\n2,1\n3,1.5,a\n4,1,\n5,1,abc\n"
    (tmp_path / "t.csv").write_text(rows)
    assert asked(of_table, tmp_path / "t.csv") == {
        "t.csv, row 1": 111.0,
        "t.csv, row 2": "column 'x': 'abc' is not a number",
        "t.csv, row 3": "line 4: 2 cells, but the header has 3. Is ',' the delimiter?",
        "t.csv, row 4": 123.0,  # 1.5 is rounded
        "t.csv, row 5": 14.0,
        "t.csv, row 6": 315.0,
    }


def test_a_missing_whole_number_is_missing_and_not_zero(of_table: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,n,word\n1,,a\n2,3,a\n")
    # Of the first, n is what the model itself puts there.
    assert list(asked(of_table, tmp_path / "t.csv").values()) == [91.0, 132.0]


def test_a_folder_of_tables_written_in_another_way(of_table: Path, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"x;n;word\n{number};1;NA\n")
    found = asked(of_table, tmp_path, delimiter=";", nulls=["NA"])
    assert found == {"0.csv, row 1": 10.0, "1.csv, row 1": 11.0}


def test_the_command_tells_pictures_that_cannot_be_answered_by_name_and_ends_with_1(
    of_pictures: Path, pictures: Path
) -> None:
    done = subprocess.run([INFEED, "predict", of_pictures, pictures], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"{pictures}/a.png  light  100.0%", f"{pictures}/deep/e.jpg  dark  100.0%"]
    broken, none, webp = done.stderr.splitlines()
    assert broken.startswith(f"error: {pictures}/broken.png: ")
    assert none == f"error: {pictures}/c.png: it is not an image"
    assert webp == f"error: {pictures}/d.webp: it is a WEBP image; convert it to PNG or JPEG"


def test_as_json_every_input_has_its_line(of_pictures: Path, pictures: Path, command: Command) -> None:
    done = command("predict", of_pictures, pictures / "c.png", pictures / "a.png", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "input": f"{pictures}/c.png",
            "value": None,
            "probability": None,
            "error": "it is not an image",
            "note": None,
        },
        {"input": f"{pictures}/a.png", "value": "light", "probability": 1.0, "error": None, "note": None},
    ]
    assert (done.returncode, done.stderr) == (1, "")


def test_inputs_of_the_wrong_kind(of_table: Path, of_pictures: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n")
    (tmp_path / "empty").mkdir()
    for model, given, message in [
        (of_table, pictures / "a.png", "the model takes the rows of a table"),
        (of_table, tmp_path / "t.csv", "the model needs the columns 'n', 'word'"),
        (of_pictures, tmp_path / "t.csv", "the model takes images, but this file is named like csv"),
        (of_pictures, tmp_path / "empty", "the folder has no images"),
        (of_pictures, tmp_path / "none.png", "there is no such file or folder"),
    ]:
        with pytest.raises(InfeedError, match=message):
            asked(model, given)


def test_a_model_that_is_somebody_elses(tmp_path: Path) -> None:
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "theirs"))
    with pytest.raises(InfeedError, match="the model has no signature 'raw'"):
        asked(tmp_path / "theirs", tmp_path)


def test_other_outputs_are_read_by_what_is_there(tmp_path: Path, save: Save) -> None:
    import tensorflow as tf

    (tmp_path / "t.csv").write_text("x\n1\n-2\n")
    outputs = {
        "scores": (lambda x: {"scores": tf.stack([x, -x], 1)}, [[1.0, -1.0], [-2.0, 2.0]]),
        "classes": (lambda x: {"scores": tf.stack([x, -x], 1), "class": tf.cast(x < 0, tf.int64)}, [0, 1]),
    }
    for name, (output, expected) in outputs.items():
        model = save(tmp_path / name, {"x": tf.float32}, lambda features, output=output: output(features["x"]))
        found = list(predict(str(model), [str(tmp_path / "t.csv")]))
        assert [(one.value, one.probability) for one in found] == [(value, None) for value in expected]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three rows, of which the model refuses the second: it has two values of x."""
    table = {"x": [[1.0], [1.0, 2.0], [3.0]], "n": [1, 1, None], "word": ["a", "", "abc"], "id": [7, 8, 9]}
    records = frame_records(encode_examples(pa.RecordBatch.from_pydict(table)))
    write_records(str(tmp_path / "examples" / "Split-eval" / "rows-00000-of-00001.gz"), [records], gzip_level=1)
    return tmp_path / "examples"


def test_examples_are_answered_too(of_table: Path, dataset: Path) -> None:
    found = asked(of_table, dataset)
    assert list(found) == [f"rows-00000-of-00001.gz, record {number}" for number in range(3)]
    first, second, third = found.values()
    assert (first, third) == (111.0, 293.0)
    assert "Key: x" in second


def test_examples_are_not_asked_about_together_with_files(of_table: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,n,word\n1,1,a\n")
    with pytest.raises(InfeedError, match=r"not a dataset of tf.Examples(?s:.*)t.csv"):
        asked(of_table, dataset, tmp_path / "t.csv")


def test_the_command_writes_files_beside_keys(of_table: Path, dataset: Path, tmp_path: Path, command: Command) -> None:
    [file] = (dataset / "Split-eval").iterdir()
    table = pa.RecordBatch.from_pydict({"x": [1.0, 3.0], "n": [1, None], "word": ["a", "abc"], "id": [7, 9]})
    write_records(str(file), [frame_records(encode_examples(table))], gzip_level=1)
    done = command("predict", of_table, dataset, "--output", tmp_path / "out", "--keys", "id")
    assert done.stdout.splitlines() == [f"{tmp_path}/out/Split-eval/predictions-00000-of-00001.parquet"]
    assert pq.read_table(done.stdout.strip()).to_pydict() == {"id": [7, 9], "prediction": [111.0, 293.0]}


def read_back(file: Path) -> list[dict[str, Any]]:
    """A file of predictions as its usual reader reads it; an empty cell is None."""
    if file.suffix == ".csv":
        rows = list(csv.DictReader(file.open(newline="")))
        return [{name: value or None for name, value in row.items()} for row in rows]
    if file.suffix == ".parquet":
        return pq.read_table(file).to_pylist()  # type: ignore[no-any-return]
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl"])
def test_predictions_are_written_beside_the_rows_of_a_table(
    of_table: Path, tmp_path: Path, name: str, command: Command
) -> None:
    (tmp_path / "t.csv").write_text("x,day,n,word,id\n1,mon,2,a,7\nx,tue,1,b,8\n2,wed,0.5,,9\n1,thu\n")
    done = command("predict", of_table, tmp_path / "t.csv", "--output", tmp_path / name, "--keys", "id")
    assert done.returncode == 1
    assert done.stdout.strip() == f"wrote {tmp_path}/{name}: 3 rows, 1 without an answer, 1 line left out"
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["error", "note", "error"]
    rows = read_back(tmp_path / name)
    assert list(rows[0]) == ["id", "x", "day", "n", "word", "prediction", "prediction_error"]
    assert [str(row["id"]) for row in rows] == ["7", "8", "9"]
    assert [row["day"] for row in rows] == ["mon", "tue", "wed"]
    assert [row["prediction"] and float(row["prediction"]) for row in rows] == [121.0, None, 2.0]
    assert [row["prediction_error"] for row in rows] == [None, "column 'x': 'x' is not a number", None]


def test_predictions_are_written_beside_the_paths_of_pictures(
    of_pictures: Path, pictures: Path, command: Command
) -> None:
    output = pictures.parent / "out.csv"
    assert command("predict", of_pictures, pictures, "--output", output).returncode == 1
    found = {Path(str(row["path"])).name: (row["prediction"], row["probability"]) for row in read_back(output)}
    assert found["a.png"] == ("light", "1")
    assert found["e.jpg"][0] == "dark"
    assert found["c.png"] == (None, None)


def test_the_file_appears_whole_and_is_replaced_only_if_asked(of_table: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "t.csv").write_text("x,n,word\n1,1,a\n")
    words = ["predict", of_table, tmp_path / "t.csv", "--output", tmp_path / "out.csv"]
    codes = [command(*words, *more).returncode for more in ([], [], ["--overwrite"])]
    assert codes == [0, 2, 0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.csv", "t.csv"]


def test_what_says_how_to_write_needs_a_place_and_a_dataset(of_table: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "t.csv").write_text("x,n,word\n1,1,a\n")
    for more, message in [
        (["--keys", "id"], "--keys is given without --output"),
        (["--output", tmp_path / "out"], "not a known format"),
        (["--output", tmp_path / "out.csv", "--splits", "eval"], "--splits is for datasets"),
        (["--output", tmp_path / "t.csv"], "a file is there"),
        (["--output", tmp_path / "out.csv", "--keys", "id"], "there is no column 'id'"),
    ]:
        done = command("predict", of_table, tmp_path / "t.csv", *more)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_missing_column_is_reported_before_the_model_is_loaded(tmp_path: Path, describe: Any) -> None:
    model = tmp_path / "serving" / "7"
    describe(model, {"columns": ["x", "n", "word"], "source_options": {"csv": {"delimiter": ";"}}})
    (model / "saved_model.pb").write_bytes(b"no model")
    (tmp_path / "t.csv").write_text("x;other\n1;2\n")
    with pytest.raises(InfeedError, match="the model needs the columns 'n', 'word'"):
        asked(tmp_path, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("x;n;word\n1;2;a\n")
    with pytest.raises(InfeedError, match="there is no column 'id'"):
        write_table(
            str(tmp_path), [str(tmp_path / "t.csv")], {}, Columns(("id",)), str(tmp_path / "out.csv"), False, print
        )
    with pytest.raises(InfeedError, match="the model cannot be loaded"):
        asked(tmp_path, tmp_path / "t.csv")


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory, save: Save) -> Path:
    """A number, a class, and a set of classes."""
    import tensorflow as tf

    def answer(features: Any) -> Any:
        x = features["x"]
        sure, tags = tf.stack([1 - x, x], 1), tf.stack([x, 0.9 * tf.ones_like(x), 0.75 * x], 1)
        return {
            "price": 2 * x,
            "sold/probabilities": sure,
            "sold/class": tf.gather(["no", "yes"], tf.argmax(sure, 1))[:, tf.newaxis],
            "tags/probabilities": tags,
            "tags/class": tf.where(tags > 0.5, ["blue", "green", "red"], ""),
        }

    tasks = {"price": "regression", "sold": "classification", "tags": "multilabel"}
    described = {"columns": ["x"], "types": {"x": "float"}, "source_options": {}, "outputs": tasks}
    return save(tmp_path_factory.mktemp("three"), {"x": tf.float32}, answer, **described)


@pytest.fixture
def of_halves(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("x,price\n1,7\n0.25,8\nabc,9\n")
    return tmp_path / "t.csv"


def test_every_output_is_predicted_and_a_set_is_a_list_with_the_most_probable_first(
    of_three: Path, of_halves: Path
) -> None:
    first, second, third = predict(str(of_three), [str(of_halves)])
    assert first.value == {"price": 2.0, "sold": "yes", "tags": ["blue", "green", "red"]}
    assert first.probability == {"price": None, "sold": 1.0, "tags": pytest.approx([1.0, 0.9, 0.75])}
    assert second.value == {"price": 0.5, "sold": "no", "tags": ["green"]}
    assert (third.value, third.error) == (None, "column 'x': 'abc' is not a number")


def test_each_output_has_columns_in_the_file(of_three: Path, of_halves: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "out.parquet")
    write_table(str(of_three), [str(of_halves)], {}, Columns(), output, False, lambda _: None)
    rows = pq.read_table(output).to_pylist()
    assert rows[1] == {
        "x": "0.25",
        "price": "8",
        "price_prediction": 0.5,
        "sold_prediction": "no",
        "sold_probability": 0.75,
        "tags_prediction": ["green"],
        "tags_probability": pytest.approx([0.9]),
        "prediction_error": None,
    } | {name: rows[1][name] for name in ("x", "price")}
    assert rows[2]["tags_prediction"] is None
    with pytest.raises(InfeedError, match="'sold_prediction'"):
        Columns().of(["sold_prediction"], "t.csv", ["sold_prediction"])


def test_the_command_prints_each_output(of_three: Path, of_halves: Path, command: Command) -> None:
    told = command("predict", of_three, of_halves).stdout.splitlines()
    assert told[1].endswith("price: 0.5  sold: no  75.0%  tags: [green  90.0%]")
