"""StatisticsGen of Examples without statistics: where it reads them, and that the result is the same everywhere."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Another home, where nothing is kept of an earlier reading."""
    homes = itertools.count()
    return lambda: monkeypatch.setenv("HOME", str(tmp_path / f"home-{next(homes)}"))


@pytest.fixture
def examples(tmp_path: Path, write_examples: Callable[..., Any]) -> Any:
    """Examples as TFX's own ExampleGens leave them: no manifest, no statistics, several files."""
    random = np.random.default_rng(7)
    parts = [
        pa.RecordBatch.from_pydict(
            {"fare": random.lognormal(2, 1, 300).astype(np.float32), "city": random.choice(["Bern", "Chur"], 300)}
        )
        for _ in range(3)
    ]
    artifact = write_examples(tmp_path / "examples", {"train": parts[0], "eval": parts[0].slice(0, 5)})
    for number, part in enumerate(parts[1:], 1):
        more = write_examples(tmp_path / f"more-{number}", {"train": part})
        (file,) = Path(more.uri, "Split-train").iterdir()
        file.rename(Path(artifact.uri, "Split-train", f"more-{number:05}-of-00009.gz"))
    assert not list(Path(artifact.uri).glob("*.json"))
    return artifact


def described(examples: Any, folder: Path, options: list[str]) -> dict[str, bytes]:
    """What the executor writes with these options of Beam's, by split."""
    from tfx.types import standard_artifacts

    from infeed.components.statistics.component import StatisticsExecutor

    output = standard_artifacts.ExampleStatistics()
    output.uri = str(folder)
    context = StatisticsExecutor.Context(beam_pipeline_args=options, tmp_dir=str(folder), unique_id="1")
    StatisticsExecutor(context).Do({"examples": [examples]}, {"statistics": [output]}, {})
    return {path.parent.name: path.read_bytes() for path in folder.rglob("FeatureStats.pb")}


def test_a_named_runner_reads_the_examples_and_this_process_none(
    examples: Any,
    tmp_path: Path,
    forget: Callable[[], None],
    portable_options: list[str],
    opened_data: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = described(examples, tmp_path / "far", portable_options)
    assert opened_data() == []
    assert re.search("describes . files, .*, on Beam's PortableRunner: --runner selects it", caplog.text)
    forget()
    near = described(examples, tmp_path / "near", [])
    assert any("/Split-train/" in path for path in opened_data())
    assert set(far) == {"Split-train", "Split-eval"}
    assert far == near


@pytest.mark.image
def test_so_do_threads_of_this_process(
    examples: Any, tmp_path: Path, forget: Callable[[], None], threaded_options: list[str]
) -> None:
    train = Path(examples.uri, "Split-train")
    for path in sorted(train.iterdir()):
        for copy in range(9):
            shutil.copy(path, train / f"{copy}-{path.name}")
    near = described(examples, tmp_path / "near", [])
    for name in ("once", "twice"):
        forget()
        assert described(examples, tmp_path / name, threaded_options) == near


@pytest.mark.image
def test_so_does_a_dask_cluster(
    examples: Any, tmp_path: Path, forget: Callable[[], None], beam_clusters: ModuleType
) -> None:
    near = described(examples, tmp_path / "near", [])
    forget()
    with beam_clusters.dask() as options:
        assert described(examples, tmp_path / "far", options) == near


@pytest.mark.image
def test_direct_num_workers_says_how_many_processes(
    examples: Any, tmp_path: Path, forget: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    by_two = described(examples, tmp_path / "two", options)
    assert re.search("describes . files, .*, on 2 processes", caplog.text)
    forget()
    assert described(examples, tmp_path / "near", []) == by_two
