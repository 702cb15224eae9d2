"""What is blessed, what is left to TFX's own executor, and what is an error before anything is written.

Covers `evaluate`, `measuring`, `models`, `tfx_first`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

ACCURACY = "SparseCategoricalAccuracy"
Run = Callable[..., tuple[str, Any]]


@pytest.fixture
def run(tmp_path: Path, examples: Any, model: Any, build: ModuleType) -> Callable[..., Any]:
    """Our Evaluator on the common examples and model; `given` takes the place of either."""

    def execute_ours(config: Any, baseline: Any = None, **given: Any) -> tuple[str, Any]:
        from infeed.components import Evaluator

        chosen = {"examples": examples, "model": model} | given
        return build.execute(Evaluator, tmp_path / "out", eval_config=config, baseline=baseline, **chosen)

    return execute_ours


def metrics(folder: str) -> Mapping[str, float]:
    """Of all rows, by name."""
    import tensorflow_model_analysis as tfma

    found = dict(tfma.load_eval_result(folder).slicing_metrics)[()]
    return {name: value["doubleValue"] for name, value in found[""][""].items()}


def reason(config: Any, model: Any, examples: Any, **properties: Any) -> str:
    """Why TFX's own executor is to do it."""
    import json

    from google.protobuf import json_format
    from tfx.types import standard_artifacts

    from infeed.components.evaluation.component import evaluate
    from infeed.components.evaluation.pairs import BeyondError

    inputs = {"examples": [examples], "model": [model]}
    given = {"eval_config": json.dumps(json_format.MessageToDict(config)), **properties}
    with pytest.raises(BeyondError) as beyond:
        evaluate(inputs, {"evaluation": [standard_artifacts.ModelEvaluation()]}, given)
    return str(beyond.value)


@pytest.mark.parametrize(("bound", "file"), [(0.1, "BLESSED"), (0.99, "NOT_BLESSED")])
def test_a_model_is_blessed_where_it_reaches_its_threshold(
    run: Run, bound: float, file: str, build: ModuleType
) -> None:
    threshold = {"value_threshold": {"lower_bound": bound}}
    folder, blessing = run(build.eval_config({"metrics": [build.metric(ACCURACY, threshold, name="accuracy")]}))
    assert [path.name for path in Path(blessing.uri).iterdir()] == [file]
    assert blessing.get_int_custom_property("blessed") == (file == "BLESSED")
    assert blessing.get_string_custom_property("component_id") == "Evaluator"
    assert 0.1 < metrics(folder)["accuracy"] < 0.99


def test_without_thresholds_nothing_is_blessed(run: Run, build: ModuleType) -> None:
    folder, blessing = run(build.eval_config())
    assert list(Path(blessing.uri).iterdir()) == []
    assert metrics(folder) == {"example_count": 120}


def test_small_batches_give_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch, trees: pa.RecordBatch, build: ModuleType
) -> None:
    """An accuracy that anybody can count: of a model that has the number of the most likely kind."""
    from infeed.components.evaluation import evaluate

    monkeypatch.setattr(evaluate, "ROWS", 7)
    folder, _ = run(
        build.eval_config({"metrics": [build.metric(ACCURACY, name="accuracy"), build.metric("ExampleCount")]})
    )
    height, girth = (np.array(trees[name].to_pylist()) for name in ("height", "girth"))
    called = np.stack([np.zeros(len(height)), height, girth]).argmax(axis=0)
    kinds = np.array([[b"oak", b"elm", b"ash"].index(kind) for kind in trees["kind"].to_pylist()])
    assert metrics(folder) == {"accuracy": pytest.approx((called == kinds).mean()), "example_count": 120}


@pytest.fixture
def left_to_tfx(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TFX's own executor is asked to do."""
    from tfx.components.evaluator.executor import Executor

    done: list[Any] = []
    monkeypatch.setattr(Executor, "Do", lambda self, *given: done.append(given))
    return done


@pytest.mark.parametrize(
    ("metric", "seam", "words"),
    [
        ("ExampleCount", "tfma.EVALUATION", ["TFX's own executor on Beam: tensorflow-model-analysis", "_taken_away"]),
        ("ExactMatch", None, ["TFX's own executor on Beam", "exact_match"]),
    ],
)
def test_what_ours_cannot_compute_tfx_does_and_the_log_says_why(
    metric: str,
    seam: str | None,
    words: list[str],
    run: Run,
    build: ModuleType,
    take_away: Any,
    left_to_tfx: Any,
    caplog: Any,
) -> None:
    if seam:
        take_away(seam)
    with caplog.at_level(logging.WARNING):
        folder, _ = run(build.eval_config({"metrics": [build.metric(metric)]}))
    assert [word for word in words if word not in caplog.text] == []
    assert len(left_to_tfx) == 1
    assert list(Path(folder).iterdir()) == []


def test_reasons_to_leave_it_to_tfx(model: Any, examples: Any, build: ModuleType) -> None:
    accuracy = build.metric(ACCURACY)

    def why(*specs: Any, options: Any = None, **given: Any) -> str:
        config = build.eval_config(*specs, **given)
        for name, value in (options or {}).items():
            getattr(config.options, name).value = value
        return reason(config, model, examples)

    assert why(options={"compute_confidence_intervals": True}) == "confidence intervals are requested"
    assert "fewer than 9 rows are hidden" in why(options={"min_slice_size": 9})
    assert "SQL" in why(slices=[{"slice_keys_sql": "SELECT 1"}])
    assert "query_key" in why({"metrics": [accuracy], "query_key": "age"})
    assert "averaged over outputs" in why({"metrics": [accuracy], "output_names": ["a"], "output_weights": {"a": 1.0}})
    assert "model_specs.model_type is 'tf_js'" in why(model_type="tf_js")
    assert "the labels in 'kind' are text" in why({"metrics": [accuracy]}, preprocessing_function_names=[])
    micro = {"micro_average": True, "class_weights": {"0": 1.0}}
    assert "averaged over classes" in why({"metrics": [build.metric("MeanLabel")], "aggregate": micro})
    assert "module_file has functions" in reason(build.eval_config(), model, examples, module_file="/here.py")


def test_examples_that_are_no_tfrecords_are_left_to_tfx(
    model: Any, trees: pa.RecordBatch, tmp_path: Path, build: ModuleType
) -> None:
    parquet = build.write_examples(tmp_path / "examples", trees)
    parquet.set_string_custom_property("file_format", "FILE_FORMAT_PARQUET")
    assert reason(build.eval_config(), model, parquet) == "file_format of the examples is 'FILE_FORMAT_PARQUET'"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"signature_name": "serving"}, r"no signature 'serving'.*Format-Serving.*serving_default, transform_features"),
    ({"preprocessing_function_names": ["scale"]}, r"no signature 'scale'"),
    ({"label_key": "species"}, r"there is no column 'species'.*model_specs.label_key.*age, birds"),
    ({"example_weight_key": "mass"}, r"there is no column 'mass'.*model_specs.example_weight_key"),
    ({"example_weight_key": "city"}, r"column 'city' has 0 values here, but up to 1.*record 0"),
    ({"prediction_key": "odds"}, r"outputs classes, probabilities, and none is chosen.*prediction_key"),
    ({"slices": [{"feature_keys": ["country"]}]}, r"no row is in the slice each value of country.*slicing_specs"),
    ({"slices": [{"feature_values": {"city": "Basel"}}]}, r"no row is in the slice city = 'Basel'"),
    ({"label_key": ""}, r"the eval config names no label"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_what_the_data_or_the_model_lack_is_an_error(
    run: Run, given: dict[str, Any], words: str, tmp_path: Path, build: ModuleType
) -> None:
    with pytest.raises(InfeedError, match=f"(?s){words}"):
        run(build.eval_config({"metrics": [build.metric(ACCURACY)]}, **given))
    assert list((tmp_path / "out" / "evaluation").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Acuracy", {}, r"(?s)cannot create the metrics: .*Acuracy.*metrics_specs"),
        ("AUC", {"binarize": {"class_ids": {"values": [3]}}}, "class 3 is requested"),
    ],
)
def test_metrics_or_classes_that_there_are_not_are_errors(
    name: str, options: dict[str, Any], words: str, run: Run, build: ModuleType
) -> None:
    with pytest.raises(InfeedError, match=words):
        run(build.eval_config({"metrics": [build.metric(name)], **options}))


@pytest.mark.parametrize("number", [3, 5, -2])
@pytest.mark.parametrize(
    "of_classes",
    [
        {"aggregate": {"micro_average": True, "class_weights": {"0": 1.0}}},  # which TFX's executor computes
        {"binarize": {"k_list": {"values": [1]}}},
    ],
    ids=["by TFX", "here"],
)
def test_a_label_that_the_model_never_saw_is_an_error_before_tfx_s_executor_starts(
    number: int, of_classes: Mapping[str, Any], trees: pa.RecordBatch, run: Run, tmp_path: Path, build: ModuleType
) -> None:
    ages = trees.column("age").to_pylist()
    ages[70] = number
    place = trees.schema.get_field_index("age")
    columns = [*trees.columns[:place], pa.array(ages), *trees.columns[place + 1 :]]
    examples = build.write_examples(
        tmp_path / "examples", pa.RecordBatch.from_arrays(columns, names=trees.schema.names)
    )
    config = build.eval_config({"metrics": [build.metric("Precision")], **of_classes}, label_key="age")
    with pytest.raises(InfeedError, match=f"the label {number}.*it predicts 3 classes") as raised:
        run(config, examples=examples)
    assert ("record 30, 'age'" if "aggregate" in of_classes else "records 0 to 79") in raised.value.where


def test_a_column_that_the_manifest_does_not_know_is_an_error_at_once() -> None:
    from infeed.components.evaluation.batches import Batch, SliceSpec
    from infeed.components.evaluation.measuring import check_columns

    specs = [SliceSpec(("seldom", "never"), ())]
    with pytest.raises(InfeedError, match=r"(?s)no column 'never'.*'age', 'seldom'"):
        check_columns(specs, Batch("", 0, []), [], {"age", "seldom"})
    check_columns(specs, Batch("", 0, []), [], set())  # nobody knows


def test_a_split_that_there_is_not_is_an_error(run: Run, build: ModuleType) -> None:
    with pytest.raises(InfeedError, match=r"(?s)there is no split 'test'.*eval or train"):
        run(build.eval_config(), example_splits=["test"])


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (0, ["age", "kind"], "there are no examples to evaluate"),
        (120, ["age"], "the model does not take these examples"),
    ],
)
def test_no_examples_or_examples_that_the_model_cannot_read_are_an_error(
    rows: int, columns: list[str], words: str, run: Run, build: ModuleType, trees: pa.RecordBatch, tmp_path: Path
) -> None:
    some = pa.RecordBatch.from_pydict({name: trees[name] for name in columns}).slice(0, rows)
    with pytest.raises(InfeedError, match=words):
        run(build.eval_config(), examples=build.write_examples(tmp_path / "some", some))


BASELINES: list[tuple[dict[str, Any], str]] = [
    ({"label": "species"}, "the baseline does not compute 'kind' from the examples, as the model does"),
    ({"one_number": True}, "the baseline predicts 1 number per row, but the model predicts 3"),
]


@pytest.mark.parametrize(("other", "words"), BASELINES)
def test_a_baseline_of_another_label_is_an_error(
    run: Run, other: dict[str, Any], words: str, tmp_path: Path, build: ModuleType
) -> None:
    baseline = build.write_model(tmp_path / "other", **other)
    with pytest.raises(InfeedError, match=rf"(?s){words}.*other.*baseline_model"):
        run(build.eval_config({"metrics": [build.metric(ACCURACY)]}), baseline)


def test_a_baseline_that_knew_fewer_classes_is_compared_and_the_log_says_so(
    run: Run, caplog: pytest.LogCaptureFixture, tmp_path: Path, build: ModuleType
) -> None:
    threshold = {"change_threshold": {"direction": "HIGHER_IS_BETTER", "absolute": -1.0}}
    baseline = build.write_model(tmp_path / "other", kinds=(b"elm", b"ash"))
    with caplog.at_level(logging.WARNING):
        _, blessing = run(build.eval_config({"metrics": [build.metric(ACCURACY, threshold)]}), baseline)
    assert "the baseline predicts 2 numbers per row, but the model predicts 3" in caplog.text
    assert blessing.get_int_custom_property("blessed") == 1
    assert blessing.get_string_custom_property("baseline_model") == baseline.uri


def test_a_baseline_that_is_damaged_is_told_as_the_baseline(run: Run, tmp_path: Path, build: ModuleType) -> None:
    baseline = build.write_model(tmp_path / "damaged")
    [saved] = Path(baseline.uri).rglob("saved_model.pb")
    saved.write_bytes(saved.read_bytes()[:100])
    with pytest.raises(InfeedError, match="the baseline model cannot be loaded"):
        run(build.eval_config(), baseline=baseline)


def test_a_folder_without_a_model_is_an_error(run: Run, tmp_path: Path, build: ModuleType) -> None:
    from tfx.types import standard_artifacts

    empty = standard_artifacts.Model()
    empty.uri = str(tmp_path / "empty")
    Path(empty.uri).mkdir()
    with pytest.raises(InfeedError, match="not a SavedModel"):
        run(build.eval_config(), model=empty)
