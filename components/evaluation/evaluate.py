"""Evaluation of a SavedModel on splits of a dataset, without TFX. Writes TFMA's metrics, plots and validations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import json_format

import infeed.components.evaluation.tfx_first  # noqa: F401 - before TFMA

# isort: split
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants as tfma_constants
from tensorflow_model_analysis.evaluators import metrics_validator
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as tfma_writer

from infeed.components.base import machine
from infeed.components.base.errors import InfeedError
from infeed.components.base.units import significant
from infeed.components.dataset import files, names
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.reading import ShardRange, record_ranges
from infeed.components.dataset.records import frame_records, write_records
from infeed.components.engine.choice import Cluster, choose, counting
from infeed.components.engine.engine import Engine
from infeed.components.evaluation.batches import BYTES, SliceKey
from infeed.components.evaluation.measuring import (
    Evaluation,
    check_classes,
    measure,
    measuring,
    metrics_of,
    plan_of,
)
from infeed.components.evaluation.metric_plan import Metrics
from infeed.components.evaluation.model_report.collected import Collected
from infeed.components.evaluation.model_report.findings import ModelFindings
from infeed.components.evaluation.model_report.options import ModelReport
from infeed.components.evaluation.model_report.page import MetricLine, ModelPage
from infeed.components.evaluation.model_report.scores import read_scores, unproven
from infeed.components.evaluation.models import EvaluatedModel
from infeed.components.evaluation.pairs import BeyondError
from infeed.components.evaluation.predictor import check_dataset, model_work
from infeed.components.seams import tfma as tfma_seam

EVAL_CONFIG = "eval_config"
ROWS = 4_096  # maximum rows of a batch
# The graph of a wide table takes as long for one row as for hundreds, and its records contain no images.
WIDE, WIDE_BYTES = 100, 64 << 20
Sliced = Sequence[tuple[SliceKey, Metrics]]


def completed(given: Any, *, has_baseline: bool) -> Any:
    """Return a TFMA EvalConfig with defaults, as TFX's executor completes it.

    Raise InfeedError for an inconsistent config, and BeyondError for one that only TFX's own executor supports.
    """
    found = tfma.utils.update_eval_config_with_defaults(given, has_baseline=has_baseline, rubber_stamp=True)
    try:
        tfma.utils.verify_eval_config(found)
    except ValueError as error:
        raise InfeedError(
            str(error).strip().splitlines()[0], where=EVAL_CONFIG, do="correct the eval config"
        ) from error
    _check_outputs(found)
    if reason := _beyond(found, has_baseline):
        raise BeyondError(reason)
    return found


def _check_outputs(eval_config: Any) -> None:
    """Raise InfeedError for metrics of no output or an unknown one if each output has its label. TFMA fails later."""
    known = sorted({output for spec in eval_config.model_specs for output in spec.label_keys})
    for place, spec in enumerate(eval_config.metrics_specs if known else ()):
        names = [*spec.output_names] or [""]
        wrong = next((name for name in names if name not in known), None)
        if wrong is not None and any(one.class_name != "ExampleCount" for one in spec.metrics):
            what = f"label_keys has no output {wrong!r}" if wrong else "the metrics name no output of label_keys"
            where = f"{EVAL_CONFIG}.metrics_specs[{place}].output_names"
            raise InfeedError(what, where=where, do=f"use one of {', '.join(known)}")


def _beyond(eval_config: Any, has_baseline: bool) -> str:
    """Return why only TFX's own executor can evaluate. Empty if this module can."""
    options, models, metrics = eval_config.options, eval_config.model_specs, eval_config.metrics_specs
    least, disabled = options.min_slice_size.value, options.disabled_outputs.values
    reasons = {
        f"the eval config has {len(models)} model_specs": len(models) != 1 + has_baseline,
        "confidence intervals are requested": options.compute_confidence_intervals.value,
        f"slices of fewer than {least} rows are hidden (min_slice_size)": least > 1,
        f"outputs are disabled: {', '.join(disabled)}": disabled,
        "slices are compared with one another (cross_slicing_specs)": eval_config.cross_slicing_specs,
        "slices are given in SQL": any(spec.slice_keys_sql for spec in eval_config.slicing_specs),
        "rows are grouped by a query_key": any(spec.query_key for spec in metrics),
        "metrics are averaged over outputs (output_weights)": any(spec.output_weights for spec in metrics),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def evaluate(
    eval_config: Any,
    roots: Sequence[str],
    folders: Sequence[str],
    models: Mapping[bool, str],
    output: str,
    cluster: Cluster | None = None,
    reports: Sequence[ModelReport] = (),
) -> Any:
    """Evaluate models. Write TFMA's files to `output`, and the model reports. The first one may withhold the blessing.

    Args:
      eval_config: EvalConfig that `completed` returned.
      roots, folders: folders of the datasets, whose manifests list the columns, and of the splits to evaluate.
      models: folder of the SavedModel of the candidate (False) and of the baseline (True), if any.
      cluster: runner that Beam's options select.

    Returns:
      TFMA's ValidationResult. None if the eval config has no thresholds for a blessing.

    Raises:
      BeyondError: only TFX's own executor supports the config. Nothing is written.
      InfeedError: the examples or a model do not fit the config.
    """
    if reason := tfma_seam.EVALUATION.available():
        raise BeyondError(reason)
    # Before TensorFlow loads the models, which takes seconds.
    for is_baseline, model in models.items():
        for root in roots:
            check_dataset(model, root, is_baseline=is_baseline)
    evaluation = _evaluation(eval_config, roots, models, reports)
    # Plan before reading: an unsupported config must go to TFX's executor before any output exists.
    try:
        plan_of(evaluation.config)
    except BeyondError:
        # Check the labels if metrics are about single classes, because TFX's executor gives an obscure error.
        if any(spec.HasField("binarize") or spec.HasField("aggregate") for spec in eval_config.metrics_specs):
            labeled = record_ranges(folders, counting(cluster))
            with suppress(BeyondError), _engine("checks the labels of", labeled, cluster) as engine:
                check_classes(evaluation, labeled, engine)
        raise
    ranges = record_ranges(folders, counting(cluster))
    if not ranges:
        where = ", ".join(folders)
        raise InfeedError("there are no examples to evaluate", where=where, do="use a split with examples")
    with _engine("evaluates", ranges, cluster) as engine:
        call = measuring(evaluation)
        found = measure(evaluation, call, ranges, engine)
        # Call the function here and not on the engine, because this process may have loaded the models already.
        findings = [call.after(_findings)(pair) for pair in zip(reports, found.collected, strict=True)]
    reports = [one.report for one in findings]
    sliced = metrics_of(evaluation, found)
    locations = {spec.name: models[spec.is_baseline] for spec in _candidate_first(eval_config)}
    split = " and ".join(dict.fromkeys(folder.rsplit("Split-", 1)[-1] for folder in folders))
    of_all = tfma_writer.convert_slice_metrics_to_proto(((), _of_kind(sliced[0][1], plots=False)), [])
    clusters = (one.clusters for one in found.collected)
    scores = [read_scores(of_all, page, split, groups) for page, groups in zip(reports, clusters, strict=True)]
    # The verdict names a score that is not better than a guess, so read the scores before it is written.
    doubt = unproven(scores[0], reports[0]) if reports and scores[0] and reports[0].beat_guess else ""
    verdict = write_results(output, eval_config, locations, sliced, doubt)
    thresholds = tfma.metrics.metric_thresholds_from_metrics_specs(eval_config.metrics_specs, eval_config=eval_config)
    blessed = bool(verdict.validation_ok) if thresholds else None
    candidate = _candidate_first(eval_config)[0]
    for report, of_report, its in zip(reports, scores, findings, strict=True):
        lines = tuple(_metric_lines(sliced[0][1], thresholds, report))
        slices = _slices(sliced, report, candidate.label_key or dict(candidate.label_keys).get(report.output, ""))
        verdict_on = (blessed, doubt) if report is reports[0] else (None, "")
        ModelPage(its, split, verdict_on[0], lines, slices, of_report, verdict_on[1]).write(output)
    return verdict if thresholds else None


def _engine(does: str, ranges: Sequence[ShardRange], cluster: Cluster | None) -> Engine:
    imports = ["infeed.components.evaluation.measuring"]
    return choose(model_work(does, ranges, machine.EVALUATE_BYTES, imports), cluster)


def _findings(models: Sequence[EvaluatedModel], given: tuple[ModelReport, Collected]) -> ModelFindings:
    (report, found), model = given, models[0]
    assert found.sample, "a report requires rows"
    # If the model knows fewer classes, its indices are not those of the names.
    if len(report.classes) != found.sample.scores.shape[1]:
        report = replace(report, classes=())
    predict = partial(model.predictions, output=report.output)
    return ModelFindings.of(report, found, model.labels, model.predictor.raw_features, predict)


def _metric_lines(metrics: Metrics, thresholds: Mapping[Any, Any], report: ModelReport) -> Iterator[MetricLine]:
    """Yield the metrics of all rows that are single numbers, those with thresholds first."""
    numbers: dict[Any, float] = {}
    for key, value in _of_kind(metrics, plots=False).items():
        is_number = np.ndim(value) == 0 and isinstance(value, (Number, np.ndarray))
        if is_number:
            numbers[key] = float(value)
    of_models = [
        key
        for key in numbers
        if not (key.is_diff or key.model_name == tfma.BASELINE_KEY)
        and (not report.metrics or (key.name in report.metrics and key.output_name in ("", report.output)))
    ]
    for key in sorted(of_models, key=lambda key: key not in thresholds and key.make_diff_key() not in thresholds):
        limits = [one for of in (key, key.make_diff_key()) for _, one in thresholds.get(of, ())]
        name = f"{key.output_name}: {key.name}" if key.output_name not in ("", report.output) else key.name
        # Metrics of one name may be about several classes.
        alike = [one for one in of_models if (one.name, one.output_name) == (key.name, key.output_name)]
        if key.sub_key is not None and len(alike) > 1:
            number = key.sub_key.class_id
            name += f" ({key.sub_key})" if number is None else f" of {report.name_of(number)}"
        baseline = numbers.get(key.make_baseline_key(tfma.BASELINE_KEY))
        yield MetricLine(name, numbers[key], baseline, "; ".join(filter(None, map(_limit, limits))))


def _limit(threshold: Any) -> str:
    """Describe a GenericValueThreshold or GenericChangeThreshold."""
    given = {field.name: value for field, value in threshold.ListFields()}
    worst = "at least" if given.pop("direction", None) == tfma.MetricDirection.HIGHER_IS_BETTER else "at most"
    words = {
        "lower_bound": "at least {}",
        "upper_bound": "at most {}",
        "absolute": f"difference {worst} {{}}",
        "relative": f"difference {worst} {{}} of the baseline",
    }
    return ", ".join(words[name].format(significant(value.value)) for name, value in given.items())


def _slices(sliced: Sliced, report: ModelReport, label: str) -> dict[str, dict[str, float]]:
    """Return the metrics of each slice except that of all rows, by the text of the slice, with class names."""

    def shown(name: str, value: Any) -> str:
        is_class = name == label and report.task == "classification" and isinstance(value, int)
        return f"{name} = {report.name_of(value) if is_class else value}"

    return {
        ", ".join(shown(*pair) for pair in key): {line.name: line.value for line in _metric_lines(metrics, {}, report)}
        for key, metrics in sliced
        if key
    }


def _evaluation(
    eval_config: Any, roots: Sequence[str], models: Mapping[bool, str], pages: Sequence[ModelReport]
) -> Evaluation:
    manifests = (root for root in roots if files.exists(files.join(root, names.MANIFEST)))
    known = frozenset(column.name for root in manifests for column in Manifest.read(root).schema)
    options = eval_config.options
    return Evaluation(
        config=eval_config.SerializeToString(deterministic=True),
        models=tuple(
            (spec.SerializeToString(deterministic=True), models[spec.is_baseline])
            for spec in _candidate_first(eval_config)
        ),
        default_metrics=not options.HasField("include_default_metrics") or options.include_default_metrics.value,
        known=known,
        most_rows=ROWS,
        most_bytes=WIDE_BYTES if len(known) > WIDE else BYTES,
        pages=tuple(pages),
    )


def _candidate_first(eval_config: Any) -> list[Any]:
    return sorted(eval_config.model_specs, key=lambda spec: bool(spec.is_baseline))


def write_results(folder: str, eval_config: Any, locations: Mapping[str, str], sliced: Sliced, doubt: str = "") -> Any:
    """Write metrics, plots, validation and eval config, each file atomically. Return the ValidationResult.

    `doubt` is a reason to fail the model in addition to its thresholds, or empty.
    """
    metrics = [(key, _of_kind(found, plots=False)) for key, found in sliced]
    plots = [(key, _of_kind(found, plots=True)) for key, found in sliced]
    combine = tfma_writer.CombineValidations(eval_config)
    found = combine.create_accumulator()
    for one in metrics:
        found = combine.add_input(found, metrics_validator.validate_metrics(one, eval_config))
    verdict = combine.extract_output(found)  # missed thresholds by slice, and missing slices
    if doubt:
        verdict.validation_ok = False
        verdict.metric_validations_per_slice.add().failures.add().message = doubt
    shard = "-00000-of-00001"
    written = {
        tfma_constants.METRICS_KEY + shard: [tfma_writer.convert_slice_metrics_to_proto(one, []) for one in metrics],
        tfma_constants.PLOTS_KEY + shard: [tfma_writer.convert_slice_plots_to_proto(one, []) for one in plots],
        tfma_constants.ATTRIBUTIONS_KEY + shard: [
            tfma_writer.convert_slice_attributions_to_proto((key, {})) for key, _ in sliced
        ],
        tfma_constants.VALIDATIONS_KEY: [verdict],
    }
    for name, protos in written.items():
        payloads = pa.array([proto.SerializeToString(deterministic=True) for proto in protos], pa.large_binary())
        write_records(files.join(folder, f"{name}.tfrecord"), [frame_records(payloads)], gzip_level=None)
    run = config_pb2.EvalRun(
        eval_config=eval_config,
        version=tfma.__version__,
        data_location="<user provided PCollection>",  # same text as in TFMA, which no program reads
        file_format="<unknown>",
        model_locations=locations,
    )
    files.write_bytes(
        files.join(folder, "eval_config.json"), f"{json_format.MessageToJson(run, sort_keys=True)}\n".encode()
    )
    return verdict


def _of_kind(metrics: Metrics, *, plots: bool) -> Metrics:
    return {key: value for key, value in metrics.items() if isinstance(key, metric_types.PlotKey) == plots}
