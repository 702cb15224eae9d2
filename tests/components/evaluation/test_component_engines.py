"""Evaluator on every engine: the same bytes, and no examples are opened by a node whose runner is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]


@pytest.fixture
def many(tmp_path: Path, examples: Any) -> Any:
    """The common examples, six files of them: more than the engines' processes."""
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(tmp_path / "many"), examples.split_names
    for copy in range(3):
        for file in Path(examples.uri, "Split-eval").iterdir():
            target = tmp_path / "many" / "Split-eval" / f"{copy}-{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    return artifact


@pytest.fixture
def config(build: ModuleType) -> Any:
    """Metrics of several kinds, over slices by columns of the examples and of the model."""
    metrics = [
        build.metric("ExampleCount"),
        build.metric("SparseCategoricalAccuracy", {"value_threshold": {"lower_bound": 0.1}}),
        build.metric("SparseCategoricalCrossentropy"),
        build.metric("MultiClassConfusionMatrixPlot"),
    ]
    slices = [{}, {"feature_keys": ["city"]}, {"feature_keys": ["is_tall", "age"]}]
    found = build.eval_config({"metrics": metrics}, slices=slices)
    (spec,) = found.model_specs
    spec.name = "candidate"
    found.model_specs.add().CopyFrom(spec)
    found.model_specs[1].name, found.model_specs[1].is_baseline = "baseline", True
    return found


@pytest.fixture
def run(
    tmp_path: Path, many: Any, model: Any, baseline: Any, config: Any, build: ModuleType
) -> Callable[..., dict[str, bytes]]:
    """What our Evaluator writes with some options of Beam's, by file."""

    def execute_ours(name: str, *options: str) -> dict[str, bytes]:
        from infeed.components import Evaluator, ModelReport

        given = {"examples": many, "model": model, "baseline": baseline, "eval_config": config}
        given["model_report"] = ModelReport("classification", ("oak", "elm", "ash"))
        folder, _ = build.execute(Evaluator, tmp_path / name, beam_pipeline_args=options, **given)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    return execute_ours


def test_a_named_runner_evaluates_the_same_and_this_process_opens_no_examples(
    run: Callable[..., dict[str, bytes]],
    portable_options: list[str],
    opened_data: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = run("far", *portable_options)
    assert opened_data() == []
    assert "evaluates 6 files" in caplog.text
    assert "on Beam's PortableRunner: --runner selects it" in caplog.text
    near = run("near")
    assert len(opened_data()) == 6
    assert near.keys() >= {"model_report.html", "model_report.json"}
    assert len(near) == 7
    assert far == near


@pytest.mark.image
def test_processes_evaluate_the_same(run: Callable[..., dict[str, bytes]], caplog: pytest.LogCaptureFixture) -> None:
    by_two = run("two", "--direct_num_workers=2")
    assert "on 2 processes" in caplog.text
    assert by_two == run("near")
    assert len(by_two) == 7


@pytest.mark.image
def test_threads_of_one_process_measure_the_same(
    run: Callable[..., dict[str, bytes]], many: Any, threaded_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from infeed.components.evaluation import metric_plan

    monkeypatch.setattr(metric_plan, "_ROWS", 1)  # Keras is called for each shard
    folder = Path(many.uri, "Split-eval")
    for path in sorted(folder.iterdir()):
        for copy in range(3):
            shutil.copy(path, folder / f"{copy}-{path.name}")
    near = run("near")
    assert len(list(folder.iterdir())) == 24
    assert run("once", *threaded_options) == near
    assert run("twice", *threaded_options) == near


@pytest.mark.image
def test_what_only_tfx_computes_is_left_to_it_wherever_it_is_found_out(
    many: Any, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: ModuleType
) -> None:
    """A worker finds out that an input of the model and a column are called the same; here the worker is a process."""
    from infeed.components import Evaluator
    from infeed.components.engine.executor import EngineExecutor

    left: list[str] = []
    monkeypatch.setattr(EngineExecutor, "leave_to_tfx", lambda self, *arguments: left.append(str(arguments[2])))
    import pyarrow as pa

    from infeed.components.dataset.encode import encode_examples
    from infeed.components.dataset.records import frame_records, write_records

    named = pa.RecordBatch.from_pydict({"examples": ["x"], "height": [1.0], "girth": [1.0], "kind": [b"oak"]})
    path = Path(many.uri, "Split-eval", "9.gz")
    write_records(str(path), [frame_records(encode_examples(named))], gzip_level=1)
    build.execute(
        Evaluator, tmp_path / "out", many, build.eval_config(), model, beam_pipeline_args=["--direct_num_workers=2"]
    )
    assert left == ["an input of the model and a column are both named 'examples'"]
