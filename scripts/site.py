"""Hooks of MkDocs that add the reference, generated from the code, and pages from the top of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from infeed.pipelines.cli import main

ROOT = Path(__file__).parents[1]
AT_THE_TOP = ("SECURITY.md", "CHANGELOG.md")
# The site does not have these pages, because developers read them in the repository.
_LEFT_THERE = re.compile(r"\[([^\]]+)\]\((?:ARCHITECTURE|CONTRIBUTING|README)\.md\)")
_PUBLIC = re.compile(r"^from \.([\w.]+) import (\w+) as \w+$", re.MULTILINE)
_TITLES = {
    "components.md": "Components",
    "options.md": "Options",
    "features.md": "Features",
    "reference.md": "Python API",
}
_COMPONENT = re.compile(r"(?:Gen|Validator|Transform|Trainer|Tuner|Evaluator|Inferrer|InputReport)$")
_OPTIONS = re.compile(r"Options$|^By[A-Z]|^(?:Augment|Balance|MapFunction|ModelReport|Normalise)$")
_FUNCTIONS = (
    "infeed.components.example_gen.local.ingest",
    "infeed.components.dataset.reading.inspect",
    "infeed.components.load.dataset.load",
    "infeed.components.load.dataset.LoadedDataset",
    "infeed.pipelines.config.PipelineConfig",
    "infeed.pipelines.pipeline.create_pipeline",
)


def on_files(files: Files, config: Any) -> Files:
    """Add the reference, and pages from the top of the repository."""
    for name in AT_THE_TOP:
        text = _LEFT_THERE.sub(r"\1", (ROOT / name).read_text()).replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for name, content in reference().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Correct links to pages from the top, and add the options of all commands."""
    for name in AT_THE_TOP:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    return markdown + commands() if page.file.src_uri == "command-line.md" else markdown


def reference() -> dict[str, str]:
    """Return the pages of all public names, in the order of the pipeline."""
    public = _PUBLIC.findall((ROOT / "components" / "__init__.pyi").read_text())
    paths: dict[str, list[str]] = {name: [] for name in _TITLES}
    paths["reference.md"] += _FUNCTIONS
    for module, name in public:
        paths[_page_of(module, name)].append(f"infeed.components.{module}.{name}")
    head = "Every name of this page is imported from `infeed`."
    return {page: "\n".join([f"# {title}", "", head, "", *map(_entry, paths[page])]) for page, title in _TITLES.items()}


def _page_of(module: str, name: str) -> str:
    """Return the page of the reference that describes a public name."""
    if _COMPONENT.search(name):
        return "components.md"
    if _OPTIONS.search(name):
        return "options.md"
    return "features.md" if module.startswith("transform.kinds") else "reference.md"


def commands() -> str:
    """Return a section for each command: its help, and a table of its options."""
    context = click.Context(main, info_name="infeed")
    return "\n## Every command\n\n" + "\n".join(_section(context, name) for name in main.list_commands(context))


def _section(context: click.Context, name: str) -> str:
    command = main.get_command(context, name)
    assert command is not None
    own = click.Context(command, parent=context, info_name=name)
    records = [record for parameter in command.params if (record := parameter.get_help_record(own))]
    rows = "\n".join(f"| `{_cell(option)}` | {_cell(text)} |" for option, text in records)
    usage = command.get_usage(own).removeprefix("Usage: ")
    return f"### infeed {name}\n\n```text\n{usage}\n```\n\n{command.help}\n\n| option | |\n|---|---|\n{rows}\n"


def _cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _entry(path: str) -> str:
    """Return the directive of a name. Only `LoadedDataset` shows its methods, because users call them."""
    members = "\n        members: true" if path.endswith(".LoadedDataset") else ""
    return f"::: {path}\n    options:\n        heading_level: 2{members}\n"
