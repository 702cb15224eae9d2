"""The functions and expressions of docs/sources.md that read data of other libraries write all rows.

Covers `components/example_gen/sources/reader.py` with the types of these libraries.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import infeed

pytestmark = pytest.mark.frameworks

PAGE = Path(__file__).parents[1] / "docs" / "sources.md"
SECTION = PAGE.read_text().partition("## Data of other libraries")[2].partition("\n## ")[0]
FUNCTIONS = {code.split("\n")[0][2:]: code for code in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)}
EXPRESSIONS = dict(re.findall(r"^\| ([\w ]+) \| `(.*\(.*)` \|$", SECTION, re.MULTILINE))
MODULES = ("datasets", "duckdb", "numpy", "polars", "tensorflow_datasets", "webdataset")
ROWS = {"fare": [row / 2 for row in range(60)], "city": [f"c{row % 4}" for row in range(60)]}


def _delta(folder: Path) -> None:
    import polars

    frame = polars.DataFrame(ROWS)
    frame[:20].write_delta(folder / "trips_table", delta_write_options={"partition_by": ["city"]})
    frame[20:].write_delta(folder / "trips_table", mode="append")


def _iceberg(folder: Path) -> None:
    (folder / ".pyiceberg.yaml").write_text(
        f"catalog:\n  default:\n    type: sql\n    uri: sqlite:///{folder}/c.db\n    warehouse: file://{folder}/w\n"
    )
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog  # reads its configuration when it is imported

    catalog = load_catalog("default")
    catalog.create_namespace("city")
    table = pa.table(ROWS)
    catalog.create_table("city.trips", schema=table.schema).append(table)


def _hugging_face(folder: Path) -> None:
    import datasets

    datasets.Dataset.from_dict(ROWS).save_to_disk(folder / "trips_saved")


def _csv(folder: Path) -> None:
    lines = [f"{fare},{city}" for fare, city in zip(ROWS["fare"], ROWS["city"], strict=True)]
    (folder / "trips.csv").write_text("\n".join(["fare,city", *lines]))


def _hdf5(folder: Path) -> None:
    import h5py
    import numpy as np

    with h5py.File(folder / "trips.h5", "w") as file:
        file.update({"train/x": np.zeros((60, 2, 2), np.uint8), "train/y": np.arange(60)})


def _numpy(folder: Path) -> None:
    import numpy as np

    np.savez(folder / "trips.npz", x=np.zeros((60, 2, 2)), y=np.arange(60))


def _webdataset(folder: Path) -> None:
    import webdataset

    with webdataset.TarWriter(str(folder / "trips.tar")) as writer:
        for row in range(60):
            writer.write({"__key__": f"{row:04d}", "jpg": b"\xff\xd8", "cls": row})


def _tfds(folder: Path) -> None:
    import numpy as np
    import tensorflow_datasets as tfds

    class Trips(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = {"x": tfds.features.Tensor(shape=(2, 2), dtype=np.uint8), "city": tfds.features.Text()}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            yield from ((row, {"x": np.ones((2, 2), np.uint8), "city": city}) for row, city in enumerate(ROWS["city"]))

    Trips(data_dir=str(folder / "tfds"), file_format="array_record").download_and_prepare()


WRITERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "Delta Lake": (_delta, ("fare", "city")),
    "Iceberg": (_iceberg, ("fare", "city")),
    "Hugging Face": (_hugging_face, ("fare", "city")),
    "polars": (_csv, ("fare", "city")),
    "DuckDB": (_csv, ("fare", "city")),
    "HDF5": (_hdf5, ("x", "y")),
    "NumPy": (_numpy, ("x", "y")),
    "WebDataset": (_webdataset, ("jpg", "cls")),
    "TFDS": (_tfds, ("x", "city")),
}


def test_every_program_has_its_data() -> None:
    assert len(FUNCTIONS) + len(EXPRESSIONS) == len(WRITERS)


@pytest.mark.parametrize("library", WRITERS)
def test_a_program_writes_all_rows(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, names = WRITERS[library]
    (code,) = (code for title, code in (FUNCTIONS | EXPRESSIONS).items() if title.startswith(library))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    write(tmp_path)
    if "def trips" in code:
        (tmp_path / "data.py").write_text(code)
        manifest = infeed.ingest("data.py:trips", "out", format="reader")
    else:
        (module,) = (name for name in MODULES if re.search(rf"\b{name}\.", code))
        manifest = infeed.ingest(eval(code, {module: importlib.import_module(module)}), "out")
    assert manifest.rows_read == 60
    assert sorted(column.name for column in manifest.schema) == sorted(names)
    if library == "Delta Lake":
        assert manifest.source.version == "1"
        older = infeed.ingest("data.py:trips", "older", format="reader", source_options={"version": 0})
        assert (older.rows_read, older.source.version) == (20, "0")
    if library == "Iceberg":
        assert manifest.source.version
