"""What executors without Beam share; that each leaves to TFX what it must is tested with them."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


def examples(**properties: str) -> Any:
    from tfx.types import standard_artifacts

    artifact = standard_artifacts.Examples()
    for name, value in properties.items():
        artifact.set_string_custom_property(name, value)
    return artifact


def unread(given: list[Any], *payloads: Any) -> str:
    from infeed.components.engine.executor import unread_format

    return unread_format(given, *payloads)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"payload_format": "FORMAT_TF_EXAMPLE", "file_format": "tfrecords_gzip"},
        {"file_format": "FORMAT_TFRECORDS_GZIP"},
        {"file_format": "FILE_FORMAT_UNSPECIFIED"},
    ],
)
def test_tf_examples_in_tfrecords_are_read(properties: dict[str, str]) -> None:
    assert unread([examples(**properties)]) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("payload_format", "FORMAT_PROTO"),
        ("payload_format", "FORMAT_TF_SEQUENCE_EXAMPLE"),
        ("file_format", "FORMAT_PARQUET"),
        ("custom_split_pattern", "{}/*.rec"),
    ],
)
def test_what_else_the_files_hold_is_named(name: str, value: str) -> None:
    assert unread([examples(), examples(**{name: value})]) == f"{name} of the examples is {value!r}"


def test_a_caller_may_read_other_records() -> None:
    sequences = examples(payload_format="FORMAT_TF_SEQUENCE_EXAMPLE")
    assert unread([sequences], ("FORMAT_TF_EXAMPLE", "FORMAT_TF_SEQUENCE_EXAMPLE")) == ""


def test_beams_options_are_kept_for_tfxs_executor_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tfx.components.statistics_gen import executor

    from infeed.components.engine.executor import EngineExecutor

    calls: list[Any] = []

    class Ours(EngineExecutor):
        def Do(self, *arguments: Any) -> None:
            self.leave_to_tfx("statistics_gen", "all is done", "it is wide", *arguments)

    class Theirs:
        def __init__(self, context: Any) -> None:
            calls.append(context.beam_pipeline_args)

        def Do(self, *arguments: Any) -> None:
            calls.append(arguments)

    monkeypatch.setattr(executor, "Executor", Theirs)
    context = EngineExecutor.Context(beam_pipeline_args=["--direct_num_workers=2"], unique_id="1")
    ours = Ours(context)
    assert ours._beam_pipeline_args == []
    ours.Do({"examples": []}, {}, {})
    assert calls == [["--direct_num_workers=2"], ({"examples": []}, {}, {})]
    assert context.beam_pipeline_args == ["--direct_num_workers=2"]
    assert "all is done by TFX's own executor on Beam: it is wide" in caplog.text
