"""Jobs that kfp's own SDK compiles: what it makes of conditions, branches, exit handlers and placeholders."""

# No `from __future__ import annotations`: kfp reads the annotations of components.

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.pipelines.cluster.job.compiled import CompiledJob
from infeed.pipelines.cluster.rehearse.launch import Faults

pytestmark = pytest.mark.slow

SAY = "import os, sys; out, *words = sys.argv[1:]; open(out, 'w').write(' '.join(words))"


def compiled(pipeline: Any, path: Path) -> CompiledJob:
    from kfp import compiler

    compiler.Compiler().compile(pipeline, str(path))
    return CompiledJob.read(path)


@pytest.fixture(scope="module")
def say() -> Any:
    """A component that returns the word it is given."""
    from kfp import dsl

    @dsl.container_component
    def say(word: str, out: dsl.OutputPath(str)):  # type: ignore[valid-type]
        return dsl.ContainerSpec(image="python:3.10", command=["python", "-S", "-c", SAY], args=[out, word])

    return say


@pytest.fixture(scope="module")
def branches(say: Any, tmp_path_factory: pytest.TempPathFactory) -> CompiledJob:
    """`side` decides which of three steps runs; `last` takes the word of that one; `bye` comes after all."""
    from kfp import dsl

    @dsl.pipeline(name="branches")
    def pipeline(side: str = "left", n: int = 1, flag: bool = True):
        bye = say(word=f"bye {side}").set_display_name("bye")
        with dsl.ExitHandler(bye):
            coin = say(word=side)
            with dsl.If(coin.output == "left"):
                one = say(word="one")
            with dsl.Elif(n > 2):
                two = say(word="two")
            with dsl.Else():
                three = say(word="three")
            last = say(word=dsl.OneOf(one.output, two.output, three.output))
            with dsl.If(flag == True):  # noqa: E712 - kfp compiles the comparison
                say(word=last.output)

    return compiled(pipeline, tmp_path_factory.mktemp("kfp") / "branches.yaml")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ((), ["bye left", "left", "one", "one", "one"]),
        (("side=right", "n=3"), ["bye right", "right", "two", "two", "two"]),
        (("side=right", "flag=false"), ["bye right", "right", "three", "three"]),
    ],
)
def test_the_branch_whose_condition_holds_runs_alone(
    jobs: ModuleType, branches: CompiledJob, tmp_path: Path, parameters: tuple[str, ...], said: list[str]
) -> None:
    rehearsal = jobs.run(branches, tmp_path, parameters=parameters, use_cache=False)
    assert rehearsal.report.succeeded
    written = sorted((tmp_path / "artifacts").glob("*/**/output_parameters/out"))
    assert sorted(path.read_text() for path in written) == said
    skipped = [node for node in rehearsal.report.nodes if node.state.value == "skipped"]
    assert {node.note for node in skipped} == {"its condition is false"}


def test_metadata_paths_retries_and_structures(jobs: ModuleType, tmp_path: Path) -> None:
    from kfp import dsl

    @dsl.container_component
    def learn(model: dsl.Output[dsl.Model]):
        return dsl.ContainerSpec("python:3.10", command=["python", "-S", "-c", SAY], args=[model.path, "weights"])

    @dsl.container_component
    def use(model: dsl.Input[dsl.Model], out: dsl.OutputPath(str), n: int = 3):  # type: ignore[valid-type]
        read = "import sys; out, path, *rest = sys.argv[1:]; open(out, 'w').write(open(path).read() + str(rest))"
        structures = [dsl.ConcatPlaceholder(["--n=", n]), dsl.IfPresentPlaceholder("n", then=["there"])]
        args = [out, model.path, *structures]
        return dsl.ContainerSpec("python:3.10", command=["python", "-S", "-c", read], args=args)

    @dsl.pipeline(name="paths")
    def pipeline(uri: str = str(tmp_path / "given")):
        made = learn().set_retry(2, backoff_duration="60s")
        use(model=made.outputs["model"])
        given = dsl.importer(artifact_uri=uri, artifact_class=dsl.Model, metadata={"origin": uri})
        use(model=given.output, n=4)

    (tmp_path / "given").write_text("given")
    compiled_job = compiled(pipeline, tmp_path / "job.yaml")
    rehearsal = jobs.run(compiled_job, tmp_path / "root", faults=Faults.parse(["learn:2"], []))
    assert rehearsal.report.succeeded
    assert jobs.node(rehearsal, "learn").note == "attempt 3 of 3, 2 killed on purpose"
    said = [path.read_text() for path in (tmp_path / "root" / "artifacts").glob("*/use*/1/output_parameters/out")]
    assert sorted(said) == ["given['--n=4', 'there']", "weights['--n=3', 'there']"]
    [artifact] = rehearsal.outputs["importer"]["artifact"]
    assert artifact.metadata == {"origin": str(tmp_path / "given")}
