"""Which earlier model a new one has to measure up to."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.types import standard_artifacts

_NAME = "latest_blessed_model"
_CANDIDATE = "candidate"


def latest_blessed(trainer: Any) -> Resolver:
    """The latest blessed model, by the one strategy that Kubeflow and Vertex know."""
    del trainer  # there, a cached step is not judged again
    return Resolver(strategy_class=LatestBlessedModelStrategy, **_history()).with_id(_NAME)


def latest_other_blessed(trainer: Any) -> Resolver:
    """The latest blessed model that is not the one just trained; for runners that resolve in ML Metadata."""
    return Resolver(
        strategy_class=LatestOtherBlessedModelStrategy, candidate=trainer.outputs["model"], **_history()
    ).with_id(_NAME)


def _history() -> dict[str, types.Channel]:
    return {
        "model": types.Channel(type=standard_artifacts.Model),
        "model_blessing": types.Channel(type=standard_artifacts.ModelBlessing),
    }


class LatestOtherBlessedModelStrategy(LatestBlessedModelStrategy):
    """The latest blessed model that is not the candidate itself.

    A run in which nothing changed takes its model from the cache, and that model was blessed by then. TFX's own
    strategy would compare it with itself: Evaluator gets an input that it had not before, and runs again for nothing.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Any]]) -> dict[str, list[Any]] | None:
        """`input_dict` has the models, their blessings and the candidate; the answer is TFX's, of the others."""
        candidates = {artifact.id for artifact in input_dict[_CANDIDATE]}
        others = {key: list(artifacts) for key, artifacts in input_dict.items() if key != _CANDIDATE}
        others["model"] = [model for model in others["model"] if model.id not in candidates]
        resolved = super().resolve_artifacts(store, others)
        return {**resolved, _CANDIDATE: input_dict[_CANDIDATE]}  # the node has an output for each of its inputs
