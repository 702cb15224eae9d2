"""Records of every type that a tf.Example has, and the two StatisticsGens run on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records

INF, NAN = float("inf"), float("nan")
ROWS = 3_000


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of statistics that no other run has filled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def every_type() -> pa.RecordBatch:
    random = np.random.default_rng(7)
    rows = np.arange(ROWS)
    words = [b"a", b"bb", b"ccc", b"\xff\xfe", b"", "é".encode()]
    picks = np.minimum(random.exponential(1.2, ROWS).astype(int), len(words) - 1)

    def lists(most: int, kind: pa.DataType, values: Callable[[int], Sequence[Any]]) -> pa.Array:
        return pa.array([list(values(row % (most + 1))) for row in rows], pa.list_(kind))

    columns = {
        "int": random.integers(-1_000, 1_000, ROWS),
        "few_ints": rows % 3,
        "large_ints": 2**62 - 7_000_003 * rows,
        "float": random.normal(size=ROWS).astype(np.float32),
        "skewed": random.lognormal(3, 2, ROWS).astype(np.float32),
        "with_nan": np.where(rows % 10 == 0, NAN, rows).astype(np.float32),
        "with_infinities": np.choose(rows % 4, [INF, -INF, rows, 2]).astype(np.float32),
        "with_one_infinity": np.where(rows % 5 == 0, INF, rows).astype(np.float32),
        "only_nan": np.full(ROWS, NAN, np.float32),
        "only_infinity": np.full(ROWS, INF, np.float32),
        "constant": np.full(ROWS, 3.5, np.float32),
        "constant_int": np.full(ROWS, 7),
        "zeros": np.where(rows % 2, 0, 1.5).astype(np.float32),
        "bytes": [words[pick] for pick in picks],
        "text": [f"value {number}" for number in random.integers(0, 2_000, ROWS)],
        "long_text": ["x" * 2_000 + str(row) for row in rows],
        "pictures": [b"\x89PNG" + bytes(1_500) + str(row).encode() for row in rows],
        "int_lists": lists(4, pa.int64(), lambda size: random.integers(0, 9, size).tolist()),
        "float_lists": lists(2, pa.float32(), lambda size: random.normal(size=size).tolist()),
        "text_lists": lists(3, pa.string(), lambda size: [f"x{item}" for item in random.integers(0, 9, size)]),
        "empty_lists": pa.array([[]] * ROWS, pa.list_(pa.int64())),
        "empty_text_lists": pa.array([[]] * ROWS, pa.list_(pa.string())),
        "third": [int(row) if row % 3 == 0 else None for row in rows],
        "seldom": ["seen" if row % 700 == 1 else None for row in rows],
        "once": ["one" if row == 17 else None for row in rows],
        "never": pa.array([None] * ROWS, pa.int64()),
        "nothing": pa.nulls(ROWS),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture(scope="session")
def write_examples() -> Callable[[Path, Mapping[str, pa.RecordBatch]], Any]:
    return _write_examples


def _write_examples(folder: Path, splits: Mapping[str, pa.RecordBatch]) -> Any:
    """An Examples artifact as somebody else would write it: one file a split, no manifest."""
    from tfx.types import artifact_utils, standard_artifacts

    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = artifact_utils.encode_split_names(list(splits))
    for split, batch in splits.items():
        (folder / f"Split-{split}").mkdir(parents=True)
        framed = frame_records(encode_examples(batch))
        write_records(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"), [framed], gzip_level=1)
    return artifact


@pytest.fixture(scope="session")
def execute() -> Callable[..., Any]:
    return _execute


def _execute(kind: type, folder: Path, examples: Any, schema: Any = None, **options: Any) -> Any:
    """The statistics that the component writes into `folder`."""
    from tfx.types import channel_utils, standard_artifacts

    inputs = {"examples": [examples], **({"schema": [schema]} if schema else {})}
    channels = {name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()}
    component = kind(**channels, **options)
    output = standard_artifacts.ExampleStatistics()
    output.uri = str(folder)
    executor = component.executor_spec.executor_class
    context = executor.Context(tmp_dir=str(folder / "tmp"), unique_id="1")
    executor(context).Do(inputs, {"statistics": [output]}, dict(component.exec_properties))
    return output


@pytest.fixture(scope="session")
def read_statistics() -> Callable[[Any, str], Any]:
    return _read_statistics


def _read_statistics(output: Any, split: str) -> Any:
    from tensorflow_metadata.proto.v0 import statistics_pb2

    content = (Path(output.uri) / f"Split-{split}" / "FeatureStats.pb").read_bytes()
    return statistics_pb2.DatasetFeatureStatisticsList.FromString(content)
