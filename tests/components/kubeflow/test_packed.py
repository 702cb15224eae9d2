"""Compressed parameters."""

from hypothesis import given
from hypothesis import strategies as st

from infeed.components.kubeflow.packed import pack, unpack


@given(st.text())
def test_the_text_comes_back(text: str) -> None:
    assert pack(text).isascii()
    assert pack(text) == pack(text)
    assert unpack(pack(text)) == text


def test_other_values_stay() -> None:
    for value in ("plain", 3, 0.5, None, {"a": 1}):
        assert unpack(value) == value
