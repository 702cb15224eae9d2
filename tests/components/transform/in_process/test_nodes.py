"""Kinds of nodes are known by their names, so that a name which tft changes costs no more than a way round by Beam."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

MODULE = "infeed.components.transform.in_process.nodes"
MISSPELT, MENDED = "ScaleAndFlattenPerKeyBucketBouandaries", "ScaleAndFlattenPerKeyBucketBoundaries"


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`Unknown` of the module as it is imported where tft lacks the misspelt name."""
    from tensorflow_transform import analyzer_nodes

    monkeypatch.delattr(analyzer_nodes, MISSPELT)
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.loader is not None
    nodes = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, MODULE, nodes)  # where dataclasses look
    spec.loader.exec_module(nodes)
    return nodes.Unknown()


def node(name: str, module: str = "tensorflow_transform.analyzer_nodes") -> Any:
    return type(name, (), {"__module__": module, "label": "quantiles", "num_outputs": 4})()


@pytest.mark.parametrize("name", [MISSPELT, MENDED])
def test_either_spelling_is_known(unknown: Any, name: str) -> None:
    assert unknown.visit(node(name), ()) == (None,) * 4
    assert unknown.labels == []


def test_another_name_is_left_to_beam(unknown: Any) -> None:
    unknown.visit(node("ScaleBuckets"), ())
    unknown.visit(node(MENDED, "somebody.elses"), ())
    assert unknown.labels == ["ScaleBuckets of quantiles", f"{MENDED} of quantiles"]
