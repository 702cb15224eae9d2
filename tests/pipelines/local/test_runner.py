from __future__ import annotations

import importlib
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.console.nodes import NodeReport, RunReport

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def run(pipeline: Any, **options: Any) -> RunReport:
    from infeed.pipelines.local.runner import run_local

    options.setdefault("on_change", lambda nodes: None)
    report = run_local(pipeline, **options)
    assert isinstance(report, RunReport)
    return report


def states(report: RunReport) -> dict[str, str]:
    return {node.name: node.state.value for node in report.nodes}


def executions(root: Path) -> dict[str, int]:
    """How often each node of the learning pipeline was really executed."""
    names = ["Ingest", "Learn", "Describe", "Inspect"]
    return {name: len((root / name).read_text()) for name in names if (root / name).exists()}


@pytest.fixture
def fault(tmp_path: Path) -> Path:
    """While this file exists, Learn fails."""
    path = tmp_path / "fault"
    path.touch()
    return path


def test_standard_components_run_then_come_from_the_cache(
    trial: ModuleType, tmp_path: Path, beam_runners: list[str]
) -> None:
    first, second = (run(trial.csv_pipeline(tmp_path)) for _ in range(2))
    assert states(first) == {"CsvExampleGen": "done", "StatisticsGen": "done", "SchemaGen": "done"}
    assert states(second) == {"CsvExampleGen": "cached", "StatisticsGen": "cached", "SchemaGen": "cached"}
    assert (tmp_path / "metadata" / "metadata.db").is_file()
    assert beam_runners == ["FnApiRunner"] * 2  # CsvExampleGen's and StatisticsGen's
    assert first.seconds >= sum(node.seconds for node in first.nodes) > 0


def test_every_change_is_told_with_all_nodes_a_resolver_is_one_and_missing_inputs_are_a_failure(
    trial: ModuleType, tmp_path: Path
) -> None:
    """TFX's launcher returns from a node without its inputs as if nothing had happened."""
    seen: list[Sequence[NodeReport]] = []
    report = run(trial.resolving_pipeline(tmp_path), on_change=seen.append)
    assert [tuple(node.state.value for node in nodes) for nodes in seen] == [
        ("waiting", "waiting"),
        ("running", "waiting"),
        ("done", "waiting"),
        ("done", "running"),
        ("done", "failed"),
    ]
    assert tuple(seen[-1]) == report.nodes
    assert [*states(report)] == ["latest_blessed_model", "Compare"]
    assert report.failed is not None
    assert str(report.failed.error).startswith("InsufficientInputError: Error while resolving inputs for Compare")


def test_a_failing_node_ends_the_run_with_the_errors_own_words(
    trial: ModuleType, tmp_path: Path, fault: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        report = run(trial.learning_pipeline(tmp_path))
    assert not report.succeeded
    assert report.failed is not None
    assert report.failed.name == "Learn"
    assert report.failed.error == "the loss is not a number\n  where: epoch 3\n  do:    lower the rate"
    assert states(report)["Inspect"] == "waiting"
    assert executions(tmp_path).get("Inspect") is None
    assert "Traceback" in caplog.text


def test_an_error_inside_beam_is_told_without_beams_words(
    trial: ModuleType, tmp_path: Path, beam_runners: list[str]
) -> None:
    failed = run(trial.beam_pipeline(tmp_path)).failed
    assert beam_runners == ["FnApiRunner"]  # the component's own pipeline takes it as well
    assert failed is not None
    assert failed.error == "'a.png' is not an image\n  where: class cat\n  do:    remove it"


def test_after_a_failure_the_run_goes_on_from_the_failed_node(trial: ModuleType, tmp_path: Path, fault: Path) -> None:
    run(trial.learning_pipeline(tmp_path))
    fault.unlink()
    report = run(trial.learning_pipeline(tmp_path), from_node="Learn")
    assert report.succeeded
    assert states(report)["Ingest"] == "skipped"
    assert states(report)["Learn"] == states(report)["Inspect"] == "done"
    assert executions(tmp_path) == {"Ingest": 1, "Learn": 2, "Describe": 1, "Inspect": 1}


def test_a_partial_run_that_fails_can_be_gone_on_from_as_well(trial: ModuleType, tmp_path: Path, fault: Path) -> None:
    run(trial.learning_pipeline(tmp_path))
    assert not run(trial.learning_pipeline(tmp_path), from_node="Learn").succeeded
    fault.unlink()
    assert run(trial.learning_pipeline(tmp_path), from_node="Learn").succeeded
    assert executions(tmp_path)["Ingest"] == 1


def test_the_node_named_runs_even_where_the_cache_would_serve_it(trial: ModuleType, tmp_path: Path) -> None:
    run(trial.learning_pipeline(tmp_path))
    report = run(trial.learning_pipeline(tmp_path), from_node="Learn")
    assert states(report) == {"Ingest": "skipped", "Learn": "done", "Describe": "cached", "Inspect": "done"}


def test_outputs_come_from_the_newest_run_that_has_them_all(trial: ModuleType, tmp_path: Path) -> None:
    """The newest run of all failed at once, so TFX's own choice, the newest, would have nothing to lend."""
    run(trial.learning_pipeline(tmp_path))
    (tmp_path / "Ingest").unlink()
    (tmp_path / "Ingest").mkdir()  # opening it to write now fails
    assert not run(trial.learning_pipeline(tmp_path), from_node="Ingest").succeeded
    assert run(trial.learning_pipeline(tmp_path), from_node="Learn").succeeded


def test_a_first_run_cannot_start_in_the_middle(trial: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="no earlier run has the outputs of Ingest to start from") as caught:
        run(trial.learning_pipeline(tmp_path), from_node="Learn")
    assert caught.value.do == "run the whole pipeline once, or start from an earlier node"


def test_an_unknown_node_is_refused_before_anything_runs(trial: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="there is no node 'Trainer' to start from") as caught:
        run(trial.learning_pipeline(tmp_path), from_node="Trainer")
    assert caught.value.do == "use one of: Ingest, Describe, Learn, Inspect"
    assert executions(tmp_path) == {}


BAD_IMAGE = InfeedError("'a.png' is not an image", where="class cat", do="remove it or name it in a reject file")
QUALIFIED = f"{InfeedError.__module__}.InfeedError: {BAD_IMAGE}"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """Not imported while tests are collected: it loads TFX."""
    return importlib.import_module("infeed.pipelines.local.runner")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BAD_IMAGE, str(BAD_IMAGE)),
        (ValueError("bad\nvalue"), "ValueError: bad\nvalue"),
        (KeyError("fare"), "KeyError: 'fare'"),  # str() alone would read 'fare'
        (ValueError(), "ValueError"),
        # Beam names the step, in an exception of the same type where it can make one ...
        (ValueError("bad value [while running 'Read/Parse']"), "ValueError: bad value"),
        # ... and in a RuntimeError where it cannot, or where the exception comes from another process.
        (RuntimeError("OSError: [Errno 2] No such: 'x' [while running 'R']"), "OSError: [Errno 2] No such: 'x'"),
        (RuntimeError(f"{QUALIFIED} [while running 'R']"), str(BAD_IMAGE)),
        (RuntimeError("apache_beam.io.BadFileError: x [while running 'R']"), "BadFileError: x"),
        (RuntimeError("out of patience"), "RuntimeError: out of patience"),  # nothing is wrapped here
    ],
)
def test_wrappings_are_taken_off(error: Exception, words: str, runner: ModuleType) -> None:
    assert runner.root_cause(error) == words


def test_an_infeed_error_is_found_behind_what_was_raised_from_it(runner: ModuleType) -> None:
    error = RuntimeError("analysis failed")
    error.__cause__ = BAD_IMAGE
    assert runner.root_cause(error) == str(BAD_IMAGE)


def _nested_traceback(error: Exception) -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise error  # noqa: B904 - the second traceback of the text
    except Exception:
        return traceback.format_exc()


def test_a_traceback_that_is_only_text_ends_in_the_error(runner: ModuleType) -> None:
    assert runner.last_error(_nested_traceback(ValueError("bad value"))) == "ValueError: bad value"
    assert runner.last_error(_nested_traceback(BAD_IMAGE)) == str(BAD_IMAGE)


def test_a_traceback_inside_a_message_ends_in_the_error(runner: ModuleType) -> None:
    assert runner.root_cause(RuntimeError(_nested_traceback(BAD_IMAGE))) == str(BAD_IMAGE)


def test_a_message_without_a_traceback_stays_as_it_is(runner: ModuleType) -> None:
    assert runner.last_error("inputs could not be resolved") == "inputs could not be resolved"
