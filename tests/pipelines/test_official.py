"""TFX's own pipelines with our components by replacing names, ExampleGen to Trainer: pushed, served, and as good.

What of them Keras 3 itself breaks, docs/drop-in.md tells; that is run with tf_keras, as its users run it.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tfx

SCRIPT = Path(__file__).with_name("official_script.py")
KERAS_3 = ("penguin", "mnist", "imdb", "template_taxi")
TF_KERAS = ("taxi", "template_penguin")
HERE = ("penguin",)  # the others run in the image only


def each(*names):
    return [name if name in HERE else pytest.param(name, marks=pytest.mark.image) for name in names]


@pytest.fixture(scope="module")
def official():
    """`official_pipelines.py`; not imported while tests are collected, because it loads TFX."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        return importlib.import_module("official_pipelines")


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory, warm):
    """Folders of the runs. A process for each Keras, side by side; that of tf_keras has to import TensorFlow anew."""
    root = tmp_path_factory.mktemp("official")
    asked = {item.callspec.params["name"] for item in request.session.items if item.path == request.path}
    no_wheels = {"UNSUPPORTED_DO_NOT_PACKAGE_USER_MODULES": "1"}  # the first process makes one
    processes = [
        start(root, legacy, names, env)
        for legacy, of_keras, env in (("0", KERAS_3, warm), ("1", TF_KERAS, no_wheels))
        if (names := [name for name in of_keras if name in asked])
    ]
    try:
        assert not any(process.wait() for process in processes), f"see {root}/log_*.txt"
    finally:
        for process in processes:
            process.kill()
    return root


def start(root, legacy, names, env):
    env = {**os.environ, **env, "TF_USE_LEGACY_KERAS": legacy, "HOME": str(root)}
    with (root / f"log_{legacy}.txt").open("w") as log:
        return subprocess.Popen([sys.executable, SCRIPT, root, *names], env=env, stdout=log, stderr=log)


@pytest.fixture
def run(runs, official, name):
    """(the models by whose Trainer made them, the raw Examples that they are asked about)."""
    if not is_installed(official.OFFICIAL[name].module):
        pytest.skip(f"the installed TFX has no {official.OFFICIAL[name].module}")
    error = runs / name / "error.txt"
    assert not error.exists(), error.read_text()
    return json.loads((runs / name / "models.json").read_text()), evaluation_examples(runs / name)


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def evaluation_examples(root):
    import tensorflow as tf

    (folder,) = (root / "artifacts").glob("*ExampleGen/examples/*/Split-eval")
    files = [str(file) for file in folder.iterdir()]
    return np.array(list(tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator()), object)


def answered(signatures, examples):
    """The only output of these models, [batch, n]."""
    (output,) = signatures["serving_default"](examples=examples).values()
    return output


@pytest.mark.parametrize("name", each(*KERAS_3, *TF_KERAS))
def test_sessions_answer_like_the_python_loader_by_the_model_that_is_pushed(run, saved_models, name):
    models, examples = run
    by_python = answered(saved_models.by_python(models["infeed"]), examples)
    for load in (saved_models.by_session, saved_models.by_cpp):
        np.testing.assert_allclose(answered(load(models["infeed"]), examples), by_python, atol=1e-5)


@pytest.fixture
def accuracy(run, official, saved_models, name):
    """accuracy("infeed") -> the share of the raw Examples that the model of that Trainer answers rightly."""
    import tensorflow as tf

    models, examples = run
    rows = [tf.train.Example.FromString(example).features.feature for example in examples]
    is_right = official.OFFICIAL[name].is_right

    def of(whose):
        outputs = answered(saved_models.by_python(models[whose]), examples)
        return np.mean([is_right(output, row) for output, row in zip(outputs, rows, strict=True)])

    return of


@pytest.mark.parametrize("name", each(*sorted({*KERAS_3, *TF_KERAS} - {"imdb"})))
def test_the_model_has_learned(accuracy, name):
    assert accuracy("infeed") > 0.8


@pytest.mark.parametrize("name", each("template_taxi"))
def test_it_is_as_good_as_the_model_of_tfx_own_trainer(run, accuracy, name):
    _, examples = run
    noise = 3 * np.sqrt(0.25 / len(examples))
    assert accuracy("infeed") == pytest.approx(accuracy("tfx"), abs=noise)


@pytest.mark.parametrize("name", each(*KERAS_3, *TF_KERAS))
def test_what_their_run_fn_reads_comes_from_the_engine_and_is_measured(run, runs, name):
    (profile,) = (runs / name / "artifacts").glob("Trainer*/model_run/*/input_profile.json")
    assert json.loads(profile.read_text())["plan"]["steps"]


@pytest.mark.parametrize("name", ["penguin"])
def test_tfx_bulk_inferrer_predicts_in_their_pipeline(run, runs, name):
    import tensorflow as tf

    files = [str(file) for file in (runs / name / "artifacts").glob("BulkInferrer/inference_result/*/*.gz")]
    assert sum(1 for _ in tf.data.TFRecordDataset(files, compression_type="GZIP")) == 50  # rows without a label
