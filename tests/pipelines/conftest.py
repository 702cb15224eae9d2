from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.cluster.containers import problem
from infeed.pipelines.config import Blessing, PipelineConfig
from infeed.pipelines.local.outcome import RunOutcome
from infeed.pipelines.surveys import ColumnSurvey, TableSurvey

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[..., None]:
    """golden(name, text, path): the text, with `path` as PATH, is that of `golden/NAME`, which a flag writes anew."""

    def check(name: str, text: str, path: object = None) -> None:
        text = text if path is None else text.replace(str(path), "PATH")
        if os.environ.get("INFEED_RENEW_GOLDEN"):
            (GOLDEN / name).write_text(text, encoding="utf-8")
        assert text == (GOLDEN / name).read_text(encoding="utf-8")

    return check


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`trial_pipelines.py`, imported by the tests that ask for it and not while tests are collected: it loads TFX."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("trial_pipelines")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`small_jobs.py`: compiled jobs whose steps are a few lines of Python."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("small_jobs")


@pytest.fixture
def compiled_jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`cluster/submit/jobs.py`: small jobs, as a compiler would write them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "cluster" / "submit"))
    return importlib.import_module("jobs")


@pytest.fixture
def serve(compiled_jobs: ModuleType) -> Iterator[Callable[..., Any]]:
    """serve(FRAME, ...): a server that stands in for Kubeflow Pipelines."""
    kfp_server, stand_in = importlib.import_module("kfp_server"), importlib.import_module("stand_in")
    with stand_in.serving(kfp_server.KfpServer) as started:
        yield started


@pytest.fixture(scope="session")
def table_run(once: Callable[..., Path], warm: Mapping[str, str]) -> SimpleNamespace:
    """`infeed run tabular`, as its user runs it: its `root`, other `options`, and the `result` that --json prints."""
    options = ("--epochs", "10")

    def write(folder: Path) -> None:
        command = [Path(sys.executable).with_name("infeed"), "run", "tabular", "--root", folder, "--json", *options]
        done = subprocess.run(command, env={**os.environ, **warm}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        (folder / "result.json").write_text(done.stdout)

    root = once("tabular", write)
    return SimpleNamespace(root=root, options=options, result=json.loads((root / "result.json").read_text()))


@pytest.fixture
def taxi() -> PipelineConfig:
    """The config of a classification, of whose files none has to exist."""
    label = ColumnSurvey("y", "int", 100, 0, 2, 0.5, 0.5, 60)
    return PipelineConfig(
        name="taxi",
        root="/runs/taxi",
        source="csv",
        data="/data/rides.csv",
        source_options={},
        features=(),
        train=TrainOptions("model.py:build", label="y"),
        blessing=Blessing("accuracy", 0.6),
        survey=TableSurvey((), label, "classification", 100, ("0", "1"), (60, 40)),
    )


@pytest.fixture
def run_outcome() -> RunOutcome:
    """The outcome of a run whose model is blessed."""
    return RunOutcome(
        "test",
        33,
        {"accuracy": 0.9},
        {"accuracy": (0.85, 0.95)},
        blessed=True,
        reasons=(),
        model="/model",
        pushed="/serving/1",
        verdict="balanced",
        wait_fraction=0.12,
        wait_uncertainty=0.03,
        bottleneck="augment",
        report="/report/report.html",
    )


@pytest.fixture
def past_runs() -> Callable[[Path], Callable[..., None]]:
    """past_runs(ROOT)(NAME, NODE=(state, {output: (uri, properties)})): a run in ML Metadata, as TFX records it."""
    return _recorder


def _recorder(root: Path) -> Callable[..., None]:
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    from infeed.pipelines.local.outcome import open_store

    store = open_store(str(root / "metadata.sqlite"))
    kinds = {name: store.put_context_type(mlmd.ContextType(name=name)) for name in ("pipeline_run", "node")}
    of_execution, of_artifact = mlmd.ExecutionType(name="Node"), mlmd.ArtifactType(name="Output")
    kinds |= {"Node": store.put_execution_type(of_execution), "Output": store.put_artifact_type(of_artifact)}

    def context(kind: str, name: str) -> int:
        known = store.get_context_by_type_and_name(kind, name)
        return known.id if known else store.put_contexts([mlmd.Context(type_id=kinds[kind], name=name)])[0]

    def record(run: str, **nodes: tuple[str, Mapping[str, tuple[Path, Mapping[str, float]]]]) -> None:
        for node, (state, outputs) in nodes.items():
            execution = mlmd.Execution(type_id=kinds["Node"], last_known_state=state)
            made = []
            for key, (uri, properties) in outputs.items():
                artifact = mlmd.Artifact(type_id=kinds["Output"], uri=str(uri))
                for name, value in properties.items():
                    kind = "int_value" if isinstance(value, int) else "double_value"
                    setattr(artifact.custom_properties[name], kind, value)
                event = mlmd.Event(type=mlmd.Event.OUTPUT)
                event.path.steps.add().key = key
                made.append((artifact, event))
            contexts = [context("pipeline_run", run), context("node", f"taxi.{node}")]
            found = [mlmd.Context(id=one) for one in contexts]
            number, _, _ = store.put_execution(execution, made, [])
            store.put_attributions_and_associations(
                [], [mlmd.Association(execution_id=number, context_id=one.id) for one in found]
            )

    return record


class FakeEngines:
    """Container engines that are shell scripts, and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, script: str = "") -> None:
        """An engine that does `script` in sh, with its own arguments; by default it only succeeds."""
        file = self._folder / name
        file.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" '' >>{self._folder}/{name}.calls\n{script}\n")
        file.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of each call so far."""
        text = (self._folder / f"{name}.calls").read_text()
        return [call.split("\n") for call in text.removesuffix("\n\n").split("\n\n")]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngines:
    """The only container engines on the PATH; none at first."""
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "bash").symlink_to(shutil.which("bash") or "")
    monkeypatch.setenv("PATH", str(folder))
    problem.cache_clear()
    return FakeEngines(folder)


@pytest.fixture(scope="session")
def private_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


@pytest.fixture
def google_account(private_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Google's default credentials: a service account of nobody, with a server that gives it tokens."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "cluster" / "submit"))
    from stand_in import Answer, StandIn

    tokens = StandIn()
    tokens.fail("POST", "/token", *[Answer({"access_token": "of nobody", "expires_in": 3600})] * 9)
    account = {"type": "service_account", "client_email": "nobody@p.iam.gserviceaccount.com"}
    key_file = tmp_path / "key.json"
    key_file.write_text(json.dumps({**account, "private_key": private_key, "token_uri": f"{tokens.url}/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # google-auth asks Google about the account in a thread
    look = "google.cloud.aiplatform.utils.gcs_utils.create_gcs_bucket_for_pipeline_artifacts_if_it_does_not_exist"
    monkeypatch.setattr(look, lambda **_: None)  # asks other services than Vertex AI
    yield
    tokens.close()
