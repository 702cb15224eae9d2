"""Open a table with the options of the training files, so that `$3,356.21` is parsed as in training."""

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
    """Open a table, and return it with the options that it is read with.

    If the file cannot be read with the options of the training files, for example because its delimiter differs, it is
    read without them.

    Args:
      path: path of the table.
      source: format of the file.
      settings: format options of the user, which take precedence.
      trained: options of the training files, by format.
      specs: TensorSpec of each input column of the model.
    """
    known = {**_known(source, trained, specs), **default_settings(path, source)}
    if known:
        try:
            return open_table(path, source, {**known, **settings}, _REJECT), {**known, **settings}
        except InfeedError:  # the next call reports errors of the file itself
            pass
    return open_table(path, source, settings, _REJECT), settings


def _known(source: Source, trained: Mapping[str, Mapping[str, Any]], specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the training files for the model's columns; for another format, only `numbers`."""
    numbers = {name: example for options in trained.values() for name, example in options.get("numbers", {}).items()}
    known = {name: value for name, value in trained.get(source, {}).items() if name != "columns"}
    if known.get("thousands") or known.get("decimal"):
        # Otherwise one cell that is not a number would turn its whole column into text.
        signs = str(NumberFormat(known.get("thousands") or "", known.get("decimal", ".")))
        numbers = {**{name: signs for name, spec in specs.items() if spec.dtype.is_floating}, **numbers}
    for option, columns in (("numbers", numbers), ("types", known.get("types", {}))):
        known[option] = {name: value for name, value in columns.items() if name in specs}
    return {name: value for name, value in known.items() if value != {}}
