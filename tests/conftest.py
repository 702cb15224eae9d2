"""What tests of several folders need."""

from __future__ import annotations

import contextlib
import gc
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

BUCKET = "bucket"
# The longest first, so that at the end no process waits long for the other: minutes, then half minutes.
_LONG = (
    "rehearse/test_tfx.py",
    "pipelines/test_run.py",
    "pipelines/test_drop_in.py",
    "trainer/test_multi_worker.py",
    "trainer/test_parameter_server.py",
    "trainer/test_resume.py",
    "trainer/test_run_fn.py",
    "trainer/test_own_input.py",
    "trainer/test_tuner.py",
    "transform/test_component.py",
    "transform/test_preprocessing.py",
    "deploy/test_compile.py",
    "trainer/test_loop.py",
    "commands/test_ingest.py",
    "local/test_logs.py",
    "tests/test_setup.py",
)


def pytest_sessionstart() -> None:
    """What runs in the background ignores SIGINT, and so would every process that it starts and tests interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return next((turn for turn, name in enumerate(_LONG) if path.endswith(name)), len(_LONG))


@pytest.fixture(scope="module", autouse=True)
def modules_are_no_garbage() -> None:
    """TFX is a million objects that stay: the collector need not look through them, nor Arrow 10 at every CSV block."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes go by the argument's name: compressed ones hold the time, and all processes must call a test the same."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A server that speaks S3's protocol, with one bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")):
        pass
    yield endpoint
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """`s3://bucket/NAME-OF-THE-TEST`, reached as AWS's own clients reach another endpoint."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return f"s3://{BUCKET}/{_name(request)}"


@pytest.fixture(scope="session")
def gs_endpoint() -> Iterator[str]:
    """A server that speaks Google Cloud Storage's protocol, with one bucket.

    In a process of its own: Arrow 18 holds the interpreter's lock while it waits for an answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["start", "--quiet", "--host=127.0.0.1", f"--port={port}", "--in-memory", f"--default-bucket={BUCKET}"]
    with subprocess.Popen([sys.executable, "-m", "gcp_storage_emulator", *options]) as server:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def _wait_for(port: int, seconds: float = 60) -> None:
    """Until something answers there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing answers at port {port}")


@pytest.fixture
def gs(gs_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """`gs://bucket/NAME-OF-THE-TEST`, reached as Google's own clients reach an emulator."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gs_endpoint)
    return f"gs://{BUCKET}/{_name(request)}"


def _name(request: pytest.FixtureRequest) -> str:
    """The test's own, without the brackets of its parameters, which a pattern would take for its own."""
    return re.sub(r"\W+", "-", request.node.name)
