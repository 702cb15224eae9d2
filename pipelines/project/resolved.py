"""Resolved config as text, for the steps of a compiled job, which have neither the survey nor the config file.

The text is compressed and replaces the project on the command line of a step.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.kubeflow.message import is_packed, unpack
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform.features import features_from_json, features_to_json
from infeed.pipelines.config import Blessing, PipelineConfig, Source
from infeed.pipelines.surveys import ColumnSurvey, LabelSurvey, TableSurvey, Task


@dataclass(frozen=True)
class LabelFacts:
    """What evaluation needs of the survey of a label."""

    name: str
    task: Task
    classes: tuple[str, ...] = ()
    class_rows: tuple[int, ...] = ()
    mean: float = 0.0

    def survey(self, rows: int) -> LabelSurvey:
        most = max(self.class_rows, default=0)
        column = ColumnSurvey(self.name, "bytes", rows, 0, None, self.mean, 0.0, most)
        return LabelSurvey(column, self.task, self.classes, self.class_rows)


@dataclass(frozen=True)
class Resolved:
    """Settings of a `PipelineConfig` that steps need, and the part of the survey that evaluation needs."""

    name: str
    source: Source
    source_options: Mapping[str, Any]
    features: tuple[Mapping[str, Any], ...]
    train: TrainOptions
    blessing: Blessing
    ingest: IngestOptions
    patterns: Mapping[str, str]
    splits: Mapping[str, int]
    preprocessing_fn: str | None
    rows: int  # as in the survey
    labels: tuple[LabelFacts, ...]  # the label that decides about the blessing is the first
    # Digests of the user's functions by option, so that an edited function misses the cache.
    code: Mapping[str, str] = field(default_factory=dict)
    data: str = field(default="", kw_only=True)

    @classmethod
    def of(cls, config: PipelineConfig) -> Resolved:
        """Return the resolved part of `config`, without its root and files, which a platform determines."""
        survey = config.survey
        labels: tuple[LabelFacts, ...] = (
            (LabelFacts(config.train.only_label, survey.task, survey.classes, survey.class_rows),)
            if not isinstance(survey, TableSurvey)
            else tuple(
                LabelFacts(one.column.name, one.task, one.classes, one.class_rows, one.column.mean)
                for one in survey.labels
            )
        )
        own = {f.name: getattr(config, f.name) for f in dataclasses.fields(cls) if hasattr(config, f.name)}
        own |= {
            "train": dataclasses.replace(config.train, checkpoint_dir=None),
            "data": "" if config.place else config.data,
        }
        own |= {"features": tuple(features_to_json(config.features))}
        return cls(**own, rows=survey.rows, labels=labels)

    def to_json(self) -> str:
        """Return the config as JSON. `read_resolved` restores an equal one. The order of the splits matters."""
        return json.dumps(schema.to_plain(self, defaults=False))

    def config(self) -> PipelineConfig:
        """Return a config for a step. Its survey has no columns."""
        first, *others = (one.survey(self.rows) for one in self.labels)
        facts = first.column, first.task, self.rows, first.classes, first.class_rows
        survey = TableSurvey((), *facts, others=tuple(others))
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(PipelineConfig) if hasattr(self, f.name)}
        kept["features"] = tuple(features_from_json(self.features))
        return PipelineConfig(**kept, root="", survey=survey)


def read_resolved(text: str, given: Mapping[str, Any]) -> PipelineConfig | None:
    """Return the config of a packed text, with the overrides of the command line. None for other text.

    Raises InfeedError for an override that only a project supports.
    """
    if not is_packed(text):
        return None
    said = {name: value for name, value in given.items() if value}
    if unknown := sorted(said.keys() - {"data", "train"}):
        where = f"--{unknown[0].replace('_', '-')}"
        raise InfeedError(
            "the compiled job fixes this setting", where=where, do="leave it out, or compile the job again"
        )
    config = schema.read_json(Resolved, unpack(text).encode()).config()
    train = config.train.override(said.get("train", {}))
    return dataclasses.replace(config, train=train, data=said.get("data", config.data))
