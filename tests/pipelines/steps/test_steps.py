"""The commands of the steps, in a process that has neither TFX nor ML Metadata, end where `infeed run` ends.

Covers `transform`, `train`, `evaluate`, `components/transform/plain.py`, `components/statistics/inference.py`,
`pipelines/judging.py`, `pipelines/commands/transform.py`, `pipelines/commands/train.py`,
`pipelines/commands/evaluate.py` and `pipelines/commands/report.py`.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.components.dataset.decode_columns import decode_columns
from infeed.components.dataset.records import read_records

pytestmark = pytest.mark.slow
TEMPLATE = Path(infeed.__file__).parent / "templates" / "tabular"
# Like an environment without these packages: an import raises ModuleNotFoundError, and `find_spec` finds nothing.
SCRIPT = """
import gc, json, os, sys
gc.set_threshold(100_000, 50, 100)  # else a tenth of the time goes into garbage
for name in ("tfx", "ml_metadata", "kfp"):
    sys.modules[name] = None
if "INFEED_TEST_WITHOUT_GRAPPLER" in os.environ:  # as the run with which it is compared bit by bit
    import tensorflow
    tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
from infeed.pipelines.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        print(json.dumps({"exit": end.code}))
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory, table_run: SimpleNamespace) -> SimpleNamespace:
    """All steps, and once more an evaluation against a score that no model reaches; `said` by each command."""
    folder = tmp_path_factory.mktemp("steps")
    project, strict = (shutil.copytree(TEMPLATE, folder / name) / "config.yaml" for name in ("project", "strict"))
    strict.write_text(f"{strict.read_text()}\nblessing: {{metric: accuracy, bound: 1.0}}\n")
    data = ("--dataset", "data")
    write_split(table_run.root, "test", folder / "test.csv")
    of_table = ("--dataset", "test.csv", "--model", "model", "--output", "of_table")
    commands = {
        "ingest": ("ingest", str(project), "data", "--json"),
        "transform": ("transform", str(project), *data, "--output", "graph", "--rows", "rows", "--json"),
        "train": (
            "train",
            str(project),
            *table_run.options,
            *data,
            "--graph",
            "graph",
            "--output",
            "model",
            "--warm-start",
            "serving",
            "--json",
        ),
        "evaluate": ("evaluate", str(project), *data, "--model", "model", "--output", "evaluation", "--json"),
        "of a table": ("evaluate", str(project), *of_table, "--json"),
        "push": ("push", "model", "serving", "--evaluation", "evaluation", "--json"),
        "report": ("report", "model-run", *data, "--html", "report.html", "--json"),
        "strict": ("evaluate", str(strict), *data, "--model", "serving", "--output", "judged", "--json"),
        "refuse": ("push", "model", "refused", "--evaluation", "judged", "--json"),
    }
    arguments = [sys.executable, "-c", SCRIPT, json.dumps(list(commands.values()))]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = _documents(done.stdout)
    said = dict(zip(commands, zip(lines[::2], lines[1::2], strict=True), strict=True))
    return SimpleNamespace(folder=folder, said=said, run=table_run, log=done.stderr)


def write_split(root: Path, split: str, path: Path) -> None:
    """Write the rows of a split as CSV."""
    [examples] = (root / "artifacts" / "CsvExampleGen" / "examples").iterdir()
    blocks = [decode_columns(list(read_records(str(file)))) for file in (examples / f"Split-{split}").iterdir()]
    rows = {name: [cell for block in blocks for cell in block[name].to_pylist()] for name in blocks[0]}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        for row in zip(*rows.values(), strict=True):
            writer.writerow(
                "" if cell is None else cell[0].decode() if isinstance(cell[0], bytes) else cell[0] for cell in row
            )


def _documents(text: str) -> list[Any]:
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def test_every_step_ends_well_and_an_unblessed_model_ends_with_3(steps: SimpleNamespace) -> None:
    codes = {name: end["exit"] for name, (_, end) in steps.said.items()}
    assert codes == {**dict.fromkeys(steps.said, 0), "strict": 3, "refuse": 3}, (steps.said, steps.log[-3000:])


def test_the_scores_are_those_of_infeed_run(steps: SimpleNamespace) -> None:
    found, _ = steps.said["evaluate"]
    outcome = steps.run.result["outcome"]
    shared = found.keys() & outcome.keys()
    assert {"metrics", "intervals", "rows", "blessed", "reasons", "guesses"} <= shared
    assert {name: found[name] for name in shared} == {name: outcome[name] for name in shared}


def test_a_table_of_the_same_rows_has_the_same_scores(steps: SimpleNamespace) -> None:
    found, expected = steps.said["of a table"][0], steps.said["evaluate"][0]
    assert (found.pop("rejected"), found.pop("left_out")) == (0, 0)
    assert found == {**expected, "evaluation": "of_table"}


def test_the_dataset_and_the_weights_are_those_of_infeed_run(steps: SimpleNamespace) -> None:
    import tensorflow as tf

    [there] = (steps.run.root / "artifacts" / "CsvExampleGen" / "examples").glob("*/Split-train/*")
    [here] = (steps.folder / "data" / "Split-train").iterdir()
    assert here.read_bytes() == there.read_bytes()
    pushed = steps.folder / steps.said["push"][0]["pushed"], Path(steps.run.result["outcome"]["pushed"])
    one, other = (tf.train.load_checkpoint(str(model / "variables" / "variables")) for model in pushed)
    shapes = one.get_variable_to_shape_map()
    assert shapes == other.get_variable_to_shape_map()
    names = [name for name in shapes if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert names
    for name in names:
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), name)


def test_the_transformed_rows_are_a_dataset(steps: SimpleNamespace) -> None:
    from infeed.components.dataset import records

    rows = {
        split: len(list(records.read_records(str(file))))
        for split in ("train", "test")
        for file in (steps.folder / "rows" / f"Split-{split}").iterdir()
    }
    manifest = steps.said["ingest"][0]["manifest"]
    assert rows == {split: sum(shard["records"] for shard in manifest["splits"][split]["shards"]) for split in rows}


def test_an_unblessed_model_has_its_reason_and_is_not_pushed(steps: SimpleNamespace) -> None:
    found, _ = steps.said["strict"]
    assert not found["blessed"]
    assert "accuracy" in found["reasons"][0]
    assert steps.said["refuse"][0] == {"pushed": None}
    assert not (steps.folder / "refused").exists()


def test_the_report_is_a_page_and_a_verdict(steps: SimpleNamespace) -> None:
    report, _ = steps.said["report"]
    assert report["shards"] == 1
    assert report["verdict"]["kind"] in (steps.folder / "report.html").read_text()
