"""The compiled file, guarded by golden files, and read by those who will read it: kfp and Vertex AI's client.

The golden files are compiled from golden/project. To renew them after a wanted change, and look at what has changed:

    INFEED_RENEW_GOLDEN=1 .venv/bin/pytest tests/pipelines/cluster/compile/test_compile.py
    git diff tests/pipelines/golden
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infeed.components.base.errors import InfeedError
from infeed.components.engine.beam_runner import LOCAL_RUNNER
from infeed.components.engine.project_archive import digest
from infeed.components.kubeflow import compiled_with
from infeed.components.kubeflow.message import unpack
from infeed.pipelines.cluster.compile import kubeflow
from infeed.pipelines.cluster.compile.checks import check_config
from infeed.pipelines.cluster.compile.compile import cluster_name, compile_config, local_places
from infeed.pipelines.cluster.compile.kubeflow import CompileOptions
from infeed.pipelines.cluster.job.compiled import CompiledJob, Parameter, archive_beside, leaves
from infeed.pipelines.commands.new import create_project
from infeed.pipelines.config import PipelineConfig
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import Toleration
from infeed.pipelines.deploy.vertex import Endpoint, Training, VertexOptions
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.stack

GOLDEN = Path(__file__).parents[2] / "golden"
PROJECT = GOLDEN / "project"

RESOURCES = {
    "default": Resources(cpu="2", memory="8Gi", retries=2),
    "CsvExampleGen": Resources(cpu="4", cache=True),
    "Trainer": Resources(cpu="8", memory="30Gi"),
    "Pusher": Resources(retries=0, cache=False),
}
KUBEFLOW = {
    **RESOURCES,
    "Trainer": dataclasses.replace(
        RESOURCES["Trainer"],
        accelerator="nvidia.com/gpu",
        accelerators=2,
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        tolerations=(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),),
    ),
}
VERTEX = VertexOptions(
    "flowers",
    "europe-west4",
    service_account="trainer@flowers.iam.gserviceaccount.com",
    labels={"team": "flora"},
    training=Training("a2-highgpu-8g", "NVIDIA_TESLA_A100", 8, replicas=4),
    endpoint=Endpoint("flowers", "n1-standard-2", "europe-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"),
)
DATAFLOW = (
    "--runner=DataflowRunner",
    "--project=flowers",
    "--region=europe-west4",
    "--temp_location=gs://bucket/golden/tmp",
    "--service_account_email=trainer@flowers.iam.gserviceaccount.com",
    "--worker_machine_type=n1-standard-4",
    "--max_num_workers=20",
    "--labels=team=flora",
)


def config(
    tmp_path: Path, resources: dict[str, Resources], vertex: VertexOptions | None = None, beam: tuple[str, ...] = ()
) -> PipelineConfig:
    given = Overrides(data=str(PROJECT / "flowers.csv"), root=str(tmp_path / "here"))
    resolved = resolve(read_project(str(PROJECT)), given)
    deploy = dataclasses.replace(resolved.deploy, resources=resources, vertex=vertex, beam_pipeline_args=beam)
    return dataclasses.replace(resolved, deploy=deploy)


def compiled(tmp_path: Path, name: str) -> Path:
    """One of the golden files, as it is compiled now."""
    target, schema = ("kubeflow", "2.1") if name == "kubeflow.yaml" else ("vertex", name[-8:-5])
    of_kubeflow = target == "kubeflow"
    settings = config(tmp_path, KUBEFLOW if of_kubeflow else RESOURCES, VERTEX, () if of_kubeflow else DATAFLOW)
    output = str(tmp_path / name)
    compile_config(settings, CompileOptions(output, target, schema, str(PROJECT)))  # type: ignore[arg-type]
    return Path(output)


def plain(path: Path) -> list[Any]:
    """The documents of a file, without the versions of this environment."""
    documents = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    documents[0].pop("labels", None)
    spec = documents[0].get("pipelineSpec", documents[0])
    spec.pop("sdkVersion")
    for executor in spec["deploymentSpec"]["executors"].values():
        env = executor.get("container", {}).get("env", [])
        env[:] = [one for one in env if one["name"] != compiled_with.VARIABLE]
    return documents


@pytest.mark.tfx
@pytest.mark.parametrize("name", ["kubeflow.yaml", "vertex-2.1.json", "vertex-2.0.json"])
def test_what_is_compiled_is_what_it_was(tmp_path: Path, name: str) -> None:
    path = compiled(tmp_path, name)
    if os.environ.get("INFEED_RENEW_GOLDEN"):
        (GOLDEN / name).write_bytes(path.read_bytes())
    assert CompiledJob.read(path).images == ("registry.example/golden:1",)  # YAML without aliases
    assert plain(path) == plain(GOLDEN / name)


@pytest.mark.tfx
def test_kfp_loads_it_with_its_parameters() -> None:
    from kfp import components

    loaded = components.load_component_from_file(str(GOLDEN / "kubeflow.yaml"))
    inputs = loaded.component_spec.inputs
    assert {name: (spec.type, spec.default) for name, spec in inputs.items()} == {
        "data": ("String", "gs://bucket/data"),
        "epochs": ("Integer", 5),
        "batch_size": ("Integer", 32),
        "strategy": ("String", "auto"),
    }
    assert set(loaded.platform_spec.platforms["kubernetes"].deployment_spec.executors) == {"Trainer_executor"}


@pytest.mark.tfx
@pytest.mark.parametrize("name", ["kubeflow.yaml", "vertex-2.1.json", "vertex-2.0.json"])
def test_the_proto_has_every_field_of_it(name: str) -> None:
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    job = CompiledJob.read(GOLDEN / name)
    spec = json_format.ParseDict(job.spec, pipeline_spec_pb2.PipelineSpec())
    deployment = json_format.ParseDict(job.spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
    assert deployment.executors["CsvExampleGen_executor"].container.resources.cpu_limit == 4
    assert spec.root.dag.tasks["Evaluator"].retry_policy.max_retry_count == 2
    assert not spec.root.dag.tasks["Pusher"].caching_options.enable_cache


@pytest.mark.tfx
@pytest.mark.parametrize("name", ["vertex-2.1.json", "vertex-2.0.json"])
def test_vertex_ais_client_takes_it_and_parameters_to_it(name: str) -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    job = aiplatform.PipelineJob(
        display_name="flowers",
        template_path=str(GOLDEN / name),
        parameter_values={"epochs": 9, "data": "gs://bucket/newer"},
        project="flowers",
        location="europe-west4",
        credentials=AnonymousCredentials(),
    )
    runtime = job.to_dict()["runtimeConfig"]
    assert runtime["gcsOutputDirectory"] == "gs://bucket/golden/artifacts"
    if name == "vertex-2.1.json":
        assert runtime["parameterValues"] == {
            "epochs": 9.0,
            "data": "gs://bucket/newer",
            "batch_size": 32.0,
            "strategy": "auto",
        }
    else:
        assert runtime["parameters"]["epochs"] == {"intValue": "9"}


@pytest.mark.tfx
def test_vertex_ais_client_takes_yaml_too(tmp_path: Path) -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    path = compile_config(config(tmp_path, RESOURCES), CompileOptions(str(tmp_path / "job.yaml"), "vertex"))
    job = aiplatform.PipelineJob(
        display_name="flowers",
        template_path=path,
        project="flowers",
        location="europe-west4",
        credentials=AnonymousCredentials(),
    )
    assert job.to_dict()["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/golden/artifacts"
    assert job.to_dict()["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]["epochs"]["defaultValue"] == 5


def tasks(name: str) -> dict[str, Any]:
    return dict(CompiledJob.read(GOLDEN / name).spec["root"]["dag"]["tasks"])


@pytest.mark.parametrize("name", ["kubeflow.yaml", "vertex-2.1.json", "vertex-2.0.json"])
def test_runtime_parameters_reach_the_nodes_that_need_them(name: str) -> None:
    trainer = tasks(name)["Trainer"]["inputs"]["parameters"]
    for parameter in ("epochs", "batch_size", "strategy"):
        assert trainer[parameter] == {"componentInputParameter": parameter}
    where = tasks(name)["CsvExampleGen"]["inputs"]["parameters"]["input_base"]
    assert where == {"componentInputParameter": "data"}


def test_kubeflow_gets_no_resolver_and_vertex_ai_does() -> None:
    resolvers = {"latest_blessed_model-model-blessing-resolver", "latest_blessed_model-model-resolver"}
    assert resolvers <= tasks("vertex-2.1.json").keys()
    assert not resolvers & tasks("kubeflow.yaml").keys()
    assert "baseline_model" not in tasks("kubeflow.yaml")["Evaluator"]["inputs"]["artifacts"]


def test_no_path_of_this_machine_is_in_it() -> None:
    for file in ("kubeflow.yaml", "vertex-2.1.json", "vertex-2.0.json"):
        text = (GOLDEN / file).read_text()
        assert "model.py:build_model" in text
        assert str(Path.cwd()) not in text
        assert "/tmp" not in text.replace("gs://bucket/golden/tmp", "")


def custom_config(node: str) -> dict[str, Any]:
    parameters = tasks("vertex-2.1.json")[node]["inputs"]["parameters"]
    return dict(json.loads(parameters["custom_config"]["runtimeValue"]["constant"]))


def test_on_vertex_ai_the_trainer_starts_a_custom_job_of_its_own_options() -> None:
    given = custom_config("Trainer")
    assert given["infeed"]["model_fn"] == "model.py:build_model"
    assert given["ai_platform_enable_vertex"] is True
    assert given["ai_platform_vertex_region"] == "europe-west4"
    pools = given["ai_platform_training_args"]["job_spec"]["worker_pool_specs"]
    assert [pool["replica_count"] for pool in pools] == [1, 3]
    executor = CompiledJob.read(GOLDEN / "vertex-2.1.json").spec["deploymentSpec"]["executors"]["Trainer_executor"]
    assert "infeed.components.trainer.vertex_executor.VertexExecutor" in executor["container"]["args"]


def test_on_vertex_ai_the_pusher_deploys_to_the_endpoint() -> None:
    given = custom_config("Pusher")
    assert given["ai_platform_serving_args"]["endpoint_name"] == "flowers"
    assert given["ai_platform_vertex_container_image_uri"].endswith("tf2-cpu.2-15:latest")


@pytest.mark.parametrize(("name", "runner"), [("kubeflow.yaml", LOCAL_RUNNER), ("vertex-2.1.json", "DataflowRunner")])
def test_nodes_that_pass_over_data_get_beams_options_and_no_others(name: str, runner: str) -> None:
    executors = CompiledJob.read(GOLDEN / name).spec["deploymentSpec"]["executors"]
    with_options = {}
    for executor, spec in executors.items():
        if options := [arg for arg in spec.get("container", {}).get("args", ()) if arg.startswith("--runner")]:
            with_options[executor.removesuffix("_executor")] = options
    data_nodes = ("CsvExampleGen", "StatisticsGen", "Transform", "Evaluator")
    assert with_options == {node: [f"--runner={runner}"] for node in data_nodes}


def test_dataflow_runs_the_image_of_the_steps() -> None:
    executors = CompiledJob.read(GOLDEN / "vertex-2.1.json").spec["deploymentSpec"]["executors"]
    args = executors["Transform_executor"]["container"]["args"]
    assert {"--sdk_container_image=registry.example/golden:1", "--temp_location=gs://bucket/golden/tmp"} <= {*args}


@pytest.mark.tfx
@pytest.mark.parametrize("text", ["12e4567", "0.001", "0o17", "1_000", "-1", "+.5", "0x1f", ".5e3", "-_1", "+_.5"])
def test_texts_that_go_would_read_as_numbers_are_quoted(text: str) -> None:
    written = yaml.dump_all([{"SHA": text, "name": "a1"}], Dumper=kubeflow._Dumper)
    assert f"SHA: '{text}'" in written
    assert "name: a1" in written
    assert yaml.safe_load(written)["SHA"] == text


def test_a_platform_spec_does_not_fit_into_json(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"JSON(.|\n)*\*\.yaml"):
        compile_config(config(tmp_path, KUBEFLOW), CompileOptions(str(tmp_path / "job.json")))


@pytest.mark.tfx
def test_an_account_does_not_fit_into_yaml(tmp_path: Path) -> None:
    settings = config(tmp_path, RESOURCES, VertexOptions("flowers", "europe-west4", service_account="a@b"))
    with pytest.raises(InfeedError, match=r"serviceAccount(.|\n)*\*\.json"):
        compile_config(settings, CompileOptions(str(tmp_path / "job.yaml"), "vertex"))


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("taxi", "taxi"),
        ("image-My_Photos", "image-my-photos"),
        ("Ümlaut!", "mlaut"),
        ("__", "pipeline"),
        ("2024-taxi", "p-2024-taxi"),
    ],
)
def test_the_name_becomes_one_that_clusters_take(name: str, there: str) -> None:
    assert cluster_name(name) == there


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2024 taxi", "a" * 200])
def test_vertex_ais_client_makes_an_id_of_the_name(name: str) -> None:
    from google.cloud.aiplatform.constants.pipeline import _VALID_NAME_PATTERN

    assert _VALID_NAME_PATTERN.match(f"{cluster_name(name)}-20260101120000")


def test_a_function_that_the_image_does_not_have_is_told(tmp_path: Path) -> None:
    settings = config(tmp_path, RESOURCES)
    elsewhere = dataclasses.replace(settings.train, model_fn=f"{tmp_path}/model.py:build_model")
    with pytest.raises(InfeedError, match=r"model_fn is in .*model\.py"):
        check_config(dataclasses.replace(settings, train=elsewhere), folder=str(PROJECT))
    check_config(settings, folder=str(PROJECT))


@pytest.mark.tfx
def test_on_kubeflow_the_newest_pushed_model_is_looked_up_each_time_and_is_part_of_the_key(tmp_path: Path) -> None:
    resources = {**RESOURCES, "default": dataclasses.replace(RESOURCES["default"], cache=True)}
    settings = dataclasses.replace(config(tmp_path, resources), warm_start=True)
    compile_config(settings, CompileOptions(str(tmp_path / "job.yaml"), folder=str(PROJECT)))
    tasks = {task.name: task for task in CompiledJob.read(tmp_path / "job.yaml").tasks}
    assert not tasks["Trainer-input"].cacheable
    serving = tasks["Trainer-input"].spec["inputs"]["parameters"]["serving"]["runtimeValue"]["constant"]
    assert serving == "gs://bucket/golden/serving"
    version = tasks["Trainer-base-model"].spec["inputs"]["parameters"]["serving"]["taskOutputParameter"]
    assert version == {"producerTask": "Trainer-input", "outputParameterKey": "base_model"}
    source = tasks["Trainer"].spec["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]
    assert source == {"producerTask": "Trainer-base-model", "outputArtifactKey": "model"}
    assert tasks["Trainer"].cacheable
    assert tasks["Trainer-base-model"].cacheable


def test_places_of_this_machine_are_told_unless_they_are_meant(tmp_path: Path) -> None:
    settings = config(tmp_path, RESOURCES)
    assert local_places(settings) == ""
    nothing_said = dataclasses.replace(settings, deploy=Deploy("image:1"))
    both = local_places(nothing_said)
    assert f"data is {PROJECT}/flowers.csv and root is {tmp_path}/here" in both
    assert "set deploy.data and deploy.root" in both
    root = local_places(dataclasses.replace(nothing_said, deploy=Deploy("image:1", data="/mnt/shared")))
    assert f"root is {tmp_path}/here" in root
    assert "deploy.data" not in root


def config_of(page: str, number: int) -> str:
    """A config of a page of the documentation."""
    text = (Path(__file__).parents[4] / "docs" / page).read_text()
    return re.findall(r"```yaml\n(deploy:.*?)```", text, re.DOTALL)[number]


@pytest.fixture
def documented(tmp_path: Path) -> Callable[..., CompiledJob]:
    """documented(page, number, target) -> the page's config, added to a new project and compiled as the page says."""

    def compile_(page: str, number: int, target: Any, **overrides: Any) -> CompiledJob:
        create_project("tabular", str(tmp_path / "flowers"))
        with (tmp_path / "flowers" / "config.yaml").open("a") as file:
            file.write(config_of(page, number))
        project = read_project(str(tmp_path / "flowers"))
        resolved = resolve(project, Overrides(root=str(tmp_path / "here"), **overrides))
        output = tmp_path / ("job.yaml" if target == "kubeflow" else "job.json")
        compile_config(resolved, CompileOptions(str(output), target, folder=str(project.folder)))
        return CompiledJob.read(output)

    return compile_


def limits(job: CompiledJob, node: str) -> Any:
    return job.spec["deploymentSpec"]["executors"][f"{node}_executor"]["container"].get("resources")


def worker_pools(job: CompiledJob) -> list[Any]:
    given = job.spec["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]["custom_config"]
    config = json.loads(unpack(given["runtimeValue"]["constant"]))
    return list(config["ai_platform_training_args"]["job_spec"]["worker_pool_specs"])


@pytest.mark.tfx
def test_the_page_about_kubeflow_is_true(documented: Callable[..., CompiledJob]) -> None:
    job = documented("kubeflow.md", 0, "kubeflow")
    assert (job.name, job.images) == ("flowers", ("registry.example/flowers:1",))
    assert limits(job, "CsvExampleGen") == {"cpuLimit": 2.0, "memoryLimit": 8 * 2**30 / 1e9}
    assert job.parameters["data"] == Parameter("STRING", "minio://mlpipeline/data")
    assert job.platform is not None


@pytest.mark.tfx
def test_the_page_about_kubeflow_one_gpu(documented: Callable[..., CompiledJob]) -> None:
    job = documented("kubeflow.md", 1, "kubeflow")
    assert limits(job, "Trainer")["accelerator"] == {"type": "nvidia.com/gpu", "count": "1"}
    assert job.parameters["data"] == Parameter("STRING", "s3://bucket/data")


@pytest.mark.tfx
def test_the_query_of_a_root_stays_at_its_end(tmp_path: Path) -> None:
    query = "?endpoint=store.example:9000&s3ForcePathStyle=true"
    create_project("tabular", str(tmp_path / "flowers"))
    with (tmp_path / "flowers" / "config.yaml").open("a") as file:
        root = f"s3://bucket/flowers{query}"
        file.write(f"deploy: {{image: 'a:1', root: '{root}', data: s3://bucket/breast_cancer.csv}}")
    project = read_project(str(tmp_path / "flowers"))
    resolved = resolve(project, Overrides(root=str(tmp_path / "here")))
    output = tmp_path / "job.yaml"
    compile_config(resolved, CompileOptions(str(output), "kubeflow", folder=str(project.folder)))
    assert CompiledJob.read(output).spec["defaultPipelineRoot"] == f"s3://bucket/flowers/artifacts{query}"
    assert "s3://bucket/flowers/serving" in output.read_text()
    assert f"{query}/" not in output.read_text()


@pytest.mark.tfx
def test_the_page_about_vertex_ai_one_gpu(documented: Callable[..., CompiledJob]) -> None:
    assert limits(documented("vertex.md", 0, "vertex"), "Trainer")["accelerator"]["type"] == "NVIDIA_TESLA_T4"


@pytest.mark.tfx
def test_the_page_about_vertex_ai_eight_gpus(documented: Callable[..., CompiledJob]) -> None:
    (pool,) = worker_pools(documented("vertex.md", 1, "vertex"))
    assert pool["machine_spec"]["accelerator_count"] == 8


@pytest.mark.tfx
def test_the_page_about_vertex_ai_four_machines(documented: Callable[..., CompiledJob]) -> None:
    job = documented("vertex.md", 2, "vertex")
    assert [pool["replica_count"] for pool in worker_pools(job)] == [1, 3]
    assert "ai_platform_serving_args" in json.dumps(job.spec["root"]["dag"]["tasks"]["Pusher"])
    assert "--runner=DataflowRunner" in json.dumps(job.spec["deploymentSpec"])


@pytest.mark.tfx
def test_the_page_about_vertex_ai_a_tpu_slice(documented: Callable[..., CompiledJob]) -> None:
    job = documented("vertex.md", 3, "vertex", train={"strategy": "tpu"})
    (pool,) = worker_pools(job)
    assert pool["machine_spec"] == {"machine_type": "ct5lp-hightpu-8t", "tpu_topology": "2x4"}
    assert job.parameters["strategy"].default == "tpu"


@pytest.mark.tfx
@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_only_nodes_that_use_the_projects_files_name_its_archive(tmp_path: Path, target: Any) -> None:
    settings = config(tmp_path, RESOURCES, VERTEX)
    train = dataclasses.replace(settings.train, hparams={"note": "long" * 5_000})
    deploy = dataclasses.replace(settings.deploy, project="archive")
    settings = dataclasses.replace(settings, train=train, deploy=deploy)
    output = tmp_path / "job.json"
    compile_config(settings, CompileOptions(str(output), target, folder=str(PROJECT), exclude=("config.yaml",)))
    job = CompiledJob.read(output)
    assert {task.node for task in leaves(job.tasks) if task.project_archive} == {"Trainer"}
    archive = archive_beside(str(output)).read_bytes()
    assert job.project_archive == f"gs://bucket/golden/project/{digest(archive)}.tar.gz"
    with tarfile.open(archive_beside(str(output))) as packed:
        assert packed.getnames() == ["model.py"]  # neither the config nor the data, flowers.csv
    (trainer,) = (task for task in leaves(job.tasks) if task.node == "Trainer")
    options = unpack(trainer.spec["inputs"]["parameters"]["custom_config"]["runtimeValue"]["constant"])
    assert '"model_fn": "model.py:build_model"' in options  # also in a parameter that is so long that it is compressed
    assert job.target == target
