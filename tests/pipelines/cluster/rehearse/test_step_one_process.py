from __future__ import annotations

import importlib

import pytest

from infeed.pipelines.cluster.rehearse import step
from infeed.pipelines.cluster.rehearse.step import ENTRY_POINT, in_one_process

STEP = ("python", "-m", "infeed.components.kubeflow.step")
OF_VERTEX, OF_TFX = step._HERE


def test_a_step_with_machines_trains_itself() -> None:
    assert in_one_process([*STEP, "--job", '{"options": {}}', "--executor_class_path", "x"]) == [
        *STEP,
        "--executor_class_path",
        "x",
    ]


@pytest.mark.parametrize("executor", [OF_VERTEX, OF_TFX])
@pytest.mark.parametrize("entry_point", [ENTRY_POINT, STEP[-1]])
def test_a_step_that_asks_vertex_ai_for_machines_runs_the_executor_of_the_machines(
    executor: str, entry_point: str
) -> None:
    words = ["python", "-m", entry_point, "--executor_class_path", executor]
    assert in_one_process(words) == [*words[:-1], step._HERE[executor]]


@pytest.mark.parametrize(
    "words",
    [
        (*STEP, "--executor_class_path", "infeed.components.trainer.executor.TrainerExecutor"),
        ("python", "train.py", "--job", "7", OF_VERTEX),
    ],
)
def test_other_steps_keep_their_command_line(words: tuple[str, ...]) -> None:
    assert in_one_process(words) == [*words]


@pytest.mark.tfx
def test_the_executors_exist() -> None:
    for name in (name for pair in step._HERE.items() for name in pair):
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute)
