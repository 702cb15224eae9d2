"""Write the tables of docs/drop-in.md, which compare the arguments of TFX's components with ours.

    python scripts/drop_in_table.py

Arguments, their order and their defaults come from the signatures. The script tries each refused value and prints the
error. `CHANGED` and `NOTES` are written by hand.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.components.example_gen.formats import FORMATS

PAGE = Path(__file__).parents[1] / "docs" / "drop-in.md"
BEGIN, END = "<!-- made by scripts/drop_in_table.py -->", "<!-- end -->"

Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True)
class Pair:
    """A component of TFX, and ours in its place.

    Attributes:
      title: heading on the page.
      theirs, ours: import paths of the classes.
      given: returns the required arguments of our component, to try a refused value.
      in_place_of: code with TFX, if it is more than the name of the class.
    """

    title: str
    theirs: str
    ours: str
    given: Callable[[], dict[str, Any]] = dict
    in_place_of: str = ""

    def classes(self) -> tuple[type, type]:
        return _named(self.theirs), _named(self.ours)


def _files() -> dict[str, Any]:
    return {"input_base": "/data"}


def _with_executor() -> dict[str, Any]:
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    executor = _named("infeed.components.FileExecutor")
    return {"input_base": "/data", "custom_executor_spec": BeamExecutorSpec(executor)}


def _raw() -> dict[str, Any]:
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components import Fill

    kinds = {"examples": standard_artifacts.Examples, "schema": standard_artifacts.Schema}
    return {**{name: channel_utils.as_channel([kind()]) for name, kind in kinds.items()}, "features": [Fill("a", 0.0)]}


def _examples() -> dict[str, Any]:
    return {"examples": _raw()["examples"]}


_OURS = "infeed.components."
_FILE_BASED = "tfx.components.FileBasedExampleGen"
PAIRS = (
    Pair("CsvExampleGen", "tfx.components.CsvExampleGen", f"{_OURS}CsvExampleGen"),
    Pair("ImportExampleGen", "tfx.components.ImportExampleGen", f"{_OURS}ImportExampleGen", _files),
    Pair(
        "BigQueryExampleGen",
        "tfx.extensions.google_cloud_big_query.example_gen.component.BigQueryExampleGen",
        f"{_OURS}BigQueryExampleGen",
        lambda: {"query": "SELECT 1"},
    ),
    Pair(
        "FileExampleGen",
        _FILE_BASED,
        f"{_OURS}FileExampleGen",
        _with_executor,
        "`FileBasedExampleGen` with an executor of your own",
    ),
    Pair(
        "ParquetExampleGen",
        _FILE_BASED,
        f"{_OURS}ParquetExampleGen",
        _files,
        "`FileBasedExampleGen` with `parquet_executor`",
    ),
    Pair("AvroExampleGen", _FILE_BASED, f"{_OURS}AvroExampleGen", _files, "`FileBasedExampleGen` with `avro_executor`"),
    Pair("StatisticsGen", "tfx.components.StatisticsGen", f"{_OURS}StatisticsGen", _examples),
    Pair("SchemaGen", "tfx.components.SchemaGen", f"{_OURS}SchemaGen"),
    Pair("ExampleValidator", "tfx.components.ExampleValidator", f"{_OURS}ExampleValidator"),
    Pair("Transform", "tfx.components.Transform", f"{_OURS}Transform", _raw),
    Pair("Trainer", "tfx.components.Trainer", f"{_OURS}Trainer"),
    Pair("Tuner", "tfx.components.Tuner", f"{_OURS}Tuner"),
    Pair("Evaluator", "tfx.components.Evaluator", f"{_OURS}Evaluator", _examples),
    Pair("BulkInferrer", "tfx.components.BulkInferrer", f"{_OURS}BulkInferrer", _examples),
)

# Component -> arguments of TFX 1.21 that TFX 1.16 does not have.
NEWER: Mapping[str, tuple[str, ...]] = {"Trainer": ("statistics",)}

CHANGED: Mapping[tuple[str, str], str] = {
    ("ImportExampleGen", "payload_format"): "for `FORMAT_PARQUET`, use `ParquetExampleGen(...)`",
    ("BigQueryExampleGen", "custom_executor_spec"): "requires a subclass of our `Executor`",
    ("FileExampleGen", "output_data_format"): "a format of the executor's `PAYLOAD_FORMATS`",
    ("FileExampleGen", "custom_executor_spec"): "requires a [`FileExecutor`](sources.md#a-source-of-your-own)",
    ("Transform", "materialize"): "default None: True as in TFX, False with `features`",
    ("Transform", "disable_statistics"): "default None: False as in TFX, True with `features` and without"
    " `stats_options_updater_fn`",
    ("Transform", "disable_analyzer_cache"): "default None: False as in TFX, True with `features` and without"
    " `analyzer_cache`",
    ("Trainer", "statistics"): "by name only, although first in TFX",
    ("BulkInferrer", "data_spec"): "a split that the Examples lack is an error",
    ("Tuner", "tune_args"): "`num_parallel_trials` is at most 1",
}

# Notes on arguments with the verdict "same".
NOTES: Mapping[tuple[str, str], str] = {
    ("StatisticsGen", "schema"): "some schemas require TFX's executor: see [statistics.md](statistics.md)",
    ("StatisticsGen", "stats_options"): "some options require TFX's executor: see [statistics.md](statistics.md)",
    ("Transform", "preprocessing_fn"): "also `package.module:function` or `path/to/file.py:function`, imported when the"
    " pipeline is created",
    ("Transform", "module_file"): "must exist when the component is created, unless it is a URI",
    ("Transform", "custom_config"): "the exec property also holds our options; your function receives only yours",
    ("Tuner", "module_file"): "must exist when the component is created, unless it is a URI",
    ("Transform", "stats_options_updater_fn"): "also the names of `preprocessing_fn`",
    ("Trainer", "custom_config"): "the key `infeed` is reserved with `options`",
    ("Evaluator", "feature_slicing_spec"): "requires TFX's executor",
    ("Evaluator", "eval_config"): "some configs require TFX's executor: see [evaluation.md](evaluation.md)",
    ("Evaluator", "module_file"): "requires TFX's executor",
    ("Evaluator", "module_path"): "requires TFX's executor",
    ("Tuner", "tuner_fn"): "also `package.module:tuner_fn`; for a file, use `module_file`",
    ("Tuner", "base_model"): "not together with `options`: load the model in the model function",
    ("Tuner", "custom_config"): "not together with `options`: use `TrainOptions.hparams`",
}


def _format(name: str) -> Callable[[], Any]:
    return lambda: _named(f"tfx.proto.example_gen_pb2.{name}")


def _executor(module: str) -> Callable[[], Any]:
    def make() -> Any:
        from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

        return BeamExecutorSpec(_named(f"tfx.components.example_gen.custom_executors.{module}.Executor"))

    return make


# Arguments with a value that our component refuses.
REFUSED: Mapping[tuple[str, str], Callable[[], Any]] = {
    ("BigQueryExampleGen", "custom_config"): lambda: "anything",
    **{(f"{kind}ExampleGen", "custom_config"): lambda: "anything" for kind in ("File", "Parquet", "Avro")},
    **{
        (f"{kind}ExampleGen", "output_data_format"): _format("FORMAT_TF_SEQUENCE_EXAMPLE")
        for kind in ("Parquet", "Avro")
    },
    **{
        (f"{kind}ExampleGen", "output_file_format"): _format("FILE_FORMAT_PARQUET")
        for kind in ("File", "Parquet", "Avro")
    },
    ("ParquetExampleGen", "custom_executor_spec"): _executor("parquet_executor"),
    ("AvroExampleGen", "custom_executor_spec"): _executor("avro_executor"),
    ("Transform", "force_tf_compat_v1"): lambda: True,
}


def tables() -> str:
    return "\n\n".join(_table(pair) for pair in PAIRS)


def _table(pair: Pair) -> str:
    if pair.ours == pair.theirs:
        names = ", ".join(f"`{name}`" for name in arguments(pair))
        return f"### {pair.title}\n\nTFX's component, unchanged. All arguments are the same: {names}."
    rows = "\n".join(f"| `{name}` | {' | '.join(_verdict(pair, name))}".rstrip() + " |" for name in arguments(pair))
    own = [name for name in parameters(pair.classes()[1]) if name not in arguments(pair)]
    heading = f"### {pair.title}" + (f", in place of {pair.in_place_of}" if pair.in_place_of else "")
    table = f"{heading}\n\n| argument | | |\n|---|---|---|\n{rows}"
    return f"{table}\n\nAdditional arguments: {', '.join(f'`{name}`' for name in own)}." if own else table


def _verdict(pair: Pair, name: str) -> tuple[str, str]:
    """ "same", "changed" or "refused", and its note."""
    key = (pair.title, name)
    newer = "TFX 1.21: " if name in NEWER.get(pair.title, ()) else ""
    if key in REFUSED:
        return "refused", refusal(pair, name)
    if key in CHANGED:
        return "changed", newer + CHANGED[key]
    return "same", newer + NOTES.get(key, "")


def refusal(pair: Pair, name: str) -> str:
    """Return the text of the error: the problem and the remedy.

    Raises:
      AssertionError: our component accepts the value.
    """
    from infeed.components import InfeedError

    value = REFUSED[pair.title, name]()
    try:
        pair.classes()[1](**{**pair.given(), name: value})
    except InfeedError as error:
        return f"{error.what}: {error.do}".replace("|", "\\|")
    raise AssertionError(f"{pair.title} takes {name}={value!r}")


def arguments(pair: Pair) -> list[str]:
    """Return TFX's arguments: those of TFX 1.16, then newer ones. The result is the same on both stacks."""
    newer = NEWER.get(pair.title, ())
    return [*(name for name in parameters(pair.classes()[0]) if name not in newer), *newer]


def parameters(component: type) -> Parameters:
    found = dict(inspect.signature(component.__init__).parameters)  # type: ignore[misc]
    del found["self"]
    kind = getattr(component, "FORMAT", "")
    if found.pop("named", None) and kind and FORMATS[kind].settings:
        found[kind] = inspect.Parameter(kind, inspect.Parameter.KEYWORD_ONLY)
    return found


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def with_tables(page: str) -> str:
    """Return the page with new tables."""
    block = f"{BEGIN}\n\n{tables()}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
