"""The drop-in proof: with compat="tfx", each split holds exactly the records that TFX's CsvExampleGen puts there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infeed import components
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


@pytest.fixture
def both(tmp_path: Path, multiset: Multiset, execute: Any) -> Callable[[str], tuple[Any, Any]]:
    """Folder of CSV files -> what ours and theirs make of it."""

    def run(input_base: str) -> tuple[Any, Any]:
        from tfx.components import CsvExampleGen as Theirs

        ours = execute(components.CsvExampleGen(input_base, options=IngestOptions(compat="tfx")), tmp_path / "ours")
        return multiset(ours.uri), in_order(multiset(execute(Theirs(input_base), tmp_path / "theirs").uri))

    return run


def in_order(splits: dict[str, Counter[bytes]]) -> dict[str, Counter[bytes]]:
    """TFX splits by the bytes whose features are in order, then writes them in whatever order protobuf has them."""
    import tensorflow as tf

    ordered = {split: Counter[bytes]() for split in splits}
    for split, found in splits.items():
        for record, count in found.items():
            ordered[split][tf.train.Example.FromString(record).SerializeToString(deterministic=True)] += count
    return ordered


@pytest.mark.parametrize("table", ["breast cancer with empty cells", "odd cells", "taxi trips"])
def test_the_records_of_each_split_are_tfxs(
    table: str, cancer: str, tmp_path: Path, both: Callable[[str], tuple[Any, Any]]
) -> None:
    (tmp_path / "in").mkdir()
    rows, source = 569, cancer
    if table == "odd cells":
        (tmp_path / "in" / "odd.csv").write_text(ODD_CELLS)
        rows, source = 8, f"{tmp_path}/in"
    elif table == "taxi trips":
        if not TAXI.exists():
            pytest.skip("no taxi data in a folder shared/data beside the checkout")
        header, *trips = TAXI.read_text().splitlines(keepends=True)
        (tmp_path / "in" / TAXI.name).write_text("".join([header, *trips[::5]]))
        rows, source = 3_001, f"{tmp_path}/in"
    ours, theirs = both(source)
    assert sum(sum(found.values()) for found in ours.values()) == rows
    assert ours == theirs


def test_by_default_the_same_rows_go_to_the_same_splits(
    cancer: str, tmp_path: Path, multiset: Multiset, execute: Any
) -> None:
    import tensorflow as tf
    from tfx.components import CsvExampleGen as Theirs

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

    ours = execute(components.CsvExampleGen(cancer), tmp_path / "ours").uri
    assert multiset(ours) == present(ours) == present(execute(Theirs(cancer), tmp_path / "theirs").uri)


KINDS = ("bytes_list", "float_list", "int64_list")
