"""A run of Vertex AI listed under an experiment, as google-cloud-aiplatform's own `PipelineJob.submit` lists it.

An experiment is a context in the project's metadata store, and the run's context becomes a child of it. This uses the
generated clients: the package's front door, which has the same in one argument, takes 10 s of CPU time to import.
"""

from __future__ import annotations

import re

from google.api_core import exceptions, retry
from google.cloud.aiplatform_v1.services.metadata_service import MetadataServiceClient
from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient
from google.cloud.aiplatform_v1.types import Context

from infeed.components.errors import InfeedError

_SCHEMA = "system.Experiment"
_SECONDS = 60.0
_NAME = re.compile("[a-z0-9][a-z0-9-]{0,127}")


class _NotYetError(exceptions.NotFound):
    """The run has no context yet: it gets one a few seconds after it was created."""


def check_name(experiment: str) -> None:
    """Raises InfeedError unless an experiment can be called that."""
    if not _NAME.fullmatch(experiment):
        do = "use small letters, digits and hyphens, at most 128"
        raise InfeedError(f"an experiment cannot be called {experiment!r}", where="--experiment", do=do)


def list_under(experiment: str, run: str, pipelines: PipelineServiceClient, metadata: MetadataServiceClient) -> None:
    """Makes the experiment where there is none, and the run a part of it.

    Args:
      run: resource name of the pipeline job.

    Raises:
      GoogleAPICallError: Google refuses.
      RetryError: the run had no context after two minutes.
    """
    store = f"{run.partition('/pipelineJobs/')[0]}/metadataStores/default"
    until_there = retry.Retry(retry.if_exception_type(_NotYetError), initial=1, maximum=8, timeout=120)
    context = until_there(_run_context)(pipelines, run)
    parent = _experiment(experiment, store, metadata)
    metadata.add_context_children(context=parent, child_contexts=[context], timeout=_SECONDS)


def _run_context(client: PipelineServiceClient, run: str) -> str:
    name = client.get_pipeline_job(name=run, timeout=_SECONDS).job_detail.pipeline_run_context.name
    if not name:
        raise _NotYetError(f"{run} has no context yet")
    return str(name)


def _experiment(name: str, store: str, client: MetadataServiceClient) -> str:
    new = Context(
        display_name=name, schema_title=_SCHEMA, schema_version="0.0.1", metadata={"experiment_deleted": False}
    )
    try:
        return str(client.create_context(parent=store, context=new, context_id=name, timeout=_SECONDS).name)
    except exceptions.Conflict:
        return f"{store}/contexts/{name}"
