"""`infeed measure`: files and functions, the table and JSON. `test_measure.py` of the feed holds what it names."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

from infeed.components.dataset import records
from infeed.components.dataset.encode import encode_examples
from infeed.pipelines.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path):
    batch = pa.record_batch([pa.array([1.0, 2.0] * 50), pa.array([[1], []] * 50)], ["x", "list"])
    path = str(tmp_path / "t-train.tfrecord")
    records.write_records(path, [records.frame_records(encode_examples(batch))], gzip_level=None)
    return path


def measured(*words):
    done = CliRunner().invoke(main, ["measure", *words, "--seconds", "1", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output.splitlines()[-1])


def test_a_file_is_measured_beside_the_naive_reader(file):
    found = measured(file, "--batch-size", "10", "--against", "naive")
    assert [one["name"] for one in found["stages"]][:2] == ["read", "records"]
    assert "parse" in [one["name"] for one in found["stages"]]
    assert "transform" not in found["plan"]
    assert found["against"]["examples_per_second"] > 0


def test_a_function_is_measured(tmp_path):
    path = tmp_path / "make.py"
    path.write_text("import tensorflow as tf\ndef made():\n    return tf.data.Dataset.range(9).batch(3)\n")
    stages = measured(f"{path}:made")["stages"]
    assert [one["name"] for one in stages if not one["beside"]] == ["range", "batch", "hand-over"]


@pytest.mark.parametrize("words", [["nothing.tfrecord"], ["{path}:made", "--against", "naive"]])
def test_what_cannot_be_measured_is_an_error(tmp_path, words):
    path = tmp_path / "make.py"
    path.write_text("def made():\n    return 3\n")
    done = CliRunner().invoke(main, ["measure", *(word.format(path=path) for word in words)])
    assert done.exit_code == 2
