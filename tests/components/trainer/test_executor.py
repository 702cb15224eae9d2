from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

OPTIONS = TrainOptions(model_fn="m:f", label="y", epochs=50, strategy="auto", feed=FeedOptions(batch_size=64, seed=7))


def exec_properties(**given: Any) -> dict[str, Any]:
    config = json.dumps({"infeed": OPTIONS.to_dict(), "model_fn_digest": "d"})
    return {"custom_config": config, "train_args": "{}", "run_fn": "r", **given}


def options(**given: Any) -> TrainOptions:
    from infeed.components.trainer.executor import with_runtime_options

    changed = with_runtime_options(exec_properties(**given))
    assert set(changed) == {"custom_config", "train_args", "run_fn"}
    config = json.loads(changed["custom_config"])
    assert config["model_fn_digest"] == "d"
    return schema.read(TrainOptions, config["infeed"])


def test_what_a_run_sets_wins_over_the_options() -> None:
    changed = options(epochs=3, batch_size=32, strategy="mirrored")
    assert (changed.epochs, changed.strategy) == (3, "mirrored")
    assert changed.feed == FeedOptions(batch_size=32, seed=7)


def test_the_rest_stays() -> None:
    given = json.loads(json.dumps(OPTIONS.to_dict()))
    assert options() == schema.read(TrainOptions, given)
    assert options(epochs=3) == schema.read(TrainOptions, {**given, "epochs": 3})


@pytest.mark.parametrize(
    ("given", "error"),
    [({"epochs": 0}, r"epochs is 0"), ({"batch_size": 0}, r"batch_size"), ({"strategy": "q"}, r"no strategy 'q'")],
)
def test_a_wrong_value_is_told(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InfeedError, match=error):
        options(**given)


def test_training_gets_them_and_mixes_two_datasets_by_the_ids_of_their_components(
    tmp_path: Path, table: Any, arguments: Callable[..., dict[str, Any]]
) -> None:
    from tfx.types import standard_artifacts

    from infeed.components.trainer.component import RUN_FN
    from infeed.components.trainer.executor import TrainerExecutor

    datasets, graph = [], standard_artifacts.TransformGraph()
    for number, component in enumerate(("Old", "New")):
        datasets.append(standard_artifacts.Examples())
        place = tmp_path / component / "examples" / str(number)
        place.mkdir(parents=True)
        for split in ("train", "eval"):
            (place / f"Split-{split}").symlink_to(table[0] / f"Split-{split}")
        datasets[-1].uri, datasets[-1].split_names = str(place), '["train", "eval"]'
    feed = FeedOptions(mix={"Old": 1, "New": 3})
    graph.uri = str(table[0] / "class" / "graph")
    model, run = standard_artifacts.Model(), standard_artifacts.ModelRun()
    model.uri, run.uri = str(tmp_path / "model"), str(tmp_path / "run")
    given = arguments(tmp_path, table[0], "class", "table", label="kind", epochs=9, feed=feed)["custom_config"]
    TrainerExecutor().Do(
        {"examples": datasets, "transform_graph": [graph]},
        {"model": [model], "model_run": [run]},
        {
            "custom_config": json.dumps(given),
            "train_args": "{}",
            "eval_args": "{}",
            "run_fn": RUN_FN,
            "epochs": 1,
            "batch_size": 8,
        },
    )
    profile = json.loads((tmp_path / "run" / "input_profile.json").read_text())
    assert len(profile["epochs"]) == 1
    assert profile["batch_size"] == 8
    assert profile["steps_per_epoch"] == 16  # two times 64 rows
    assert any("25 % of 'Old', 75 % of 'New'" in step["does"] for step in profile["plan"]["steps"])
