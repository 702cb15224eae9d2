"""What is pushed is served: the exported model answers a session, as TensorFlow Serving's, like the one in memory.

Models that several processes train are asked in `test_multi_worker`.
"""

from pathlib import Path

import numpy as np
import pytest

from infeed.components.feed.options import Augment, Normalise

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

TABULAR = "infeed.templates.tabular.model:build_model"
IMAGE = "infeed.templates.image.model:build_model"
IN_IMAGE = pytest.mark.image  # `test_run_fn` trains and asks such models too, and `test_loop` on mirrored devices
PICTURES = {"label": "label/text", "augment": Augment(shift=1), "normalise": Normalise()}


@pytest.mark.parametrize(
    ("data", "graph", "model", "options"),
    [
        pytest.param("table", "class", TABULAR, {"label": "kind"}, id="table"),
        pytest.param("table", "number", TABULAR, {"label": "n", "task": "regression"}, id="quantity", marks=IN_IMAGE),
        pytest.param("pictures", "class", IMAGE, PICTURES, id="pictures", marks=IN_IMAGE),
        pytest.param("words", "class", "looking_up", {"label": "kind"}, id="lookup tables"),
    ],
)
def test_all_loaders_answer_as_the_fitted_model(request, train, answers_alike, data, graph, model, options):
    folder, rows = request.getfixturevalue(data)
    place = train(folder, graph, model, callbacks_fn="callbacks", epochs=1, **options)
    answers_alike(place, rows)


@IN_IMAGE
def test_half_precision_is_served_as_it_was_fitted(table, train, answers_alike):
    folder, rows = table
    options = {"label": "kind", "epochs": 1, "mixed_precision": "bfloat16"}
    place = train(folder, "class", TABULAR, callbacks_fn="callbacks", **options)
    answers_alike(place, rows, tolerance=1e-2)  # a step of bfloat16 is 0.004; compiled code rounds less often


@IN_IMAGE
def test_a_model_of_mirrored_devices_is_served_as_it_was_fitted(table, start, answers_alike, tmp_path):
    folder, rows = table
    options = {"label": "kind", "callbacks_fn": "callbacks", "strategy": "mirrored"}
    code, output = start(tmp_path / "two", folder, "class", "dropping", env={"DEVICES": "2"}, **options).finish()
    assert code == 0, output
    answers_alike(tmp_path / "two", rows)


@pytest.fixture
def artifacts(table, tmp_path):
    """artifacts(model) -> a model and the table's raw Examples as TFX hands them on."""
    from tfx.types.standard_artifacts import Examples, Model

    def make(exported):
        examples, model = Examples(), Model()
        examples.uri, examples.split_names = str(table[0]), '["train", "eval"]'
        model.uri = str(tmp_path / "artifact")
        Path(model.uri).mkdir()
        Path(model.uri, "Format-Serving").symlink_to(exported)
        return {"examples": [examples], "model": [model]}

    return make


def test_tfx_bulk_inferrer_predicts_like_the_python_loader(table, classifier, artifacts, saved_models, tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    from tfx.components.bulk_inferrer.executor import Executor
    from tfx.types.standard_artifacts import InferenceResult

    model, result = classifier / "model", InferenceResult()
    result.uri = str(tmp_path / "result")
    Executor().Do(artifacts(model), {"inference_result": [result]}, {"data_spec": "{}", "model_spec": "{}"})
    (file,) = (tmp_path / "result").glob("prediction_logs*")
    records = tf.data.TFRecordDataset(str(file), compression_type="GZIP").as_numpy_iterator()
    logs = [PredictionLog.FromString(record).predict_log for record in records]
    assert len(logs) == len(table[1])
    examples = np.concatenate([tf.make_ndarray(log.request.inputs["examples"]) for log in logs])
    predicted = {
        name: np.concatenate([tf.make_ndarray(log.response.outputs[name]) for log in logs])
        for name in ("probabilities", "class")
    }
    expected = saved_models.by_python(model)["serving_default"](examples=examples)
    np.testing.assert_allclose(predicted["probabilities"], expected["probabilities"], atol=1e-5)
    assert predicted["class"].tolist() == expected["class"].tolist()


SERVING = '{"tensorflow_serving": {"tags": ["latest"]}, "local_docker": {}, "model_name": "classifier"}'
REQUESTS = '{"tensorflow_serving": {"signature_names": ["serving_default", "transform_features"]}, "num_examples": 3'
PROPERTIES = {
    "serving_spec": SERVING,
    "validation_spec": '{"num_tries": 1}',
    "request_spec": REQUESTS + ', "make_warmup": true}',
}


@pytest.fixture
def validate(saved_models, monkeypatch, tmp_path):
    """validate(artifacts) -> the blessing of TFX's InfraValidator, and the server that it asked."""
    from model_server import ModelServer
    from tfx.components.infra_validator import executor
    from tfx.types.standard_artifacts import InfraBlessing

    started = []

    def start(model_path, serving_binary, serving_spec):
        container = serving_binary.MakeDockerRunParams(model_path=model_path, needs_mount=True)
        started.append(ModelServer(saved_models.by_cpp, container))
        return started[-1]

    monkeypatch.setattr(executor, "_create_model_server_runner", start)
    blessing = InfraBlessing()
    blessing.uri = str(tmp_path / "blessing")

    def run(artifacts):
        context = executor.Executor.Context(tmp_dir=str(tmp_path / "tmp"), unique_id="1")
        executor.Executor(context).Do(artifacts, {"blessing": [blessing]}, PROPERTIES)
        return blessing, started

    return run


def test_tfx_infra_validator_blesses_the_model_once_a_server_has_answered(classifier, artifacts, validate):
    blessing, (server,) = validate(artifacts(classifier / "model"))
    assert blessing.get_int_custom_property("blessed") == 1
    assert [set(answer) for answer in server.answered] == 3 * [{"probabilities", "class"}] + 3 * [{"x", "z", "kind"}]
    assert list(Path(blessing.uri).glob("*/assets.extra/tf_serving_warmup_requests"))


def test_tfx_infra_validator_refuses_a_keras_model_that_only_python_can_load(artifacts, validate, tmp_path):
    import keras
    import tensorflow as tf

    module = tf.Module()
    module.model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def answer(examples):
        return {"length": module.model(tf.cast(tf.strings.length(examples), tf.float32)[:, tf.newaxis])}

    tf.saved_model.save(module, str(tmp_path / "saved"), {"serving_default": answer, "transform_features": answer})
    blessing, _ = validate(artifacts(tmp_path / "saved"))
    assert blessing.get_int_custom_property("blessed") == 0
