"""Configs with several labels, and with sets of classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components import InfeedError, Label, ZScore
from infeed.components.trainer.options import Output
from infeed.pipelines.config import PipelineConfig, Resolved, read_resolved
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve
from infeed.pipelines.surveys import TableSurvey

CONFIG = """
source: jsonl
data: {data}
features: [{{kind: z_score, column: x}}, {{kind: label, column: price, task: regression}},
  {{kind: label, column: sold}}, {{kind: label, column: tags, task: multilabel}}]
model: model.py:build_model
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    numbers = np.random.default_rng(0).normal(0, 1, 60).round(3).tolist()
    rows = [
        {"x": x, "price": 2 * x + i % 7, "sold": "yn"[i % 3 == 0], "tags": ["a", "b"][: i % 3]}
        for i, x in enumerate(numbers)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "model.py").write_text("def build_model(spec):\n    raise NotImplementedError\n")
    return tmp_path


def resolved(project: Path, text: str, **given: Any) -> PipelineConfig:
    (project / "config.yaml").write_text(CONFIG.format(data=project / "data.jsonl") + text)
    return resolve(read_project(str(project)), Overrides(root="r", **given))


NAMES = "label: [price, sold, tags]\n"
SETTINGS = "label: {price: {}, sold: {threshold: 0.3}, tags: {task: multilabel}}\n"


def test_a_list_of_labels_is_an_output_each_by_the_tasks_of_the_columns(project: Path) -> None:
    config = resolved(project, NAMES)
    assert config.train.label == {
        "price": Output("regression"),
        "sold": Output(),
        "tags": Output("multilabel"),
    }
    assert (config.blessing.output, config.blessing.metric) == ("price", "mse")
    assert config.ingest.labeled == ("price", "sold", "tags")
    labels = [text for topic, text in config.notes if topic == "label"]
    assert [text.split(":")[0] for text in labels] == ["price", "sold", "tags"]
    assert "sets of 2 classes: a" in labels[2]


def test_a_mapping_of_labels_has_their_settings(project: Path) -> None:
    label = resolved(project, SETTINGS).train.label
    assert not isinstance(label, str)
    assert label["sold"] == Output(threshold=0.3)


@pytest.mark.parametrize("given", ["{y: 3}", "balanced"])
def test_class_weights_are_set_by_output(project: Path, given: str) -> None:
    config = resolved(project, NAMES + f"train: {{class_weight: {{sold: {given}}}}}\n")
    assert config.train.class_weights == {"sold": "balanced" if given == "balanced" else {"y": 3.0}}


@pytest.mark.parametrize(
    ("output", "metric", "bound", "positive"),
    [("sold", "accuracy", 2 / 3, None), ("tags", "f1", 2 * 40 / (60 + 60), None)],
)
def test_the_named_output_decides(project: Path, output: str, metric: str, bound: float, positive: str | None) -> None:
    config = resolved(project, NAMES + f"blessing: {{output: {output}}}\n")
    assert (config.blessing.output, config.blessing.metric) == (output, metric)
    assert config.blessing.bound == pytest.approx(bound, rel=0.15)
    assert config.survey.task == ("multilabel" if output == "tags" else "classification")


def test_the_command_line_names_several_labels(project: Path) -> None:
    config = resolved(project, SETTINGS, label=("sold", "tags"))
    assert config.train.label == {"sold": Output(threshold=0.3), "tags": Output("multilabel")}


def test_a_set_of_classes_alone(project: Path) -> None:
    config = resolved(project, "label: tags\n")
    assert (config.train.label, config.train.task) == ("tags", "multilabel")
    assert (config.blessing.metric, config.blessing.beat_guess, config.blessing.output) == ("f1", True, "")
    assert config.ingest.split_by is None or config.ingest.split_by.how != "label"


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        (NAMES + "blessing: {output: prize}", "blessing.output", "'prize'"),
        (NAMES + "blessing: {metric: auc}", "blessing.metric", "a regression"),
        (NAMES + "blessing: {output: tags, metric: accuracy}", "blessing.metric", "sets of 2 classes"),
        (NAMES + "blessing: {output: tags, positive: a}", "blessing.positive", "'a'"),
        (NAMES + "train: {class_weight: balanced}", "train.class_weight", "balanced"),
        (NAMES + "train: {class_weight: {sold: {maybe: 3}}}", "train.class_weight.sold", "'maybe'"),
        (NAMES + "train: {class_weight: {price: balanced}}", "train.class_weight.price", "regression"),
        (NAMES + "train: {class_weight: {tags: {a: 2}}}", "train.class_weight.tags", "multilabel"),
        (NAMES + "train: {class_weight: {y: 3}}", "train.class_weight.y", "price, sold, tags"),
        (NAMES + "train: {class_shares: {y: 0.5, n: 0.5}}", "train.feed", "class_shares"),
        (NAMES + "train: {label: price}", "train.label", "label"),
        (NAMES + "train: {task: regression}", "train.task", "regression"),
        ("label: tags\ntrain: {class_weight: {a: 2}}", "train.class_weight", "class_weight"),
        ("label: sold\ntrain: {task: multilabel}", "train.task", "multilabel"),
        ("label: [x, price]", "setting features", "'x'"),
    ],
)
def test_what_does_not_fit_several_labels_is_told_before_work(project: Path, text: str, where: str, word: str) -> None:
    with pytest.raises(InfeedError, match=word) as raised:
        resolved(project, text)
    assert raised.value.where.endswith(where)


def test_a_task_for_several_labels_is_refused(project: Path) -> None:
    with pytest.raises(InfeedError, match="3 labels") as raised:
        resolved(project, NAMES, task="regression")
    assert raised.value.where == "--task"


def test_the_steps_of_a_compiled_job_know_all_labels(project: Path) -> None:
    from infeed.components.kubeflow.message import pack

    config = resolved(project, NAMES + "blessing: {output: sold}\n")
    read = read_resolved(pack(Resolved.of(config).to_json()), {})
    assert read is not None
    assert isinstance(read.survey, TableSurvey)
    assert isinstance(config.survey, TableSurvey)
    assert [(one.column.name, one.task, one.classes, one.class_rows) for one in read.survey.labels] == [
        (one.column.name, one.task, one.classes, one.class_rows) for one in config.survey.labels
    ]
    assert (read.train.label, read.blessing) == (config.train.label, config.blessing)


def test_the_tabular_template_declares_every_label(project: Path) -> None:
    given = Overrides(data=str(project / "data.jsonl"), label=("price", "sold", "tags"), root="r")
    config = resolve(read_project("tabular"), given)
    assert config.features[0] == ZScore("x", output="x")
    labels = [Label("price", "regression"), Label("sold"), Label("tags", "multilabel")]
    assert [one for one in config.features if isinstance(one, Label)] == labels
    assert list(config.train.hparams["scales"]) == ["price"]
