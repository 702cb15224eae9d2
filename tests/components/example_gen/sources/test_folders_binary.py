from __future__ import annotations

from pathlib import Path

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.inputs import BadRows
from infeed.components.example_gen.sources import folders


def test_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    content = {"b/x.bin": bytes(range(256)), "a/y": b"", "a/.hidden": b"no", "b/_SUCCESS": b""}
    for name, data in content.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    opened = folders.open_binary(str(tmp_path), {None: "*/*"}, IngestOptions())
    (task,) = opened.tasks
    assert [row for batch in opened.read(task.payload, bad_rows=BadRows()) for row in batch.to_pylist()] == [
        {"data": b"", "filename": "a/y", "label": 0, "label/text": "a"},
        {"data": bytes(range(256)), "filename": "b/x.bin", "label": 1, "label/text": "b"},
    ]


def test_a_file_beyond_the_limit_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1_100_000))
    (tmp_path / "small").write_bytes(b"1")
    opened = folders.open_binary(str(tmp_path), {None: "*"}, IngestOptions(max_row_mb=1))
    bad_rows = BadRows("reject", 1)
    assert sum(batch.num_rows for task in opened.tasks for batch in opened.read(task.payload, bad_rows=bad_rows)) == 1
    (bad,) = bad_rows.take()
    assert bad.file.endswith("large")
    assert "max_row_mb" in bad.reason


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    assert folders.default_pattern(str(tmp_path)) == "*"
    assert folders.open_binary(str(tmp_path), {None: "*"}, IngestOptions()).schema.names == ["data", "filename"]
