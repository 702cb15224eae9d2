"""Beside TFX's own BulkInferrer, on the same model and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.records import read_records

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

Channels = dict[str, Any]


def blessing(tmp_path: Path, blessed: int) -> Any:
    from tfx.types import channel_utils, standard_artifacts

    judged = standard_artifacts.ModelBlessing()
    judged.uri = str(tmp_path)
    judged.set_int_custom_property("blessed", blessed)
    return channel_utils.as_channel([judged])


def logs_in(folder: Path) -> list[Any]:
    """What a folder holds, in the order of the rows' ids: every request, and every answer."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    records = (record for path in sorted(folder.glob("prediction_logs*.gz")) for record in read_records(str(path)))
    logs = [PredictionLog.FromString(record) for record in records]
    found = []
    for log in logs:
        [given] = log.predict_log.request.inputs["examples"].string_val
        log.predict_log.request.inputs["examples"].string_val[:] = []
        found.append((tf.train.Example.FromString(given), log))
    return sorted(found, key=lambda one: one[0].features.feature["id"].bytes_list.value[0])


def test_prediction_logs_are_those_of_tfx(run: Callable[..., tuple[Path, Any]]) -> None:
    import tfx.components
    from tfx.proto import bulk_inferrer_pb2

    from infeed.components import BulkInferrer

    specs = {
        "data_spec": bulk_inferrer_pb2.DataSpec(example_splits=["train"]),
        "model_spec": bulk_inferrer_pb2.ModelSpec(model_signature_name=["without_word"]),
    }
    theirs, _ = run(tfx.components.BulkInferrer, "theirs", **specs)
    ours, _ = run(BulkInferrer, "ours", **specs, batch_size=3)
    assert len(logs_in(ours)) == 10
    assert logs_in(ours) == logs_in(theirs)


def test_output_examples_are_those_of_tfx(run: Callable[..., tuple[Path, Any]]) -> None:
    import tensorflow as tf
    import tfx.components
    from tfx.proto import bulk_inferrer_pb2

    from infeed.components import BulkInferrer

    columns = [{"output_key": name, "output_column": f"{name} of it"} for name in ("double", "large", "words", "whole")]
    specs = {
        "model_spec": bulk_inferrer_pb2.ModelSpec(model_signature_name=["without_word"]),
        "output_example_spec": bulk_inferrer_pb2.OutputExampleSpec(
            output_columns_spec=[{"predict_output": {"output_columns": columns}}]
        ),
    }
    found: list[Any] = []
    for kind, name in ((tfx.components.BulkInferrer, "theirs"), (BulkInferrer, "ours")):
        folder, artifact = run(kind, name, **specs)
        assert artifact.split_names == '["eval", "train"]'
        found.append([])
        for file in folder.glob("Split-*/examples-*.gz"):
            found[-1] += [(file.parent.name, tf.train.Example.FromString(record)) for record in read_records(str(file))]
        found[-1].sort(key=lambda one: (one[0], one[1].features.feature["id"].bytes_list.value[0]))
    assert len(found[1]) == 15
    assert found[0] == found[1]


def test_parquet_with_keys_is_what_it_writes_by_itself(run: Callable[..., tuple[Path, Any]], tmp_path: Path) -> None:
    from infeed.components import BulkInferrer

    options = {"keys": ["id"], "columns": ["number"], "outputs": {"guess": "whole"}}
    folder, artifact = run(BulkInferrer, "ours", model_blessing=blessing(tmp_path, 1), **options)
    table = pq.read_table(folder / "Split-eval")
    assert table.to_pydict() == {
        "id": [f"row {i}" for i in range(5, 10)],
        "number": [5, 6, 7, 8, 9],
        "guess": [2, 3, 3, 4, 4],
    }
    assert artifact.get_string_custom_property("output_format") == "parquet"


def test_a_model_that_is_not_blessed_is_not_asked(run: Callable[..., tuple[Path, Any]], tmp_path: Path) -> None:
    from infeed.components import BulkInferrer

    folder, _ = run(BulkInferrer, "ours", model_blessing=blessing(tmp_path, 0))
    assert not folder.exists()


def test_what_is_said_of_a_split_or_a_signature_that_is_not_there(run: Callable[..., tuple[Path, Any]]) -> None:
    from tfx.proto import bulk_inferrer_pb2

    from infeed.components import BulkInferrer

    with pytest.raises(InfeedError, match="there is no split 'test'"):
        run(BulkInferrer, "ours", data_spec=bulk_inferrer_pb2.DataSpec(example_splits=["test"]))
    with pytest.raises(InfeedError, match="the model has no signature 'other'"):
        run(BulkInferrer, "ours", signature="other")


@pytest.fixture
def left_to_tfx(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The exec properties of what TFX's executor is asked to do."""
    from tfx.components.bulk_inferrer import executor

    asked: list[dict[str, Any]] = []

    class Recorder:
        def __init__(self, context: Any) -> None:
            del context

        def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:
            del input_dict, output_dict
            asked.append(exec_properties)

    monkeypatch.setattr(executor, "Executor", Recorder)
    return asked


def save_classifier(folder: Path) -> None:
    """As TensorFlow 1 exported them: its signature is of the method classify."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        examples = tf.compat.v1.placeholder(tf.string, [None])
        scores = tf.ones([tf.shape(examples)[0], 2])
        signature = tf.compat.v1.saved_model.classification_signature_def(examples, None, scores)
        builder = tf.compat.v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()


def test_signatures_of_other_methods_are_left_to_tfx_or_refused(
    run: Callable[..., tuple[Path, Any]], channels: Channels, left_to_tfx: list[dict[str, Any]], tmp_path: Path
) -> None:
    from infeed.components import BulkInferrer

    [trained] = channels["model"].get()
    Path(trained.uri, "Format-Serving").unlink()
    save_classifier(Path(trained.uri, "Format-Serving"))
    run(BulkInferrer, "ours")
    assert len(left_to_tfx) == 1
    folder, _ = run(BulkInferrer, "scores", output_format="parquet")
    assert pq.read_table(folder / "Split-eval").to_pydict() == {"scores": [[1.0, 1.0]] * 5}
    assert len(left_to_tfx) == 1


def test_several_signatures_at_once_are_left_to_tfx_or_refused(
    run: Callable[..., tuple[Path, Any]], left_to_tfx: list[dict[str, Any]]
) -> None:
    from tfx.proto import bulk_inferrer_pb2

    from infeed.components import BulkInferrer

    several = bulk_inferrer_pb2.ModelSpec(model_signature_name=["without_word", "halves"])
    run(BulkInferrer, "ours", model_spec=several)
    assert len(left_to_tfx) == 1
    with pytest.raises(InfeedError, match="parquet cannot be written: several signatures are requested"):
        run(BulkInferrer, "ours", model_spec=several, output_format="parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_format": "examples"}, r"output_format is 'examples'(?s:.*)output_example_spec"),
        ({"output_format": "csv"}, "output_format is 'csv'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"columns": "id"}, "columns is 'id'"),
        ({"keys": ["id"], "output_format": "prediction_log"}, "contains the whole example"),
    ],
)
def test_options_that_cannot_be_are_refused_when_the_pipeline_is_made(
    channels: Channels, options: Mapping[str, Any], message: str
) -> None:
    from infeed.components import BulkInferrer

    with pytest.raises(InfeedError, match=message):
        BulkInferrer(**channels, **options)


def test_arguments_that_say_the_same_are_refused(channels: Channels) -> None:
    from tfx.proto import bulk_inferrer_pb2

    from infeed.components import BulkInferrer

    columns = {"predict_output": {"output_columns": [{"output_key": "a", "output_column": "b"}]}}
    examples = bulk_inferrer_pb2.OutputExampleSpec(output_columns_spec=[columns])
    with pytest.raises(InfeedError, match="keys and output_format are given beside output_example_spec"):
        BulkInferrer(**channels, output_example_spec=examples, keys=["id"], output_format="parquet")
    named = bulk_inferrer_pb2.ModelSpec(model_signature_name=["a"])
    with pytest.raises(InfeedError, match="signature is 'b', but model_spec"):
        BulkInferrer(**channels, model_spec=named, signature="b")
