"""Against a stand-in that speaks BigQuery's two protocols: jobs and tables over HTTP, reading over gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pyarrow as pa
import pytest
from opened_sources import rows_of

from infeed import components
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import OpenedSource

# Not for TFX's sake: Google's clients take seconds to import, and are not while tests are collected.
pytestmark = pytest.mark.tfx

ROWS = [
    {"n": number, "trip": {"fare": 0.0 if number % 3 else None, "stops": ["", "b"][: number % 3]}, "raw": b"\x00\xff"}
    for number in range(100)
]
FLAT = [
    {"n": row["n"], "trip.fare": row["trip"]["fare"], "trip.stops": row["trip"]["stops"], "raw": row["raw"]}
    for row in ROWS
]
QUERY = "SELECT * FROM d.trips WHERE fare > 0"


class StandIn:
    """Three streams of one table; what it was asked stands in `asked`."""

    def __init__(self) -> None:
        self.table = pa.Table.from_pylist(ROWS)
        self.modified = 1_000
        self.asked: list[tuple[str, Any]] = []
        self.broken = {"streams/1"}  # breaks once, after its first batch

    def create_read_session(self, request: Any, context: grpc.ServicerContext) -> Any:
        from google.cloud.bigquery_storage_v1 import types

        self.asked.append(("session", request))
        if request.read_session.table.endswith("/nowhere"):
            context.abort(grpc.StatusCode.NOT_FOUND, "Not found: Table d.nowhere")
        return types.ReadSession(
            name="sessions/0",
            arrow_schema=types.ArrowSchema(serialized_schema=self.table.schema.serialize().to_pybytes()),
            streams=[types.ReadStream(name=f"streams/{number}") for number in range(3)],
            estimated_total_bytes_scanned=self.table.nbytes,
        )

    def read_rows(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        from google.cloud.bigquery_storage_v1 import types

        self.asked.append(("rows", (request.read_stream, request.offset)))
        number = int(request.read_stream.rpartition("/")[2])
        rows = self.table.slice(number * 40, 40).slice(request.offset)
        for batch in rows.to_batches(max_chunksize=15):
            data = batch.serialize().to_pybytes()
            yield types.ReadRowsResponse(
                row_count=batch.num_rows, arrow_record_batch=types.ArrowRecordBatch(serialized_record_batch=data)
            )
            if request.read_stream in self.broken:
                self.broken.remove(request.read_stream)
                context.abort(grpc.StatusCode.UNAVAILABLE, "try again")

    def http(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append((f"{method} {path}", body))
        destination = {"projectId": "p", "datasetId": "_anonymous", "tableId": "result"}
        done = {
            "jobReference": {"projectId": "p", "jobId": "j", "location": "EU"},
            "configuration": {"query": {"query": QUERY, "destinationTable": destination}},
            "status": {"state": "DONE"},
            "statistics": {"query": {"referencedTables": [{"projectId": "p", "datasetId": "d", "tableId": "trips"}]}},
        }
        if "/tables/" in path:
            reference = {"projectId": "p", "datasetId": "d", "tableId": path.rpartition("/")[2]}
            return 200, {"tableReference": reference, "lastModifiedTime": str(self.modified)}
        if "broken" in json.dumps(body):
            return 400, {
                "error": {"code": 400, "message": "Syntax error at [1:1]", "errors": [{"reason": "invalidQuery"}]}
            }
        if "/queries/" in path:
            return 200, {**done, "jobComplete": True, "totalRows": "100", "schema": {"fields": []}}
        return 200, done


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    from infeed.components.example_gen.sources.bigquery import BigQueryOptions

    server = StandIn()
    grpc_server, http_server = serve_grpc(server), serve_http(server)
    server.options = BigQueryOptions(  # type: ignore[attr-defined]
        project="p",
        api_endpoint=f"http://localhost:{http_server.server_port}",
        storage_endpoint=f"localhost:{grpc_server.port}",
    )
    yield server
    grpc_server.stop(None)
    http_server.shutdown()
    http_server.server_close()


def serve_grpc(server: StandIn) -> Any:
    from google.cloud.bigquery_storage_v1 import types

    handlers = {
        "CreateReadSession": grpc.unary_unary_rpc_method_handler(
            server.create_read_session,
            request_deserializer=types.CreateReadSessionRequest.deserialize,
            response_serializer=types.ReadSession.serialize,
        ),
        "ReadRows": grpc.unary_stream_rpc_method_handler(
            server.read_rows,
            request_deserializer=types.ReadRowsRequest.deserialize,
            response_serializer=types.ReadRowsResponse.serialize,
        ),
    }
    grpc_server = grpc.server(futures.ThreadPoolExecutor(4))
    service = "google.cloud.bigquery.storage.v1.BigQueryRead"
    grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    grpc_server.port = grpc_server.add_insecure_port("localhost:0")
    grpc_server.start()
    return grpc_server


def serve_http(server: StandIn) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.http(self.command, self.path.partition("?")[0], json.loads(body or b"{}"))
            assert self.headers.get("Authorization") is None  # an emulator is told no token
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    http_server = ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
    return http_server


def open_(query: str, stand_in: Any, **changes: Any) -> OpenedSource:
    from infeed.components.example_gen.sources import bigquery

    options = bigquery.BigQueryOptions(**{**vars(stand_in.options), **changes})
    return bigquery.open_bigquery({None: query}, IngestOptions(), options)


def test_a_tables_streams_are_the_tasks_and_every_row_comes_once(stand_in: StandIn) -> None:
    opened = open_("p.d.trips", stand_in)
    assert len(opened.tasks) == 3
    assert rows_of(opened) == FLAT
    # Stream 1 broke after 15 rows, and was taken up again behind them.
    assert [what for name, what in stand_in.asked if name == "rows"] == [
        ("streams/0", 0),
        ("streams/1", 0),
        ("streams/1", 15),
        ("streams/2", 0),
    ]


def test_the_session_asks_for_arrow_and_for_what_is_wanted(stand_in: StandIn) -> None:
    from google.cloud.bigquery_storage_v1 import types

    open_("p.d.trips", stand_in, columns=["n", "trip.fare"], row_restriction="n > 0", streams=7)
    (session,) = (what for name, what in stand_in.asked if name == "session")
    assert session.parent == "projects/p"
    assert session.max_stream_count == 7
    assert session.read_session.table == "projects/p/datasets/d/tables/trips"
    assert session.read_session.data_format == types.DataFormat.ARROW
    assert list(session.read_session.read_options.selected_fields) == ["n", "trip.fare"]
    assert session.read_session.read_options.row_restriction == "n > 0"


def test_a_query_runs_as_a_job_and_its_result_is_read(stand_in: StandIn) -> None:
    assert rows_of(open_(QUERY, stand_in)) == FLAT
    jobs = [body["configuration"] for name, body in stand_in.asked if name == "POST /bigquery/v2/projects/p/jobs"]
    assert [job["query"]["query"] for job in jobs] == [QUERY, QUERY]
    assert [job.get("dryRun", False) for job in jobs] == [False, True]  # the second only asks what is read
    (session,) = (what for name, what in stand_in.asked if name == "session")
    assert session.read_session.table == "projects/p/datasets/_anonymous/tables/result"


@pytest.mark.parametrize("query", ["p.d.trips", QUERY])
def test_the_fingerprint_changes_with_the_tables_that_are_read(stand_in: Any, query: str) -> None:
    from infeed.components.example_gen.sources import bigquery

    first = bigquery.fingerprint({None: query}, stand_in.options)
    assert bigquery.fingerprint({None: query}, stand_in.options) == first
    stand_in.modified += 1
    assert bigquery.fingerprint({None: query}, stand_in.options) != first


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("p.d.nowhere", r"(?s)Not found: Table d\.nowhere.*p\.d\.nowhere"),
        ("SELECT broken", r"(?s)Syntax error at \[1:1\].*SELECT broken"),
        ("trips", r"no project or dataset"),
    ],
)
def test_what_bigquery_refuses(stand_in: StandIn, query: str, says: str) -> None:
    with pytest.raises(InfeedError, match=says):
        open_(query, stand_in)


def test_without_credentials_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from infeed.components.example_gen.sources import bigquery

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", f"{tmp_path}/none.json")
    with pytest.raises(InfeedError, match=r"(?s)no credentials for BigQuery.*gcloud auth"):
        bigquery.open_bigquery({None: "p.d.t"}, IngestOptions(), bigquery.BigQueryOptions(project="p"))


def test_the_component_writes_what_was_read(stand_in: Any, tmp_path: Any, execute: Any) -> None:
    from infeed.components.dataset.manifest import Manifest

    made = components.BigQueryExampleGen(query=QUERY, bigquery=stand_in.options)
    manifest = Manifest.read(execute(made, tmp_path / "out").uri)
    assert manifest.rows_read == 100
    assert [(column.name, column.type) for column in manifest.schema] == [
        ("n", "int"),
        ("trip.fare", "float"),
        ("trip.stops", "bytes"),
        ("raw", "bytes"),
    ]
