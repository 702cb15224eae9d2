from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from infeed.components.dataset import files, records
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions, Spans
from infeed.components.kubeflow.message import pack
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.cli import main
from infeed.pipelines.config import Blessing, LabelFacts, Resolved

pytestmark = pytest.mark.slow


def infeed(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """200 rows: user, fare (one in ten empty), day, label (one in four yes)."""
    path = tmp_path / "in" / "trips.csv"
    path.parent.mkdir()
    fares = ["" if row % 10 == 3 else str(row / 4) for row in range(200)]
    rows = [f"u{row % 17},{fare},2020-01-{1 + row % 28:02},{row % 4 == 0}" for row, fare in enumerate(fares)]
    path.write_text("user,fare,day,label\n" + "\n".join(rows) + "\n")
    return path


def read(output: str | Path, split: str) -> list[bytes]:
    shards = files.list_files(f"{output}/Split-{split}")
    return [record for shard in shards for record in records.read_records(shard.path)]


def test_a_function_stands_in_place_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text("def rows(version):\n    return [{'a': 1, 'version': version}] * 30\n")
    reader = ("--reader", f"{tmp_path}/rows.py:rows")
    ended = infeed("ingest", *reader, tmp_path / "out", "--set", "version=3")
    assert ended.exit_code == 0, ended.output
    manifest = Manifest.read(f"{tmp_path}/out")
    assert (manifest.source.kind, manifest.source.version, manifest.rows_read) == ("reader", "3", 30)
    for more in ((tmp_path / "in", tmp_path / "out2"), (tmp_path / "out2", "--format", "csv")):
        ended = infeed("ingest", *reader, *more)
        assert (ended.exit_code, "--reader" in ended.output) == (2, True)
    assert infeed("ingest", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out2").exists()


def test_a_table_becomes_a_dataset(trips: Path, tmp_path: Path) -> None:
    ended = infeed("ingest", trips, tmp_path / "out")
    assert (ended.exit_code, ended.output.splitlines()[0][:-6]) == (0, f"wrote {tmp_path}/out: 200 rows read in")
    manifest = Manifest.read(f"{tmp_path}/out")
    assert [len(read(tmp_path / "out", split)) for split in ("train", "eval")] == [
        split.records for split in manifest.splits.values()
    ]
    assert manifest.splits["train"].reason == "more than 1 would make files smaller than 10 MB before compression"
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("source", ["in", "in/*.csv", "in/trips.csv"])
def test_a_source_is_a_folder_a_pattern_or_a_file(trips: Path, tmp_path: Path, source: str) -> None:
    ended = infeed("ingest", tmp_path / source, tmp_path / "out", "--json")
    assert json.loads(ended.output)["manifest"]["rows_read"] == 200


def ingested(trips: Path, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    ended = infeed("ingest", trips, tmp_path / "out", "--json", *arguments)
    assert ended.exit_code == 0, ended.output
    manifest: dict[str, Any] = json.loads(ended.output)["manifest"]
    return manifest


def counts(manifest: dict[str, Any]) -> dict[str, int]:
    return {name: split["records"] for name, split in manifest["splits"].items()}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--split", "all"], {"all": 200}),
        (["--split-label", "label"], {"train": 134, "eval": 66}),
        (["--split", "a", "--split", "b", "--split-time", "day", "--cut", "2020-01-15"], {"a": 102, "b": 98}),
        (["--split", "True", "--split", "False", "--split-name", "label"], {"True": 50, "False": 150}),
        (["--filter", "fare is not None", "--split", "all"], {"all": 180}),
        (["--split", "train", "--balance", "label"], {"train": 300}),
        (["--split", "train", "--balance", "label", "--balance-by", "under"], {"train": 100}),
    ],
)
def test_rows_go_where_they_are_sent(
    trips: Path, tmp_path: Path, arguments: list[str], expected: dict[str, int]
) -> None:
    assert counts(ingested(trips, tmp_path, *arguments)) == expected


def test_groups_stay_together(trips: Path, tmp_path: Path) -> None:
    ingested(trips, tmp_path, "--split-by", "user", "--columns", "user", "--no-shuffle")
    train, evaluation = (set(read(tmp_path / "out", split)) for split in ("train", "eval"))
    assert train
    assert evaluation
    assert not train & evaluation


def test_shards_and_compression_as_asked(trips: Path, tmp_path: Path) -> None:
    manifest = ingested(trips, tmp_path, "--shards", "3", "--compression", "none", "--shuffle-seed", "5")
    assert [shard["file"] for shard in manifest["splits"]["train"]["shards"]] == [
        f"Split-train/data_tfrecord-{index:05}-of-00003" for index in range(3)
    ]
    assert manifest["options"]["shuffle_seed"] == 5


def test_files_that_lie_deeper_are_told_with_a_pattern_that_finds_them(tmp_path: Path) -> None:
    (tmp_path / "in" / "year=2024").mkdir(parents=True)
    (tmp_path / "in" / "year=2024" / "a.csv").write_text("x\n1\n")
    ended = infeed("ingest", tmp_path / "in", tmp_path / "out")
    assert ended.exit_code == 2
    assert f"the files are in deeper folders, such as year=2024/a.csv\n  where: {tmp_path}/in" in ended.output
    assert f"'{tmp_path}/in/*/*'" in ended.output
    assert ingested(tmp_path / "in" / "*" / "*", tmp_path)["rows_read"] == 1


def test_a_split_without_a_record_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    ended = infeed("ingest", tmp_path / "a.csv", tmp_path / "out")
    assert "1 row read" in ended.output
    assert "warning: eval is empty" in ended.output


@pytest.mark.parametrize("spelling", ["\\t", "tab", "\t", "$'\\t'"])
def test_a_tab_in_four_spellings(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "a.csv").write_text("x\ty\n1\t2\n")
    manifest = ingested(tmp_path / "a.csv", tmp_path, "--delimiter", spelling)
    assert [column["name"] for column in manifest["schema"]] == ["x", "y"]


def test_settings_of_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;y\n1;-\n2;3\n")
    manifest = ingested(tmp_path / "a.csv", tmp_path, "--set", "delimiter=;", "--set", 'nulls=["-"]')
    assert [(column["name"], column["type"], column["nulls"]) for column in manifest["schema"]] == [
        ("x", "int", 0),
        ("y", "int", 1),
    ]


def test_bad_rows_are_listed(trips: Path, tmp_path: Path) -> None:
    with trips.open("a") as file:
        file.write("u1,2\n")
    assert infeed("ingest", trips, tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()
    manifest = ingested(trips, tmp_path, "--on-bad-row", "reject")
    assert (manifest["rows_read"], manifest["rejected"]) == (201, {"rows": 1, "file": "rejected.jsonl"})
    rejected = json.loads((tmp_path / "out" / "rejected.jsonl").read_text())
    assert (rejected["file"], rejected["line"], rejected["text"]) == (str(trips), 202, "u1,2")


def test_rows_without_a_required_value_are_set_aside_and_counted(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n1,a\n2,\n3,b\n4,\n")
    refused = infeed("ingest", tmp_path / "in.csv", tmp_path / "out", "--required", "y")
    assert (refused.exit_code, "column 'y'" in refused.output) == (2, True)
    arguments = ("--required", "y", "--on-bad-row", "reject", "--filter", "x < 4")
    manifest = ingested(tmp_path / "in.csv", tmp_path, *arguments)
    assert (manifest["rows_read"], manifest["filtered"], manifest["rejected"]["rows"]) == (4, 1, 1)
    rejected = json.loads((tmp_path / "out" / "rejected.jsonl").read_text())
    assert (rejected["column"], json.loads(rejected["text"])) == ("y", {"x": 2, "y": None})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "out"], r"no such file or folder"),
        (["{trips}", "out", "--filter", "fair > 1"], "no column 'fair'"),
        (["{trips}", "out", "--split", "train=many"], "share 'many'"),
        (["{trips}", "out", "--split-by", "user", "--split-label", "label"], "split by columns and by label"),
        (["{trips}", "out", "--set", "delimiter"], "no value in 'delimiter'"),
        (["{trips}", "out", "--set", "delimeter=;"], "no setting 'delimeter'"),
        (["{trips}", "{trips}"], "'trips.csv', which is not part of a dataset"),
        (["{trips}", "{trips}", "--overwrite"], "'trips.csv', which is not part of a dataset"),
        (["{trips}", "{trips}/trips.csv", "--overwrite"], "is a file, not a folder"),
        (["{trips}", "/dev/null/out"], "'/dev/null' is a device or a pipe"),
        (["{trips}", "out", "--cut", "2020-01-05"], "--cut without --split-time"),
    ],
)
def test_a_mistake_ends_with_2_and_says_what_to_do(trips: Path, arguments: list[str], message: str) -> None:
    ended = infeed("ingest", *(argument.format(trips=trips.parent) for argument in arguments))
    assert ended.exit_code == 2
    assert message in ended.output
    assert "  do:    " in ended.output
    as_json = infeed("ingest", "--json", *(argument.format(trips=trips.parent) for argument in arguments))
    assert message in json.loads(as_json.output)["error"]["what"]


def test_a_dataset_is_replaced_only_when_asked(trips: Path, tmp_path: Path) -> None:
    ingested(trips, tmp_path, "--split", "all")
    assert infeed("ingest", trips, tmp_path / "out").exit_code == 2
    ingested(trips, tmp_path, "--overwrite")
    assert sorted(os.listdir(tmp_path / "out")) == [
        "Split-eval",
        "Split-train",
        "manifest.json",
        "statistics-eval.json",
        "statistics-train.json",
    ]
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    (tmp_path / "latest").symlink_to("out")
    assert infeed("ingest", trips, tmp_path / "latest", "--overwrite", "--split", "all").exit_code == 0
    assert os.readlink(tmp_path / "latest") == "out"
    assert sorted(os.listdir(tmp_path / "out")) == ["Split-all", "manifest.json", "statistics-all.json"]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_dataset_on_an_object_store(trips: Path, tmp_path: Path, scheme: str, request: pytest.FixtureRequest) -> None:
    store = request.getfixturevalue(scheme)
    files.write_bytes(f"{store}/in/trips.csv", trips.read_bytes())
    ended = infeed("ingest", f"{store}/in", f"{store}/out", "--shards", "2", "--json")
    assert ended.exit_code == 0, ended.output
    ingested(trips, tmp_path, "--shards", "2")
    for split in ("train", "eval"):
        assert read(f"{store}/out", split) == read(tmp_path / "out", split)
    assert files.list_folders(f"{store}/out") == ["Split-eval", "Split-train"]
    assert "200" in infeed("inspect", f"{store}/out").output


def test_a_dataset_on_an_object_store_needs_no_disk_for_its_records(
    trips: Path, s3: str, s3_requests: list[str]
) -> None:
    assert infeed("ingest", trips, s3, "--shards", "3").exit_code == 0
    of_spills = [request for request in s3_requests if "/.ingest/level-0/" in request]
    assert 0 < len([request for request in of_spills if request.startswith(("GET", "HEAD"))]) <= 3 * 2 * 3
    assert len([request for request in s3_requests if request.startswith("PUT")]) < 50


@pytest.mark.parametrize("refused", ["delete", "/data_"])
def test_a_store_that_refuses_in_the_middle_is_bad_input_and_no_dataset_is_left(
    trips: Path, s3: str, s3_refusing: list[Callable[..., bool]], refused: str
) -> None:
    s3_refusing.append(lambda method, query, path: method not in ("GET", "HEAD") and refused in f"{path}?{query}")
    ended = infeed("ingest", trips, f"{s3}/out", "--shards", "2")
    assert ended.exit_code == 2, ended.output
    assert "ACCESS_DENIED" in ended.stderr
    s3_refusing.clear()
    assert infeed("inspect", f"{s3}/out").exit_code == 2
    assert infeed("ingest", "--clean", f"{s3}/out").exit_code == 0
    assert objects(f"{s3}/out") == []


def objects(store: str) -> list[str]:
    return sorted(files.relative(file.path, store) for file in files.list_files(store, depth=9))


def test_killed_while_it_shuffles_a_second_run_removes_the_spills(trips: Path, s3: str) -> None:
    output = f"{s3}/out"
    process = start(trips, output, "--shards", "2", before=STALL)
    while not [one for one in objects(output) if "Split-eval/data" in one]:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait(120)
    assert [one for one in objects(output) if one.startswith(".ingest/level-0/")]
    files.remove(f"{output}/.ingest.lock")  # the lock of a killed run is old after two minutes
    assert infeed("ingest", trips, output, "--shards", "3", "--overwrite").exit_code == 0
    assert {one.partition("/")[0] for one in objects(output)} == {
        *("Split-eval", "Split-train", "manifest.json", "statistics-eval.json", "statistics-train.json")
    }


def test_neither_tfx_nor_beam_nor_tensorflow_is_imported(trips: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom infeed.pipelines.cli import main\n"
        f"main(['ingest', {str(trips)!r}, {str(tmp_path / 'out')!r}], standalone_mode=False)\n"
        "found = {'apache_beam', 'tfx', 'tensorflow', 'tfx_bsl'} & set(sys.modules)\nassert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def start(*arguments: Any, before: str = "", env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    code = f"{before}\nfrom infeed.pipelines.cli import main\nif __name__ == '__main__': main()"
    command = [sys.executable, "-c", code, "ingest", *map(str, arguments)]
    environment = {**os.environ, **(env or {})}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


STALL = """
import time
from infeed.components.example_gen import ingest
ingest.publish = lambda *arguments: time.sleep(600)
"""


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (signal.SIGKILL, [".out.lock", ".out.unfinished"]),
        (signal.SIGINT, []),
        (signal.SIGTERM, []),
        (signal.SIGHUP, []),
    ],
)
def test_ended_in_the_middle_nothing_is_visible_and_a_second_run_is_right(
    trips: Path, tmp_path: Path, ending: signal.Signals, left: list[str]
) -> None:
    process = start(trips, tmp_path / "out", before=STALL)
    while not list(tmp_path.glob(".out.unfinished/.ingest/Split-eval/data*")):  # the last shard before `publish`
        assert process.poll() is None
        time.sleep(0.01)
    assert "another process is writing there" in infeed("ingest", trips, tmp_path / "out").output
    process.send_signal(ending)
    assert process.wait(120) == (-ending if ending == signal.SIGKILL else 130)
    assert sorted(set(os.listdir(tmp_path)) - {"in"}) == left
    ingested(trips, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    assert sum(len(read(tmp_path / "out", split)) for split in ("train", "eval")) == 200


def test_of_two_at_once_one_writes_and_the_other_is_refused(trips: Path, tmp_path: Path) -> None:
    for _ in range(2):
        both = [start(trips, tmp_path / "out", "--shuffle-seed", seed) for seed in range(2)]
        told = [process.communicate(timeout=120)[1] for process in both]
        assert sorted(process.returncode for process in both) == [0, 2], told
        winner = [process.returncode for process in both].index(0)
        assert "another process is writing" in told[1 - winner] or "OUTPUT exists" in told[1 - winner]
        assert Manifest.read(f"{tmp_path}/out").options["shuffle_seed"] == winner
        assert sorted(os.listdir(tmp_path)) == ["in", "out"]
        files.remove(f"{tmp_path}/out")


FINISH_MEANWHILE = """
from infeed.pipelines.commands import ingest
from infeed.components.example_gen.local import unfinished
import os, subprocess, sys
def meanwhile(*arguments):
    again = "from infeed.pipelines.cli import main; main()"
    subprocess.run([sys.executable, "-c", again, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
    return unfinished(*arguments)
ingest.unfinished = meanwhile
"""


def test_a_dataset_that_is_finished_between_check_and_lock_is_not_replaced(trips: Path, tmp_path: Path) -> None:
    process = start(trips, tmp_path / "out", before=FINISH_MEANWHILE)
    _, told = process.communicate(timeout=120)
    assert (process.returncode, "OUTPUT exists" in told) == (2, True), told
    assert sum(len(read(tmp_path / "out", split)) for split in ("train", "eval")) == 200
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


WRITE_MEANWHILE = """
import os, sys
from infeed.components.example_gen import ingest
publish = ingest.publish
def meanwhile(*arguments):
    os.makedirs(sys.argv[3], exist_ok=True)
    open(sys.argv[3] + "/thesis.txt", "w").close()
    return publish(*arguments)
ingest.publish = meanwhile
"""


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_what_somebody_else_put_there_meanwhile_stays(trips: Path, tmp_path: Path, overwrite: list[str]) -> None:
    process = start(trips, tmp_path / "out", *overwrite, before=WRITE_MEANWHILE)
    _, told = process.communicate(timeout=120)
    assert (process.returncode, "'thesis.txt', which is not part" in told) == (2, True), told
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]
    assert os.listdir(tmp_path / "out") == ["thesis.txt"]


KILL = """
import os, signal
from infeed.components.dataset import files
from infeed.components.example_gen import local
left, exchanges = {left}, {exchanges}
def then_die(function):
    def called(*arguments, **named):
        global left
        done = function(*arguments, **named)
        left -= 1
        return done if left else os.kill(os.getpid(), signal.SIGKILL)
    return called
def refuse(*_):
    raise OSError(22, "this file system cannot exchange names")
local._exchange = then_die(local._exchange) if exchanges else refuse
local.os = type("Os", (), {{**vars(os), "rename": staticmethod(then_die(os.rename))}})
"""


@pytest.mark.parametrize(("exchanges", "left", "seen"), [(1, 1, "new"), (0, 1, None), (0, 2, "new"), (0, 3, "new")])
def test_killed_while_it_replaces_a_dataset_that_or_the_new_one_is_there_or_comes_back(
    trips: Path, tmp_path: Path, exchanges: int, left: int, seen: str | None
) -> None:
    def name() -> str | None:
        there = os.path.exists(tmp_path / "out" / "manifest.json")
        return (Manifest.read(f"{tmp_path}/out").options["columns"] and "new") or "old" if there else None

    ingested(trips, tmp_path)
    kill = KILL.format(left=left, exchanges=exchanges)
    process = start(trips, tmp_path / "out", "--overwrite", "--columns", "user", before=kill)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert name() == seen
    assert "OUTPUT exists" in infeed("ingest", trips, tmp_path / "out").output  # not replaced unasked
    assert name() == (seen or "old")
    assert sum(len(read(tmp_path / "out", split)) for split in ("train", "eval")) == 200
    ingested(trips, tmp_path, "--overwrite")
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_no_room_left_is_told_and_nothing_is_kept(trips: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))"
    process = start(trips, tmp_path / "out", "--compression", "none", before=limit)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told.startswith("error: cannot write: File too large\n  where: ")
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.tfx
def test_beam_writes_the_same(trips: Path, tmp_path: Path, beam_runners: list[str]) -> None:
    here = ingested(trips, tmp_path, "--shards", "3", "--split-label", "label")
    ended = infeed(
        "ingest", trips, tmp_path / "beam", "--shards", "3", "--split-label", "label", "--runner", "direct", "--json"
    )
    assert ended.exit_code == 0, ended.output
    assert set(beam_runners) == {"FnApiRunner"}
    assert json.loads(ended.output)["manifest"] == here  # checksums of all shards


@pytest.mark.image
def test_a_dask_cluster_writes_the_same_and_says_what_is_wrong(trips: Path, tmp_path: Path) -> None:
    from dask.distributed import LocalCluster, default_client

    for copy in ("more.csv", "most.csv"):  # a task each
        trips.with_name(copy).write_bytes(trips.read_bytes())
    wanted = ("--format", "csv", "--shards", "3")
    here = json.loads(infeed("ingest", trips.parent, tmp_path / "out", *wanted, "--json").output)["manifest"]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        on_dask = ("--runner", "dask", f"--beam-option=--dask_client_address={cluster.scheduler_address}")
        ended = infeed("ingest", trips.parent, tmp_path / "dask", *wanted, *on_dask, "--json")
        default_client().close()  # which Beam leaves open: it would miss the cluster, aloud
        trips.write_text("user,fare\nu1,2\nu2\n")
        refused = infeed("ingest", trips, tmp_path / "bad", *on_dask)
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.output)["manifest"] == here
    assert (refused.exit_code, "1 cell, but the header has 2" in refused.output) == (2, True), refused.output
    assert sorted(os.listdir(tmp_path)) == ["dask", "in", "out"]


@pytest.mark.tfx
@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])  # the latter hands on text alone, as Prism does
def test_a_mistake_on_a_beam_worker_is_told_in_its_own_words(
    trips: Path, tmp_path: Path, mode: str, warm: Mapping[str, str]
) -> None:
    env = None if mode == "in_memory" else warm  # one of them from a cold start, which says what Beam says then
    with trips.open("a") as file:
        file.write("u1,2\n")
    on_beam = ("--runner", "direct", f"--beam-option=--direct_running_mode={mode}")
    process = start(trips, tmp_path / "out", "--on-bad-row", "reject", "--bad-row-limit", "0", *on_beam, env=env)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told == (  # no traceback, and nothing else that Beam writes
        f"error: more than 0 bad rows\n  where: the last at {trips}, line 202\n"
        "  do:    correct the input, check the format's options, or raise bad_row_limit: --bad-row-limit 10\n"
    )
    assert os.listdir(tmp_path) == ["in"]


def packed(options: IngestOptions, shares: dict[str, int]) -> str:
    """The config of a compiled job."""
    train, blessing = TrainOptions("model.py:f", label="label"), Blessing("accuracy", 0.5)
    labels = (LabelFacts("label", "classification"),)
    resolved = Resolved("t", "csv", {}, (), train, blessing, options, {}, shares, None, 0, labels)
    return pack(resolved.to_json())


def test_a_compiled_job_ingests_each_span_once(trips: Path, tmp_path: Path) -> None:
    rows = trips.read_text().splitlines()
    for number in (1, 2, 3):
        (tmp_path / f"span-{number}.csv").write_text("\n".join([rows[0], *rows[number * 50 : number * 60]]))
    options = IngestOptions(statistics=False, spans=Spans("span-{SPAN}.csv", 2, f"{tmp_path}/spans"))
    step = ("ingest", packed(options, {"train": 1}), tmp_path / "out", "--data", tmp_path, "--overwrite")

    def spans() -> list[str]:
        ended = infeed(*step)
        assert ended.exit_code == 0, ended.output
        return sorted(name.partition("-")[0] for name in os.listdir(tmp_path / "spans") if name[0] != ".")

    (tmp_path / "span-3.csv").rename(tmp_path / "later")
    assert spans() == ["1", "2"]
    assert Manifest.read(f"{tmp_path}/out").rows_read == 10 + 20
    (tmp_path / "later").rename(tmp_path / "span-3.csv")
    assert spans() == ["1", "2", "3"]
    assert Manifest.read(f"{tmp_path}/out").rows_read == len(read(tmp_path / "out", "train")) == 20 + 30


@pytest.mark.tfx
def test_the_spans_of_a_step_without_tfx_are_those_of_the_example_gen(trips: Path, tmp_path: Path) -> None:
    from tfx.components.example_gen import utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    from infeed.components import CsvExampleGen
    from infeed.components.example_gen.executor import Executor

    shutil.copy(trips, tmp_path / "span-1.csv")
    spans = Spans("span-{SPAN}.csv", 2, f"{tmp_path}/spans")
    options = IngestOptions(statistics=False, spans=spans, filter="label != 'x'")
    shares = {"train": 2, "eval": 1}
    assert infeed("ingest", packed(options, shares), tmp_path / "out", "--data", tmp_path).exit_code == 0
    ingested = os.listdir(tmp_path / "spans")
    buckets = [{"name": name, "hash_buckets": share} for name, share in shares.items()]
    output = example_gen_pb2.Output(split_config={"splits": buckets})
    matching = utils.make_default_input_config(spans.glob)
    example_gen = CsvExampleGen(str(tmp_path), matching, output, options=options)
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    Executor().Do({}, {"examples": [examples]}, example_gen.exec_properties)
    assert os.listdir(tmp_path / "spans") == ingested
