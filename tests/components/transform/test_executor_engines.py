"""Transform on every engine: the same bytes, and no examples are opened by a node whose runner is named."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.encode import encode_examples
from infeed.components.transform import counting
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.scale import Robust, ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

SCHEMA = "".join(
    f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} shape {{ dim {{ size: 1 }} }} }}\n'
    for name, kind in (("fare", "FLOAT"), ("tip", "FLOAT"), ("city", "BYTES"), ("to", "BYTES"))
)
Transform = Callable[..., dict[str, Path]]
FEATURES = [ZScore("fare"), Robust("tip"), Vocabulary("city")]
OWN = """
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    fare = tft.scale_to_z_score(inputs["fare"])
    return {
        "fare": tft.scale_to_0_1(fare),
        "tip": tft.bucketize(inputs["tip"], 4),
        "city": tft.compute_and_apply_vocabulary(inputs["city"], vocab_filename="city"),
        "by_city": tft.scale_to_z_score_per_key(inputs["tip"][:, 0], inputs["city"][:, 0]),
    }
"""


CITIES = ("Bern", "Chur", "Genf", "Zug")


def records(seed: int, rows: int = 200, cities: Sequence[str] = CITIES) -> list[bytes]:
    random = np.random.default_rng(seed)
    columns = {
        "fare": random.lognormal(2, 1, rows).astype(np.float32),
        "tip": random.gamma(2, 1, rows).astype(np.float32),
        "city": [cities[number] for number in random.integers(len(cities), size=rows)],
        "to": random.choice([f"{one} {other}" for one in CITIES for other in CITIES], rows),
    }
    return [bytes(one) for one in encode_examples(pa.RecordBatch.from_pydict(columns)).to_pylist()]


@pytest.fixture
def transform(tmp_path: Path, execute: Callable[..., dict[str, Path]], monkeypatch: pytest.MonkeyPatch) -> Transform:
    """transform(*Beam's options, **options) -> the files that our Transform writes of three files of each split."""
    from infeed.components import Transform as Ours

    numbers = itertools.count()
    few = [{"train": records(seed), "eval": records(seed + 10, 20)} for seed in range(3)]

    def run(
        *beam_options: str, spans: Sequence[Mapping[str, Sequence[bytes]]] = few, **options: Any
    ) -> dict[str, Path]:
        folder = tmp_path / f"run-{next(numbers)}"
        monkeypatch.setenv("HOME", str(folder / "home"))  # where nothing is kept of an earlier reading
        outputs = execute(Ours, folder, spans, SCHEMA, beam_pipeline_args=beam_options, **options)
        return {str(path.relative_to(folder)): path for root in outputs.values() for path in _compared(root)}

    return run


def _compared(root: Path) -> list[Path]:
    """Without SavedModels and cached accumulators: TensorFlow and pickle write the same content in several ways."""
    others = {"saved_model.pb", "fingerprint.pb", "variables", "updated_analyzer_cache"}
    return [path for path in root.rglob("*") if path.is_file() and not others.intersection(path.parts)]


def differing(some: Mapping[str, Path], others: Mapping[str, Path]) -> list[str]:
    """Names of the files that do not hold the same bytes in both, before compression."""
    assert some.keys() == others.keys()
    return [name for name, path in some.items() if _content(path) != _content(others[name])]


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def declared() -> Mapping[str, Any]:
    own_passes = (Vocabulary("city", output="again", size=2),)
    features: Sequence[Feature] = [*FEATURES, *own_passes]
    return {"features": features, "materialize": True, "disable_statistics": False}


@pytest.fixture
def own(tmp_path: Path) -> Mapping[str, Any]:
    path = tmp_path / "own_preprocessing.py"
    path.write_text(OWN)
    return {"module_file": str(path), "disable_statistics": True}


@pytest.mark.parametrize("kind", ["declared", pytest.param("own", marks=pytest.mark.image)])
def test_a_named_runner_transforms_the_same_and_this_process_opens_no_examples(
    kind: str,
    transform: Transform,
    own: Mapping[str, Any],
    portable_options: list[str],
    opened_data: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = own if kind == "own" else declared()
    opened_data()
    far = transform(*portable_options, **options)
    assert opened_data() == []
    assert "transforms 6 files" in caplog.text
    assert "on Beam's PortableRunner: --runner selects it" in caplog.text
    near = transform(**options)
    assert differing(near, far) == []
    assert sum("transformed_examples" in name for name in near) == 6


@pytest.mark.image
@pytest.mark.parametrize("kind", ["declared", "own"])
def test_processes_transform_the_same(
    kind: str, transform: Transform, own: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    options = own if kind == "own" else declared()
    by_two = transform("--direct_num_workers=2", **options)
    assert "on 2 processes" in caplog.text
    near = transform(**options)
    assert differing(near, by_two) == []
    assert sum("transformed_examples" in name for name in near) == 6


@pytest.mark.image
@pytest.mark.parametrize("kind", ["declared", "own"])
def test_threads_of_one_process_transform_the_same(
    kind: str, transform: Transform, own: Mapping[str, Any], threaded_options: list[str]
) -> None:
    options = own if kind == "own" else declared()
    many = [{"train": records(seed, 30), "eval": records(seed + 100, 3)} for seed in range(12)]
    near = transform(spans=many, **options)
    assert differing(near, transform(*threaded_options, spans=many, **options)) == []
    assert differing(near, transform(*threaded_options, spans=many, **options)) == []


@pytest.mark.image
def test_more_keys_than_are_held_travel_through_files_and_give_the_same(
    transform: Transform, portable_options: list[str]
) -> None:
    cities = [f"{number:05d}" * 1_000 for number in range(20_000)]
    spans = [{"train": records(seed, 3_000, cities), "eval": records(seed + 10, 20)} for seed in range(3)]
    assert sum(map(len, {record for one in spans for record in one["train"]})) > 2 * counting.KEYED_BYTES
    options = {"spans": spans, "features": [ZScore("tip", key="city")], "disable_statistics": True}
    near, far = transform(**options), transform(*portable_options, **options)
    assert differing(near, far) == []


@pytest.mark.image
@pytest.mark.parametrize("made", ["number", "tft.scale_to_z_score(number)"], ids=["written", "analyzed"])
def test_a_failure_of_a_worker_is_told_by_the_users_line(made: str, tmp_path: Path, transform: Transform) -> None:
    path = tmp_path / "failing.py"
    path.write_text(
        "import tensorflow as tf\nimport tensorflow_transform as tft\n\n"
        "def preprocessing_fn(inputs):\n"
        "    number = tf.strings.to_number(inputs['city'])\n"
        f"    return {{'city': {made}}}\n"
    )
    with pytest.raises(InfeedError) as raised:
        transform("--direct_num_workers=2", module_file=str(path))
    assert "failing.py, line 5" in raised.value.where
    assert raised.value.where.count("column 'city' holds") == 1
