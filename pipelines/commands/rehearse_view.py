"""What `infeed rehearse` says at the end: a table of times, and what came of it or why it ended."""

from __future__ import annotations

import os
from pathlib import Path

from rich.table import Table
from rich.text import Text

from infeed.pipelines.local.live import seconds_in_words, state_in_words
from infeed.pipelines.local.nodes import RunReport
from infeed.pipelines.rehearse.rehearsal import Rehearsal
from infeed.pipelines.rehearse.words import last_lines


def times(report: RunReport) -> Table:
    """Every step with its time and its share of the whole."""
    table = Table(box=None, pad_edge=False, show_footer=True, header_style="dim", footer_style="dim")
    table.add_column("step", footer="total", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("time", footer=seconds_in_words(report.seconds), justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", style="dim", overflow="fold")
    for node in report.nodes:
        spent = [seconds_in_words(node.seconds), f"{node.seconds / report.seconds:.0%}"] if node.seconds else ["", ""]
        table.add_row(node.name, state_in_words(node.state), *spent, node.note)
    return table


def summary(rehearsal: Rehearsal, root: Path) -> Text:
    """Where things are; for a TFX pipeline, whether the model was blessed and where it was pushed."""
    lines = []
    for artifacts in rehearsal.outputs.values():
        for artifact in (artifact for found in artifacts.values() for artifact in found):
            if artifact.title == "tfx.ModelBlessing" and "blessed" in artifact.metadata:
                lines.append(("blessed", "yes" if artifact.metadata["blessed"] else "no"))
            if artifact.title == "tfx.PushedModel" and artifact.metadata.get("pushed"):
                lines.append(("pushed to", _short(artifact.metadata["pushed_destination"])))
    lines += [("artifacts", _short(root / "artifacts")), ("logs", _short(root / "logs" / rehearsal.name))]
    return Text("\n".join(["", *(f"{name:<12}{value}" for name, value in dict(lines).items())]))


def failure(rehearsal: Rehearsal, root: Path, image: str | None) -> Text:
    """The step that failed, in its own words, the end of its log, and what to look at next."""
    failed = rehearsal.report.failed
    assert failed is not None, "only a failed rehearsal is told of here"
    log = root / "logs" / rehearsal.name / f"{failed.name}.log"
    end = [(f"  {line}\n", "dim") for line in last_lines(log)]
    script = log.with_suffix(".sh")
    where = [f"log: {_short(log)}", *([f"again by hand: sh {_short(script)}"] if script.exists() else [])]
    look = [f"compare the image with this machine: infeed doctor --image {image}"] if image else []
    again = "the next rehearsal takes what succeeded from the cache, where the job allows that"
    words = "\n".join([*where, *look, again])
    return Text.assemble("\n", (f"{failed.name} failed", "bold red"), f"\n{failed.error}\n\n", *end, words)


def _short(path: str | Path) -> str:
    """Relative where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
