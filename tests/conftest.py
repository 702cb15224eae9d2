"""What tests of several folders need."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import hashlib
import importlib
import importlib.metadata
import io
import logging
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

BUCKET = "bucket"
# What `make test` asks for, and what `make test-image` does.
QUICK, ALONE = "not tfx and not slow and not frameworks", "alone"
LONG = "(tfx or slow) and not (frameworks or alone or image)"
IMAGE = "not (frameworks or alone) and (stack or image or not (tfx or slow))"
_STDERR, _ENDED_ITS_PROCESS = pytest.StashKey[int](), pytest.StashKey[bool]()
_HANGS = 630.0  # seconds; the Makefile's --timeout is shorter, and Python must be able to handle its signal
_WITHOUT_GRAPPLER = "INFEED_TEST_WITHOUT_GRAPPLER"  # variable that forks of `warm/server.py` know, too
# Files of more than 20 CPU seconds, here or in the image, about the longest first, so that at the end no process waits
# long for the others.
_LONG = (
    "pipelines/test_run.py",
    "rehearse/test_launch_tfx.py",
    "rehearse/test_native.py",
    "transform/test_executor_engines.py",
    "pipelines/test_official.py",
    "on_jax/test_training.py",
    "trainer/test_objects.py",
    "trainer/test_run_fn_outputs.py",
    "evaluation/test_component_engines.py",
    "engine/test_on_beam.py",
    "compile/test_runner.py",
    "feed/test_build_tiers.py",
    "feed/test_build.py",
    "commands/test_ingest.py",
    "steps/test_steps.py",
    "pipelines/test_drop_in.py",
    "trainer/test_loop.py",
    "predict/test_predict.py",
    "trainer/test_run_fn.py",
    "trainer/test_resume.py",
    "trainer/test_cluster_machines.py",
    "in_process/test_phases.py",
    "on_jax/test_devices.py",
    "trainer/test_multi_worker.py",
    "trainer/test_served.py",
    "trainer/test_own_input.py",
    "pipelines/test_run_names.py",
    "transform/test_against_tfx.py",
    "in_process/test_processor.py",
    "robustness/test_sources.py",
)


# Reasons for which a test may be skipped, by their beginning, and where it runs. Another reason fails the run.
_SKIPS = {
    "no taxi data in a folder shared/data beside the checkout": "beside that folder",
    "Spark takes Java, and": "on a machine with Spark",
    "Beam's own job service gives up": "on Dask, in the image",
    "PostgreSQL does not start on this machine": "on machines where its server starts",
    "no network namespaces here": "as root",
    "kfp-kubernetes for protobuf 3": "in the image, with kfp 2.16",
    "the installed TFX has no": "on the other stack",
    "there is no .venv": "outside of the image",
    "mkdocs is not installed": "outside of the image",
    "the extra": "outside of the image",
    "there is neither uv nor ensurepip": "where environments can be made",
    "no package index answers": "where a package index answers",
    "no /dev/full": "on Linux",
    "this file system cannot": "on file systems that swap two paths",
}


# The examples are the same in each run; a busy machine takes over 200 ms for one.
settings.register_profile("thorough", derandomize=True, deadline=None)
settings.register_profile("here", settings.get_profile("thorough"), max_examples=50)  # the image takes 100
settings.register_profile("search", max_examples=1000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "Seeds of each test in tests/robustness; a few by default, thousands for a long run."
    parser.addoption("--robustness-rounds", type=int, metavar="N", help=words)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.option.markexpr == IMAGE else "here")
    config.stash[_STDERR] = os.dup(2)  # what tests write there is captured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Ends a process that hangs outside of Python, with the stacks of all threads.

    pytest-xdist gives what is left to a new process, and begins with the same test, which `pytest_runtest_setup` fails.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    name = hashlib.sha256(f"{run} {item.nodeid}".encode()).hexdigest()
    running = Path(tempfile.gettempdir(), f"pytest-running-{name}")
    item.stash[_ENDED_ITS_PROCESS] = running.exists()
    running.touch()
    faulthandler.dump_traceback_later(_HANGS, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        running.unlink(missing_ok=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and by all that tests start
    gc.set_threshold(100_000, 50, 100)  # by default a tenth of the time of tests with TensorFlow goes into its garbage
    if session.config.option.markexpr not in (ALONE, IMAGE):
        os.environ[_WITHOUT_GRAPPLER] = "1"
    # Google's libraries ask at each import whose they are, which takes a fifth of a second.
    importlib.metadata.packages_distributions = functools.cache(importlib.metadata.packages_distributions)
    os.environ["PIP_NO_DEPS"] = "1"  # TFX's wheels of users' modules need nothing, and to find that out takes 3 s each


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files of which `-m` wants no test: to import them takes each process ten seconds."""
    if not collection_path.match("test_*.py") or (wanted := config.option.markexpr) not in (QUICK, LONG, ALONE, IMAGE):
        return None
    text = collection_path.read_text()
    if wanted == ALONE:
        return None if "pytest.mark.alone" in text else True
    if wanted == IMAGE and re.search(r"pytest\.mark\.(stack|image)\b", text):
        return None
    if wanted == LONG and re.search(r"(?m)^pytestmark.*pytest\.mark\.image\b", text):
        return True
    marks = re.findall(r"(?m)^(pytestmark)?.*pytest\.mark\.(?:tfx|slow)\b", text)
    return not marks or None if wanted == LONG else "pytestmark" in marks or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects no garbage meanwhile: to look for it among what is imported takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the tests."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    path = item.path.as_posix()
    return next((turn for turn, name in enumerate(_LONG) if path.endswith(name)), len(_LONG))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped, and where they run instead."""
    for reason, count in sorted(_skipped(terminalreporter).items()):
        terminalreporter.write_line(
            f"{count} skipped: {reason}; {_runs_where(reason) or 'NOT ONE OF THE KNOWN REASONS'}"
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped for a new reason: a test that is skipped everywhere is no test."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.OK:
        return
    if not all(map(_runs_where, _skipped(reporter))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skipped(reporter: pytest.TerminalReporter) -> Counter[str]:
    """How many tests of this tree were skipped for each reason; `make test-peers` runs those of tft and TFX."""
    reports = [one for one in reporter.stats.get("skipped", []) if one.nodeid.startswith("tests/")]
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)


def _runs_where(reason: str) -> str | None:
    return next((f"it runs {where}" for beginning, where in _SKIPS.items() if reason.startswith(beginning)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Sets the limit again, which pytest itself ends where a test has failed."""
    faulthandler.dump_traceback_later(_HANGS, exit=True, file=item.config.stash[_STDERR])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spares time of TensorFlow and TFX, if they have been imported.

    Grappler rewrites each new graph. TFX packs itself for workers, which takes two seconds for each executor that is
    given options of Beam's; here it does once.
    """
    if item.stash[_ENDED_ITS_PROCESS]:
        pytest.fail("the process that ran this test ended in it")
    _free_lock_of_logging()
    if "tensorflow" in sys.modules and _WITHOUT_GRAPPLER in os.environ:
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    packing = sys.modules.get("tfx.utils.dependency_utils")
    if packing and not hasattr(packing.build_ephemeral_package, "cache_info"):
        packing.build_ephemeral_package = functools.cache(packing.build_ephemeral_package)


def _free_lock_of_logging() -> None:
    """Gives logging another lock if an earlier test left it taken: threads that log would wait for ever.

    The exception of a signal's handler may arrive between taking the lock and the block that frees it.
    """
    module: Any = logging
    if module._lock._is_owned() or not module._lock.acquire(timeout=10):
        module._lock = threading.RLock()
    else:
        module._lock.release()


@pytest.fixture(scope="module", autouse=True)
def modules_are_no_garbage() -> None:
    """TFX is a million objects that stay: the collector need not look through them, nor Arrow 10 at every CSV block."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def users_modules_end_with_their_test_file() -> Iterator[None]:
    """TFX imports by name alone, and takes a module of that name which a test of another file has left."""
    yield
    checkout = str(Path(__file__).parents[1])  # may lie in the folder of temporary files, too
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(tempfile.gettempdir()) and not file.startswith(checkout):
            del sys.modules[name]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes go by the argument's name: compressed ones hold the time, and all processes must call a test the same."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def beam_runners(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The class of the runner that each Beam pipeline takes; Prism, which Beam's own default starts, is refused."""
    from apache_beam import pipeline
    from apache_beam.runners.portability.prism_runner import PrismRunner

    taken: list[str] = []
    create_runner = pipeline.create_runner

    def create(name: str) -> object:
        runner = create_runner(name)
        taken.append(type(runner).__name__)
        return runner

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a default path has made a PrismRunner")

    monkeypatch.setattr(pipeline, "create_runner", create)
    monkeypatch.setattr(PrismRunner, "__init__", refuse)
    return taken


class _Runs:
    """Pickled, a command that leaves a file behind."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.file}",)


@pytest.fixture
def pickled_column(tmp_path: Path) -> Path:
    """A folder of table.parquet, .arrow and .feather, whose column `x` makes `it-was-run` where its type is unpickled.

    The type is written as plain metadata, as a forger would: no pyarrow runs anything while it writes.
    """
    import pyarrow as pa
    from pyarrow import feather, parquet

    pickled = pickle.dumps(_Runs(tmp_path / "it-was-run"))
    forged = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field("x", pa.int64(), metadata=forged), ("label", pa.string())])
    table = pa.table([pa.array(range(20)), pa.array(["a", "b"] * 10)], schema=schema)
    parquet.write_table(table, tmp_path / "table.parquet")
    feather.write_feather(table, tmp_path / "table.feather")
    with pa.ipc.new_file(tmp_path / "table.arrow", schema) as writer:
        writer.write(table)
    assert not (tmp_path / "it-was-run").exists()
    return tmp_path


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """once("table", write) -> a folder that the first of the test processes writes, and the others find."""
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, write: Callable[[Path], object]) -> Path:
        made, finished = root / name, root / f"{name}.finished"
        with FileLock(root / f"{name}.lock"):
            if not finished.exists():
                made.mkdir()
                write(made)
                finished.touch()
        return made

    return folder


@pytest.fixture(scope="session")
def warm(once: Callable[..., Path]) -> dict[str, str]:
    """What the environment of a process says to find TensorFlow and TFX imported: `warm/server.py` forks for it.

    All test processes share the server, which ends with the one that has started them.
    """
    path = os.pathsep.join([str(_WARM), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"WARM_PYTHON": _server(once, "tfx"), "PYTHONPATH": path}


@pytest.fixture(scope="session")
def warm_jax(once: Callable[..., Path]) -> dict[str, str]:
    """What the environment of `infeed.components.trainer.on_jax` says, so that it finds JAX and Keras imported."""
    return {"WARM_JAX": _server(once, "jax", KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")}


_WARM = Path(__file__).with_name("warm")


def _server(once: Callable[..., Path], name: str, **env: str) -> str:
    """The address of `warm/server.py` with the modules of that name."""
    tests = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()

    def start(made: Path) -> None:
        command = [sys.executable, _WARM / "server.py", made / "socket", str(tests), name]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        server = subprocess.Popen(command, env={**os.environ, **env}, text=True, **streams)  # type: ignore[call-overload]
        assert server.stdout
        with server.stdout as said:
            assert said.readline() == "ready\n"

    return str(once(f"warm-{name}", start) / "socket")


@pytest.fixture(scope="session")
def check_kubernetes() -> Callable[[Any], None]:
    """Raises ValueError for a JobSet or a TrainJob that does not fit the models that Kubeflow publishes."""
    import kubeflow_trainer_api.models as models

    kinds = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}

    def check(body: Any) -> None:
        found = kinds[body["kind"]].from_dict(body).to_dict()
        if found != body:  # the models drop fields that they do not know
            raise ValueError(f"unknown fields: {body} became {found}")

    return check


@pytest.fixture(scope="session")
def saved_models() -> Iterator[ModuleType]:
    """`saved_models.py`, imported for the tests that ask for it, not while tests are collected: TensorFlow is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield importlib.import_module("saved_models")


@pytest.fixture(scope="session")
def hold_ports() -> Iterator[Callable[[int], list[int]]]:
    """hold_ports(2) -> as many ports, which no other process gets by chance."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as held:
        patch.syspath_prepend(str(Path(__file__).parent))
        ports = importlib.import_module("ports")
        yield lambda count: held.enter_context(ports.held_ports(count))


@pytest.fixture(scope="session")
def beam_clusters() -> Iterator[ModuleType]:
    """`beam_clusters.py`: real runners; its folder is on the path of what is started meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(Path(__file__).parent)
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")])))
        yield importlib.import_module("beam_clusters")


@pytest.fixture(scope="session")
def portable_options(
    beam_clusters: ModuleType, tmp_path_factory: pytest.TempPathFactory, warm: Mapping[str, str]
) -> Iterator[list[str]]:
    """Options of Beam's that name its portable runner with a pool of external workers, forks of `warm`."""
    environment = {**os.environ, **warm}
    with beam_clusters.portable(tmp_path_factory.mktemp("portable"), environment=environment) as options:
        yield options


@pytest.fixture(scope="session")
def dask_options(beam_clusters: ModuleType) -> Iterator[list[str]]:
    """Options of Beam's that name a Dask cluster of processes."""
    with beam_clusters.dask() as options:
        yield options


@pytest.fixture(scope="session")
def threaded_options(beam_clusters: ModuleType) -> list[str]:
    """Options of Beam's that name a runner on four threads of this process."""
    return [f"--runner={beam_clusters.THREADED}"]


@pytest.fixture(scope="session")
def spark_options(beam_clusters: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options of Beam's that name a Spark cluster, on machines that have Java and the packages."""
    if not shutil.which("java") or not all(map(find_spec, ("pyspark", "beam_pyspark_runner"))):
        pytest.skip("Spark takes Java, and: pip install pyspark==3.5.*; pip install --no-deps beam-pyspark-runner")
    with beam_clusters.spark(tmp_path_factory.mktemp("spark")) as options:
        yield options


_opened: list[str] | None = None


@functools.cache
def _watch_opened_files() -> None:
    """For good: Python forgets no audit hook."""
    sys.addaudithook(
        lambda event, what: _opened.append(str(what[0])) if event == "open" and _opened is not None else None
    )


@pytest.fixture
def opened_data() -> Iterator[Callable[[], list[str]]]:
    """Returns the files of splits that Python has opened in this process since the last call."""
    global _opened
    _watch_opened_files()
    _opened = []

    def take() -> list[str]:
        assert _opened is not None
        data = (path for path in _opened if "/Split-" in path and path.endswith(".gz"))
        packed = ("site-packages", "/build/tfx/")  # TFX packs itself for workers, its test data with it
        found = [path for path in data if not any(part in path for part in packed)]
        _opened.clear()
        return found

    yield take
    _opened = None


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A server that speaks S3's protocol, with one bucket."""
    from moto import backends
    from moto.server import ThreadedMotoServer

    modules = frozenset(backends.list_of_moto_modules())  # else it looks into its folder at each request
    backends.list_of_moto_modules = lambda: modules
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a fifth of the time of a request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    answering = server._server.app  # type: ignore[union-attr]

    def counted(environ: dict[str, Any], start_response: Any) -> Any:
        _requests.append(f"{environ['REQUEST_METHOD']} {environ.get('HTTP_RANGE', '')} {environ['PATH_INFO']}")
        failing = environ["PATH_INFO"] in _failing and environ["REQUEST_METHOD"] == "GET"
        if failing and _failing[environ["PATH_INFO"]]:
            _failing[environ["PATH_INFO"]] -= 1
            start_response("503 Service Unavailable", [("Content-Length", "0")])
            return [b""]
        if any(
            refuses(environ["REQUEST_METHOD"], environ["QUERY_STRING"], environ["PATH_INFO"]) for refuses in _refusing
        ):
            body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response("403 Forbidden", headers)
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
        answer = answering(environ, start_response)
        written = environ["REQUEST_METHOD"] in ("POST", "PUT") and "partNumber" not in environ["QUERY_STRING"]
        for lost in [one for one in _losing if written and environ["PATH_INFO"].endswith(one)]:
            gone = {**environ, "REQUEST_METHOD": "DELETE", "QUERY_STRING": "", "wsgi.input": io.BytesIO()}
            if "uploads" not in environ["QUERY_STRING"]:  # the request that begins an upload of parts
                _losing.remove(lost)
                list(answering({**gone, "CONTENT_LENGTH": "0"}, lambda *_: None))
        return answer

    server._server.app = counted  # type: ignore[union-attr]
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")):
        pass
    yield endpoint
    server.stop()


_requests: list[str] = []
_losing: list[str] = []  # endings of paths of objects that the server loses once
_refusing: list[Callable[[str, str, str], bool]] = []  # of a request's method, query and path
_failing: dict[str, int] = {}  # path of an object -> how many reads of it the server still refuses


@pytest.fixture
def s3_failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Returns a function of an object and a number of its reads, which S3's server answers by 503.

    The client of this process asks once: with the usual number of attempts each error takes half a minute.
    """
    from infeed.components.dataset import files

    monkeypatch.setattr(files, "_ATTEMPTS", 1)
    files._connect.cache_clear()

    def fail(path: str, times: int) -> None:
        _failing[path.removeprefix("s3:/")] = times

    yield fail
    _failing.clear()
    files._connect.cache_clear()


@pytest.fixture
def s3_refusing() -> Iterator[list[Callable[[str, str, str], bool]]]:
    """Functions of a request's method, query and path: S3's server answers 403 where one of them says so."""
    yield _refusing
    _refusing.clear()


@pytest.fixture(scope="session")
def s3_losing() -> Callable[[str], None]:
    """Returns a function: S3's server confirms the next upload of an object with this ending, and loses it."""
    return _losing.append


@pytest.fixture
def s3_requests() -> list[str]:
    """The requests that S3's server has got, as `GET bytes=0-99 /bucket/object`; tests clear it."""
    _requests.clear()
    return _requests


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """`s3://bucket/NAME-OF-THE-TEST`, reached as AWS's own clients reach another endpoint."""
    from infeed.components.example_gen.sources.reader_process import _end_idle

    _end_idle()  # they have the environment of an earlier test
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return f"s3://{BUCKET}/{_name(request)}"


# With one thread the emulator waits forever for a client that reads a part of a large file.
_EMULATOR = (
    "import http.server, runpy; http.server.HTTPServer = http.server.ThreadingHTTPServer; "
    "runpy.run_module('gcp_storage_emulator', run_name='__main__', alter_sys=True)"
)


@pytest.fixture(scope="session")
def gs_endpoint(hold_ports: Callable[[int], list[int]]) -> Iterator[str]:
    """A server that speaks Google Cloud Storage's protocol, with one bucket.

    In a process of its own: Arrow 18 holds the interpreter's lock while it waits for an answer.
    """
    [port] = hold_ports(1)
    options = ["start", "--quiet", "--host=127.0.0.1", f"--port={port}", "--in-memory", f"--default-bucket={BUCKET}"]
    with subprocess.Popen([sys.executable, "-c", _EMULATOR, *options]) as server:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


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
