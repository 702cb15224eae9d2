"""The state of an input: what changes the fingerprint, and spans as TFX resolves them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infeed.components.dataset import files
from infeed.components.kubeflow.input_state import main, state_of


def config(*patterns: str) -> str:
    return json.dumps({"splits": [{"name": f"s{i}", "pattern": pattern} for i, pattern in enumerate(patterns)]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a.csv", "b.csv"):
        (data / name).write_text("x\n1\n")
        os.utime(data / name, ns=(10**18, 10**18))
    return data


def test_the_same_files_have_the_same_fingerprint(folder: Path) -> None:
    assert state_of(str(folder), config("*.csv")) == state_of(str(folder), config("*.csv"))
    assert state_of(str(folder), config("*.csv")).span == 0


def renamed(folder: Path) -> None:
    (folder / "b.csv").rename(folder / "c.csv")


def grown(folder: Path) -> None:
    (folder / "b.csv").write_text("x\n1\n2\n")
    os.utime(folder / "b.csv", ns=(10**18, 10**18))


def touched(folder: Path) -> None:
    os.utime(folder / "b.csv", ns=(10**18, 10**18 + 1))


def added(folder: Path) -> None:
    (folder / "c.csv").write_text("")


@pytest.mark.parametrize("change", [renamed, grown, touched, added])
def test_every_change_of_the_files_is_seen(folder: Path, change: object) -> None:
    before = state_of(str(folder), config("*.csv")).input_fingerprint
    assert callable(change)
    change(folder)
    assert state_of(str(folder), config("*.csv")).input_fingerprint != before


def test_files_of_other_names_do_not_count(folder: Path) -> None:
    before = state_of(str(folder), config("*.csv")).input_fingerprint
    (folder / "notes.txt").write_text("")
    assert state_of(str(folder), config("*.csv")).input_fingerprint == before


def test_objects_in_a_store_count_alike(s3: str) -> None:
    files.write_bytes(f"{s3}/a.csv", b"x\n1\n")
    before = state_of(s3, config("*.csv")).input_fingerprint
    files.write_bytes(f"{s3}/b.csv", b"x\n1\n")
    assert state_of(s3, config("*.csv")).input_fingerprint != before


@pytest.mark.tfx
def test_the_latest_span_is_filled_in_as_tfx_does(tmp_path: Path) -> None:
    for span in (1, 2, 10):
        (tmp_path / f"day-{span}").mkdir()
        (tmp_path / f"day-{span}" / "rows.csv").write_text("x\n1\n")
    state = state_of(str(tmp_path), config("day-{SPAN}/*.csv"))
    assert state.span == 10
    assert json.loads(state.input_config)["splits"][0]["pattern"] == "day-10/*.csv"


@pytest.mark.tfx
def test_spans_are_found_in_a_store(s3: str) -> None:
    for span in (1, 2):
        files.write_bytes(f"{s3}/day-{span}/rows.csv", b"x\n1\n")
    chosen = json.dumps({"static_range": {"start_span_number": 1, "end_span_number": 1}})
    state = state_of(s3, config("day-{SPAN}/*.csv"), chosen)
    assert (state.span, json.loads(state.input_config)["splits"][0]["pattern"]) == (1, "day-1/*.csv")


def test_the_step_writes_a_file_for_each_output(folder: Path, tmp_path: Path) -> None:
    paths = {name: tmp_path / "out" / name for name in ("input_config", "input_fingerprint", "span")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    main(["--input-base", str(folder), "--config", config("*.csv"), *options])
    state = state_of(str(folder), config("*.csv"))
    assert [path.read_text() for path in paths.values()] == [state.input_config, state.input_fingerprint, "0"]
