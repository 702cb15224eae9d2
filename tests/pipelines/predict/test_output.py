"""Which columns stand beside predictions, of which types."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.predict.output import Columns, check_output, prediction_types, suffix_of

NAMES = ["id", "day", "fare"]


class Shape(tuple[int | None, ...]):
    """As TensorFlow has it."""

    @property
    def rank(self) -> int:
        return len(self)


def spec(name: str, *sizes: int | None) -> Any:
    is_float, is_int = name.startswith("float"), name.startswith("int")
    dtype = SimpleNamespace(name=name, is_floating=is_float, is_integer=is_int)
    return SimpleNamespace(dtype=dtype, shape=Shape((None, *sizes)))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (Columns(), ["id", "day", "fare"]),
        (Columns(keys=("fare",)), ["fare", "id", "day"]),
        (Columns(keys=("id",), others=("fare",)), ["id", "fare"]),
        (Columns(others=()), []),
        (Columns(keys=("id",), others=("id", "day")), ["id", "day"]),
    ],
)
def test_keys_come_first_and_all_other_columns_follow_unless_some_are_named(
    columns: Columns, expected: list[str]
) -> None:
    assert columns.of(NAMES, "t.csv") == expected


def test_a_column_that_the_table_lacks_is_named_with_those_there_are() -> None:
    with pytest.raises(InfeedError, match="'nope'") as raised:
        Columns(keys=("nope",)).of(NAMES, "t.csv")
    assert raised.value.where == "t.csv"
    assert "'day'" in raised.value.do


@pytest.mark.parametrize("name", ["prediction", "probability", "prediction_error"])
def test_a_column_that_is_called_as_ours_is_refused_unless_it_is_left_out(name: str) -> None:
    with pytest.raises(InfeedError, match=f"'{name}'"):
        Columns().of([*NAMES, name], "t.csv")
    assert Columns(others=("id",)).of([*NAMES, name], "t.csv") == ["id"]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (
            {"class": spec("string", 1), "probabilities": spec("float32", 3)},
            {"prediction": pa.string(), "probability": pa.float64()},
        ),
        ({"class": spec("int64", None)}, {"prediction": pa.int64()}),
        ({"class": spec("string", 4)}, {"prediction": pa.list_(pa.string())}),
        ({"prediction": spec("float32")}, {"prediction": pa.float64()}),
        ({"scores": spec("float32", 3)}, {"prediction": pa.list_(pa.float64())}),
        ({"count": spec("int64")}, {"prediction": pa.int64()}),
        (
            {"class": spec("int64", None, 16), "probabilities": spec("float32", None, 16, 2)},
            {"prediction": pa.list_(pa.list_(pa.int64()))},
        ),
    ],
)
def test_the_types_follow_the_outputs_of_the_model(outputs: dict[str, Any], expected: dict[str, Any]) -> None:
    assert prediction_types(outputs) == {**expected, "prediction_error": pa.string()}


def test_each_output_has_columns_of_its_name_and_several_classes_are_lists() -> None:
    outputs = {
        "price": spec("float32"),
        "sold/class": spec("string", 1),
        "sold/probabilities": spec("float32", 2),
        "tags/class": spec("string", 3),
        "tags/probabilities": spec("float32", 3),
    }
    tasks = {"price": "regression", "sold": "classification", "tags": "multilabel"}
    assert prediction_types(outputs, tasks) == {
        "price_prediction": pa.float64(),
        "sold_prediction": pa.string(),
        "sold_probability": pa.float64(),
        "tags_prediction": pa.list_(pa.string()),
        "tags_probability": pa.list_(pa.float64()),
        "prediction_error": pa.string(),
    }


def test_the_suffix_names_the_format() -> None:
    assert [suffix_of(name) for name in ("a.CSV", "gs://b/a.parquet", "a.jsonl", "folder", "a.txt")] == [
        ".csv",
        ".parquet",
        ".jsonl",
        None,
        None,
    ]


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Any) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(InfeedError, match="a folder is there"):
        check_output(str(tmp_path / "out.csv"), overwrite=True)
