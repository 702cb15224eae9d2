"""Analyses of several phases by tft on Beam: in TFX's own Transform, and where ours falls back to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_examples import serialize

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import local_runner, pipeline_of

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

SCHEMA = 'feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }'
# `ptransform_analyzer` is what our Transform leaves to tft on Beam.
MODULE = """
import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

class Largest(beam.PTransform):
    def expand(self, batches):
        found = batches | beam.Map(lambda arrays: arrays[0].max(initial=0.0))
        return found | beam.CombineGlobally(lambda values: np.float32(max(values, default=0)))

def preprocessing_fn(inputs):
    z = tft.scale_to_z_score(inputs["x"])
    bucket = tf.strings.as_string(tft.bucketize(z, 4))
    (largest,) = tft.experimental.ptransform_analyzer([z], Largest(), [tf.float32], [[]])
    return {
        "scaled": tft.scale_to_0_1(z),
        "of_largest": z / largest,
        "bucket": tft.compute_and_apply_vocabulary(bucket, vocab_filename="bucket"),
    }
"""
X = np.float32(np.random.default_rng(3).gamma(2.0, size=50))


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a Transform by the function of `MODULE`."""
    (tmp_path / "several_phases.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"materialize": False, "disable_statistics": True, "disable_analyzer_cache": True}
    return {"preprocessing_fn": "several_phases.preprocessing_fn", **options}


@pytest.fixture
def rows() -> list[bytes]:
    return [serialize({"x": float(x)}) for x in X]


@pytest.mark.image  # here `test_phases` has two phases, without Beam
def test_phases_after_the_first_give_what_they_give_in_tfx(
    given: dict[str, Any],
    rows: list[bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    execute: Callable[..., Any],
) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft
    import tfx.components

    from infeed.components.transform.component import Transform

    def made_by(kind: type) -> tuple[dict[str, np.ndarray], list[bytes]]:
        """The features of the rows, and the vocabulary."""
        with local_runner(), caplog.at_level(logging.INFO):
            outputs = execute(kind, tmp_path / kind.__module__, [{"train": rows, "eval": []}], SCHEMA, **given)
        graph = tft.TFTransformOutput(str(outputs["transform_graph"]))
        made = graph.transform_raw_features(tf.io.parse_example(rows, graph.raw_feature_spec()))
        return {name: value.numpy()[:, 0] for name, value in made.items()}, graph.vocabulary_by_name("bucket")

    theirs, words = made_by(tfx.components.Transform)
    assert "Transform runs on Beam" not in caplog.text
    ours, same_words = made_by(Transform)
    assert "Transform runs on Beam" in caplog.text
    assert words == same_words
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-6, err_msg=name)
    z = (X - X.mean()) / X.std()
    np.testing.assert_allclose(ours["scaled"], (z - z.min()) / (z.max() - z.min()), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours["of_largest"], z / z.max(), rtol=1e-4, atol=1e-5)
    quarters = np.array(words, int)[ours["bucket"]]
    assert (np.diff(quarters[np.argsort(X)]) >= 0).all()
    assert np.isin(np.bincount(quarters), [12, 13]).all()


def test_a_runner_that_cannot_run_tft_is_an_error_that_names_it(
    given: dict[str, Any],
    rows: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    execute: Callable[..., Any],
) -> None:
    from infeed.components.transform.component import Transform
    from infeed.components.transform.executor import TransformExecutor

    dask = partial(pipeline_of, ["--runner=dask", "--dask_client_address=tcp://here:1"])
    monkeypatch.setattr(TransformExecutor, "_make_beam_pipeline", lambda self: dask())
    with pytest.raises(InfeedError, match="DaskRunner") as caught:
        execute(Transform, tmp_path, [{"train": rows, "eval": []}], SCHEMA, **given)
    assert "beam_pipeline_args" in caught.value.where
