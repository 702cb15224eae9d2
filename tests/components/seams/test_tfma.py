"""The Evaluator uses no name of TFMA that its seam does not list, and notices a combiner that has changed."""

from __future__ import annotations

import ast
import copy
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.components.seams import tfma as tfma_seam

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

TFMA = "tensorflow_model_analysis"
EVALUATION = Path(infeed.__file__).parent / "components" / "evaluation"
METRICS: dict[str, dict[str, Any]] = {
    "ExampleCount": {},
    "MeanLabel": {},
    "MeanSquaredError": {},
    "BinaryCrossEntropy": {"label_smoothing": 0.1},
    "AUC": {"num_thresholds": 20},
    "CalibrationPlot": {"num_buckets": 4},
    "ConfusionMatrixAtThresholds": {"thresholds": [0.25, 0.5]},
    "MultiClassConfusionMatrixAtThresholds": {"thresholds": [0.25, 0.5]},
    "CategoricalAccuracy": {},
}
OF_CLASSES = ("ExampleCount", "MultiClassConfusionMatrixAtThresholds", "CategoricalAccuracy")


def used() -> Iterator[tuple[str, str]]:
    """(module of TFMA, name in it) of everything that the Evaluator's source takes from TFMA."""
    for path in EVALUATION.glob("*.py"):
        tree = ast.parse(path.read_text())
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {str(one.asname): "" for one in node.names if one.name == TFMA}
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(TFMA):
                place = str(node.module).removeprefix(TFMA).lstrip(".")
                for one in node.names:
                    inner = f"{place}.{one.name}".lstrip(".")
                    if (Path(importlib.import_module(TFMA).__file__).parent / inner.replace(".", "/")).with_suffix(
                        ".py"
                    ).exists() or inner.endswith("_pb2"):
                        modules[one.asname or one.name] = inner
                    else:
                        yield place, one.name
        yield from ((modules[a], b) for a, b in _chains(tree) if a in modules and not b.startswith("__"))


def _chains(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """`a.b.c` as ("a", "b.c"), the longest only."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names, below = [node.attr], node.value
            while isinstance(below, ast.Attribute):
                names.append(below.attr)
                below = below.value
            if isinstance(below, ast.Name):
                yield below.id, ".".join(reversed(names))


def test_every_name_that_is_used_is_checked() -> None:
    checked = set(tfma_seam.EVALUATION.names)
    assert {f"{TFMA}.{module}".rstrip(".") + f":{name}" for module, name in used()} - checked == set()


def leaf_of(name: str) -> Any:
    import tfx.components  # noqa: F401 - before TFMA

    # isort: split
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.proto import config_pb2

    from infeed.components.evaluation.metric_plan import MetricPlan

    of_one = None if name in OF_CLASSES else config_pb2.BinarizationOptions(class_ids={"values": [1]})
    metric = tfma.MetricConfig(class_name=name, config=json.dumps(METRICS[name]))
    config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec()], metrics_specs=[tfma.MetricsSpec(metrics=[metric], binarize=of_one)]
    )
    return MetricPlan.of(tfma.utils.update_eval_config_with_defaults(config)).leaves[0]


def results(leaf: Any) -> Any:
    """Of three rows of three classes."""
    from infeed.components.evaluation.pairs import Observed

    sparse = type(leaf).__name__ != "KerasMetrics"
    labels = np.array([[0], [1], [2]]) if sparse else np.eye(3)
    rows = Observed(3, labels, np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]), None)
    found = leaf.results(leaf.total(leaf.terms({"": rows})))
    return str({key: _plain(value) for key, value in found.items()})


def _plain(value: Any) -> Any:
    """What an accumulator holds."""
    slots = getattr(value, "__slots__", ()) if not isinstance(value, tuple) else ()
    return {name: getattr(value, name) for name in slots} or value


@pytest.mark.parametrize("name", METRICS)
def test_each_attribute_that_a_combiner_lacks_is_noticed_or_not_needed(name: str) -> None:
    leaf = leaf_of(name)
    expected, noticed = results(leaf), 0
    for attribute in [one for one in vars(leaf.combiner) if one.startswith("_")]:
        lacking = copy.copy(leaf.combiner)
        delattr(lacking, attribute)
        try:
            without = type(leaf)(lacking)
            without.check()
        except AttributeError:
            noticed += 1
        else:
            assert results(without) == expected, attribute
    assert noticed


@pytest.mark.parametrize("name", ["MeanLabel", "MeanSquaredError", "BinaryCrossEntropy"])
def test_each_sum_that_an_accumulator_lacks_is_noticed(name: str) -> None:
    leaf = leaf_of(name)
    made = leaf.combiner.create_accumulator()
    sums = vars(made) if hasattr(made, "__dict__") else dict.fromkeys(made.__slots__)
    for one in sums:
        others = {name: getattr(made, name) for name in sums if name != one}
        leaf.combiner.create_accumulator = lambda others=others: SimpleNamespace(**others)
        with pytest.raises(AttributeError, match=one):
            leaf.check()
