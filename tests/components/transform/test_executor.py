"""One function made of two: the declared features, and a function of the user's, named in any way."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infeed.components.seams import tfx as tfx_seam
from infeed.components.transform.kinds.clean import Fill

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

SPELLINGS = ["module_file", "package.module.function", "package.module:function", "file.py:function"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_features_join_a_function_however_it_is_named(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    from infeed.components.transform.executor import TransformExecutor, stats_options_updater_fn

    properties = properties_of(given_as(spelling, "preprocessing_fn", tmp_path, monkeypatch))
    tfx_seam.find_functions_by(made := TransformExecutor(), made.preprocessing_fn, stats_options_updater_fn)
    outputs = made._GetPreprocessingFn(properties, {})({"age": tf.constant([[1.0]])})
    assert {name: value.numpy().tolist() for name, value in outputs.items()} == {"age": [[1.0]], "twice": [[6.0]]}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_updater_of_statistics_is_found_however_it_is_named(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infeed.components.transform.executor import TransformExecutor, stats_options_updater_fn

    properties = properties_of(given_as(spelling, "stats_options_updater_fn", tmp_path, monkeypatch))
    tfx_seam.find_functions_by(made := TransformExecutor(), made.preprocessing_fn, stats_options_updater_fn)
    updater = made._GetStatsOptionsUpdaterFn(properties)
    assert updater("which", "options") == ("which", "options", {"factor": 2})


OWN = """
def preprocessing_fn(inputs, custom_config):
    return {"twice": 3.0 * custom_config["factor"] * inputs["age"]}

def stats_options_updater_fn(stats_type, stats_options, custom_config):
    return stats_type, stats_options, custom_config
"""


def given_as(spelling: str, function: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The argument that names `function`, of a module imported anew."""
    (folder / "own_package").mkdir()
    source = folder / "own_package" / "transforming.py"
    source.write_text(OWN)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "own_package.transforming", raising=False)
    monkeypatch.delitem(sys.modules, "own_package", raising=False)
    return {
        "module_file": {"module_file": str(source)},
        "package.module.function": {function: f"own_package.{source.stem}.{function}"},
        "package.module:function": {function: f"own_package.{source.stem}:{function}"},
        "file.py:function": {function: f"{source}:{function}"},
    }[spelling]


def properties_of(given: Mapping[str, str]) -> dict[str, Any]:
    """What the component hands to its executor."""
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components.transform.component import Transform

    channels = [channel_utils.as_channel([kind()]) for kind in (standard_artifacts.Examples, standard_artifacts.Schema)]
    given = {"custom_config": {"factor": 2}, **given}
    return dict(Transform(*channels, features=[Fill("age", 0.0)], **given).exec_properties)


def test_tft_runs_where_the_options_of_beam_say() -> None:
    """The Dask runner gets none of the options that TFX adds, which its client does not take."""
    import apache_beam as beam

    from infeed.components.transform.executor import TransformExecutor

    dask = ["--runner=apache_beam.runners.dask.dask_runner.DaskRunner", "--dask_client_address=tcp://here:1"]
    given = TransformExecutor.Context(beam_pipeline_args=[*dask, "--labels", "tfx_version=1"])
    made = TransformExecutor(given)._make_beam_pipeline()
    assert type(made.runner).__name__ == "DaskRunner"
    assert made.options.get_all_options(drop_default=True)["address"] == "tcp://here:1"
    assert "labels" not in made.options.get_all_options(drop_default=True)
    named = beam.Pipeline("PrismRunner")
    context = TransformExecutor.Context(beam_pipeline_args=dask, make_beam_pipeline_fn=lambda: named)
    assert TransformExecutor(context)._make_beam_pipeline() is named
