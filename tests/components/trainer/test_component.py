"""Trainer takes what TFX's takes, and says what does not go together."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import OVERRIDES, TrainOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def channel(kind: str) -> Any:
    from tfx.types import channel_utils, standard_artifacts

    return channel_utils.as_channel([getattr(standard_artifacts, kind)()])


def trainer(**given: Any) -> Any:
    from infeed.components.trainer.component import Trainer

    return Trainer(examples=channel("Examples"), **given)


@pytest.fixture
def options(tmp_path: Path) -> TrainOptions:
    (tmp_path / "m.py").write_text("def f(spec): ...\n")
    return TrainOptions(model_fn=f"{tmp_path}/m.py:f", label="y")


def test_every_argument_of_tfx_is_taken() -> None:
    from tfx.components.trainer.component import Trainer as TfxTrainer

    from infeed.components.trainer.component import Trainer

    assert set(inspect.signature(TfxTrainer).parameters) <= set(inspect.signature(Trainer).parameters)


def test_a_run_fn_of_the_users_own_gets_the_custom_config_as_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("UNSUPPORTED_DO_NOT_PACKAGE_USER_MODULES", "1")
    file = tmp_path / "user.py"
    file.write_text("def run_fn(fn_args): ...\n")
    made = trainer(
        module_file=str(file), schema=channel("Schema"), custom_config={"depth": 3}, base_model=channel("Model")
    )
    assert made.exec_properties["module_file"] == str(file)
    assert json.loads(made.exec_properties["custom_config"]) == {"depth": 3}
    assert set(made.inputs) == {"examples", "schema", "base_model"}


def test_an_edited_run_fn_is_another_execution(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_user.py"
    digests = []
    for text in ("def run_fn(fn_args): ...\n", "def run_fn(fn_args): pass\n"):
        file.write_text(text)
        digests.append(trainer(run_fn="edited_user.run_fn").exec_properties["source_digest"])
    assert digests[0] != digests[1]


def test_options_travel_beside_the_custom_config(options: TrainOptions) -> None:
    made = trainer(transform_graph=channel("TransformGraph"), options=options, custom_config={"team": "a"})
    config = json.loads(made.exec_properties["custom_config"])
    assert schema.read(TrainOptions, config["infeed"]) == schema.read(
        TrainOptions, json.loads(json.dumps(options.to_dict()))
    )
    assert config["team"] == "a"


def test_epochs_and_the_like_may_be_runtime_parameters(options: TrainOptions) -> None:
    from tfx.orchestration.data_types import RuntimeParameter

    from infeed.components.trainer.executor import TrainerExecutor

    epochs = RuntimeParameter("epochs", ptype=int, default=3)
    made = trainer(options=options, epochs=epochs, strategy="mirrored")
    assert made.exec_properties["epochs"] is epochs
    assert made.exec_properties["strategy"] == "mirrored"
    assert "batch_size" not in made.exec_properties
    assert made.executor_spec.executor_class is TrainerExecutor


def test_every_option_that_flags_override_is_an_argument() -> None:
    from infeed.components.trainer.component import Trainer

    assert set(OVERRIDES) <= set(inspect.signature(Trainer).parameters)


def test_an_executor_of_the_users_own_wins(options: TrainOptions) -> None:
    from tfx.components.trainer.executor import GenericExecutor
    from tfx.dsl.components.base.executor_spec import ExecutorClassSpec

    spec = ExecutorClassSpec(GenericExecutor)
    assert trainer(options=options, custom_executor_spec=spec).executor_spec.executor_class is GenericExecutor
    with pytest.raises(InfeedError, match=r"epochs given, but(.|\n)*set them in options"):
        trainer(options=options, custom_executor_spec=spec, epochs=3)


def test_what_does_not_go_together_is_told(options: TrainOptions) -> None:
    from tfx.orchestration.data_types import RuntimeParameter

    with pytest.raises(InfeedError, match=r"no argument defines the training(.|\n)*exactly one of options"):
        trainer()
    with pytest.raises(InfeedError, match=r"options and run_fn both define"):
        trainer(options=options, run_fn="a.b")
    with pytest.raises(InfeedError, match=r"epochs, strategy given, but(.|\n)*custom_config=\{'epochs'"):
        trainer(run_fn="a.b", epochs=1, strategy="auto")
    with pytest.raises(InfeedError, match=r"custom_config has the key 'infeed'"):
        trainer(options=options, custom_config={"infeed": 1})
    with pytest.raises(InfeedError, match=r"custom_config is the runtime parameter 'c'"):
        trainer(options=options, custom_config=RuntimeParameter("c", ptype=str))
