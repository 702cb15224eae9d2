"""Ingest damaged files, seed after seed, and print what became of each: a child process, since one might end it.

    cd tests/robustness
    python ingest_mutants.py 0 100 FOLDER a.csv a.jsonl    100 seeds from 0 of two files; without names, of all
    (ulimit -v 3000000; python ingest_mutants.py 0 1000 FOLDER) > outcomes.jsonl

Each input has two lines, such as {"input": "a.csv 0", "outcome": "written"}; refused inputs have the error too.
Standard error has the peak of memory at the end, of this process and of each reader that it has then.
"""

from __future__ import annotations

import csv
import faulthandler
import gzip
import io
import itertools
import json
import re
import shutil
import signal
import struct
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from conftest import mutate
from PIL import Image
from pyarrow import parquet as pq

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files, names, records
from infeed.components.dataset.decode import decode_example
from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import Buckets
from infeed.components.example_gen import ingest
from infeed.components.example_gen.formats import FORMATS, open_source

SECONDS = 20  # of one input, after which it counts as one that hangs
BUCKETS = Buckets((("train", 1),))
OPTIONS = IngestOptions(on_bad_row="reject", bad_row_limit=100_000, block_bytes=1024)
ROWS = [
    {
        "id": n,
        "name": f"row {n} ü",
        "value": n * 1.25,
        "flag": n % 3 == 0,
        "tags": [f"t{n}", "x"],
        "gap": n if n % 4 else None,
    }
    for n in range(60)
]
FLAT = [{key: value for key, value in row.items() if key != "tags"} for row in ROWS]


def write_csv(quote: int) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(FLAT[0]), quoting=quote)
    writer.writeheader()
    writer.writerows(FLAT)
    return file.getvalue().encode()


def write_jsonl() -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def write_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), file, row_group_size=20)
    return file.getvalue()


def write_rich_parquet() -> bytes:
    """Every way in which values are packed: dictionaries, run lengths, deltas, codecs, nesting, fixed sizes."""
    file = io.BytesIO()
    table = pa.table(
        {
            "id": pa.array(range(400)),
            "word": pa.array([f"word {n % 7}" if n % 5 else None for n in range(400)]),
            "delta": pa.array([f"prefix {n}" for n in range(400)]),
            "when": pa.array([n * 1_000_000 for n in range(400)], pa.timestamp("us")),
            "price": pa.array(range(400), pa.int64()).cast(pa.decimal128(25, 2)),
            "pair": pa.array([[n, n + 1] for n in range(400)], pa.list_(pa.int32(), 2)),
            "tags": pa.array([[f"t{n % 4}"] * (n % 3) if n % 7 else None for n in range(400)]),
            "deep": pa.array([{"flag": n % 2 == 0, "of": {"half": n / 2}} if n % 4 else None for n in range(400)]),
            "nothing": pa.nulls(400),
        }
    )
    pq.write_table(
        table,
        file,
        row_group_size=150,
        data_page_size=512,
        data_page_version="2.0",
        compression={"id": "none", "word": "zstd", "delta": "gzip"},
        use_dictionary=["word", "tags.list.item"],
    )
    return file.getvalue()


def write_packed_parquet(codec: str) -> bytes:
    """Many pages of one codec; beside a dictionary the other encodings that Arrow writes."""
    file = io.BytesIO()
    table = pa.table(
        {
            "wave": pa.array(np.sin(np.arange(600)), pa.float32()),
            "word": pa.array([f"prefix {n // 3}" for n in range(600)]),
            "lists": pa.array([[n] * (n % 4) for n in range(600)]),
        }
    )
    pq.write_table(
        table,
        file,
        data_page_size=256,
        write_batch_size=64,
        compression=codec,
        use_dictionary=["lists.list.item"],
        column_encoding={"wave": "BYTE_STREAM_SPLIT"},
    )
    return file.getvalue()


def write_avro(codec: str) -> bytes:
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "value", "type": "double"},
        {"name": "flag", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "gap", "type": ["null", "long"]},
    ]
    file = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(file, schema, ROWS, codec=codec, sync_interval=300)
    return file.getvalue()


def write_tfrecord() -> bytes:
    payloads = pa.array([f"record {n}".encode() * (n % 5) for n in range(60)], pa.large_binary())
    return b"".join(records.frame_records(payloads).to_pylist())


def write_image(form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)).save(file, form, **options)
    return file.getvalue()


def write_picture_list() -> bytes:
    return b"path,label\n" + b"".join(b"%d.png,%s\n" % (n % 4, b"cat dog".split()[n % 2]) for n in range(20))


VALID: dict[str, Callable[[], bytes]] = {
    "a.csv": lambda: write_csv(csv.QUOTE_MINIMAL),
    "quoted.csv": lambda: write_csv(csv.QUOTE_ALL),
    "crlf.csv.gz": lambda: gzip.compress(write_csv(csv.QUOTE_MINIMAL), mtime=0),
    "a.jsonl": write_jsonl,
    "a.parquet": write_parquet,
    "rich.parquet": write_rich_parquet,
    "brotli.parquet": lambda: write_packed_parquet("brotli"),
    "lz4.parquet": lambda: write_packed_parquet("lz4"),
    "a.avro": lambda: write_avro("null"),
    "deflated.avro": lambda: write_avro("deflate"),
    "a.tfrecord": write_tfrecord,
    "a.tfrecord.gz": lambda: gzip.compress(write_tfrecord(), mtime=0),
    "a.txt": lambda: "".join(f"line {n} ü\n" for n in range(60)).encode(),
    "a.png": lambda: write_image("png"),
    "a.jpeg": lambda: write_image("jpeg"),
    "raw.png": lambda: write_image("png"),
    "raw.jpeg": lambda: write_image("jpeg", progressive=True),
    "list.csv": write_picture_list,
}
IMAGES: dict[str, dict[str, Any]] = {"raw.png": {"pixels": "raw"}, "raw.jpeg": {"pixels": "raw"}, "list.csv": {}}


def ingest_mutant(name: str, seed: int, folder: Path) -> dict[str, str]:
    """Write and ingest one damaged file, and return what became of it."""
    data = mutate(VALID[name](), seed)
    (folder / "in").mkdir()
    (folder / "in" / name).write_bytes(data)
    if name == "list.csv":
        for number in range(4):
            (folder / "in" / f"{number}.png").write_bytes(VALID["a.png"]())
    kind = "images" if name in IMAGES else next(kind for kind, one in FORMATS.items() if name.endswith(one.suffixes))
    try:
        opened = open_source(str(folder / "in"), kind, OPTIONS, IMAGES.get(name, {}))
        job = ingest.Job.of(opened, root=str(folder / "out"), splits=BUCKETS.names, buckets=BUCKETS, options=OPTIONS)
        manifest = ingest.ingest(opened.tasks, job)
    except InfeedError as error:
        told = str(error)
        assert name in told or "no rows" in told or "no images" in told, f"no file is named: {told}"
        return {"outcome": "refused", "error": told}
    check_rows(kind, data, manifest, folder / "out")
    return {"outcome": "written"}


def check_rows(kind: str, data: bytes, manifest: Manifest, root: Path) -> None:
    """Every row is written, set aside or no row at all, and what is written is what another reader reads."""
    written = [one for split in manifest.splits for one in read_split(str(root), split)]
    assert manifest.rows_read == len(written) + manifest.rejected.rows
    if kind in ORACLES:
        expected = ORACLES[kind](data, {column.name: column.type for column in manifest.schema})
        if expected is None:
            return
        found = Counter(written if kind == "tfrecord" else map(shown, written))
        assert not found - Counter(expected), f"written, but not in the file: {list(found - Counter(expected))[:3]}"
        if kind != "tfrecord":
            assert manifest.rows_read == len(expected), f"{manifest.rows_read} rows read of {len(expected)}"


def read_split(root: str, split: str) -> Iterator[bytes]:
    for shard in files.list_files(names.split_dir(root, split)):
        yield from records.read_records(shard.path)


def shown(record: bytes) -> str:
    features = decode_example(record).features
    own = {name: feature for name, feature in features.items() if name not in ("filename", "label")}
    # A feature without a type is of a column without any value.
    return repr({name: feature.values for name, feature in own.items() if feature.type})


def expect_csv(data: bytes, kinds: dict[str, str]) -> list[str] | None:
    """Rows without quotes are lines, and cells what is between commas; a bad row is an entry that nothing equals."""
    if b'"' in data or data[:2] == b"\x1f\x8b" or b"\0" in data:
        return None
    text = data.removeprefix(b"\xef\xbb\xbf")
    header, *lines = [line for line in re.split(b"\r\n|\n|\r", text) if line]
    columns = [name.decode() for name in header.split(b",")]
    return [expect_csv_row(line, columns, kinds) for line in lines]


def expect_csv_row(line: bytes, columns: list[str], kinds: dict[str, str]) -> str:
    cells = line.split(b",")
    if len(cells) != len(columns):
        return ""
    row = dict(sorted(zip(columns, cells, strict=True)))
    try:
        line.decode()
        return repr({name: expect_cell(cell, kinds[name]) for name, cell in row.items() if cell})
    except ValueError:
        return ""


def expect_cell(cell: bytes, kind: str) -> tuple[Any, ...]:
    if kind == "int":
        return (int(cell),)
    return (single(float(cell)),) if kind == "float" else (cell,)


def single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(struct.unpack("<f", np.float32(value).tobytes())[0])


def expect_jsonl(data: bytes, kinds: dict[str, str]) -> list[str] | None:
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    return [expect_json_row(line, kinds) for line in lines]


def expect_json_row(line: bytes, kinds: dict[str, str]) -> str:
    try:
        row = json.loads(line.decode())
        cells = {
            name: value if isinstance(value, list) else [value]
            for name, value in flat(row).items()
            if value is not None
        }
        return repr(
            {name: tuple(expect_json(one, kinds[name]) for one in some) for name, some in sorted(cells.items())}
        )
    except (ValueError, AttributeError, KeyError, RecursionError, TypeError, OverflowError):
        return ""


def flat(row: dict[str, Any], under: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in row.items():
        cells |= flat(value, f"{under}{name}.") if isinstance(value, dict) else {under + name: value}
    return cells


def expect_json(value: Any, kind: str) -> Any:
    if kind == "bytes":
        return value.encode()
    return int(value) if kind == "int" else single(float(value))


def expect_text(data: bytes, _: dict[str, str]) -> list[str]:
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").removesuffix(b"\n")
    return [repr({"text": (line,)}) for line in text.split(b"\n")] if data.removeprefix(b"\xef\xbb\xbf") else []


def expect_tfrecord(_: bytes, __: dict[str, str]) -> list[bytes]:
    """Checksums stand for every record: what is written was in the file before it was damaged, if more than once."""
    return [f"record {n}".encode() * (n % 5) for n in range(60)] * 200


ORACLES: dict[str, Callable[[bytes, dict[str, str]], list[Any] | None]] = {
    "csv": expect_csv,
    "jsonl": expect_jsonl,
    "text": expect_text,
    "tfrecord": expect_tfrecord,
}


def main(first: str, count: str, where: str, *chosen: str) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process also where Python waits for C
    for name, seed in itertools.product(chosen or VALID, range(int(first), int(first) + int(count))):
        tell(f"{name} {seed}", outcome="began")
        folder = Path(tempfile.mkdtemp(dir=where))
        signal.alarm(SECONDS)
        try:
            outcome = ingest_mutant(name, seed, folder)
        except BaseException:
            outcome = {"outcome": traceback.format_exc()}
        signal.alarm(0)
        shutil.rmtree(folder)
        tell(f"{name} {seed}", **outcome)
    readers = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    print(f"peak: {peak('self')}; readers: {', '.join(map(peak, readers))}", file=sys.stderr)


def tell(name: str, **told: str) -> None:
    print(json.dumps({"input": name, **told}), flush=True)


def peak(process: str) -> str:
    """Of a process that crashed, nothing is known."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return f"{int(found[1]) >> 10} MB" if found else "crashed"


if __name__ == "__main__":
    main(*sys.argv[1:])
