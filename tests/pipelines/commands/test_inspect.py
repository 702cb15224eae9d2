from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image

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
    assert "10 pictures of all: contact-sheet.png" in shown
    with Image.open("contact-sheet.png") as sheet:
        assert sheet.width > sheet.height > 200
        reds = {colour[0] for _, colour in sheet.getcolors(1 << 20) if colour[1:] == (0, 0)}
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


@pytest.mark.parametrize(
    ("arguments", "message"), [(["nowhere"], "not a TFRecord dataset"), (["out", "--split", "x"], "no split 'x'")]
)
def test_nothing_to_show(table: Path, arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(main, ["inspect", *arguments])
    assert ended.exit_code == 2
    assert message in ended.output
