from __future__ import annotations

from collections.abc import Callable

from infeed.components.dataset.input_profile import InputProfile
from infeed.components.dataset.manifest import Shard, Split
from infeed.components.input_report.verdict import judge

Make = Callable[..., InputProfile]
CACHED = ("shards", "read", "batch", "parse", "cache", "shuffle", "batch", "augment", "prefetch")


def advice(profile: InputProfile, split: Split | None = None) -> str:
    return "\n".join(judge(profile, max_wait_fraction=None, split=split).advice)


def split_of(shards: int, shard_bytes: int) -> Split:
    return Split.of(tuple(Shard(f"Split-train/{i}", 1000, shard_bytes, "") for i in range(shards)))


def test_a_small_split_belongs_in_memory(profile: Make) -> None:
    said = advice(profile())
    assert "1.0 MB on disk and at most about 10 MB decoded; the process used 1.4 GB" in said
    assert "up to 2.0 times as fast" in said
    assert "CPU cores" not in said


def test_a_large_split_is_not_advised_into_memory(profile: Make) -> None:
    said = advice(profile(bytes=200_000_000))
    assert "memory" not in said
    assert "read, shuffle, batch, parse, transform and augment process every record in every epoch" in said


def test_a_cache_gains_nothing_in_a_single_epoch(profile: Make) -> None:
    assert "memory" not in advice(profile(epochs=[(1.0, 0.5)]))


def test_with_a_cache_only_what_comes_after_it_is_left_to_speed_up(profile: Make) -> None:
    said = advice(profile(steps=CACHED))
    assert "after the cache cheaper: shuffle, batch and augment process every record" in said
    assert "At 2,000 examples a second instead of 1,000" in said


def test_a_single_epoch_only_fills_the_cache(profile: Make) -> None:
    said = advice(profile(steps=CACHED, epochs=[(4.0, 2.0)]))
    assert "cheaper: read, batch, parse, shuffle, batch and augment process every record. At" in said


def test_what_is_held_as_columns_is_gathered_and_augmented_in_every_epoch(profile: Make) -> None:
    steps = ("shards", "read", "batch", "parse", "transform", "columns", "gather", "augment", "prefetch")
    assert "after the cache cheaper: gather and augment process every record" in advice(profile(steps=steps))


def test_few_large_shards_cannot_be_read_side_by_side(profile: Make) -> None:
    said = advice(profile(bytes=100_000_000), split_of(2, 50_000_000))
    assert "10 shards instead of 2, 10 MB each" in said
    assert "Reading can be up to 5.0 times as fast, and training up to 2.0 times" in said


def test_small_shards_are_not_cut_further(profile: Make) -> None:
    assert "shards" not in advice(profile(), split_of(1, 15_000_000))


def test_shards_do_not_matter_once_records_are_cached(profile: Make) -> None:
    assert "shards" not in advice(profile(steps=CACHED), split_of(1, 900_000_000))


def test_an_input_function_of_the_users_own_has_neither_tiers_nor_shards(profile: Make) -> None:
    said = advice(profile(steps=("input_fn", "prefetch"), bytes=0), split_of(1, 900_000_000))
    assert "memory" not in said
    assert "shards" not in said
    for remedy in ("from_process", "num_parallel_calls", "tf.data service", "up to 2.0 times as fast"):
        assert remedy in said
    assert "Give the host more CPU cores" not in said


def test_steps_of_less_than_a_millisecond_want_a_larger_batch(profile: Make) -> None:
    said = advice(profile(epochs=[(1.0, 0.0), (0.1, 0.0)], ceiling=10_000.0))  # 100 steps of 1 ms
    assert "batch_size=40 instead of 10" in said
    assert "1.0 ms" in said
    assert "1.18 times as fast" in said


def test_a_batch_is_not_grown_until_an_epoch_has_few_steps(profile: Make) -> None:
    assert advice(profile(epochs=[(1.0, 0.0), (0.1, 0.0)], ceiling=10_000.0, steps_per_epoch=79)) == ""


def test_who_does_not_wait_is_given_no_advice_on_input(profile: Make) -> None:
    given = profile(epochs=[(9.0, 1.0), *[(1.0, 0.049)] * 20], ceiling=1220.0, bytes=100_000_000)
    assert advice(given, split_of(2, 50_000_000)) == ""


def test_all_well_means_no_advice(profile: Make) -> None:
    assert advice(profile(epochs=[(1.0, 0.0), (1.0, 0.0)], ceiling=1010.0), split_of(1, 900_000_000)) == ""
