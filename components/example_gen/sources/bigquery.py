"""Reader of BigQuery by the Storage Read API, which delivers Arrow. Each stream of a session is a task.

A session reads a snapshot of the table from the time when it started. A query runs as a job first, and its result
table is read. Credentials come from Google's application default credentials of the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pyarrow as pa
from google.api_core import exceptions
from google.auth import credentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import BigQueryReadClient, types
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import BigQueryReadGrpcTransport

from infeed.components.base.checks import as_tuples, at_least, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, Batches, OpenedSource, Patterns, conform
from infeed.components.example_gen.sources.sql_reader import is_table, shown


@dataclass(frozen=True)
class BigQueryOptions:
    """Options of the BigQuery reader.

    Attributes:
      project: billing project. None uses the project of the machine's credentials.
      columns: columns to read, nested fields by their dotted names. None reads all.
      row_restriction: SQL condition without WHERE that selects rows, for example `fare > 0`.
      streams: maximum number of parallel streams. 0 lets BigQuery decide.
      api_endpoint, storage_endpoint: addresses of an emulator, such as `http://localhost:9050` and `localhost:9060`,
        which is used without credentials. None uses Google's endpoints.
    """

    project: str | None = None
    columns: Sequence[str] | None = None
    row_restriction: str = ""
    streams: int = 0
    api_endpoint: str | None = None
    storage_endpoint: str | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "columns")
        at_least(self, 0, "streams")
        require(self.columns is None or self.columns, self, "columns", "list the columns to keep, or use None")


@dataclass(frozen=True)
class Stream:
    """A stream of a read session. `where` names the query or table in errors."""

    name: str
    arrow_schema: bytes
    where: str


def open_bigquery(queries: Patterns, options: IngestOptions, asked: BigQueryOptions) -> OpenedSource:
    """Open queries, or tables `project.dataset.table`, one per split. Raises InfeedError if BigQuery refuses one."""
    del options  # BigQuery chooses the size of blocks
    sessions = {split: _open_session(query, asked) for split, query in queries.items()}
    serialized = {split: session.arrow_schema.serialized_schema for split, session in sessions.items()}
    found = {split: pa.ipc.read_schema(pa.py_buffer(one)) for split, one in serialized.items()}
    schema = schemas.unify([schemas.FileSchema(shown(queries[split]), one) for split, one in found.items()])
    tasks = inputs.as_tasks(
        (split, Stream(stream.name, serialized[split], shown(queries[split])))
        for split, session in sessions.items()
        for stream in session.streams
    )
    size = sum(session.estimated_total_bytes_scanned for session in sessions.values())
    read = partial(read_stream, schema=schema, asked=asked)
    return OpenedSource(Source("bigquery", fingerprint(queries, asked), 0, size), schema, tasks, read)


def read_stream(what: Stream, schema: pa.Schema, asked: BigQueryOptions, *, bad_rows: BadRows) -> Batches:
    """Yield the rows of one stream. After a broken connection, resume after the last row."""
    where = f"{what.where}, stream {what.name.rpartition('/')[2]}"
    with _storage_client(asked, where) as client:
        arrow = pa.ipc.read_schema(pa.py_buffer(what.arrow_schema))
        sent = (answer.arrow_record_batch.serialized_record_batch for answer in client.read_rows(what.name))
        batches = (pa.ipc.read_record_batch(pa.py_buffer(batch), arrow) for batch in sent)
        yield from conform(batches, schema, where, bad_rows)


def fingerprint(queries: Patterns, asked: BigQueryOptions) -> str:
    """Return a digest of the queries' texts and of the modification times of the tables that they read."""
    lines = []
    for query in queries.values():
        with _api_errors(query):
            client = _query_client(asked)
            if is_table(query):
                tables: list[Any] = [_table_of(query)]
            else:  # a dry run is free of charge
                job = client.query(query, job_config=bigquery.QueryJobConfig(dry_run=True))
                tables = sorted(job.referenced_tables, key=str)
            modified = [f"{table}\t{client.get_table(table).modified}" for table in tables]
            lines.append("\n".join([query, *modified]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _open_session(query: str, asked: BigQueryOptions) -> Any:
    with _api_errors(query):
        client = _query_client(asked)
        if is_table(query):
            table: Any = _table_of(query)
        else:
            job = client.query(query)
            job.result(max_results=0)  # waits for the job, whose rows are read from its table in parallel
            table = job.destination
        session = types.ReadSession(
            table=f"projects/{table.project}/datasets/{table.dataset_id}/tables/{table.table_id}",
            data_format=types.DataFormat.ARROW,
            read_options=types.ReadSession.TableReadOptions(
                selected_fields=list(asked.columns or ()), row_restriction=asked.row_restriction
            ),
        )
    with _storage_client(asked, shown(query)) as storage:
        return storage.create_read_session(
            parent=f"projects/{client.project}", read_session=session, max_stream_count=asked.streams
        )


def _table_of(name: str) -> bigquery.TableReference:
    try:
        return bigquery.TableReference.from_string(name.strip())
    except ValueError:
        what = "the table has no project or dataset"
        raise InfeedError(what, where=name, do="name it project.dataset.table") from None


def _query_client(asked: BigQueryOptions) -> bigquery.Client:
    if asked.api_endpoint is None:
        return bigquery.Client(project=asked.project)
    return bigquery.Client(
        project=asked.project or "emulator",
        credentials=credentials.AnonymousCredentials(),
        client_options={"api_endpoint": asked.api_endpoint},
    )


@contextmanager
def _storage_client(asked: BigQueryOptions, query: str) -> Iterator[BigQueryReadClient]:
    with _api_errors(query):
        transport = None
        if asked.storage_endpoint is not None:
            transport = BigQueryReadGrpcTransport(channel=grpc.insecure_channel(asked.storage_endpoint))
        with BigQueryReadClient(transport=transport) as client:
            yield client


@contextmanager
def _api_errors(query: str) -> Iterator[None]:
    try:
        yield
    except GoogleAuthError as error:
        do = "run gcloud auth application-default login, or use a service account"
        raise InfeedError(f"no credentials for BigQuery: {error}", where=shown(query), do=do) from error
    except exceptions.GoogleAPICallError as error:
        what = f"BigQuery: {error.message}"
        raise InfeedError(what, where=shown(query), do="check the query, the names, and the permissions") from error
    except OSError as error:  # raised by Google's client if there is no project
        raise InfeedError(str(error), where=shown(query), do="set project, or GOOGLE_CLOUD_PROJECT") from error
