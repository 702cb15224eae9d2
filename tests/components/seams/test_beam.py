from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infeed.components.seams.beam import COPYING_MODULE, allow_copies

pytestmark = pytest.mark.stack


def made_by_beam_2_62() -> type:
    class AppliedPTransform:
        def __init__(self, parent, transform, label, inputs, environment_id=None, annotations=None):  # type: ignore
            self.found = environment_id, annotations

    return AppliedPTransform


def made_by_beam_2_67() -> type:
    class AppliedPTransform:
        def __init__(self, parent, transform, label, inputs, environment_id, annotations):  # type: ignore
            self.found = environment_id, annotations

    return AppliedPTransform


def made_by_another_beam() -> type:
    class AppliedPTransform:
        def __init__(self, parent, transform, label, inputs, copied_from):  # type: ignore
            self.found = copied_from

    return AppliedPTransform


def imported(monkeypatch: pytest.MonkeyPatch, version: str, **names: Any) -> Any:
    """tft's module of a version, on a Beam whose module `pipeline` has `names`."""
    monkeypatch.setattr(metadata, "version", {"tensorflow-transform": version}.__getitem__)
    copies = ModuleType(COPYING_MODULE)
    copies.beam_pipeline = SimpleNamespace(**names)  # type: ignore[attr-defined]
    allow_copies(copies)
    return copies


@pytest.mark.parametrize("beam", [made_by_beam_2_62, made_by_beam_2_67])
def test_tft_1_16_copies_without_the_two_arguments(monkeypatch: pytest.MonkeyPatch, beam: Callable[[], type]) -> None:
    applied = imported(monkeypatch, "1.16.0", AppliedPTransform=beam()).beam_pipeline.AppliedPTransform
    assert applied(None, None, "label", {}).found == (None, None)
    assert applied(None, None, "label", {}, "environment", {"a": b"1"}).found == ("environment", {"a": b"1"})


@pytest.mark.parametrize("version", ["1.17.0", "1.21.0"])
def test_a_tft_that_passes_them_leaves_beam_as_it_is(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    copies = imported(monkeypatch, version, AppliedPTransform=made_by_beam_2_67())
    assert copies.beam_pipeline.AppliedPTransform.__init__.__defaults__ is None


def test_a_beam_that_has_changed_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, "1.16.0")
    copies = imported(monkeypatch, "1.16.0", AppliedPTransform=made_by_another_beam())
    assert copies.beam_pipeline.AppliedPTransform.__init__.__defaults__ is None


@pytest.mark.tfx
def test_a_stack_has_what_is_restored() -> None:
    """Else one of the two has changed, and the module may be of no use any more."""
    from apache_beam.pipeline import AppliedPTransform
    from tensorflow_transform.beam import deep_copy

    assert sys.modules[COPYING_MODULE] is deep_copy
    old = metadata.version("tensorflow-transform").startswith("1.16.")
    assert AppliedPTransform.__init__.__defaults__ == ((None, None) if old else None)
