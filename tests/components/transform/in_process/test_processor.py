"""TFX's executor without Beam gives what it gives with it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_examples import serialize

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import local_runner, pipeline_of

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]

PENGUIN = "tfx.examples.penguin.penguin_utils_base"
TAXI = "tfx.examples.chicago_taxi_pipeline.taxi_utils_native_keras"
FLOATS = ["trip_miles", "fare", "pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude", "tips"]
INTS = ["trip_seconds", "trip_start_hour", "trip_start_day", "trip_start_month", "pickup_census_tract"]
INTS += ["dropoff_census_tract", "pickup_community_area", "dropoff_community_area"]
WORDS = ["payment_type", "company"]
LEAN = {"disable_statistics": True, "disable_analyzer_cache": True}
SCHEMA = "".join(
    f'feature {{ name: "{name}" type: {kind} value_count {{ min: 1 max: 1 }} presence {{ min_count: 1 }} }}\n'
    for kind, names in (("FLOAT", FLOATS), ("INT", INTS), ("BYTES", WORDS))
    for name in names
)


def trips(count: int) -> Iterator[bytes]:
    """In the form of TFX's taxi data; a tenth of the values is missing."""
    import tensorflow as tf

    generator = np.random.default_rng(20)
    for _ in range(count):
        example = tf.train.Example()
        for name in [*FLOATS, *INTS, *WORDS]:
            feature = example.features.feature[name]
            if generator.random() < 0.1:
                continue
            if name in FLOATS:
                feature.float_list.value.append(generator.gamma(2.0))
            elif name in INTS:
                feature.int64_list.value.append(int(generator.integers(24)))
            else:
                feature.bytes_list.value.append(b"%s %d" % (name.encode(), generator.zipf(1.5) % 20))
        yield example.SerializeToString()


MEASURES = ["culmen_length_mm", "culmen_depth_mm", "flipper_length_mm", "body_mass_g"]
OF_PENGUINS = "".join(
    f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} shape {{ dim {{ size: 1 }} }} }}\n'
    for name, kind in (*((measure, "FLOAT") for measure in MEASURES), ("species", "INT"))
)


def penguins(count: int) -> Iterator[bytes]:
    """In the form of `penguins_processed.csv`: measures between 0 and 1, and the number of a species."""
    generator = np.random.default_rng(20)
    for _ in range(count):
        measures = {name: generator.random() for name in MEASURES}
        yield serialize({**measures, "species": int(generator.integers(3))})


@dataclass(frozen=True)
class Official:
    """A `preprocessing_fn` that TFX ships, and data in the form that it takes."""

    module: str
    rows: Callable[[int], Iterator[bytes]]
    schema: str


OFFICIAL = {"taxi": Official(TAXI, trips, SCHEMA), "penguin": Official(PENGUIN, penguins, OF_PENGUINS)}


# Here `test_phases` and `test_against_tfx` compare functions of their own with tft and TFX.
@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.image) for name in OFFICIAL])
def official(request: pytest.FixtureRequest) -> Official:
    return OFFICIAL[request.param]


@pytest.fixture(scope="module")
def executed(
    official: Official, tmp_path_factory: pytest.TempPathFactory, execute: Callable[..., Any]
) -> dict[str, dict[str, Path]]:
    """Transform of the official function by both, on the same rows."""
    import tfx.components

    from infeed.components.transform.component import Transform

    splits = {"train": list(official.rows(200)), "eval": list(official.rows(40))}
    root = tmp_path_factory.mktemp("official")
    given = {"preprocessing_fn": f"{official.module}.preprocessing_fn", "materialize": True, **LEAN}
    kinds = {"ours": Transform, "theirs": tfx.components.Transform}
    return {who: execute(kind, root / who, [splits], official.schema, **given) for who, kind in kinds.items()}


def test_an_official_function_gives_the_same_graph(
    official: Official, executed: Mapping[str, Mapping[str, Path]]
) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    graphs = {who: outputs["transform_graph"] for who, outputs in executed.items()}
    folders = {who: sorted(one.name for one in graph.iterdir()) for who, graph in graphs.items()}
    assert folders["ours"] == folders["theirs"]
    for kind in ("transform_fn/assets", "transformed_metadata", "metadata"):
        content = {who: {f.name: f.read_bytes() for f in (graph / kind).glob("*")} for who, graph in graphs.items()}
        assert content["ours"] == content["theirs"]
        assert content["ours"] or (official.module, kind) == (PENGUIN, "transform_fn/assets")  # it has no vocabulary
    outputs = {who: tft.TFTransformOutput(str(graph)) for who, graph in graphs.items()}
    parsed = tf.io.parse_example(list(official.rows(50)), outputs["theirs"].raw_feature_spec())
    here, there = (outputs[who].transform_raw_features(parsed) for who in ("ours", "theirs"))
    assert here.keys() == there.keys()
    for name, values in there.items():
        np.testing.assert_allclose(here[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_transformed_rows_are_the_same_in_the_same_order(executed: Mapping[str, Mapping[str, Path]]) -> None:
    import tensorflow as tf

    for split, count in (("train", 200), ("eval", 40)):
        rows = {}
        for who, outputs in executed.items():
            (file,) = (outputs["transformed_examples"] / f"Split-{split}").iterdir()
            assert file.name == "transformed_examples-00000-of-00001.gz"
            dataset = tf.data.TFRecordDataset([str(file)], "GZIP")
            rows[who] = [tf.train.Example.FromString(one.numpy()).features.feature for one in dataset]
        assert len(rows["ours"]) == len(rows["theirs"]) == count
        for ours, theirs in zip(rows["ours"], rows["theirs"], strict=True):
            assert ours.keys() == theirs.keys()
            for name, feature in theirs.items():
                assert ours[name].WhichOneof("kind") == feature.WhichOneof("kind"), name
                if feature.HasField("float_list"):
                    values = ours[name].float_list.value
                    np.testing.assert_allclose(values, feature.float_list.value, rtol=1e-5, atol=1e-6)
                else:
                    assert ours[name] == feature, name


def sampled(stats_type: Any, options: Any) -> Any:
    """What is asked of the statistics: a sample, which only TFDV's own code draws."""
    options.sample_rate = 0.5
    return options


def test_what_needs_beam_is_done_by_beam_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, execute: Callable[..., Any]
) -> None:
    from tfx.components.transform import executor

    from infeed.components.transform.component import Transform

    ran = []

    @functools.wraps(executor.TransformProcessor._RunBeamImpl)
    def on_beam(*given: Any, **named: Any) -> None:
        ran.append(True)

    monkeypatch.setattr(executor.TransformProcessor, "_RunBeamImpl", on_beam)
    given = {
        "preprocessing_fn": f"{PENGUIN}.preprocessing_fn",
        "materialize": False,
        **LEAN,
        "disable_statistics": False,
    }
    given["stats_options_updater_fn"] = f"{__file__}:sampled"
    with caplog.at_level(logging.INFO):
        execute(Transform, tmp_path, [{"train": list(penguins(3)), "eval": []}], OF_PENGUINS, **given)
    assert ran == [True]
    assert (
        "Transform runs on Beam: only TFDV can compute these statistics: stats_options.sample_rate is 0.5"
        in caplog.text
    )


@pytest.mark.parametrize("seam", ["tfx.TRANSFORM", "tft.ANALYSIS"])
def test_without_a_name_tfx_transforms_on_beam_and_the_log_says_so(
    seam: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    execute: Callable[..., Any],
    take_away: Callable[[str], None],
) -> None:
    from tfx.components.transform import executor

    from infeed.components.transform.component import Transform

    ran: list[type] = []

    @functools.wraps(executor.TransformProcessor._RunBeamImpl)
    def on_beam(self: Any, *given: Any) -> None:
        ran.append(type(self))

    monkeypatch.setattr(executor.TransformProcessor, "_RunBeamImpl", on_beam)
    take_away(seam)
    with caplog.at_level(logging.WARNING):
        given = {"preprocessing_fn": f"{PENGUIN}.preprocessing_fn", "materialize": False, **LEAN}
        execute(Transform, tmp_path, [{"train": list(penguins(3)), "eval": []}], OF_PENGUINS, **given)
    assert ran == [executor.TransformProcessor]
    assert "_taken_away" in caplog.text
    assert "TFX's own executor" in caplog.text


def test_without_tfxs_hooks_tfx_finds_the_function_and_declared_features_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, execute: Callable[..., Any], take_away: Callable[[str], None]
) -> None:
    import tensorflow_transform as tft

    from infeed.components.base.errors import InfeedError
    from infeed.components.transform.component import Transform
    from infeed.components.transform.kinds.clean import Fill

    take_away("tfx.USER_FUNCTIONS")
    given = {"preprocessing_fn": f"{PENGUIN}.preprocessing_fn", "materialize": False, **LEAN}
    spans = [{"train": list(penguins(3)), "eval": []}]
    with caplog.at_level(logging.WARNING):
        made = execute(Transform, tmp_path / "alone", spans, OF_PENGUINS, **given)
    assert "_taken_away" in caplog.text
    features = tft.TFTransformOutput(str(made["transform_graph"])).transformed_feature_spec()
    assert "body_mass_g_xf" in features
    with pytest.raises(InfeedError, match="_taken_away"):
        execute(Transform, tmp_path / "beside", spans, OF_PENGUINS, features=[Fill("body_mass_g", 0.0)], **given)


def test_a_schema_may_represent_some_of_its_features(tmp_path: Path, execute: Callable[..., Any]) -> None:
    """TFX's own executor stops: it projects the represented features alone."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.component import Transform

    represented = """tensor_representation_group { key: "" value { tensor_representation {
      key: "body_mass_g" value { ragged_tensor { feature_path { step: "body_mass_g" } row_partition_dtype: INT64 } }
    } } }"""
    rows = list(penguins(20))
    given = {"preprocessing_fn": f"{__name__}.scaled", "materialize": True, **LEAN}
    made = execute(Transform, tmp_path, [{"train": rows, "eval": rows[:1]}], OF_PENGUINS + represented, **given)
    (file,) = (made["transformed_examples"] / "Split-train").iterdir()
    records = list(tf.data.TFRecordDataset([str(file)], "GZIP"))
    spec = tft.TFTransformOutput(str(made["transform_graph"])).transformed_feature_spec()
    found = tf.io.parse_example(records, spec)
    features = [tf.train.Example.FromString(one).features.feature for one in rows]
    masses = np.array([one["body_mass_g"].float_list.value[0] for one in features])
    expected = (masses - masses.min()) / np.ptp(masses)
    np.testing.assert_allclose(found["mass"].flat_values, expected, rtol=1e-5, atol=1e-6)
    assert found["mass"].row_lengths().numpy().tolist() == [1] * len(rows)
    assert found["species"].numpy().tolist() == [[one["species"].int64_list.value[0]] for one in features]


def scaled(inputs: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf
    import tensorflow_transform as tft

    assert isinstance(inputs["body_mass_g"], tf.RaggedTensor)
    return {"mass": tft.scale_to_0_1(inputs["body_mass_g"]), "species": inputs["species"]}


TWO_SCHEMA = 'feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }'
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
            outputs = execute(kind, tmp_path / kind.__module__, [{"train": rows, "eval": []}], TWO_SCHEMA, **given)
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
        execute(Transform, tmp_path, [{"train": rows, "eval": []}], TWO_SCHEMA, **given)
    assert "beam_pipeline_args" in caught.value.where
