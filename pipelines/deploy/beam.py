"""Beam runner of a compiled pipeline, and the Beam options that it becomes.

    deploy:
      beam:
        flink: {job_endpoint: beam-job-server.flink:8099, parallelism: 8}

Without a runner, each step works in its own container.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from infeed.components.base.checks import about, as_tuples, at_least, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.engine.beam_runner import BEAM_RUNNERS, Named
from infeed.pipelines.deploy.vertex import VertexOptions, check_cloud_names

_ADDRESS = re.compile(r"[\w.-]+:\d+|\[[\da-fA-F:]+\]:\d+")

Flag = tuple[str, str]  # an option of Beam and its explanation


@dataclass(frozen=True)
class Dataflow:
    """Jobs on Google's Dataflow. On Vertex AI, five settings default to those of `deploy.vertex`.

    Attributes:
      project, region, service_account, labels, kms_key: those of the jobs and their workers.
      temp: gs:// folder for temporary files. Defaults to `tmp` under the pipeline's root.
      machine: machine type of the workers. Dataflow chooses by default.
      max_workers: largest number of workers.
      network, subnetwork: name of the workers' network, and full URL of their subnetwork.
      public_ips: whether the workers have public IP addresses.
    """

    project: str | None = None
    region: str | None = None
    temp: str | None = None
    service_account: str | None = None
    machine: str | None = None
    max_workers: int | None = None
    network: str | None = None
    subnetwork: str | None = None
    public_ips: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    kms_key: str | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "max_workers")
        check_cloud_names(self)
        require((self.temp or "gs://").startswith("gs://"), self, "temp", "use a gs:// folder")

    def over(self, vertex: VertexOptions | None) -> Dataflow:
        """Return these settings with missing ones from `vertex`."""
        if vertex is None:
            return self
        shared = {name: getattr(vertex, name) for name in ("project", "region", "service_account", "labels", "kms_key")}
        return dataclasses.replace(self, **{name: getattr(self, name) or given for name, given in shared.items()})

    def flags(self, root: str) -> list[Flag]:
        """Return Beam's options, https://cloud.google.com/dataflow/docs/reference/pipeline-options."""
        given = {
            "project": (self.project, "project of the jobs"),
            "region": (self.region, "region of the jobs"),
            "temp_location": (self.temp or files.join(root, "tmp"), "folder for temporary files"),
            "service_account_email": (self.service_account, "account of the workers"),
            "worker_machine_type": (self.machine, "machine of each worker"),
            "max_num_workers": (self.max_workers, "largest number of workers"),
            "network": (self.network, "network of the workers"),
            "subnetwork": (self.subnetwork, "subnetwork of the workers"),
            "dataflow_kms_key": (self.kms_key, "key of the data that Dataflow keeps"),
        }
        for name in ("project", "region"):
            if getattr(self, name) is None:
                do = f"set it; on Vertex AI it defaults to deploy.vertex.{name}"
                raise InfeedError(f"jobs of Dataflow need a {name}", where=f"deploy.beam.dataflow.{name}", do=do)
        return [
            *((f"--{name}={value}", why) for name, (value, why) in given.items() if value is not None),
            *([] if self.public_ips else [("--no_use_public_ips", "workers have no public IP addresses")]),
            *((f"--labels={name}={value}", "label for billing reports") for name, value in self.labels.items()),
        ]


@dataclass(frozen=True)
class Portable:
    """Jobs on a cluster whose workers start Python in worker pools beside them.

    Attributes:
      job_endpoint: HOST:PORT of Beam's job server for the cluster.
      master: URL of the cluster's REST API, in place of a job server. Beam then uploads its job server's jar, which the
        step takes from Maven, or from `--flink_job_server_jar` or `--spark_job_server_jar` of `options`.
      worker_pool: HOST:PORT of the worker pool, as a worker of the cluster sees it.
    """

    job_endpoint: str | None = None
    master: str | None = None
    worker_pool: str = "localhost:50000"

    def __post_init__(self) -> None:
        if bool(self.job_endpoint) == bool(self.master):
            what = "job_endpoint and master are both set" if self.master else "neither job_endpoint nor master is set"
            do = "set job_endpoint to HOST:PORT of Beam's job server, or master to the URL of the cluster's REST API"
            raise refused(self, "job_endpoint", do, what)
        for name in ("job_endpoint", "worker_pool"):
            address = getattr(self, name)
            require(address is None or _ADDRESS.fullmatch(address), self, name, "use HOST:PORT")

    def portable_flags(self, master: str, uber_jar: str) -> list[Flag]:
        """Return the options for the place of jobs and of their Python, from the options of this kind of cluster.

        `master` is the option for the URL of the cluster, `uber_jar` the one that sends the jar of the job
        server there.
        """
        if self.job_endpoint:
            place = [(f"--job_endpoint={self.job_endpoint}", "job server of the same Beam as the image's")]
        else:
            place = [(f"{master}={self.master}", "REST API of the cluster"), (uber_jar, "jar of the job server")]
        pool = "worker pool beside each worker: the job's image, started with --worker_pool"
        return [
            *place,
            ("--environment_type=EXTERNAL", "Python runs in worker pools, not in containers of Docker"),
            (f"--environment_config={self.worker_pool}", pool),
        ]


@dataclass(frozen=True)
class Flink(Portable):
    """Jobs on Flink; see `Portable`.

    Attributes:
      parallelism: tasks of a job that run at once. Defaults to that of the cluster.
    """

    parallelism: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "parallelism")

    def flags(self, root: str) -> list[Flag]:
        """Return Beam's options for Flink, https://beam.apache.org/documentation/runners/flink/."""
        found = self.portable_flags("--flink_master", "--flink_submit_uber_jar")
        if self.parallelism:
            found.append((f"--parallelism={self.parallelism}", "tasks of a job that run at once"))
        return found


@dataclass(frozen=True)
class Spark(Portable):
    """Jobs on Spark; see `Portable`. `spark.default.parallelism` of the cluster sets the parallelism."""

    def flags(self, root: str) -> list[Flag]:
        """Return Beam's options for Spark, https://beam.apache.org/documentation/runners/spark/."""
        return self.portable_flags("--spark_rest_url", "--spark_submit_uber_jar")


@dataclass(frozen=True)
class Beam:
    """Beam runner of the compiled pipeline: none, or one of the three.

    Attributes:
      dataflow, flink, spark: settings of the runner.
      options: further options of Beam, such as `--number_of_worker_harness_threads=4`.
    """

    dataflow: Dataflow | None = None
    flink: Flink | None = None
    spark: Spark | None = None
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self, "options")
        named = [name for name in ("dataflow", "flink", "spark") if getattr(self, name)]
        if len(named) > 1:
            raise refused(self, named[1], "name one runner", f"{' and '.join(named)} are both set")
        wrong = [one for one in self.options if not one.startswith("--") or one.startswith(("--runner", "--sdk_cont"))]
        require(not wrong, self, "options", "use --NAME=VALUE; runner and image are settings of their own")
        with about(self, "options"):
            Named.of(self.options)

    @property
    def runner(self) -> str:
        """Name of the runner, which is also its field; empty if none is named."""
        return next((name for name in ("dataflow", "flink", "spark") if getattr(self, name)), "")

    def flags(self, *, image: str, root: str, vertex: VertexOptions | None = None) -> list[Flag]:
        """Return Beam's options of the nodes that pass over data; `vertex` is given if Vertex AI runs the pipeline.

        Raises InfeedError if a setting of the runner is missing.
        """
        further = [(option, "deploy.beam.options") for option in self.options]
        if not self.runner:
            return further
        runner = self.dataflow.over(vertex) if self.dataflow else self.flink or self.spark
        assert runner, "see `runner`"
        return [
            (f"--runner={BEAM_RUNNERS[self.runner]}", "runs the work of the nodes that pass over data"),
            *runner.flags(root),
            (f"--sdk_container_image={image}", "image of the workers: the job's, so that both have the same versions"),
            *further,
        ]


def check_places(runner: str, root: str, data: str = "gs://") -> None:
    """Raise InfeedError if workers of a runner cannot use the places of the pipeline.

    Workers write artifacts by TensorFlow, which opens gs:// and local files. They do not see the disk of a pod.
    """
    if not root.startswith("gs://"):
        what = f"workers of {runner} cannot write what TensorFlow saves to {root}"
        do = "use a folder on gs://, or leave the runner out: each step then runs in its own container"
        raise InfeedError(what, where="deploy.root", do=do)
    if runner == BEAM_RUNNERS["dataflow"] and not data.startswith("gs://"):
        what = f"workers of Dataflow cannot read {data}: they see no local files, and no credentials of the steps"
        raise InfeedError(what, where="deploy.data", do="use a place on gs://")
