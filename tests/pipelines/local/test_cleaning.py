"""What cleaning removes from a root and what it keeps, with a real store of ML Metadata and folders on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from infeed.components.base import schema
from infeed.pipelines.local import cleaning
from infeed.pipelines.local.cleaning import clean, plan_cleaning
from infeed.pipelines.local.history import PastRun, read_runs
from infeed.pipelines.local.outcome import open_store

COMPLETE, CACHED, FAILED = mlmd.Execution.COMPLETE, mlmd.Execution.CACHED, mlmd.Execution.FAILED
BYTES = 1000  # of each output


class Root:
    """A root in which runs are played: examples -> model -> blessing and pushed model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = open_store(str(folder / "metadata.sqlite"))
        self.executions = self.store.put_execution_type(mlmd.ExecutionType(name="node"))

    def run(self, name: str, *, blessed: bool = True, data: Any = None, fails: bool = False) -> dict[str, Any]:
        """Play a run. With `data`, the Examples of an earlier run, its first node is cached."""
        self.context = self._context("pipeline_run", name)
        examples = data or self._execute("CsvExampleGen", {}, {"examples": "Examples"})["examples"]
        if data:
            self._publish("CsvExampleGen", CACHED, [], [("examples", data)])
        if fails:
            self._publish("Trainer", FAILED, [examples], [])
            return {"examples": examples}
        model = self._execute("Trainer", {"examples": examples}, {"model": "Model"})["model"]
        given = {"examples": examples, "model": model}
        judged = self._execute("Evaluator", given, {"blessing": "ModelBlessing"}, blessed=int(blessed))
        pushed = self._execute("Pusher", {**given, **judged}, {"pushed_model": "PushedModel"}, pushed=int(blessed))
        return {"examples": examples, "model": model, **judged, **pushed}

    def _context(self, type_name: str, name: str) -> int:
        kind = self.store.put_context_type(mlmd.ContextType(name=type_name))
        found = self.store.get_context_by_type_and_name(type_name, name)
        return found.id if found else self.store.put_contexts([mlmd.Context(type_id=kind, name=name)])[0]

    def _execute(self, node: str, inputs: dict[str, Any], outputs: dict[str, str], **marks: int) -> dict[str, Any]:
        number = self._publish(node, COMPLETE, inputs.values(), [])
        made = {key: self._artifact(kind, f"{node}/{key}/{number}", marks) for key, kind in outputs.items()}
        self._events(number, mlmd.Event.OUTPUT, made.values())
        return made

    def _publish(self, node: str, state: int, inputs: Any, outputs: Any) -> int:
        execution = mlmd.Execution(type_id=self.executions, last_known_state=state)
        (number,) = self.store.put_executions([execution])
        contexts = [self.context, self._context("node", f"taxi.{node}")]
        pairs = [mlmd.Association(context_id=context, execution_id=number) for context in contexts]
        self.store.put_attributions_and_associations([], pairs)
        self._events(number, mlmd.Event.INPUT, inputs)
        self._events(number, mlmd.Event.OUTPUT, [artifact for _, artifact in outputs])
        return int(number)

    def _artifact(self, kind: str, place: str, marks: dict[str, int]) -> mlmd.Artifact:
        folder = self.folder / "artifacts" / place
        folder.mkdir(parents=True)
        (folder / "content").write_bytes(bytes(BYTES))
        type_id = self.store.put_artifact_type(mlmd.ArtifactType(name=kind))
        artifact = mlmd.Artifact(type_id=type_id, uri=str(folder), state=mlmd.Artifact.LIVE)
        for name, value in marks.items():
            artifact.custom_properties[name].int_value = value
        (artifact.id,) = self.store.put_artifacts([artifact])
        return artifact

    def _events(self, execution: int, kind: int, artifacts: Any) -> None:
        events = [mlmd.Event(execution_id=execution, artifact_id=one.id, type=kind) for one in artifacts]
        self.store.put_events(events)

    def left(self, *runs: dict[str, Any]) -> list[set[str]]:
        """The outputs of each run that are still on disk."""
        return [{key for key, artifact in run.items() if Path(artifact.uri).exists()} for run in runs]

    def states(self, run: dict[str, Any]) -> set[int]:
        return {artifact.state for artifact in self.store.get_artifacts_by_id([one.id for one in run.values()])}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def cleaned(root: Root, keep: int = 1) -> int:
    plan = plan_cleaning(str(root.folder), keep)
    clean(plan)
    return plan.bytes


def test_the_newest_runs_stay_and_metadata_forgets_no_artifact_but_marks_it(root: Root) -> None:
    first, second, third = (root.run(name) for name in "abc")
    assert cleaned(root, keep=2) == 4 * BYTES
    assert root.left(first, second, third) == [set(), set(second), set(third)]
    assert root.states(first) == {mlmd.Artifact.DELETED}
    assert root.states(second) == {mlmd.Artifact.LIVE}
    assert cleaned(root, keep=2) == 0


def test_the_history_forgets_old_runs_except_that_of_the_latest_good_model(root: Root) -> None:
    data = None
    for number, name in enumerate("abcd", 1):
        data = root.run(name, blessed=name == "b", data=data)["examples"]
        entry = root.folder / "history" / f"{number:04}.json"
        entry.parent.mkdir(exist_ok=True)
        entry.write_text(json.dumps(schema.to_plain(PastRun(number, name, {}))))
    assert [run.number for run in plan_cleaning(str(root.folder), 1).runs] == [3, 1]
    cleaned(root)
    assert [run.number for run in read_runs(str(root.folder))] == [4, 2]


def test_the_latest_good_model_stays_with_all_that_it_was_made_from(root: Root) -> None:
    good, bad = root.run("a"), root.run("b", blessed=False)
    newest = root.run("c", blessed=False)
    cleaned(root)
    assert root.left(good, bad, newest) == [set(good), set(), set(newest)]


def test_the_cache_stays_complete_after_a_failed_run(root: Root) -> None:
    first = root.run("a")
    root.run("b", data=first["examples"], fails=True)
    other = root.run("c", fails=True)
    assert cleaned(root) == 0
    assert root.left(first, other) == [set(first), {"examples"}]


def test_a_moved_root_loses_nothing_that_it_needs(root: Root, tmp_path: Path) -> None:
    root.run("a")
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    shutil.copytree(tmp_path, moved)
    assert plan_cleaning(str(moved), 1).places == ()


def test_what_a_killed_run_left_goes_and_other_folders_stay(root: Root) -> None:
    root.run("a")
    artifacts = root.folder / "artifacts"
    for place in ("Trainer/model/99", "Trainer/model/mine", "Trainer/.system/7"):
        (artifacts / place).mkdir(parents=True)
    cleaned(root)
    assert {path.name for path in (artifacts / "Trainer").glob("*/*")} == {"2", "mine", "7"}


def test_the_next_call_completes_a_cleaning_that_was_killed(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = root.run("a"), root.run("b")

    def killed(path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cleaning.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            cleaned(root)
    assert root.states(first) == {mlmd.Artifact.DELETED}  # no later run uses what may be half removed
    assert cleaned(root) == 4 * BYTES
    assert root.left(first, second) == [set(), set(second)]


def test_nothing_is_removed_from_a_folder_without_metadata(tmp_path: Path) -> None:
    (tmp_path / "artifacts" / "a" / "b" / "1").mkdir(parents=True)
    assert plan_cleaning(str(tmp_path), 1).places == ()
