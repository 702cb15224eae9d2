"""TFX's BulkInferrer reads what is written here, compressed and not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def save_model(path: Path) -> None:
    """Doubles `mean_radius`, or 0 where it is missing; takes serialized examples."""
    import tensorflow as tf

    class Double(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])  # type: ignore[misc]
        def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
            spec = {"mean_radius": tf.io.FixedLenFeature([], tf.float32, default_value=0.0)}
            return {"doubled": 2 * tf.io.parse_example(examples, spec)["mean_radius"]}

    module = Double()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_bulk_inferrer_reads_every_record(cancer: str, tmp_path: Path, compression: str) -> None:
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2
    from tfx.components.bulk_inferrer.executor import Executor
    from tfx.proto import bulk_inferrer_pb2
    from tfx.types import standard_artifacts
    from tfx.utils import path_utils, proto_utils

    from infeed.components import CsvExampleGen, IngestOptions, ShardOptions

    examples, model, results = (
        standard_artifacts.Examples(),
        standard_artifacts.Model(),
        standard_artifacts.InferenceResult(),
    )
    examples.uri, model.uri, results.uri = (str(tmp_path / name) for name in ("examples", "model", "results"))
    component = CsvExampleGen(cancer, options=IngestOptions(ShardOptions(count=3), compression=compression))
    component.executor_spec.executor_class().Do({}, {"examples": [examples]}, component.exec_properties)
    save_model(Path(path_utils.serving_model_path(model.uri)))

    properties = {
        "model_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.ModelSpec()),
        "data_spec": proto_utils.proto_to_json(bulk_inferrer_pb2.DataSpec()),
    }
    Executor().Do({"examples": [examples], "model": [model]}, {"inference_result": [results]}, properties)
    found = tf.data.TFRecordDataset([str(path) for path in Path(results.uri).rglob("*.gz")], "GZIP")
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in found.as_numpy_iterator()]
    assert sum(len(log.predict_log.response.outputs["doubled"].float_val) for log in logs) == 569
