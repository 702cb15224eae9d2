"""BulkInferrer on every engine: the same bytes, and no examples are opened by a node whose runner is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.slow]
Run = Callable[..., tuple[Path, Any]]


def _written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("output_format", ["parquet", "prediction_log"])
def test_a_named_runner_predicts_and_this_process_opens_no_examples(
    run: Run,
    output_format: str,
    portable_options: list[str],
    opened_data: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from infeed.components import BulkInferrer

    far, _ = run(BulkInferrer, "far", *portable_options, output_format=output_format)
    assert opened_data() == []
    assert "predicts 3 files" in caplog.text
    assert "on Beam's PortableRunner: --runner names it" in caplog.text
    near, _ = run(BulkInferrer, "near", output_format=output_format)
    assert _written(near) == _written(far)
    assert len(_written(near)) == 3


@pytest.mark.parametrize("output_format", ["tfrecord", "parquet"])
def test_processes_predict_the_same(run: Run, output_format: str) -> None:
    from infeed.components import BulkInferrer

    by_two, _ = run(BulkInferrer, "two", "--direct_num_workers=2", output_format=output_format, keys=["id"])
    near, _ = run(BulkInferrer, "near", output_format=output_format, keys=["id"])
    assert _written(near) == _written(by_two)


def test_an_error_of_a_worker_names_the_record(run: Run, channels: dict[str, Any], make_dataset: Any) -> None:
    from infeed.components import BulkInferrer

    [examples] = channels["examples"].get()
    examples.uri = make_dataset({"x": ["no number"] * 4}, shards=2)
    with pytest.raises(InfeedError) as raised:
        run(BulkInferrer, "two", "--direct_num_workers=2", output_format="parquet")
    assert examples.uri in raised.value.where
