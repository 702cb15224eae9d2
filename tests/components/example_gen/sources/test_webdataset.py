from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows, OpenedSource
from infeed.components.example_gen.sources.webdataset import open_webdataset

SAMPLES = [
    {"jpg": bytes([number % 256]) * 100, "cls": str(number % 3).encode(), "json": {"size": number, "tags": ["a"]}}
    for number in range(300)
]


def write(path: Path, samples: list[dict[str, Any]], *, names: str = "{:04d}") -> None:
    with tarfile.open(path, "w") as tar:
        for number, sample in enumerate(samples):
            for column, value in sample.items():
                content = value if isinstance(value, bytes) else json.dumps(value).encode()
                member = tarfile.TarInfo(f"{names.format(number)}.{column}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def open_folder(folder: Path, **options: Any) -> OpenedSource:
    return open_webdataset(str(folder), {None: "*.tar"}, IngestOptions(**options))


def rows_of(opened: OpenedSource, bad_rows: BadRows | None = None) -> Iterator[dict[str, Any]]:
    for task in opened.tasks:
        for batch in opened.read(task.payload, bad_rows=bad_rows or BadRows()):
            assert batch.schema == opened.schema
            yield from batch.to_pylist()


def expected(number: int, sample: dict[str, Any]) -> dict[str, Any]:
    fields = {"json.size": sample["json"]["size"], "json.tags": sample["json"]["tags"]}
    return {"__key__": f"{number:04d}", "jpg": sample["jpg"], "cls": int(sample["cls"]), **fields}


@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 20])
def test_every_sample_comes_back_in_order(tmp_path: Path, block_bytes: int) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    opened = open_folder(tmp_path, block_bytes=block_bytes)
    assert (len(opened.tasks) > 100) == (block_bytes == 1 << 10)
    assert list(rows_of(opened)) == [expected(number, sample) for number, sample in enumerate(SAMPLES)]


def test_the_types_of_json_are_those_of_all_samples(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"json": {"x": 1}}])
    write(tmp_path / "b.tar", [{"json": {"x": 0.5, "y": "late"}}])
    rows = list(rows_of(open_folder(tmp_path)))
    assert rows == [
        {"__key__": "0000", "json.x": 1.0, "json.y": None},
        {"__key__": "0000", "json.x": 0.5, "json.y": "late"},
    ]


def test_a_name_with_several_dots_is_a_key_and_a_column(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"seg.PNG": b"1", "txt": "häuser".encode()}], names="train/{:d}")
    assert list(rows_of(open_folder(tmp_path))) == [{"__key__": "train/0", "seg.png": b"1", "txt": "häuser"}]


def test_nested_lists_are_left_out_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"jpg": b"1", "json": {"boxes": [[1, 2]], "n": 1}}])
    opened = open_folder(tmp_path)
    assert opened.schema.names == ["__key__", "jpg", "json.n"]
    assert list(opened.left_out) == ["json.boxes"]


@pytest.mark.parametrize(
    ("column", "content"),
    [
        ("cls", b"cat"),
        ("txt", b"\xff"),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("json", b'"\\ud800"'),
        ("cls", b"9223372036854775808"),
    ],
)
def test_a_file_that_is_not_what_its_suffix_says_is_a_bad_row(tmp_path: Path, column: str, content: bytes) -> None:
    write(tmp_path / "a.tar", [{"jpg": b"1"}, {"jpg": b"2", column: content}, {"jpg": b"3"}])
    with pytest.raises(InfeedError) as error:
        open_folder(tmp_path)
    assert error.value.where == f"{tmp_path}/a.tar, line 2, column {column!r}"
    opened, rejected = open_folder(tmp_path, on_bad_row="reject"), BadRows("reject", 1)
    assert [row["jpg"] for row in rows_of(opened, rejected)] == [b"1", b"3"]
    assert [row.text for row in rejected.take()] == ["0001"]


def test_a_sample_with_two_files_of_one_suffix_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"jpg": b"1", "JPG": b"2"}])
    with pytest.raises(InfeedError, match="two files 'jpg'"):
        open_folder(tmp_path)


def test_a_large_sample_is_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"jpg": bytes(2 << 20)}])
    with pytest.raises(InfeedError, match="max_row_mb"):
        open_folder(tmp_path, max_row_mb=1)


@pytest.mark.parametrize("size", [0, 6, 512, 1_024, 2_048, 50_000, -20_000])
def test_a_truncated_file_is_an_error(tmp_path: Path, size: int) -> None:
    write(tmp_path / "a.tar", [{"jpg": bytes(100), "cls": b"1"}] * 30)
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(content[:size])
    with pytest.raises(InfeedError) as error:
        open_folder(tmp_path)
    assert error.value.where == f"{tmp_path}/a.tar"


def test_a_damaged_header_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    content = bytearray((tmp_path / "a.tar").read_bytes())
    content[40 * 512 : 40 * 512 + 8] = b"\xff" * 8  # each member takes two blocks
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(InfeedError, match=f"byte {40 * 512:,}"):
        open_folder(tmp_path)
