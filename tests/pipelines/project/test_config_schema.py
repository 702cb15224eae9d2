"""The JSON schema of a config file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import infeed
from infeed.pipelines.project.config_file import TEMPLATES, read_yaml
from infeed.pipelines.project.config_schema import config_schema

TEMPLATE_FOLDER = Path(infeed.__file__).parent / "templates"
SCHEMA = json.loads(config_schema())
LEAST = {"source": "csv", "data": "x.csv", "model": "m.py:f"}


def faults(config: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(config)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_are_valid(template: str) -> None:
    assert not faults(read_yaml(TEMPLATE_FOLDER / template / "config.yaml"))


@pytest.mark.parametrize(
    "given",
    [
        "train: {epochs: 20, batch_size: 64, patience: null, map_batches: 'm.py:f', class_weight: balanced}",
        "ingest: {split: {train: 8, eval: 1}, split_by: user, columns: [a, b], on_bad_row: reject}",
        "source: 'data.py:rows'",
        "features: [{kind: label, column: y}, {kind: z_score, column: x}]",
        "{features: f.py:features, augment: f.py:augment, hparams: {width: 8}, blessing: {metric: auc}}",
        "deploy: {image: i, resources: {Trainer: {cpu: 4}}}",
    ],
)
def test_what_a_file_may_say(given: str) -> None:
    assert not faults(LEAST | yaml.safe_load(given))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("train: {epoch: 20}", "epoch"),
        ("train: {batch_size: 0}", "0"),
        ("{sorce: csv}", "sorce"),
        ("source: pdf", "pdf"),
        ("ingest: {level: 12}", "12"),
        ("features: [{kind: z_scor, column: x}]", "z_scor"),
        ("deploy: {resource: {}}", "resource"),
    ],
)
def test_mistakes_are_found(given: str, word: str) -> None:
    (fault,) = faults(LEAST | yaml.safe_load(given))
    assert word in fault


def test_settings_are_described() -> None:
    assert "global batch" in SCHEMA["properties"]["train"]["properties"]["batch_size"]["description"]
