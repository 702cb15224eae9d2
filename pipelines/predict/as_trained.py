"""Opens a table as the tables were read that the model has learned from: `$3,356.21` is the number that it was then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen.formats import default_settings
from infeed.components.example_gen.inputs import OpenedSource
from infeed.components.example_gen.sources.numbers import NumberFormat
from infeed.pipelines.config import Source
from infeed.pipelines.project.sources import open_table

_REJECT = IngestOptions(on_bad_row="reject")


def open_as_trained(
    path: str,
    source: Source,
    settings: Mapping[str, Any],
    trained: Mapping[str, Mapping[str, Any]],
    specs: Mapping[str, Any],
) -> tuple[OpenedSource, Mapping[str, Any]]:
    """The table, and the options that it is read with.

    A file that cannot be read with the options of the training files, because it has another delimiter, say, is read
    without them.

    Args:
      path: of the table.
      source: kind of the file.
      settings: options of the kind that the user gives, which win.
      trained: options of the files that the model has learned from, by their kind.
      specs: TensorSpec of each column that the model takes.
    """
    known = {**_known(source, trained, specs), **default_settings(path, source)}
    if known:
        try:
            return open_table(path, source, {**known, **settings}, _REJECT), {**known, **settings}
        except InfeedError:  # whatever is wrong with the file itself is found again
            pass
    return open_table(path, source, settings, _REJECT), settings


def _known(source: Source, trained: Mapping[str, Mapping[str, Any]], specs: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the training files had, of the columns that the model takes; of another format, `numbers`."""
    numbers = {name: example for options in trained.values() for name, example in options.get("numbers", {}).items()}
    known = {name: value for name, value in trained.get(source, {}).items() if name != "columns"}
    if known.get("thousands") or known.get("decimal"):
        # Else one cell that is no number would make text of its column, and of each number in it an error.
        signs = str(NumberFormat(known.get("thousands") or "", known.get("decimal", ".")))
        numbers = {**{name: signs for name, spec in specs.items() if spec.dtype.is_floating}, **numbers}
    for option, columns in (("numbers", numbers), ("types", known.get("types", {}))):
        known[option] = {name: value for name, value in columns.items() if name in specs}
    return {name: value for name, value in known.items() if value != {}}
