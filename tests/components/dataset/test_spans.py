from __future__ import annotations

from pathlib import Path

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.spans import Spans, has_spans, split_path


def write(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return str(root)


def test_the_latest_spans_by_number(tmp_path: Path) -> None:
    root = write(tmp_path, *(f"span-{number}/{part}.csv" for number in (2, 9, 10, 11) for part in "ab"), "span-x/a.csv")
    assert Spans("span-{SPAN}/*.csv", last=3).window(root) == {number: f"span-{number}/*.csv" for number in (9, 10, 11)}
    assert list(Spans("span-{SPAN}/*.csv").window(root)) == [2, 9, 10, 11]


def test_a_date_is_a_number_of_days_as_in_tfx(tmp_path: Path) -> None:
    root = write(tmp_path, "1970/01/03/a.csv", "2024-01-01.csv")
    assert Spans("{YYYY}/{MM}/{DD}/*.csv").window(root) == {2: "1970/01/03/*.csv"}
    assert Spans("{YYYY}-{MM}-{DD}.csv").window(root) == {19723: "2024-01-01.csv"}


@pytest.mark.parametrize("names", [("span-3/a", "span-03/a"), ("other/a",)])
def test_no_span_and_two_of_one_number_are_errors(tmp_path: Path, names: tuple[str, ...]) -> None:
    root = write(tmp_path, *names)
    with pytest.raises(InfeedError, match="span") as caught:
        Spans("span-{SPAN}/*").window(root)
    assert str(caught.value.where).startswith(root)


@pytest.mark.parametrize("pattern", ["*.csv", "{SPAN}/{SPAN}", "{YYYY}-{MM}", "{SPAN}-{DD}"])
def test_the_placeholders_of_a_pattern(pattern: str) -> None:
    with pytest.raises(InfeedError) as caught:
        Spans(pattern)
    assert caught.value.where == "Spans"


def test_a_path_is_split_above_its_first_placeholder() -> None:
    assert split_path("s3://b/taxi/span-{SPAN}/*.csv") == ("s3://b/taxi", "span-{SPAN}/*.csv")
    assert has_spans("a/{DD}.csv")
    assert not has_spans("a/{x}.csv")


def test_files_of_several_spans_are_one_pattern(tmp_path: Path) -> None:
    root = write(tmp_path, "span-1/a.csv", "span-2/b.csv", "span-3/c.csv")
    found = files.glob(root, "{span-1/*.csv,span-3/*.csv}")
    assert [files.relative(file.path, root) for file in found] == ["span-1/a.csv", "span-3/c.csv"]
