"""`infeed inspect`: the manifest, the first examples, and pictures. Covers `pipelines/local/contact_sheet.py`."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image
from pyarrow import parquet

from infeed.components.dataset import names, records
from infeed.components.dataset.encode import encode_examples
from infeed.pipelines.cli import main


def infeed(*arguments: str | Path) -> str:
    ended = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert ended.exit_code == 0, ended.output
    return " ".join(ended.output.split())  # whatever the width of a column


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def table(here: Path) -> Path:
    (here / "a.csv").write_text("fare,company\n1.5,Blue [red] Cabs\n,é\n2.5,x\nbroken\n")
    infeed(
        "ingest", here / "a.csv", here / "out", "--split", "all", "--on-bad-row", "reject", "--filter", "fare != 2.5"
    )
    return here / "out"


def test_a_dataset_is_shown_with_its_counts_and_first_examples(table: Path) -> None:
    shown = infeed("inspect", table)
    for line in (
        "rows read 4",
        "filtered out 2",  # a null does not pass either
        "rejected 1, listed in rejected.jsonl",
        "fare float [1] 0",
        "company bytes 'Blue [red] Cabs'",
        "fare float 1.5",
    ):
        assert line in shown
    assert not os.path.exists("contact-sheet.png")


def test_the_same_as_json(table: Path) -> None:
    shown = json.loads(infeed("inspect", table, "--json", "--examples", "1"))
    assert shown["manifest"]["rows_read"] == 4
    assert shown["examples"] == [{"company": ["Blue [red] Cabs"], "fare": [1.5]}]


def test_pictures_go_onto_a_contact_sheet(here: Path) -> None:
    for number in range(10):
        (folder := here / "in" / str(number)).mkdir(parents=True)
        Image.new("RGB", (40, 20), (25 * number, 0, 0)).save(folder / "a.png")
    infeed("ingest", here / "in", here / "out", "--split", "all")
    shown = infeed("inspect", here / "out", "--examples", "1")
    assert "PNG 40 x 20 RGB" in shown
    assert "10 images of all: contact-sheet.png" in shown
    with Image.open("contact-sheet.png") as sheet:
        assert sheet.width > sheet.height > 200
        reds = {color[0] for _, color in sheet.getcolors(1 << 20) if color[1:] == (0, 0)}
    assert {25 * number for number in range(10)} <= reds


def test_a_dataset_that_somebody_else_wrote(here: Path) -> None:
    payload = encode_examples(pa.RecordBatch.from_pydict({"x": [1, 2], "blob": [b"\xff", b"\xfe"]}))
    path = f"{names.split_dir('theirs', 'train')}/data-00000-of-00001"
    records.write_records(path, [records.frame_records(payload)], gzip_level=None)
    shown = infeed("inspect", "theirs")
    assert "train 2 1" in shown
    assert "x int 1" in shown
    assert r"blob bytes b'\xff'... 1 bytes" in shown
    assert os.listdir("theirs") == ["Split-train"]


def test_records_that_are_no_examples_are_counted(here: Path) -> None:
    path = f"{names.split_dir('theirs', 'train')}/data"
    records.write_records(path, [records.frame_records(pa.array([b"text"], pa.large_binary()))], gzip_level=None)
    assert "train 1 1" in infeed("inspect", "theirs")


def test_flat_files_as_tfds_names_them(here: Path) -> None:
    payload = encode_examples(pa.RecordBatch.from_pydict({"x": [1, 2]}))
    for split in ("train", "test"):
        path = f"theirs/mnist-{split}.tfrecord-00000-of-00001"
        records.write_records(path, [records.frame_records(payload)], gzip_level=None)
    assert "test 2 1" in infeed("inspect", "theirs")
    shown = infeed("inspect", "theirs/mnist-train.tfrecord-00000-of-00001", "--examples", "1")
    assert "train, example 0 type value x int 1" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such file or folder"),
        (["a.csv"], "not a dataset, but csv"),
        (["pictures"], "ingest pictures OUTPUT"),
        (["empty"], "not a TFRecord dataset"),
        (["out", "--split", "x"], "no split 'x'"),
    ],
)
def test_nothing_to_show(table: Path, arguments: list[str], message: str) -> None:
    for folder in ("empty", "pictures"):
        (table.parent / folder).mkdir()
    (table.parent / "pictures" / "a.png").touch()
    ended = CliRunner().invoke(main, ["inspect", *arguments])
    assert ended.exit_code == 2
    assert message in ended.output


def test_a_manifest_that_leads_out_of_the_dataset_shows_nothing_of_what_lies_there(table: Path) -> None:
    manifest = table / "manifest.json"
    manifest.write_text(manifest.read_text().replace("Split-all/data_tfrecord-00000-of-00001.gz", "../secret"))
    (table.parent / "secret").write_text("the secret")
    ended = CliRunner().invoke(main, ["inspect", str(table)])
    assert ended.exit_code == 2
    assert "'../secret' is not a file in the folder of its split" in ended.output
    assert "the secret" not in ended.output


def test_a_shard_of_another_dataset_is_told_and_not_shown(table: Path) -> None:
    for name in ("ours", "theirs"):
        (table.parent / f"{name}.csv").write_text(f"text\n{name.ljust(6)}\n")
        options = ("--split", "all", "--compression", "none")
        infeed("ingest", table.parent / f"{name}.csv", table.parent / name, *options)
    shard = "Split-all/data_tfrecord-00000-of-00001"
    (table.parent / "theirs" / shard).replace(table.parent / "ours" / shard)
    ended = CliRunner().invoke(main, ["inspect", str(table.parent / "ours")])
    assert ended.exit_code == 2
    assert "the file has changed: checksum" in ended.output
    assert "theirs" not in ended.output


def test_a_picture_that_cannot_be_read_is_told_and_the_others_are_shown(here: Path) -> None:
    whole = io.BytesIO()
    Image.new("RGB", (64, 64)).save(whole, "PNG")
    head = struct.pack(">4sIIBBBBB", b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = whole.getvalue()[:12] + head + struct.pack(">I", zlib.crc32(head)) + whole.getvalue()[33:]
    broken = [b"\x89PNG\r\n\x1a\nand no more", whole.getvalue()[:60], bomb, b"\xff\xd8\xff"]
    parquet.write_table(pa.table({"image": [*broken, whole.getvalue()]}), here / "a.parquet")
    infeed("ingest", here / "a.parquet", here / "out", "--split", "all", "--no-shuffle")
    shown = infeed("inspect", here / "out", "--examples", "5")
    assert shown.count("an image that cannot be read") == len(broken)
    assert "PNG 64 x 64 RGB" in shown
    assert "5 images of all: contact-sheet.png" in shown


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(here: Path) -> None:
    (here / "a.csv").write_text("a\x1b[2Jb,class\x9b\n1,\x1b]0;owned\x07\n")
    infeed("ingest", here / "a.csv", here / "out", "--split", "all")
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    manifest["splits"]["all"]["reason"] = "\x1b[31m"
    (here / "out" / "manifest.json").write_text(json.dumps(manifest | {"warnings": ["\x1b[8m\u202e"]}))
    shown = infeed("inspect", here / "out")
    assert r"a\x1b[2Jb" in shown
    assert r"warning \x1b[8m\u202e" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown)


def test_a_name_with_a_line_break_keeps_its_row(here: Path) -> None:
    (here / "a.csv").write_text('"my\nfare",who\n1,"Blue\nCabs"\n')
    infeed("ingest", here / "a.csv", here / "out", "--split", "all")
    for command in ("inspect", "statistics"):
        shown = infeed(command, here / "out")
        assert "my\\nfare" in shown
        assert "Blue\\nCabs" in shown


def test_of_a_wide_table_the_first_columns_are_shown(here: Path) -> None:
    (here / "a.csv").write_text("\n".join([",".join(f"c{at}" for at in range(300)), ",".join(["7"] * 300)]))
    infeed("ingest", here / "a.csv", here / "out", "--split", "all")
    shown = infeed("inspect", here / "out", "--examples", "1")
    assert shown.count("and 100 more: --json shows all") == 2
    assert "c199 int [1] 0" in shown
    assert "c200 int [1] 0" not in shown
    assert len(json.loads(infeed("inspect", here / "out", "--json"))["manifest"]["schema"]) == 300
