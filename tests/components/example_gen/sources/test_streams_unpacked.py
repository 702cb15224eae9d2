from __future__ import annotations

import bz2
import lzma
import zlib

import pytest

from infeed.components.example_gen.sources.streams import exceeds, may_exceed

SIZE = 3_000_000


def deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


PACKED = {
    "deflate": deflate(bytes(SIZE)),
    "bzip2": bz2.compress(bytes(SIZE)),
    "xz": lzma.compress(bytes(SIZE)),
    "bzip2, several streams": bz2.compress(bytes(SIZE // 3)) * 3,
    "xz, several streams": lzma.compress(bytes(SIZE // 3)) * 3,
}


@pytest.mark.parametrize("case", PACKED)
def test_the_size_is_told_to_the_byte(case: str) -> None:
    codec = case.partition(",")[0]
    assert may_exceed(codec, len(PACKED[case]), SIZE - 1)
    assert exceeds(codec, PACKED[case], SIZE - 1)
    assert not exceeds(codec, PACKED[case], SIZE)


@pytest.mark.parametrize("case", PACKED)
def test_broken_bytes_are_left_to_their_decoder(case: str) -> None:
    codec = case.partition(",")[0]
    assert not exceeds(codec, b"\xff" * 100, 0)
    assert not exceeds(codec, b"", 0)


def test_what_cannot_be_large_is_not_unpacked() -> None:
    assert not may_exceed("deflate", 1_000, 2_000_000)
    assert not may_exceed("snappy", 1 << 40, 0)
    assert not may_exceed("null", 1 << 40, 0)
