from __future__ import annotations

import ast

import pyarrow as pa
import pytest

from infeed.components.dataset.filter_expressions import Translation, UnknownError, columns_in
from infeed.components.dataset.row_filter import columns_of


def test_the_columns_that_a_filter_names() -> None:
    assert columns_of("a > 1 and field('b/c') in [2] and not time('2020-01-01') < day") == {"a", "b/c", "day"}
    assert columns_of("time(day, '%d.%m.%Y') < time('2020') and field == 'a' and time == 2") == {"day", "field", "time"}
    assert columns_of("module:keep") is None


def test_a_column_of_times_is_added_as_microseconds() -> None:
    batch = pa.RecordBatch.from_pydict({"day": ["02.01.1970", None]})
    translation = Translation(batch)
    translation.of(ast.parse("time(day, '%d.%m.%Y') < time('2020')", mode="eval").body)
    assert [times.to_pylist() for times in translation.times.values()] == [[86_400_000_000, None]]


@pytest.mark.parametrize("text", ["f(a)", "a + 1", "time(a, b) < 1", "time(1) < a", "time('soon') < a", "a < [1]"])
def test_syntax_that_filters_lack(text: str) -> None:
    body = ast.parse(text, mode="eval").body
    assert columns_in(body) <= {"a", "b"}
    with pytest.raises(UnknownError):
        Translation(None).of(body)
