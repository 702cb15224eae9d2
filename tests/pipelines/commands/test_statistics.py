from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import infeed
from infeed.components.dataset.encode import encode_examples
from infeed.components.dataset.records import frame_records, write_records
from infeed.pipelines.commands.statistics import command

TRAIN = {"age": [20, 30, 30, 40], "city": ["Bern", "Bern", "Chur", None]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(folder: Path, **splits: dict[str, list[Any]]) -> str:
    for name, columns in splits.items():
        framed = frame_records(encode_examples(pa.RecordBatch.from_pydict(columns)))
        write_records(str(folder / f"Split-{name}" / "data.gz"), [framed], gzip_level=1)
    return str(folder)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write(tmp_path / "data", eval={"age": [20, 30, 30, 40], "city": ["Rome"] * 4}, train=TRAIN)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_a_row_for_each_column_of_the_split_to_train_on(data: str) -> None:
    result = run(data)
    assert result.exit_code == 0
    first, head, age, city, last = (line.rstrip() for line in result.output.splitlines())
    assert "lengths" in last
    assert first == f"{data}, train: 4 rows, 2 columns"
    assert head.split() == [
        *("column", "type", "missing", "zeros", "distinct", "min", "median", "mean", "std", "max", "most", "frequent")
    ]
    assert age.split() == ["age", "int", "0", "%", "0", "%", "3", "20", "30", "30", "7.0711", "40", "30", "(50", "%)"]
    assert city.endswith("Bern (67 %)")


def test_as_json_with_a_page(data: str, tmp_path: Path) -> None:
    page = tmp_path / "columns.html"
    found = json.loads(run(data, "--split", "eval", "--html", str(page), "--json").output)
    assert (found["split"], found["html"]) == ("eval", str(page))
    assert found["columns"]["city"]["top"] == [{"value": "Rome", "count": 4, "share": 1.0}]
    assert "eval: 4 rows; 2 columns" in page.read_text()


def test_splits_are_compared_and_a_difference_is_exit_code_1(data: str, tmp_path: Path) -> None:
    page = tmp_path / "changes.html"
    result = run(data, "--splits", "train", "eval", "--html", str(page))
    assert result.exit_code == 1
    assert result.output.startswith("train -> eval: 1 of 2 columns differ: city\n")
    assert f"histograms: {page}" in result.output
    assert "1 of 2 columns differ: city" in page.read_text()


def test_each_limit_has_an_option_and_a_reason(data: str, tmp_path: Path) -> None:
    later = write(tmp_path / "later", train={"age": [20, 30, 30, 40], "city": [None, None, None, "Bern"]})
    result = run(later, "--compare", data, "--l-infinity", "1", "--lost-words", "1")
    assert result.exit_code == 1
    assert "25 % -> 75 % of the rows" in result.output
    page = tmp_path / "changes.html"
    run(later, "--compare", data, "--html", str(page))
    assert "25 % -&gt; 75 % of the rows" in page.read_text()
    allowed = [f"--{name}=1" for name in ("missing", "l-infinity", "lost-words", "new-words", "lengths")]
    assert run(later, "--compare", data, *allowed).exit_code == 0


def test_columns_come_in_the_order_of_the_table(tmp_path: Path) -> None:
    other = write(tmp_path / "other", train={name: [1] for name in ("r10", "r2", "B", "a")})
    assert list(json.loads(run(other, "--json").output)["columns"]) == ["a", "B", "r2", "r10"]
    (tmp_path / "t.csv").write_text("r2,Zed,a,r10\n1,2,3,4\n")
    infeed.ingest(tmp_path / "t.csv", tmp_path / "ours", splits={"train": 1})
    assert list(json.loads(run(str(tmp_path / "ours"), "--json").output)["columns"]) == ["r2", "Zed", "a", "r10"]


def test_flat_files_have_statistics_and_are_compared_by_folder_and_one_by_one(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    means = {"train": 2, "test": 5}
    files = {split: str(flat / f"people-{split}.tfrecord") for split in means}
    for split, ages in (("train", [1, 2, 3]), ("test", [5])):
        framed = frame_records(encode_examples(pa.RecordBatch.from_pydict({"age": ages})))
        write_records(files[split], [framed], gzip_level=None)
        for words in ([str(flat), "--split", split], [files[split]]):
            assert json.loads(run(*words, "--json").output)["columns"]["age"]["mean"] == means[split]
    assert run(str(flat), "--splits", "train", "test").exit_code == 1
    compared = run(files["test"], "--compare", files["train"], "--json")
    assert compared.exit_code == 1
    assert json.loads(compared.output)["before"] == f"{files['train']}, train"
    same = str(shutil.copy(files["test"], tmp_path / "later.tfrecord"))
    assert run(files["test"], "--compare", same).exit_code == 0


def test_a_dataset_is_compared_with_the_one_before(data: str, tmp_path: Path) -> None:
    later = write(tmp_path / "later", train={"age": [30, 30, 40, 20], "city": ["Bern", "Bern", "Bern", "Chur"]})
    arguments = (later, "--compare", data, "--missing", "0.5", "--json")
    strict = run(*arguments, "--l-infinity", "0.05")
    assert strict.exit_code == 1
    found = json.loads(strict.output)
    assert (found["before"], found["after"]) == (f"{data}, train", f"{later}, train")
    assert [(one["name"], one["problem"]) for one in found["columns"]] == [("age", ""), ("city", "differs")]
    assert found["columns"][1]["distance"] == pytest.approx(3 / 4 - 2 / 3)
    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{data}/nowhere"], "no such file or folder"),
        (["{table}"], "not a dataset, but csv"),
        (["{table}"], "infeed ingest"),
        (["{data}", "--split", "test"], "there is no split 'test'"),
        (["{data}", "--splits", "train", "eval", "--split", "train"], "--splits is set together"),
        (["{data}", "--splits", "train", "train"], "both sides are the same"),
        (["{data}", "--splits", "train", "eval", "--jensen-shannon", "2"], "jensen_shannon is 2"),
    ],
)
def test_mistakes_are_told(data: str, tmp_path: Path, arguments: list[str], says: str) -> None:
    table = tmp_path / "a.csv"
    table.write_text("a\n1\n")
    result = run(*(argument.format(data=data, table=table) for argument in arguments))
    assert result.exit_code == 2
    assert says in result.output


def test_neither_tfx_nor_tensorflow_is_imported(data: str, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from infeed.pipelines.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(sorted({'tfx', 'tensorflow', 'apache_beam', 'matplotlib'} & set(sys.modules)))\n"
    )
    arguments = ["statistics", data, "--splits", "train", "eval", "--html", str(tmp_path / "page.html")]
    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
