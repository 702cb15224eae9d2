"""`infeed measure`: files and functions, the table and JSON. `test_measure.py` of the feed holds what it names.

Covers `pipelines/local/measure.py`.
"""

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
    numbers, lists = pa.array([1.0, 2.0] * 50), pa.array([[1], []] * 50)
    batch = pa.record_batch([numbers, numbers, lists], ["x", "y", "list"])
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


MODEL = """
import time
import keras
import tensorflow as tf

class Slow(keras.layers.Layer):
    def call(self, x):
        def sleep(one):
            time.sleep(0.05)
            return one
        return tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape)

def make_model(*, first=keras.layers.Identity):
    x = keras.Input([1], name="x")
    model = keras.Model(x, keras.layers.Dense(1)(first()(x)))
    model.compile("sgd", "mse", jit_compile=False)
    return model

def slow_model():
    return make_model(first=Slow)
"""


@pytest.mark.alone
def test_a_model_whose_step_is_slower_than_any_stage_sets_the_pace(file, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    found = measured(file, "--batch-size", "10", "--model", f"{tmp_path}/model.py:slow_model", "--label", "y")
    assert found["bound_by"] == "training step"
    assert found["step_examples_per_second"] < found["examples_per_second"]
    assert found["trials"] == []


@pytest.mark.alone
def test_beside_a_step_faster_than_any_input_the_slow_stage_sets_the_pace(tmp_path):
    (tmp_path / "make.py").write_text(
        MODEL
        + """
import numpy as np

def slow():
    for _ in range(10**6):
        time.sleep(0.002)
        yield np.zeros([10, 1], np.float32), np.zeros([10, 1], np.float32)

def made():
    spec = tf.TensorSpec([10, 1], tf.float32)
    return tf.data.Dataset.from_generator(slow, output_signature=(spec, spec)).prefetch(2)
"""
    )
    found = measured(f"{tmp_path}/make.py:made", "--model", f"{tmp_path}/make.py:make_model")
    assert found["bound_by"] == "Python generator"
    assert found["step_examples_per_second"] > found["examples_per_second"]


def test_a_wrong_split_is_an_error_before_the_measurement(file, capfd):
    done = CliRunner().invoke(main, ["measure", file, "--split", "nowhere"])
    assert (done.exit_code, "'nowhere'" in done.output, capfd.readouterr().err) == (2, True, "")


def test_a_label_without_a_model_is_an_error(file):
    done = CliRunner().invoke(main, ["measure", file, "--label", "x"])
    assert (done.exit_code, "--label" in done.output) == (2, True)
