"""The first row behind any byte of a CSV, guessed from some bytes of it."""

import numpy as np
import pytest

from infeed.components.example_gen.sources.csv.rows import CsvOptions, rules_of

TEXTS = {
    "plain": "1,a b,2.5\n2,c,3\n3,d,4\n",
    "quoted": '1,"a, b",2.5\n2,"c ""d""",3\n3,"e",4\n',
    "line breaks": '1,"one\ntwo, three\n\nfour",2\n2,"x",3\n3,"a ""b""\nc",4\n',
    "CR LF": '1,"one\r\ntwo",2\r\n2,x,3\r\n',
    "CR": '1,"one\rtwo",2\r2,x,3\r',
    "stray quotes": '1,5" pipe,2\n2,6" pipe,3\n3,"two\nlines",4\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_row_behind_any_byte_is_found(name: str) -> None:
    data = (TEXTS[name] * 30).encode()
    rules = rules_of(CsvOptions(), 3)
    ends = rules.ends(data)
    for offset in range(1, len(data) // 2):
        guessed = rules.guess(data[offset - 1 :], True)
        assert guessed is not None
        assert offset - 1 + guessed[0] == ends[np.searchsorted(ends, offset, side="right")]


def test_bytes_that_end_no_row_ask_for_more() -> None:
    assert rules_of(CsvOptions(), 3).guess(b"x,1,2", False) is None


def test_a_guess_is_sure_only_if_all_rows_have_the_columns_of_the_header() -> None:
    rows = b"5,6\n1,2\n3,4\n5,6\n"
    assert rules_of(CsvOptions(), 2).guess(rows, False) == (4, True)
    assert rules_of(CsvOptions(), 3).guess(rows, False) == (4, False)


def test_a_piece_is_closed_if_it_ends_with_a_row() -> None:
    rules = rules_of(CsvOptions(), 2)
    assert rules.is_closed(b'1,"two\nlines"\n')
    assert not rules.is_closed(b'1,"two\n')
    assert not rules.is_closed(b"1,2")
