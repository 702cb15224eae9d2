"""The main job as a user runs it: the installed command, in a process of its own, on the bundled data.

The pictures from a cold start, asked and all; the others with TFX imported before. The templates run unedited, which
covers `templates/image/features.py`, `templates/image/model.py`, `templates/tabular/features.py`,
`templates/tabular/model.py` and `templates/text/model.py`.
"""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

INFEED = Path(sys.executable).with_name("infeed")
NODES = ["StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer", "Evaluator", "Pusher", "InputReport"]


def infeed(*words, **env):
    env = {**os.environ, **env}
    return subprocess.run([INFEED, *map(str, words)], env=env, capture_output=True, text=True, check=False)


def run(*words, **env):
    done = infeed("run", *words, "--json", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""  # nothing of TensorFlow's, Beam's or Google's noise
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("image")
    return root, run("image", "--root", root)


def states(result):
    return {node["name"]: node["state"] for node in result["nodes"]}


def test_every_node_of_the_image_pipeline_is_done(images):
    assert states(images[1]) == dict.fromkeys([*NODES, "ImageExampleGen", "latest_blessed_model"], "done")


def test_the_digits_are_told_apart(images):
    assert images[1]["outcome"]["metrics"]["accuracy"] >= 0.97


def test_the_score_stands_on_rows_beside_what_the_commonest_class_scores(images):
    outcome = images[1]["outcome"]
    low, high = outcome["intervals"]["accuracy"]
    assert low < outcome["metrics"]["accuracy"] <= high <= 1
    assert outcome["rows"] > 100
    assert outcome["guesses"]["accuracy"]["value"] < 0.2


def test_the_model_is_blessed_and_pushed(images):
    outcome = images[1]["outcome"]
    assert outcome["blessed"]
    assert (Path(outcome["pushed"]) / "saved_model.pb").is_file()


def test_the_share_of_waiting_is_told_and_the_report_is_there(images):
    outcome = images[1]["outcome"]
    assert 0 <= outcome["wait_fraction"] < 1
    assert "Did training wait" in Path(outcome["report"]).read_text()


def test_the_noise_is_in_the_log_that_is_named(images):
    assert "Assets written to" in Path(images[1]["log"]).read_text()


def test_training_was_augmented_and_evaluation_was_not(images):
    (profile,) = (images[0] / "artifacts" / "Trainer" / "model_run").glob("*/input_profile.json")
    steps = {step["name"]: step["does"] for step in json.loads(profile.read_text())["plan"]["steps"]}
    assert steps["augment"] == (
        "shifts by up to 1 px with reflected edges, rotates by up to 10 degrees, cuts out 2 x 2 px, "
        "normalizes by mean 0.5 and deviation 0.5, compiled by XLA"
    )


CACHED = {**dict.fromkeys([*NODES, "ImageExampleGen"], "cached"), "latest_blessed_model": "done"}


def test_the_second_run_finds_every_node_in_the_cache(images, warm):
    root, first = images
    again = run("image", "--root", root, **warm)
    assert states(again) == CACHED
    assert again["outcome"] == first["outcome"]


def test_the_pushed_model_answers_from_raw_bytes(images):
    pictures = sorted((images[0] / "data" / "digits").glob("*/*.png"))[::60]
    done = infeed("predict", images[0] / "serving", *pictures, "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["input"] for answer in answers] == [str(picture) for picture in pictures]
    right = [answer["value"] == Path(answer["input"]).parent.name for answer in answers]
    assert sum(right) / len(right) > 0.9


def test_the_table_is_learned_blessed_and_pushed(table_run):
    outcome = table_run.result["outcome"]
    assert outcome["metrics"]["accuracy"] > 0.9
    assert outcome["blessed"]


def test_the_pushed_model_of_the_table_answers_from_a_csv_with_empty_cells(table_run, tmp_path, warm):
    data = tmp_path / "semicolons.csv"
    data.write_text((table_run.root / "data" / "breast_cancer.csv").read_text().replace(",", ";"))
    done = infeed("predict", table_run.result["outcome"]["pushed"], data, "--delimiter", ";", "--json", **warm)
    answers = [json.loads(line)["value"] for line in done.stdout.splitlines()]
    labels = [line.rsplit(";", 1)[1] for line in data.read_text().splitlines()[1:]]
    assert sum(a == b for a, b in zip(answers, labels, strict=True)) / len(labels) > 0.9


@pytest.mark.image
def test_sentences_are_learned_and_the_pushed_model_answers_from_texts(tmp_path, warm):
    outcome = run("text", "--root", tmp_path, "--epochs", 6, **warm)["outcome"]
    assert outcome["metrics"]["accuracy"] > 0.6  # always the commonest part: 0.37
    assert outcome["blessed"]
    lines = (tmp_path / "data" / "scipy_sentences.csv").read_text().splitlines()[::20]
    (tmp_path / "some.csv").write_text("\n".join(lines))
    done = infeed("predict", outcome["pushed"], tmp_path / "some.csv", "--json", **warm)
    answers = [json.loads(line)["value"] for line in done.stdout.splitlines()]
    assert sum(a == line.rsplit(",", 1)[1] for a, line in zip(answers, lines[1:], strict=True)) > 0.6 * len(answers)


def houses():
    rows = range(300)
    return {
        "rooms": [i % 9 for i in rows],
        "town": pa.array([f"t{i % 3}" for i in rows]).dictionary_encode(),
        "garden": [bool(i % 2) for i in rows],
        "sold": [datetime.date(2024, 1, 1 + i % 28) for i in rows],
        "floors": [[i % 2, i % 3] for i in rows],
        "price": [100.5 + 30 * (i % 9) for i in rows],
    }


@pytest.fixture(scope="module")
def broken(tmp_path_factory, warm):
    """A table with a quantity to learn, in a new project whose callbacks raise: project, words and what came.

    The template reads CSV; that the table is Parquet is told from its name.
    """
    folder = tmp_path_factory.mktemp("broken")
    data, project = folder / "houses.parquet", folder / "project"
    pq.write_table(pa.table(houses()), data)
    assert infeed("new", "tabular", project).returncode == 0
    model = project / "model.py"
    model.write_text(model.read_text() + "\n\ndef callbacks(spec):\n    raise ValueError('no callbacks today')\n")
    config = project / "config.yaml"
    config.write_text(config.read_text().replace("train:\n", "train:\n  callbacks_fn: model.py:callbacks\n"))
    words = (project / "config.yaml", "--data", data, "--label", "price", "--root", folder / "runs", "--epochs", 30)
    return project, words, infeed("run", *words, **warm)


@pytest.fixture(scope="module")
def mended(broken, warm):
    project, words, _ = broken
    model = project / "model.py"
    model.write_text(model.read_text().replace("raise ValueError('no callbacks today')", "return []"))
    return run(*words, "--from", "Trainer", **warm)


def test_a_failed_node_is_named_with_the_errors_own_words_the_log_and_how_to_go_on(broken):
    project, _, done = broken
    assert done.returncode == 1
    last = done.stdout[done.stdout.index("Trainer failed") :].splitlines()
    assert last[1] == "ValueError: no callbacks today"
    assert f"{project}/model.py, line " in last[2]
    assert "log: " in done.stdout
    assert "run.log" in done.stdout
    assert f"run {project}/config.yaml --data " in last[-1]
    assert last[-1].endswith(" --from Trainer")


@pytest.mark.image  # here `local/test_runner` goes on from a failed node
def test_once_mended_it_goes_on_from_there(mended):
    assert states(mended)["Transform"] == "skipped"
    assert states(mended)["Trainer"] == "done"
    assert mended["outcome"]["blessed"]


@pytest.mark.image
def test_a_quantity_is_learned_as_a_regression_from_parquet(broken, mended, warm):
    _, (_, _, data, *_), _ = broken
    assert states(mended)["ParquetExampleGen"] == "skipped"  # done before the Trainer failed
    outcome = mended["outcome"]
    assert set(outcome["metrics"]) == {"rmse", "r2", "mse", "mae"} == set(outcome["intervals"])
    assert outcome["metrics"]["rmse"] < outcome["guesses"]["rmse"]["value"]
    done = infeed("predict", mended["outcome"]["pushed"], data, **warm)
    assert len(done.stdout.splitlines()) == 300


@pytest.mark.image
def test_pictures_of_ones_own_of_any_size_work_with_nothing_else_written(tmp_path, warm):
    for i in range(60):
        name, color = (("red", (200, 40, 30)), ("blue", (20, 30, 210)))[i % 2]
        path = tmp_path / "data" / name / f"{i}.{'png' if i % 3 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (24 + i % 5, 20), color).save(path)
    words = ("--data", tmp_path / "data", "--root", tmp_path / "runs", "--epochs", 4, "--batch-size", 8)
    result = run("image", *words, **warm)
    assert result["outcome"]["metrics"]["accuracy"] >= 0.5
