"""Hooks of MkDocs: pages that are not in docs/, and a mark on the command blocks that no test executes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
AT_THE_TOP = ("SECURITY.md", "CHANGELOG.md")
# Developers read these in the repository.
_LEFT_THERE = re.compile(r"\[([^\]]+)\]\((?:ARCHITECTURE|CONTRIBUTING|README)\.md\)")
_PUBLIC = re.compile(r"^from \.([\w.]+) import (\w+) as \w+$", re.MULTILINE)
_GROUPS = {
    "Datasets": ("dataset", "errors"),
    "Sources": ("example_gen",),
    "Statistics and reports": ("statistics", "input_report"),
    "Features": ("transform",),
    "Input pipeline": ("feed",),
    "Training": ("trainer",),
    "Evaluation": ("evaluation",),
}
_FUNCTIONS = (
    "infeed.components.example_gen.local.ingest",
    "infeed.components.dataset.reading.inspect",
    "infeed.components.load.dataset.load",
    "infeed.components.load.dataset.LoadedDataset",
    "infeed.pipelines.config.PipelineConfig",
    "infeed.pipelines.pipeline.create_pipeline",
)
_PLAIN_BLOCK = re.compile(r"^```\n(?=(?:(?!```).*\n)*?\$? ?(?:infeed|make|pip|python) )", re.MULTILINE)
_MARK = '```text title="Example"\n'


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and pages from the top of the repository."""
    for name in AT_THE_TOP:
        text = _LEFT_THERE.sub(r"\1", (ROOT / name).read_text()).replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Correct links to pages from the top, and mark the command blocks that only show how to call something."""
    for name in AT_THE_TOP:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return _PLAIN_BLOCK.sub(_MARK, markdown)


def reference() -> str:
    """Return the page of all public names, in the order of the pipeline."""
    public = _PUBLIC.findall((ROOT / "components" / "__init__.pyi").read_text())
    lines = ["# Python reference", "", "Every name below is imported from `infeed`.", "", "## Functions", ""]
    lines += [_entry(path) for path in _FUNCTIONS]
    for title, rooms in _GROUPS.items():
        lines += [f"## {title}", ""]
        lines += [
            _entry(f"infeed.components.{module}.{name}") for module, name in public if module.split(".")[0] in rooms
        ]
    return "\n".join(lines)


def _entry(path: str) -> str:
    """Return the directive of a name. Methods are shown for what users call them on."""
    members = "\n        members: true" if path.endswith(".LoadedDataset") else ""
    return f"::: {path}\n    options:\n        heading_level: 3{members}\n"
