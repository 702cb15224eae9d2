from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow import disk


def test_inputs_larger_than_the_limit_of_the_pod_are_an_error_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "examples" / "Split-train").mkdir(parents=True)
    (tmp_path / "examples" / "Split-train" / "data").write_bytes(b"x" * 3_000)
    (tmp_path / "schema").write_bytes(b"x" * 500)
    inputs = [str(tmp_path / name) for name in ("examples", "schema", "none")]
    disk.check_inputs(inputs, None)
    disk.check_inputs(inputs, 3_500)
    with pytest.raises(InfeedError, match=r"3.5 kB(.|\n)*3.0 kB of 'examples'") as error:
        disk.check_inputs(inputs, 3_499, "deploy.resources.Trainer.ephemeral_storage", direct=True)
    assert error.value.where == "deploy.resources.Trainer.ephemeral_storage"
    assert "deploy.reading: direct" in error.value.do
    assert "deploy.reading" not in disk.remedy(direct=False)


def test_the_limit_is_that_of_the_step() -> None:
    assert disk.limit_of({disk.VARIABLE: "1024"}) == 1024
    assert disk.limit_of({}) is None
