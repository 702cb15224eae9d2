"""The drop-in proof: with compat="tfx", each split holds exactly the records that TFX's CsvExampleGen puts there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed.components.dataset.options import IngestOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

Multiset = Callable[[str], dict[str, Counter[bytes]]]
TAXI = Path(__file__).parents[4] / "shared" / "data" / "chicago_taxi.csv"
ODD_CELLS = '''i,f,big,s,n,q
1,0.5,1,x,,"a, b"
0,0,99999999999999999999,,,"two
lines"
-9223372036854775808,1e5,3,grün,,"say ""hi"""
9007199254740993,nan,,0x1F,,""

,inf,5, ,,'
1_000,-Infinity,6,NA,,null
 7,.1,7,"",,true
+8,1e400,8,2020-01-01,,-0
'''


def generate(component: Any, input_base: str, root: Path, **options: Any) -> str:
    from tfx.types import standard_artifacts

    made = component(input_base, **options)
    artifact = standard_artifacts.Examples()
    artifact.uri = str(root)
    made.executor_spec.executor_class().Do({}, {"examples": [artifact]}, made.exec_properties)
    return artifact.uri


@pytest.fixture
def both(tmp_path: Path, multiset: Multiset) -> Callable[[str], tuple[Any, Any]]:
    """Folder of CSV files -> what ours and theirs make of it."""

    def run(input_base: str) -> tuple[Any, Any]:
        from tfx.components import CsvExampleGen as Theirs

        from infeed.components import CsvExampleGen

        ours = generate(CsvExampleGen, input_base, tmp_path / "ours", options=IngestOptions(compat="tfx"))
        return multiset(ours), in_order(multiset(generate(Theirs, input_base, tmp_path / "theirs")))

    return run


def in_order(splits: dict[str, Counter[bytes]]) -> dict[str, Counter[bytes]]:
    """TFX splits by the bytes whose features are in order, then writes them in whatever order protobuf has them."""
    import tensorflow as tf

    ordered = {split: Counter[bytes]() for split in splits}
    for split, found in splits.items():
        for record, count in found.items():
            ordered[split][tf.train.Example.FromString(record).SerializeToString(deterministic=True)] += count
    return ordered


def test_breast_cancer_with_empty_cells(cancer: str, both: Callable[[str], tuple[Any, Any]]) -> None:
    ours, theirs = both(cancer)
    assert sum(sum(found.values()) for found in ours.values()) == 569
    assert ours == theirs


def test_odd_cells(tmp_path: Path, both: Callable[[str], tuple[Any, Any]]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "odd.csv").write_text(ODD_CELLS)
    ours, theirs = both(f"{tmp_path}/in")
    assert sum(sum(found.values()) for found in ours.values()) == 8
    assert ours == theirs


@pytest.mark.skipif(not TAXI.exists(), reason="no taxi data in a folder shared/data beside the checkout")
def test_taxi_trips(tmp_path: Path, both: Callable[[str], tuple[Any, Any]]) -> None:
    (tmp_path / "in").mkdir()
    header, *trips = TAXI.read_text().splitlines(keepends=True)
    (tmp_path / "in" / TAXI.name).write_text("".join([header, *trips[::5]]))
    ours, theirs = both(f"{tmp_path}/in")
    assert sum(sum(found.values()) for found in ours.values()) == 3_001
    assert ours == theirs


def test_by_default_the_same_rows_go_to_the_same_splits(cancer: str, tmp_path: Path, multiset: Multiset) -> None:
    import tensorflow as tf
    from tfx.components import CsvExampleGen as Theirs

    from infeed.components import CsvExampleGen

    def present(root: str) -> dict[str, Counter[bytes]]:
        """Records without their empty features: all that the default changes."""
        stripped: dict[str, Counter[bytes]] = {}
        for split, found in multiset(root).items():
            stripped[split] = Counter()
            for record, count in found.items():
                example = tf.train.Example.FromString(record)
                for name, feature in list(example.features.feature.items()):
                    if not any(len(getattr(feature, kind).value) for kind in KINDS):
                        del example.features.feature[name]
                stripped[split][example.SerializeToString(deterministic=True)] += count
        return stripped

    ours = generate(CsvExampleGen, cancer, tmp_path / "ours")
    assert multiset(ours) == present(ours) == present(generate(Theirs, cancer, tmp_path / "theirs"))


KINDS = ("bytes_list", "float_list", "int64_list")
