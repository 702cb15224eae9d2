"""Masks and boxes that follow their pictures through a training."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trained

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.options import TrainOptions

pytestmark = pytest.mark.tfx

Scenes = tuple[Path, list[dict[str, Any]]]
AUGMENT = Augment(shift=3, flip="horizontal", rotate=10.0, crop=0.7, mask_fill=255)
OPTIONS: dict[str, Any] = {"augment": AUGMENT, "normalise": Normalise(), "masks": ["mask"], "boxes": ["boxes"]}
SIMPLE = {**OPTIONS, "augment": Augment(shift=3, flip="horizontal", mask_fill=255)}  # XLA compiles less


@pytest.fixture(scope="module")
def segmented(scenes: Scenes, train_into: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each pixel's class, trained on masks that every movement has moved: the folders `model` and `run`."""
    place = tmp_path_factory.mktemp("segmented")
    given = {"label": "mask", "epochs": 15, "callbacks_fn": "callbacks", **OPTIONS}
    return train_into(place, scenes[0], "both", "segment", **given)


@pytest.mark.image
def test_a_model_learns_the_class_of_each_pixel_from_moved_masks(segmented: Path, scenes: Scenes) -> None:
    import tensorflow as tf

    said = next(str(step) for step in trained.profile(segmented)["plan"]["steps"] if step["name"] == "augment")
    assert "mask" in said
    assert "boxes" in said
    model = tf.saved_model.load(str(segmented / "model"))
    rows = scenes[1][:8]
    encoded = tf.constant([row["image/encoded"] for row in rows])
    told = model.signatures["raw"](image_encoded=encoded)["class"]
    masks = np.stack([tf.io.decode_png(row["mask/encoded"])[..., 0].numpy() for row in rows])
    assert told.shape == masks.shape
    assert (told.numpy() == masks).mean() > 0.95


@pytest.mark.image
def test_a_training_that_is_killed_and_resumed_moves_masks_as_without(
    train: Callable[..., Path], start: Callable[..., Any], scenes: Scenes, tmp_path: Path
) -> None:
    feed = FeedOptions(batch_size=16, tier="columns")
    saved: dict[str, Any] = {"checkpoint_seconds": 1e-6, "steps_per_call": 1, "callbacks_fn": "callbacks"}
    given: dict[str, Any] = {**SIMPLE, **saved, "label": "mask", "epochs": 3, "feed": feed}
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    killed = start(broken, scenes[0], "both", "segment", env={"KILL_AFTER": "7"}, **given)
    train(scenes[0], "both", "segment", place=whole, **given)
    code, said = killed.finish()
    assert code == -signal.SIGKILL, said
    train(scenes[0], "both", "segment", place=broken, **given)
    trained.check_weights(trained.weights(broken), trained.weights(whole))


@pytest.mark.parametrize("tier", [pytest.param("stream", marks=pytest.mark.image), "columns"])
def test_batches_from_any_step_move_masks_and_boxes_as_from_the_beginning(
    tier: Any, arguments: Callable[..., dict[str, Any]], scenes: Scenes, tmp_path: Path
) -> None:
    """`test_resume` holds that a training goes on with the batches of its next step."""
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.training import prepare

    feed = FeedOptions(batch_size=16, tier=tier)
    fn_args = FnArgs(**arguments(tmp_path, scenes[0], "both", "segment", label="mask", feed=feed, **SIMPLE))
    fed = prepare(fn_args).train
    for (features, mask), (later, later_mask) in zip(
        fed.dataset().skip(6).take(3), fed.dataset(start_step=6).take(3), strict=True
    ):
        np.testing.assert_array_equal(mask, later_mask)
        for name in ("image", "boxes"):
            np.testing.assert_array_equal(features[name], later[name])


@pytest.mark.image
def test_a_model_learns_the_place_of_an_object_from_moved_boxes(train: Callable[..., Path], scenes: Scenes) -> None:
    given = {"label": "boxes", "task": "regression", "epochs": 20, "callbacks_fn": "callbacks", **SIMPLE}
    place = train(scenes[0], "both", "locate", **given)
    assert trained.history(place)["val_loss"][-1] < 0.02


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"class_weight": "balanced"}, "class_weight"),
        ({"feed": FeedOptions(weight="w")}, "weight"),
        ({"strategy": "tpu"}, "strategy"),
    ],
)
def test_a_mask_as_label_is_refused_with_weights_of_rows(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InfeedError) as raised:
        TrainOptions(model_fn="m:f", label="mask", masks=["mask"], **options)
    assert raised.value.what.startswith(named)


def test_a_feature_that_is_no_mask_is_refused_before_training(train: Callable[..., Path], scenes: Scenes) -> None:
    with pytest.raises(InfeedError) as raised:
        train(scenes[0], "both", "segment", label="mask", **{**OPTIONS, "masks": ["mask", "boxes"], "boxes": []})
    assert raised.value.where == "option masks"


@pytest.mark.image
def test_datasets_of_a_users_run_fn_move_masks_and_boxes_as_the_trainer_does(
    arguments: Callable[..., dict[str, Any]], scenes: Scenes, tmp_path: Path
) -> None:
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.training import prepare
    from infeed.components.trainer.user_run import datasets

    feed = FeedOptions(batch_size=16, tier="columns", seed=7)
    fn_args = FnArgs(**arguments(tmp_path, scenes[0], "both", "segment", label="mask", feed=feed, **SIMPLE))
    ours = prepare(fn_args).train.dataset()
    theirs = datasets(fn_args, label="mask", feed=feed, **SIMPLE).train
    for (features, mask), (own, own_mask) in zip(ours.take(3), theirs.take(3), strict=True):
        np.testing.assert_array_equal(mask, own_mask)
        for name in ("image", "boxes"):
            np.testing.assert_array_equal(features[name], own[name])


@pytest.mark.image
def test_the_evaluator_measures_the_pixels_of_a_mask(
    segmented: Path, scenes: Scenes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By TFX's own executor, as the log says."""
    import tensorflow_model_analysis as tfma
    from google.protobuf import text_format
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components import Evaluator

    examples, model = standard_artifacts.Examples(), standard_artifacts.Model()
    examples.uri, examples.split_names, model.uri = str(scenes[0]), '["train", "eval"]', str(tmp_path / "pushed")
    shutil.copytree(segmented / "model", tmp_path / "pushed" / "Format-Serving")
    config = """
        model_specs { label_key: "mask" preprocessing_function_names: "transform_features" }
        slicing_specs {}
        metrics_specs { metrics { class_name: "SparseCategoricalAccuracy" config: '"name": "accuracy"' } }
    """
    evaluator = Evaluator(
        examples=channel_utils.as_channel([examples]),
        model=channel_utils.as_channel([model]),
        eval_config=text_format.Parse(config, tfma.EvalConfig()),
    )
    outputs = {key: [channel.type()] for key, channel in evaluator.outputs.items()}
    for key, (artifact,) in outputs.items():
        artifact.uri = str(tmp_path / key)
    kind = evaluator.executor_spec.executor_class
    context = kind.Context(beam_pipeline_args=[], tmp_dir=str(tmp_path / "tmp"), unique_id="1")
    kind(context).Do({"examples": [examples], "model": [model]}, outputs, evaluator.exec_properties)
    assert "TFX's own executor" in caplog.text
    found = dict(tfma.load_eval_result(outputs["evaluation"][0].uri).slicing_metrics)[()]
    assert found[""][""]["accuracy"]["doubleValue"] == pytest.approx(
        trained.history(segmented)["val_accuracy"][-1], abs=1e-6
    )


@pytest.mark.image
def test_a_mask_is_predicted_as_nested_lists_and_told_in_words(
    segmented: Path, scenes: Scenes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    from infeed.pipelines.cli import main

    def told(*options: str) -> str:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["predict", str(segmented / "model"), str(picture), *options])
        assert not ended.value.code
        return capfd.readouterr().out

    picture, output = tmp_path / "picture.png", tmp_path / "predicted.parquet"
    picture.write_bytes(scenes[1][0]["image/encoded"])
    assert "16 x 16" in told()
    mask = json.loads(told("--json").splitlines()[-1])["value"]
    assert (np.shape(mask), set(np.unique(mask)) <= {0, 1}) == ((16, 16), True)
    told("--output", str(output))
    assert pq.read_table(output)["prediction"].to_pylist() == [mask]
