"""A model that is evaluated is called in the form that TensorFlow takes at once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from infeed.components.dataset.encode import encode_examples

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def test_a_call_writes_no_record_into_an_error_that_nobody_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: ModuleType
) -> None:
    import tensorflow as tf
    from tensorflow_model_analysis.proto import config_pb2

    from infeed.components.evaluation.models import EvaluatedModel

    model = EvaluatedModel(
        config_pb2.ModelSpec(), str(Path(build.write_model(tmp_path / "model").uri) / "Format-Serving")
    )
    rows = pa.RecordBatch.from_pydict({"height": [0.5, -1.0], "girth": [0.0, 2.0], "kind": ["oak", "elm"]})
    records = encode_examples(rows).to_pylist()
    written: list[object] = []
    monkeypatch.setattr(type(tf.constant(0)), "__repr__", lambda tensor: str(written.append(tensor)))
    predictions = model.predictions(records)
    assert not written
    assert predictions.shape[0] == 2
    assert predictions.sum(axis=1) == pytest.approx([1, 1])
