"""What is refused of TFX's arguments, and what is said then."""

from __future__ import annotations

from typing import Any

import pytest

from infeed import components
from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError

pytestmark = pytest.mark.tfx


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"custom_config": 1}, r"(?s)custom_config is given.*options=IngestOptions\(...\).*source="),
        ({"output_data_format": 7}, "(?s)FORMAT_TF_SEQUENCE_EXAMPLE.*use one of FORMAT_TF_EXAMPLE"),
        ({"output_data_format": 99}, "(?s)payload format is 99.*output_data_format or payload_format"),
        ({"output_file_format": 16}, "(?s)output_file_format is FILE_FORMAT_PARQUET.*leave it out"),
    ],
)
def test_an_argument_that_means_something_else_here_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        components.ParquetExampleGen(input_base="/data", **arguments)


@pytest.mark.parametrize(
    ("executor", "advice"),
    [
        ("custom_executors.parquet_executor.Executor", r"use ParquetExampleGen\(...\) of infeed.components without"),
        ("custom_executors.avro_executor.Executor", r"use AvroExampleGen\(...\) of infeed.components without"),
        ("base_example_gen_executor.BaseExampleGenExecutor", "a FileExecutor of infeed.components, or TFX"),
    ],
)
def test_an_executor_of_tfx_is_refused_with_the_component_to_write(executor: str, advice: str) -> None:
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    spec = BeamExecutorSpec(user_code.load(f"tfx.components.example_gen.{executor}", "executor"))
    for component in (components.FileExampleGen, components.ParquetExampleGen):
        with pytest.raises(InfeedError, match=rf"(?s)custom_executor_spec is .* not an executor of infeed.*{advice}"):
            component(input_base="/data", custom_executor_spec=spec)


def test_parquet_is_not_imported_as_records() -> None:
    from tfx.proto import example_gen_pb2

    with pytest.raises(InfeedError, match=r"(?s)FORMAT_PARQUET.*payload_format.*ParquetExampleGen reads"):
        components.ImportExampleGen(input_base="/data", payload_format=example_gen_pb2.FORMAT_PARQUET)


def test_an_executor_of_ours_takes_the_place_of_the_components() -> None:
    from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

    made = components.FileExampleGen(input_base="/data", custom_executor_spec=BeamExecutorSpec(components.FileExecutor))
    assert made.executor_spec.executor_class is components.FileExecutor
