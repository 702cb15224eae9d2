from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_sources import batches_of, rows_of

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.files import FileStat
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import folders, streams
from infeed.components.example_gen.sources.folders import Classes, FileRef, TextOptions


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("/in/cat/1.png", "*/*", "cat"),
        ("/in/train/cat/1.png", "train/*/*", "cat"),
        ("/in/3/1.png", "[0-7]/*.png", "3"),
        ("/in/1.png", "*", None),
        ("/in/train/1.png", "train/*", None),  # the folder is the split's
    ],
)
def test_a_folder_is_a_class_where_the_pattern_leaves_it_open(path: str, pattern: str, expected: str | None) -> None:
    (ref,) = folders.refs_of("/in", pattern, [FileStat(path, 1, 0)])
    assert (ref.path, ref.filename, ref.text) == (path, path.removeprefix("/in/"), expected)


def test_classes_are_numbered_in_order() -> None:
    refs = [FileRef("/in", text or "", 1, text) for text in ("dog", "cat", None, "dog")]
    classes = Classes.of(refs)
    assert classes.columns([ref.text for ref in refs]) == {
        "label": [1, 0, None, 1],
        "label/text": ["dog", "cat", None, "dog"],
    }
    assert Classes.of([refs[2]]).columns([None]) == {}


def test_blocks_are_bounded_and_in_order() -> None:
    refs = [FileRef("/in", str(number), size, None) for number, size in enumerate((5, 5, 20, 1))]
    assert [list(block) for block in folders.plan_blocks(refs, 10)] == [refs[:2], refs[2:3], refs[3:]]


def test_what_a_folder_holds_decides_the_pattern(tmp_path: Path) -> None:
    assert folders.default_pattern(str(tmp_path / "later")) == "*/*"
    (tmp_path / "x.txt").touch()
    assert folders.default_pattern(str(tmp_path)) == "*"
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "x.txt").touch()
    assert folders.default_pattern(str(tmp_path)) == "*/*"


def test_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    content = {"b/x.bin": bytes(range(256)), "a/y": b"", "a/.hidden": b"no", "b/_SUCCESS": b""}
    for name, data in content.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    opened = folders.open_binary(str(tmp_path), {None: "*/*"}, IngestOptions())
    (task,) = opened.tasks
    assert [row for batch in opened.read(task.payload, bad_rows=BadRows()) for row in batch.to_pylist()] == [
        {"data": b"", "filename": "a/y", "label": 0, "label/text": "a"},
        {"data": bytes(range(256)), "filename": "b/x.bin", "label": 1, "label/text": "b"},
    ]


def test_a_file_beyond_the_limit_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1_100_000))
    (tmp_path / "small").write_bytes(b"1")
    opened = folders.open_binary(str(tmp_path), {None: "*"}, IngestOptions(max_row_mb=1))
    bad_rows = BadRows("reject", 1)
    assert sum(batch.num_rows for batch in batches_of(opened, bad_rows)) == 1
    (bad,) = bad_rows.take()
    assert bad.file.endswith("large")
    assert "max_row_mb" in bad.reason


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    assert folders.default_pattern(str(tmp_path)) == "*"
    assert folders.open_binary(str(tmp_path), {None: "*"}, IngestOptions()).schema.names == ["data", "filename"]


def rows(root: Path, pattern: str = "*", bad_rows: BadRows | None = None, **options: Any) -> list[dict[str, Any]]:
    opened = folders.open_text(str(root), {None: pattern}, IngestOptions(block_bytes=1024), TextOptions(**options))
    return rows_of(opened, bad_rows)


def test_a_row_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\ntwo")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("drei, grün\n".encode()))
    (tmp_path / "_SUCCESS").touch()
    assert rows(tmp_path) == [
        {"text": "one", "filename": "a.txt"},
        {"text": "", "filename": "a.txt"},
        {"text": "two", "filename": "a.txt"},
        {"text": "drei, grün", "filename": "b.txt.gz"},
    ]


def test_a_row_a_file_labeled_by_its_folder(tmp_path: Path) -> None:
    for name, content in (("pos/1.txt", "good\nfilm\n"), ("neg/1.txt", "bad"), ("neg/2.txt", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert folders.default_pattern(str(tmp_path)) == "*/*"
    assert rows(tmp_path, "*/*", unit="file") == [
        {"text": "bad", "filename": "neg/1.txt", "label": 0, "label/text": "neg"},
        {"text": "", "filename": "neg/2.txt", "label": 0, "label/text": "neg"},
        {"text": "good\nfilm\n", "filename": "pos/1.txt", "label": 1, "label/text": "pos"},
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=8)))
def test_lines_read_in_spans_are_the_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes("".join(f"{line}\n" for line in ["first", *lines]).encode())
    found: list[str] = []
    for span in streams.find_line_spans(str(path), "utf-8", 2):
        for block in streams.read_blocks(span, "utf-8", 1024, streams.whole_lines):
            assert block.line == len(found) + 1
            found += folders.split_lines(block.data).to_pylist()
    assert found == ["first", *lines]


@pytest.mark.parametrize(("unit", "kept", "line"), [("line", ["one", "three\r"], 2), ("file", [], None)])
def test_what_is_no_text_is_set_aside(tmp_path: Path, unit: str, kept: list[str], line: int | None) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntw\xff\r\nthree\r")
    bad_rows = BadRows("reject", 10)
    assert [row["text"] for row in rows(tmp_path, bad_rows=bad_rows, unit=unit)] == kept
    (bad,) = bad_rows.take()
    assert (bad.file, bad.line, bad.reason) == (f"{tmp_path}/a.txt", line, "not utf-8 text")
    with pytest.raises(InfeedError, match=r"(?s)not utf-8 text.*a\.txt"):
        rows(tmp_path, unit=unit)


def test_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Köln\n".encode("utf-16"))
    assert [row["text"] for row in rows(tmp_path, encoding="utf-16")] == ["Köln"]


def test_a_truncated_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(InfeedError, match=r"(?s)cannot decompress.*a\.txt\.gz"):
        rows(tmp_path)


def test_impossible_options() -> None:
    with pytest.raises(InfeedError, match="unit is 'word'"):
        TextOptions("word")  # type: ignore[arg-type]


def test_a_compressed_text_is_bounded_by_what_it_decodes_to(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(gzip.compress(bytes(1 << 20) + b"x"))
    (tmp_path / "b.txt").write_bytes(b"short")
    opened = folders.open_text(
        str(tmp_path), {None: "*"}, IngestOptions(max_row_mb=1), folders.TextOptions(unit="file")
    )
    bad_rows = BadRows("reject", 1)
    found = [row["text"] for row in rows_of(opened, bad_rows)]
    assert found == ["short"]
    (bad,) = bad_rows.take()
    assert "max_row_mb, which is 1" in bad.reason


def test_a_line_beyond_the_limit_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"x" * (1 << 21))
    with pytest.raises(InfeedError, match="more than 1 MB") as raised:
        folders.open_text(str(tmp_path), {None: "*"}, IngestOptions(max_row_mb=1, block_bytes=1 << 16), TextOptions())
    assert raised.value.where.endswith("a.txt, line 2")
    assert "--max-row-mb" in raised.value.do
