from __future__ import annotations

import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infeed.components.base.errors import InfeedError
from infeed.pipelines.cluster.rehearse.launch import Faults
from infeed.pipelines.cluster.rehearse.rehearsal import PathMapping, RehearseOptions, rehearse
from infeed.pipelines.console.nodes import NodeState

pytestmark = pytest.mark.slow


def chain(jobs: ModuleType, **more: Any) -> Any:
    """learn -> push: the second takes what the first made."""
    learn = jobs.step("write('model', 'weights', epochs=3)", gives=["model"], **more)
    push = jobs.step("write('pushed', read('model') + ' pushed')", takes={"model": "learn.model"}, gives=["pushed"])
    return jobs.job({"push": push, "learn": learn})


def test_a_step_reads_what_the_one_before_it_wrote(jobs: ModuleType, tmp_path: Path) -> None:
    rehearsal = jobs.run(chain(jobs), tmp_path)
    assert jobs.states(rehearsal) == {"learn": "done", "push": "done"}
    assert jobs.text(rehearsal, "push", "pushed") == "weights pushed"


def test_metadata_goes_with_an_artifact_from_step_to_step(jobs: ModuleType, tmp_path: Path) -> None:
    learn = jobs.step("write('model', 'weights', epochs=3)", gives=["model"])
    tell = jobs.step("write('seen', json.dumps(source('model')))", takes={"model": "learn.model"}, gives=["seen"])
    rehearsal = jobs.run(jobs.job({"learn": learn, "tell": tell}), tmp_path)
    [model] = rehearsal.outputs["learn"]["model"]
    assert json.loads(jobs.text(rehearsal, "tell", "seen")) == {
        "name": model.name,
        "type": jobs.MODEL,
        "uri": model.uri,
        "metadata": {"epochs": 3},
    }


@pytest.mark.parametrize(
    ("schema", "constant", "seen"),
    [
        ("2.1.0", {"constant": 3.0}, {"n": 3}),  # TFX writes its integers with a point
        ("2.0.0", {"constantValue": {"intValue": "3"}}, {"n": {"intValue": "3"}}),
    ],
)
def test_parameters_are_typed_as_the_schema_has_them(
    jobs: ModuleType, tmp_path: Path, schema: str, constant: Any, seen: Any
) -> None:
    tell = jobs.step("write('seen', json.dumps(values))", parameters={"n": {"runtimeValue": constant}}, gives=["seen"])
    rehearsal = jobs.run(jobs.job({"tell": tell}, schema=schema), tmp_path)
    assert json.loads(jobs.text(rehearsal, "tell", "seen")) == seen


def test_runtime_parameters_have_defaults_and_can_be_set(jobs: ModuleType, tmp_path: Path) -> None:
    tell = jobs.step(
        "write('seen', json.dumps(values))",
        parameters={"n": {"componentInputParameter": "epochs"}, "s": {"componentInputParameter": "strategy"}},
        gives=["seen"],
    )
    declared = {
        "epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3},
        "strategy": {"parameterType": "STRING", "defaultValue": "auto"},
    }
    rehearsal = jobs.run(jobs.job({"tell": tell}, declared), tmp_path, parameters=("epochs=7",))
    assert json.loads(jobs.text(rehearsal, "tell", "seen")) == {"n": 7, "s": "auto"}


def test_output_parameters_come_from_their_files_in_their_types(jobs: ModuleType, tmp_path: Path) -> None:
    count = jobs.step(
        "open(outputs['parameters']['rows']['outputFile'], 'w').write('12')", returns={"rows": "NUMBER_INTEGER"}
    )
    rows = {"taskOutputParameter": {"producerTask": "count", "outputParameterKey": "rows"}}
    tell = jobs.step("write('seen', json.dumps(values))", parameters={"n": rows}, gives=["seen"])
    rehearsal = jobs.run(jobs.job({"count": count, "tell": tell}), tmp_path)
    assert json.loads(jobs.text(rehearsal, "tell", "seen")) == {"n": 12}


def test_a_step_that_does_not_write_its_output_parameter_has_failed(jobs: ModuleType, tmp_path: Path) -> None:
    rehearsal = jobs.run(jobs.job({"count": jobs.step(returns={"rows": "NUMBER_INTEGER"})}), tmp_path)
    assert "did not write its output parameter 'rows'" in jobs.node(rehearsal, "count").error


DRIVER = "said['parameterValues']['fingerprint'] = open({path!r}).read(); write('examples', '', span=4)"
INGEST = "write('examples', values['fingerprint'] + str(outputs['artifacts']['examples']['artifacts'][0]['metadata']))"


def test_what_the_driver_says_reaches_the_step_and_decides_about_the_cache(jobs: ModuleType, tmp_path: Path) -> None:
    data = tmp_path / "data"
    compiled = jobs.job({"ingest": jobs.step(INGEST, gives=["examples"], driver=DRIVER.format(path=str(data)))})
    data.write_text("one")
    first = jobs.run(compiled, tmp_path / "root")
    assert jobs.text(first, "ingest", "examples") == "one{'span': 4}"
    assert jobs.states(jobs.run(compiled, tmp_path / "root")) == {"ingest": "cached"}
    data.write_text("two")
    assert jobs.states(jobs.run(compiled, tmp_path / "root")) == {"ingest": "done"}


def test_the_second_time_outputs_come_from_the_cache(jobs: ModuleType, tmp_path: Path) -> None:
    first, second = (jobs.run(chain(jobs), tmp_path) for _ in range(2))
    assert jobs.states(second) == {"learn": "cached", "push": "cached"}
    assert second.outputs == first.outputs
    assert jobs.node(second, "push").note == f"made in {first.name}"


def test_steps_that_may_not_be_cached_run_again_and_so_do_those_after_them(jobs: ModuleType, tmp_path: Path) -> None:
    jobs.run(chain(jobs), tmp_path)
    assert jobs.states(jobs.run(chain(jobs, cache=False), tmp_path)) == {"learn": "done", "push": "done"}


def test_what_succeeded_before_an_interrupt_is_not_lost(jobs: ModuleType, tmp_path: Path) -> None:
    def interrupt(nodes: Any) -> None:
        if nodes[1].state is NodeState.RUNNING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rehearse(chain(jobs), RehearseOptions(root=str(tmp_path)), interrupt)
    assert jobs.states(jobs.run(chain(jobs), tmp_path)) == {"learn": "cached", "push": "done"}


# Each step waits for a file of the other.
MEETING = (
    "import pathlib, time; pathlib.Path('{mine}').touch(); until = time.monotonic() + 120\n"
    "while not os.path.exists('{other}') and time.monotonic() < until: time.sleep(0.01)\n"
    "assert os.path.exists('{other}')"
)


def test_steps_that_do_not_depend_on_each_other_run_side_by_side(jobs: ModuleType, tmp_path: Path) -> None:
    steps = {"a": jobs.step(MEETING.format(mine="a", other="b")), "b": jobs.step(MEETING.format(mine="b", other="a"))}
    rehearsal = jobs.run(jobs.job(steps), tmp_path, project=str(tmp_path), workers=2)
    assert jobs.states(rehearsal) == {"a": "done", "b": "done"}


def test_an_interrupt_ends_every_running_step(jobs: ModuleType, tmp_path: Path) -> None:
    def interrupt(nodes: Any) -> None:
        if all(node.state is NodeState.RUNNING for node in nodes):
            raise KeyboardInterrupt

    waits = "import time; time.sleep(600)"
    job = jobs.job({"a": jobs.step(waits, retries=1), "b": jobs.step(waits)})
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        rehearse(job, RehearseOptions(root=str(tmp_path), workers=2), interrupt)
    assert time.monotonic() - begun < 300


def test_a_failure_ends_the_rehearsal_in_the_steps_own_words(jobs: ModuleType, tmp_path: Path) -> None:
    learn = jobs.step("raise ValueError('the loss is not a number')", gives=["model"])
    push = jobs.step(takes={"model": "learn.model"})
    other = jobs.step()
    rehearsal = jobs.run(jobs.job({"learn": learn, "other": other, "push": push}), tmp_path, workers=1)
    assert jobs.states(rehearsal) == {"learn": "failed", "other": "skipped", "push": "skipped"}
    assert jobs.node(rehearsal, "learn").error == "ValueError: the loss is not a number (exit status 1)"
    assert "Traceback" in (tmp_path / "logs" / rehearsal.name / "learn.log").read_text()


def test_an_exit_handler_runs_after_a_failure_and_is_told_of_it(jobs: ModuleType, tmp_path: Path) -> None:
    fail = jobs.step("sys.exit(3)")
    status = {"taskFinalStatus": {"producerTask": "fail"}}
    handler = jobs.step(
        "write('seen', json.dumps(values['status']))",
        gives=["seen"],
        parameters={"status": status},
        triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
    )
    compiled = jobs.job({"fail": fail, "handler": handler})
    compiled.spec["components"]["comp-handler"]["inputDefinitions"]["parameters"]["status"] = {
        "parameterType": "TASK_FINAL_STATUS"
    }
    rehearsal = jobs.run(compiled, tmp_path)
    assert jobs.states(rehearsal) == {"fail": "failed", "handler": "done"}
    seen = json.loads(jobs.text(rehearsal, "handler", "seen"))
    assert (seen["state"], seen["error"]["message"], seen["pipelineTaskName"]) == ("FAILED", "exit status 3", "fail")


COUNT_FILES = "write('model', ' '.join(sorted(os.listdir(os.path.dirname(outputs['outputFile'])))))"
FIRST_DIES = "first = open({path!r}, 'a').tell() == 0; open({path!r}, 'a').write('x'); import time\n"


@pytest.mark.parametrize(
    ("faults", "found"), [(Faults.parse(["learn"], []), ""), (Faults.parse([], ["learn"]), "model")], ids=["", "leave"]
)
def test_a_step_that_dies_is_retried_in_a_fresh_folder_or_finds_what_the_dead_one_left(
    jobs: ModuleType, tmp_path: Path, faults: Faults, found: str
) -> None:
    script = FIRST_DIES.format(path=str(tmp_path / "marks")) + f"{COUNT_FILES}\nif first: time.sleep(60)"
    compiled = jobs.job({"learn": jobs.step(script, gives=["model"], retries=2)})
    rehearsal = jobs.run(compiled, tmp_path, faults=faults)
    assert jobs.states(rehearsal) == {"learn": "done"}
    assert jobs.node(rehearsal, "learn").note == "attempt 2 of 3, 1 killed on purpose"
    assert jobs.text(rehearsal, "learn", "model") == found
    assert (tmp_path / "marks").read_text() == "xx"


def blessing_job(jobs: ModuleType) -> Any:
    """As TFX compiles its LatestBlessedModelStrategy: two resolvers, the second asks by what the first has found."""
    blessings = 'schema_title="tfx.ModelBlessing" AND state=LIVE AND metadata.blessed.number_value=1'
    models = (
        'schema_title="tfx.Model" AND state=LIVE AND '
        "name=\"{{$.inputs.artifacts['input'].metadata['current_model_id']}}\""
    )
    find = jobs.step(gives={"blessing": {"schemaTitle": "tfx.ModelBlessing"}})
    find["executor"] = {"resolver": {"outputArtifactQueries": {"blessing": {"filter": blessings}}}}
    fetch = jobs.step(takes={"input": "find.blessing"}, gives=["model"])
    fetch["executor"] = {"resolver": {"outputArtifactQueries": {"model": {"filter": models}}}}
    learn = jobs.step("write('model', str(len(inputs['artifacts']['base']['artifacts'])))", gives=["model"],
                      takes={"base": "fetch.model"}, cache=False)  # fmt: skip
    bless = jobs.step(
        "write('blessing', '', blessed=int(values['good']), current_model_id=source('model')['name'])",
        takes={"model": "learn.model"},
        parameters={"good": {"componentInputParameter": "good"}},
        gives={"blessing": {"schemaTitle": "tfx.ModelBlessing"}},
    )
    declared = {"good": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1}}
    return jobs.job({"find": find, "fetch": fetch, "learn": learn, "bless": bless}, declared)


def test_a_resolver_finds_the_latest_blessed_model_of_earlier_rehearsals(jobs: ModuleType, tmp_path: Path) -> None:
    compiled = blessing_job(jobs)
    good = jobs.run(compiled, tmp_path)
    assert jobs.node(good, "find").note == jobs.node(good, "fetch").note == "found nothing"
    assert jobs.text(good, "learn", "model") == "0"
    bad = jobs.run(compiled, tmp_path, parameters=("good=0",))
    last = jobs.run(compiled, tmp_path)
    for rehearsal in (bad, last):
        assert rehearsal.outputs["fetch"]["model"] == good.outputs["learn"]["model"]
    assert jobs.text(last, "learn", "model") == "1"


def test_an_importer_names_an_artifact_once(jobs: ModuleType, tmp_path: Path) -> None:
    load = jobs.step(gives=["model"], parameters={"uri": str(tmp_path), "from": "lab"})
    metadata = {"source": "{{$.inputs.parameters['from']}}"}
    uri = {"runtimeParameter": "uri"}
    load["executor"] = {"importer": {"artifactUri": uri, "typeSchema": jobs.MODEL, "metadata": metadata}}
    use = jobs.step("write('seen', json.dumps(source('model')))", takes={"model": "load.model"}, gives=["seen"])
    compiled = jobs.job({"load": load, "use": use})
    first = jobs.run(compiled, tmp_path / "root")
    seen = json.loads(jobs.text(first, "use", "seen"))
    assert (seen["uri"], seen["metadata"]) == (str(tmp_path), {"source": "lab"})
    assert jobs.states(jobs.run(compiled, tmp_path / "root"))["use"] == "cached"
    load["executor"]["importer"]["reimport"] = True
    assert jobs.states(jobs.run(compiled, tmp_path / "root"))["use"] == "done"


def test_buckets_of_the_job_are_folders_here(jobs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("rows")
    config = '{"base": "gs://bucket/data", "splits": []}'  # TFX hands much over as JSON inside of strings
    ingest = jobs.step("write('examples', open(json.loads(values['c'])['base']).read())", gives=["examples"],
                       parameters={"c": config})  # fmt: skip
    maps = (PathMapping.parse(f"gs://bucket={tmp_path}"),)
    rehearsal = jobs.run(jobs.job({"ingest": ingest}), tmp_path / "root", maps=maps)
    assert jobs.text(rehearsal, "ingest", "examples") == "rows"


def test_a_bucket_that_nothing_stands_for_is_refused_before_anything_runs(jobs: ModuleType, tmp_path: Path) -> None:
    compiled = jobs.job({"ingest": jobs.step(parameters={"base": "gs://bucket/data", "out": "gs://bucket/out"})})
    with pytest.raises(InfeedError, match=r"the job names gs://bucket/data and 1 more(.|\n)*--map gs://bucket=FOLDER"):
        jobs.run(compiled, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_two_rehearsals_do_not_share_a_root(jobs: ModuleType, tmp_path: Path) -> None:
    def another(nodes: Any) -> None:
        jobs.run(chain(jobs), tmp_path)

    with pytest.raises(InfeedError, match="another rehearsal is running there"):
        rehearse(chain(jobs), RehearseOptions(root=str(tmp_path)), another)


def test_steps_run_in_the_folder_of_the_project(jobs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    look = jobs.step("write('seen', str(os.path.exists('model.py')))", gives=["seen"])
    rehearsal = jobs.run(jobs.job({"look": look}), tmp_path / "root", project=str(tmp_path))
    assert jobs.text(rehearsal, "look", "seen") == "True"


def test_a_command_that_is_not_on_this_machine_says_so(jobs: ModuleType, tmp_path: Path) -> None:
    strange = jobs.step()
    strange["executor"] = {"container": {"image": "image:1", "command": ["no-such-command"]}}
    error = jobs.node(jobs.run(jobs.job({"strange": strange}), tmp_path), "strange").error
    assert "cannot start 'no-such-command'" in error
