from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.dataset.statistics.cells import Cells
from infeed.pipelines.project.samples import Sample, Sampler, from_bytes, merge, to_bytes


def sampled(start: int, rows: int, limit: int = 500, block: int = 1_000) -> Sample:
    """A sample of the numbers from `start` on, given in blocks."""
    sampler = Sampler(f"file {start}", limit)
    for first in range(start, start + rows, block):
        count = min(block, start + rows - first)
        sampler.add(count, {"n": Cells.of(pa.array(np.arange(first, first + count)))})  # type: ignore[dict-item]
    return sampler.sample()


def numbers(sample: Sample) -> np.ndarray:
    return np.asarray(sample.cells["n"].values)


def test_a_small_table_is_its_own_sample() -> None:
    assert numbers(sampled(0, 400)).tolist() == list(range(400))


def test_of_a_large_table_as_many_rows_stay_as_may_in_their_order_and_from_all_parts() -> None:
    found = numbers(sampled(0, 50_000))
    assert len(found) == 500
    assert (np.diff(found) > 0).all()
    assert abs(found.mean() - 25_000) < 2_500
    assert numbers(sampled(0, 50_000)).tolist() == found.tolist()


def test_samples_of_two_files_make_a_sample_of_both_by_their_sizes() -> None:
    both = merge([sampled(0, 40_000), sampled(40_000, 10_000)], 500)
    assert 350 <= len(both) <= 500
    assert 0.1 < (numbers(both) >= 40_000).mean() < 0.3


def test_a_table_of_many_columns_or_of_long_texts_gets_fewer_rows() -> None:
    assert len(sampled(0, 400).cut(500, most_cells=100, least_rows=10)) == 100
    assert len(sampled(0, 400).cut(500, most_bytes=16 * 50, least_rows=10)) == 50
    assert len(sampled(0, 400).cut(500, most_cells=100)) == 256


def test_a_sample_comes_back_from_its_file() -> None:
    columns = {
        "int": pa.array([1, None, 3]),
        "float": pa.array([1.5, float("nan"), None], pa.float32()),
        "text": pa.array(["x", None, ""]),
        "list": pa.array([[1, 2], None, []]),
    }
    sampler = Sampler("file")
    sampler.add(3, {name: cells for name, column in columns.items() if (cells := Cells.of(column))})
    sample = sampler.sample()
    read = from_bytes(to_bytes(sample))
    assert (read.keys.tolist(), read.threshold) == (sample.keys.tolist(), sample.threshold)
    for name, cells in sample.cells.items():
        assert (read.cells[name].kind, read.cells[name].lengths.tolist()) == (cells.kind, cells.lengths.tolist())
        assert str(read.cells[name].values) == str(cells.values)


@pytest.mark.parametrize("damaged", [b"", b"junk", to_bytes(sampled(0, 9))[:-40]])
def test_a_damaged_file_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_bytes(damaged)


def test_different_values_come_from_all_parts_of_a_table() -> None:
    texts = [f"t{i // 2}" for i in range(1_000)]
    sampler = Sampler("t")
    sampler.add(1_000, {"t": Cells.of(pa.array(texts)), "n": Cells.of(pa.array(range(1_000)))})  # type: ignore[dict-item]
    found = sampler.sample().different("t", 5)
    assert found == [b"t0", b"t125", b"t250", b"t374", b"t499"]
    assert sampler.sample().different("n", 5) == sampler.sample().different("none", 5) == []
