"""BigQuery -> record batches, by the Storage Read API: Arrow all the way, the streams of one session as tasks.

A session sees the table as it was when the session began, however long reading takes. A query runs as a job first, and
the table of its result is read. Credentials are those of the machine: Google's own chain of defaults, nothing else.
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

from infeed.components.checks import as_tuples, at_least, require
from infeed.components.dataset import schemas
from infeed.components.dataset.manifest import Source
from infeed.components.dataset.options import IngestOptions
from infeed.components.errors import InfeedError
from infeed.components.example_gen import inputs
from infeed.components.example_gen.inputs import BadRows, OpenedSource, conform
from infeed.components.example_gen.sources.sql.database import is_table, shown


@dataclass(frozen=True)
class BigQueryOptions:
    """What to read of a table or a query's result, and through whom.

    Attributes:
      project: which project pays; None takes that of the machine's credentials.
      columns: what to read, fields of structs by their dotted names; None reads all.
      row_restriction: rows to read, as a SQL condition without WHERE: `fare > 0`.
      streams: at most so many are read at once; 0 leaves it to BigQuery.
      api_endpoint, storage_endpoint: an emulator's, as `http://localhost:9050` and `localhost:9060`, spoken to without
        credentials; None is Google's.
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
        require(self.columns is None or self.columns, self, "columns", "name the columns to keep, or give None")


@dataclass(frozen=True)
class Stream:
    """One stream of a session; `where` is the query or table, as an error names it."""

    name: str
    arrow_schema: bytes
    where: str


def open_bigquery(queries: inputs.Patterns, options: IngestOptions, asked: BigQueryOptions) -> OpenedSource:
    """Queries, or tables as `project.dataset.table`, one for each input split.

    Raises:
      InfeedError: no credentials, whatever BigQuery refuses, or a column whose type has no place in a tf.Example.
    """
    del options  # BigQuery cuts the blocks
    sessions = {split: _open_session(query, asked) for split, query in queries.items()}
    found = [schemas.FileSchema(shown(queries[split]), _arrow_schema(session)) for split, session in sessions.items()]
    schema = schemas.unify(found)
    tasks = inputs.as_tasks(
        (split, Stream(stream.name, session.arrow_schema.serialized_schema, shown(queries[split])))
        for split, session in sessions.items()
        for stream in session.streams
    )
    size = sum(session.estimated_total_bytes_scanned for session in sessions.values())
    read = partial(read_stream, schema=schema, asked=asked)
    return OpenedSource(Source("bigquery", fingerprint(queries, asked), 0, size), schema, tasks, read)


def read_stream(
    what: Stream, schema: pa.Schema, asked: BigQueryOptions, *, bad_rows: BadRows
) -> Iterator[pa.RecordBatch]:
    """The rows of one stream; a connection that breaks is taken up again behind the last row."""
    where = f"{what.where}, stream {what.name.rpartition('/')[2]}"
    with _reading(asked, where) as client:
        yield from conform(_receive(client, what), schema, where, bad_rows)


def fingerprint(queries: inputs.Patterns, asked: BigQueryOptions) -> str:
    """Changes with a query's text, and with any table that it reads."""
    lines = []
    for query in queries.values():
        with _refusals(query):
            client = _api(asked)
            tables = [_table_of(query)] if is_table(query) else _tables_of(client, query)
            modified = [f"{table}\t{client.get_table(table).modified}" for table in tables]
            lines.append("\n".join([query, *modified]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _open_session(query: str, asked: BigQueryOptions) -> Any:
    with _refusals(query):
        client = _api(asked)
        table = _table_of(query) if is_table(query) else _result_of(client, query)
        session = types.ReadSession(
            table=f"projects/{table.project}/datasets/{table.dataset_id}/tables/{table.table_id}",
            data_format=types.DataFormat.ARROW,
            read_options=types.ReadSession.TableReadOptions(
                selected_fields=list(asked.columns or ()), row_restriction=asked.row_restriction
            ),
        )
    with _reading(asked, shown(query)) as storage:
        return storage.create_read_session(
            parent=f"projects/{client.project}", read_session=session, max_stream_count=asked.streams
        )


def _receive(client: BigQueryReadClient, what: Stream) -> Iterator[pa.RecordBatch]:
    schema = pa.ipc.read_schema(pa.py_buffer(what.arrow_schema))
    for response in client.read_rows(what.name):
        yield pa.ipc.read_record_batch(pa.py_buffer(response.arrow_record_batch.serialized_record_batch), schema)


def _table_of(name: str) -> bigquery.TableReference:
    try:
        return bigquery.TableReference.from_string(name.strip())
    except ValueError:
        raise InfeedError(
            "a table without its project or dataset", where=name, do="name it as project.dataset.table"
        ) from None


def _result_of(client: bigquery.Client, query: str) -> Any:
    """The table that holds a query's result, once the query is through."""
    job = client.query(query)
    job.result(max_results=0)
    return job.destination


def _tables_of(client: bigquery.Client, query: str) -> list[Any]:
    """The tables that a query reads, by a dry run, which costs nothing."""
    job = client.query(query, job_config=bigquery.QueryJobConfig(dry_run=True))
    return sorted(job.referenced_tables, key=str)


def _api(asked: BigQueryOptions) -> bigquery.Client:
    if asked.api_endpoint is None:
        return bigquery.Client(project=asked.project)
    return bigquery.Client(
        project=asked.project or "emulator",
        credentials=credentials.AnonymousCredentials(),
        client_options={"api_endpoint": asked.api_endpoint},
    )


@contextmanager
def _reading(asked: BigQueryOptions, query: str) -> Iterator[BigQueryReadClient]:
    with _refusals(query):
        transport = None
        if asked.storage_endpoint is not None:
            transport = BigQueryReadGrpcTransport(channel=grpc.insecure_channel(asked.storage_endpoint))
        with BigQueryReadClient(transport=transport) as client:
            yield client


@contextmanager
def _refusals(query: str) -> Iterator[None]:
    try:
        yield
    except GoogleAuthError as error:
        raise InfeedError(
            f"no credentials for BigQuery: {error}",
            where=shown(query),
            do="gcloud auth application-default login, or run as a service account",
        ) from error
    except exceptions.GoogleAPICallError as error:
        raise InfeedError(
            f"BigQuery: {error.message}", where=shown(query), do="check the query, the names and the permissions"
        ) from error
    except OSError as error:  # what Google's client raises without a project
        raise InfeedError(str(error), where=shown(query), do="set project, or GOOGLE_CLOUD_PROJECT") from error


def _arrow_schema(session: Any) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
