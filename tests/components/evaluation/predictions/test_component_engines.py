"""BulkInferrer on every engine: the same bytes, and no examples are opened by a node whose runner is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]
Run = Callable[..., tuple[Path, Any]]


def _written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_named_runner_predicts_and_this_process_opens_no_examples(
    run: Run, portable_options: list[str], opened_data: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    from infeed.components import BulkInferrer

    far, _ = run(BulkInferrer, "far", *portable_options, output_format="parquet")
    assert opened_data() == []
    assert "predicts 3 files" in caplog.text
    assert "on Beam's PortableRunner: --runner selects it" in caplog.text
    near, _ = run(BulkInferrer, "near", output_format="parquet")
    assert _written(near) == _written(far)
    assert len(_written(near)) == 3


@pytest.mark.image
@pytest.mark.parametrize("output_format", ["parquet", "prediction_log"])
def test_threads_of_one_process_predict_the_same(
    run: Run,
    channels: dict[str, Any],
    make_dataset: Callable[..., str],
    threaded_options: list[str],
    output_format: str,
) -> None:
    from infeed.components import BulkInferrer

    rows = {"x": [row / 7 for row in range(400)], "id": [f"row {row}" for row in range(400)]}
    (examples,) = channels["examples"].get()
    examples.uri = make_dataset(rows, 40)
    near, _ = run(BulkInferrer, "near", output_format=output_format)
    for name in ("once", "twice"):
        threaded, _ = run(BulkInferrer, name, *threaded_options, output_format=output_format)
        assert _written(threaded) == _written(near)
    assert len(_written(near)) == 41


@pytest.mark.image
def test_processes_predict_the_same(run: Run) -> None:
    from infeed.components import BulkInferrer

    by_two, _ = run(BulkInferrer, "two", "--direct_num_workers=2", output_format="prediction_log")
    near, _ = run(BulkInferrer, "near", output_format="prediction_log")
    assert _written(near) == _written(by_two)
