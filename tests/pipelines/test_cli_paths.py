"""Each path that a command takes, in places where it cannot be read or written: an error, and nothing is left behind.

Whatever takes long is a stand-in that ends the command: what is refused is refused before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.example_gen.local import ingest
from infeed.pipelines.cli import main
from infeed.pipelines.console.paths import (
    InputFolder,
    InputPath,
    MappedFolder,
    OutputFile,
    OutputFolder,
    OutputPath,
    ServingFolder,
)

GOLDEN = Path(__file__).parent / "golden"
PROJECT, TABLE, JOB = GOLDEN / "project", GOLDEN / "project" / "flowers.csv", GOLDEN / "kubeflow.yaml"
STARTED = "the paths are accepted"
LONG = 300  # bytes; file systems take 255

EVALUATE = "evaluate {project} --data {table} --dataset {dataset}"
TRAIN = "train {project} --data {table} --dataset {dataset}"
# Command and parameter -> the command line, in which {} is the path under test, and all other paths are good ones.
CASES = {
    "run PROJECT": "run {} --data {table} --root out",
    "run --data": "run {project} --data {} --root out",
    "run --root": "run {project} --data {table} --root {}",
    "transform PROJECT": "transform {} --data {table} --dataset {dataset} --output out",
    "transform --data": "transform {project} --data {} --dataset {dataset} --output out",
    "transform --root": "transform {project} --data {table} --root {} --dataset {dataset} --output out",
    "transform --dataset": "transform {project} --data {table} --output out --dataset {}",
    "transform --output": "transform {project} --data {table} --dataset {dataset} --output {}",
    "transform --rows": "transform {project} --data {table} --dataset {dataset} --output out --rows {}",
    "train PROJECT": "train {} --data {table} --dataset {dataset} --graph {model} --output out",
    "train --data": "train {project} --data {} --dataset {dataset} --graph {model} --output out",
    "train --root": "train {project} --data {table} --root {} --dataset {dataset} --graph {model} --output out",
    "train --dataset": "train {project} --data {table} --dataset {} --graph {model} --output out",
    "train --graph": TRAIN + " --graph {} --output out",
    "train --output": TRAIN + " --graph {model} --output {}",
    "train --run": TRAIN + " --graph {model} --output out --run {}",
    "train --checkpoints": TRAIN + " --graph {model} --output out --checkpoints {}",
    "train --base-model": TRAIN + " --graph {model} --base-model {} --output x",
    "train --warm-start": TRAIN + " --graph {model} --warm-start {} --output x",
    "evaluate PROJECT": "evaluate {} --data {table} --dataset {dataset} --model {model} --output out",
    "evaluate --data": "evaluate {project} --data {} --dataset {dataset} --model {model} --output out",
    "evaluate --root": "evaluate {project} --data {table} --root {} --dataset {dataset} --model {model} --output out",
    "evaluate --dataset": "evaluate {project} --data {table} --dataset {} --model {model} --output out",
    "evaluate --model": EVALUATE + " --model {} --output out",
    "evaluate --output": EVALUATE + " --model {model} --output {}",
    "evaluate --baseline": EVALUATE + " --model {model} --baseline {} --output x",
    "push MODEL": "push {} out",
    "push SERVING": "push {model} {}",
    "push --evaluation": "push {model} out --evaluation {}",
    "runs --root": "runs --root {}",
    "report RUN": "report {}",
    "report --dataset": "report {model} --dataset {}",
    "report --html": "report {model} --html {}",
    "compile PROJECT": "compile {} --data {table} --root out --output job.json",
    "compile --data": "compile {project} --data {} --root out --output job.json",
    "compile --root": "compile {project} --data {table} --root {} --output job.json",
    "compile --config": "compile {project}/model.py:build --config {} --image i --root s3://b/r --output job.json",
    "compile --output": "compile {project} --data {table} --root out --output {}.json",
    "build PROJECT": "build {} --tag image",
    "new FOLDER": "new tabular {}",
    "new --data": "new tabular out --data {}",
    "schema OUTPUT": "schema {}",
    "predict MODEL": "predict {} {table}",
    "predict INPUTS": "predict {model} {table} {}",
    "predict --output": "predict {model} {table} --overwrite --output {}.csv",
    "ingest SOURCE": "ingest {} out",
    "ingest OUTPUT": "ingest {table} {}",
    "ingest --data": "ingest {project}/config.yaml out --data {}",
    "ingest --clean": "ingest --clean {}",
    "inspect DATASET": "inspect {}",
    "measure DATASET": "measure {}",
    "measure --model": "measure {dataset} --model {}",
    "inspect --sheet": "inspect {dataset} --sheet {}",
    "statistics DATASET": "statistics {}",
    "statistics --compare": "statistics {dataset} --compare {}",
    "statistics --html": "statistics {dataset} --html {}",
    "rehearse JOB": "rehearse {} --root out",
    "rehearse --root": "rehearse {job} --root {}",
    "rehearse --project": "rehearse {job} --root out --project {}",
    "rehearse --map": "rehearse {job} --root out --map gs://bucket={}",
    "submit JOB": "submit {} --host http://localhost:1",
    "doctor JOB": "doctor {}",
}
# Text that is no path. A new parameter that is one has a type of `console/paths.py`, and a case above.
NO_PATHS = {
    *(
        "--balance",
        "--balance-split",
        "--base",
        "--beam-option",
        "--columns",
        "--reader",
        "--cut",
        "--delimiter",
        "--drop",
        "--endpoint",
    ),
    *(
        "--exclude",
        "--experiment",
        "--fail",
        "--filter",
        "--from",
        "--host",
        "--image",
        "--keep",
        "--keys",
        "--kfp",
        "--map-batches",
        "--map-examples",
        "--label",
    ),
    *("--leave", "--name", "--namespace", "--parameter", "--region", "--required", "--runner", "--service-account"),
    *(
        "--set",
        "--signature",
        "--split",
        "--split-by",
        "--split-label",
        "--split-name",
        "--split-salt",
        "--split-time",
        "--time-format",
    ),
    *("--splits", "--strategy", "--tag", "TEMPLATE", "submit --project"),
    *("--cron", "cancel --project", "RUN"),
}


def folder(here: Path, suffix: str) -> Path:
    (made := here / f"folder{suffix}").mkdir()
    return made


def file(here: Path, suffix: str) -> Path:
    (made := here / f"file{suffix}").write_text("words\n")
    return made


def missing_parent(here: Path, suffix: str) -> Path:
    return here / "no" / "parent" / f"name{suffix}"


def below_a_file(here: Path, suffix: str) -> Path:
    return file(here, "") / f"name{suffix}"


def no_real_file_system(here: Path, suffix: str) -> Path:
    return Path(f"/proc/none/name{suffix}")


def read_only(here: Path, suffix: str) -> Path:
    """Root may write where permissions forbid it, but not in /sys."""
    if os.getuid() == 0:
        return Path(f"/sys/name{suffix}")
    (made := here / "closed").mkdir(mode=0o500)
    return made / f"name{suffix}"


def long_name(here: Path, suffix: str) -> Path:
    return here / ("n" * (LONG - len(suffix)) + suffix)


def long_parent(here: Path, suffix: str) -> Path:
    return here / "no" / ("n" * LONG) / f"name{suffix}"


def long_path(here: Path, suffix: str) -> Path:
    """Of short names; Linux takes 4,096 bytes."""
    return here.joinpath(*["name"] * 1_000, f"name{suffix}")


def dangling_link(here: Path, suffix: str) -> Path:
    (made := here / f"link{suffix}").symlink_to(here / "nowhere")
    return made


def no_utf8(here: Path, suffix: str) -> Path:
    return here / f"\udcff{suffix}"


def empty(here: Path, suffix: str) -> str:
    return ""


PLACES = (
    *(folder, file, missing_parent, below_a_file, no_real_file_system, read_only),
    *(long_name, long_parent, long_path, dangling_link, no_utf8, empty),
)
ACCEPTED = {
    InputPath: set(),
    InputFolder: {folder},
    OutputPath: {file, missing_parent},
    OutputFile: {file, missing_parent},
    OutputFolder: {folder, missing_parent},
    MappedFolder: {folder},
    ServingFolder: {folder, missing_parent, no_real_file_system, read_only},
}
SPECIAL: dict[str, set[Callable[[Path, str], Path | str]]] = {
    "predict INPUTS": {folder, file},  # what is in them, the model is asked about
    "evaluate --dataset": {file},  # what is in it, is read with the types of the model
    "evaluate --model": set(),  # no model was saved there
    "evaluate --baseline": set(),
    "runs --root": set(),  # no run was made there
    # The data may not exist yet, but their name must be possible.
    "new --data": {place for place in PLACES if place not in (no_utf8, empty, long_name, long_path)},
}


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command
        for parameter in command.params:
            title = parameter.opts[0] if isinstance(parameter, click.Option) else (parameter.name or "").upper()
            yield f"{name} {title}", parameter


def stop(*_: object, **__: object) -> None:
    raise InfeedError(STARTED, do="stop here")


@pytest.fixture
def good(once: Callable[..., Path]) -> dict[str, Path]:
    """Paths by the names in CASES."""

    def write(made: Path) -> None:
        ingest(str(TABLE), str(made / "dataset"))
        (made / "model").mkdir()
        (made / "model" / "saved_model.pb").touch()

    made = once("good-paths", write)
    return {
        "project": PROJECT,
        "table": TABLE,
        "job": JOB,
        "dataset": made / "dataset",
        "model": made / "model",
    }


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; nothing that takes long can start."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    importing = (f"{command}.importing" for command in ("run", "transform", "train", "evaluate"))
    for heavy in (*importing, "report.Report.of", "compile.compile_config", "rehearse.rehearse"):
        monkeypatch.setattr(f"infeed.pipelines.commands.{heavy}", stop)
    monkeypatch.setattr("infeed.pipelines.predict.predict.Predictor.load", stop)
    return tmp_path / "here"


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_each_parameter_that_takes_a_path_has_a_case() -> None:
    known = dict(parameters())
    assert {name for name, one in known.items() if isinstance(one.type, InputPath)} == set(CASES)
    text = {name for name, one in known.items() if one.type is click.STRING}
    assert {name for name in text if not {name, name.partition(" ")[2]} & NO_PATHS} == set()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("case", CASES)
def test_a_place_is_accepted_or_named_in_an_error_that_leaves_nothing_behind(
    case: str,
    place: Callable[[Path, str], Path | str],
    good: dict[str, Path],
    here: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    kind = type(dict(parameters())[case].type)
    suffix = CASES[case].rpartition("{}")[2] if CASES[case][-1] != "}" else ""
    suffix = suffix if suffix.startswith(".") else ""
    path = str(place(here, suffix))
    words = [word.replace(f"{{}}{suffix}", path).format(**good) for word in CASES[case].split()]
    before = tree(here)
    with pytest.raises(SystemExit) as ended:
        main(words, prog_name="infeed")
    said = capfd.readouterr().err
    if place in SPECIAL.get(case, ACCEPTED[kind]):
        assert ended.value.code == 0 or STARTED in said, said
        return
    assert ended.value.code == 2, said
    assert said.startswith("error: ")
    assert "\n  do:    " in said
    shown = str(here) if place is no_utf8 else path or case.partition(" ")[2]
    assert shown in said
    assert STARTED not in said
    assert tree(here) == before
