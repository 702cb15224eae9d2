"""A hand-written `input_profile.json`, small enough to reckon with in one's head."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.dataset.input_profile import InputProfile, read_profile

sys.path.append(str(Path(__file__).parent))  # for modules beside the tests
STREAM = ("shards", "read", "shuffle", "repeat", "batch", "parse", "transform", "augment", "prefetch")


@pytest.fixture
def take_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function of a seam, such as `keras.STEPS`, whose package then seems to lack the last of its names."""

    def take(seam: str) -> None:
        module, name = seam.split(".")
        place = importlib.import_module(f"infeed.components.seams.{module}")
        found = getattr(place, name)
        head = found.names[-1].partition("(")[0].partition("@")[0]
        monkeypatch.setattr(place, name, dataclasses.replace(found, names=(*found.names[:-1], f"{head}_taken_away")))

    return take


@pytest.fixture(scope="session")
def wire() -> Iterator[ModuleType]:
    """`sequence_examples.py`: SequenceExamples written without TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        yield importlib.import_module("sequence_examples")


@pytest.fixture
def as_json() -> Callable[..., dict[str, Any]]:
    """Makes the file's content: epochs of 1,000 examples in 100 steps, as (seconds, seconds waited)."""

    def make(
        epochs: Sequence[tuple[float, float]] = ((2.0, 1.5), (1.0, 0.5), (1.0, 0.5)),
        ceiling: float | None = 2000.0,
        floor: float = 0.0,
        steps: Sequence[str] = STREAM,
        **changes: Any,
    ) -> dict[str, Any]:
        return {
            "format": 1,
            "strategy": "mirrored",
            "replicas": 2,
            "hosts": 1,
            "batch_size": 10,
            "steps_per_epoch": 100,
            "epochs": [_epoch(number, *times) for number, times in enumerate(epochs)],
            "ceiling": ceiling
            and {"steps": 50, "seconds": 0.5, "examples_per_second": ceiling, "floor_seconds": floor},
            "plan": {
                "tier": "stream",
                "reason": "1,000 records in 1 shard(s) are read as a stream of TFRecords",
                "steps": [{"name": name, "does": f"does {name}", "reason": f"why {name}"} for name in steps],
            },
            "bytes": 1_000_000,
            **changes,
        }

    return make


@pytest.fixture
def profile(as_json: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., InputProfile]:
    """The same as `read_profile` gives it."""

    def make(**changes: Any) -> InputProfile:
        path = tmp_path / "input_profile.json"
        path.write_text(json.dumps(as_json(**changes)))
        return read_profile(str(path))

    return make


def _epoch(number: int, seconds: float, waited: float) -> dict[str, Any]:
    return {
        "epoch": number,
        "steps": 100,
        "seconds": seconds,
        "wait_seconds": waited,
        "examples": 1000,
        "examples_per_second": 1000 / max(seconds, 1e-9),
        "peak_memory_bytes": 1_400_000_000 + number,
    }
