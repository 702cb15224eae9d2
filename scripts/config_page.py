"""Write the tables of settings in docs/config.md from the dataclasses that define them.

python scripts/config_page.py
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infeed.components.base.annotations import help_of
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.project.config_file import Settings
from infeed.pipelines.project.ingest_settings import HELP, IngestSettings

PAGE = Path(__file__).parents[1] / "docs" / "config.md"
TABLE = re.compile(r"(<!-- made by scripts/config_page.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = "\n| setting | default | |\n|---|---|---|\n"
ELSEWHERE = {"model_fn", "hparams", "feed", "augment", "normalise", "images", "source_options", "examples_are"}
SEE = {
    "spans": "[continuous training](continuous.md)",
    "preprocessing_fn": "[your own preprocessing_fn](transform.md#use-your-own-preprocessing_fn)",
    "source_options": "[sources.md](sources.md)",
    "ingest": "[how rows become splits and shards](#how-rows-become-splits-and-shards)",
    "keep": "[columns that give the label away](#columns-that-give-the-label-away)",
    "train": "[options of training](#options-of-training)",
    "augment, normalise": "[images.md](images.md)",
    "beam_pipeline_args": "[Beam](ingest.md#beam)",
    "deploy": "[Kubeflow](kubeflow.md), [Vertex AI](vertex.md) and [scale.md](scale.md#in-a-compiled-pipeline)",
    "strategy": "[training.md](training.md)",
    "tier": "[feed.md](feed.md)",
    "mix": "[mix splits](feed.md#mix-splits)",
    "map_examples": "[a stage of your own](feed.md#add-your-own-stage)",
    "input_fn": "[inputs.md](inputs.md)",
}


def with_tables(page: str) -> str:
    """Return the page with new tables from the dataclasses."""
    made = {
        "settings": rows(Settings, help_of(Settings)),
        "ingest": rows(IngestSettings, HELP),
        "train": [*rows(TrainOptions, help_of(TrainOptions)), *rows(FeedOptions, help_of(FeedOptions))],
    }
    return TABLE.sub(lambda table: "".join([table[1], HEAD, *made[table[2]], "\n", table[3]]), page)


def rows(kind: Any, about: Mapping[str, str]) -> list[str]:
    """Return the rows of a dataclass. Options that share a description share a row."""
    shared = dict[str, list[dataclasses.Field[Any]]]()
    for field in dataclasses.fields(kind):
        if kind is not TrainOptions or field.name not in ELSEWHERE:
            shared.setdefault(about[field.name], []).append(field)
    return [row(fields, text) for text, fields in shared.items()]


def row(fields: list[dataclasses.Field[Any]], text: str) -> str:
    names = ", ".join(field.name for field in fields)
    see = SEE.get(names, "")
    said = f"{text[0].upper()}{text[1:]}{f' See {see}.' if see else ''}".replace("|", "\\|")
    quoted = ", ".join(f"`{field.name}`" for field in fields)
    return f"| {quoted} | {', '.join(sorted(set(defaults(fields))))} | {said} |\n"


def defaults(fields: list[dataclasses.Field[Any]]) -> Iterator[str]:
    """Yield the defaults as YAML writes them, without None, empty values and false."""
    for field in fields:
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            yield "required"
        elif value is not dataclasses.MISSING and value not in (None, "", ()) and value is not False:
            shown = f"{value:.3g}" if isinstance(value, float) else value
            yield f"`{', '.join(value) if isinstance(value, tuple) else shown}`"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
