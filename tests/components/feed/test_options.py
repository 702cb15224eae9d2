import pytest

from infeed.components.errors import InfeedError
from infeed.components.feed.options import Augment, FeedOptions, Normalise, Workers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"readers": 0}, "readers is 0"),
        ({"shuffle_records": -1}, "shuffle_records is -1"),
        ({"tier": "cloud"}, r"tier is 'cloud'(.|\n)*auto, columns, disk, stream"),
        ({"memory_fraction": 1.5}, "memory_fraction is 1.5"),
        ({"disk_fraction": 0}, "disk_fraction is 0"),
    ],
)
def test_feed_options_out_of_range_are_refused_when_built(options, message):
    with pytest.raises(InfeedError, match=message):
        FeedOptions(**options)


def test_unknown_flip_is_refused():
    with pytest.raises(InfeedError, match="flip is 'vertical'"):
        Augment(flip="vertical")


def test_more_contrast_than_there_is_is_refused():
    with pytest.raises(InfeedError, match=r"contrast is 1.5"):
        Augment(contrast=1.5)


def test_negative_shift_is_refused():
    with pytest.raises(InfeedError, match="shift is -1"):
        Augment(shift=-1)


def test_normalising_by_a_deviation_of_zero_is_refused():
    with pytest.raises(InfeedError, match="std is 0"):
        Normalise(std=0)


def test_augmentation_describes_only_what_it_does():
    assert Augment(shift=2, cutout=4).describe() == "shifts by up to 2 px with reflected edges, cuts out 4 x 4 px"
    assert Augment().describe() == ""


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_workers_are_numbered_from_0(index, count):
    with pytest.raises(InfeedError, match=f"worker {index} of {count}"):
        Workers(index, count)
