import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.feed.sampling import SamplingWeights, sampling_weights
from infeed.components.feed.shards import ShardFile

SHARDS = [ShardFile(f"Split-{split}/part-{i}", 10, 100, split=split) for split in ("old", "new") for i in range(2)]


def shares(classes=("no", "yes"), **options):
    return sampling_weights(SHARDS, classes, FeedOptions(**options))


def test_nothing_asked_for_is_nothing_done():
    assert shares() is None


def test_splits_are_named_in_the_order_of_their_records():
    made = shares(mix={"new": 3, "old": 1})
    assert made == SamplingWeights("split", ("old", "new"), (1.0, 3.0))
    assert made.describe() == "25 % of 'old', 75 % of 'new'"


def test_classes_are_named_by_index_and_those_left_out_have_no_share():
    assert shares(("a", "b", "c"), class_shares={"c": 0.2, "a": 0.8}) == SamplingWeights(
        "class", ("a", "b", "c"), (0.8, 0.0, 0.2)
    )
    assert shares(class_shares="equal") == SamplingWeights("class", ("no", "yes"), (1.0, 1.0))


def test_of_many_names_the_plan_tells_the_first():
    assert shares([f"c{i}" for i in range(100)], class_shares="equal").describe().endswith("1 % of 'c4' and so on")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mix": {"old": 1, "mew": 1}}, r"there is no 'mew'(.|\n)*mix(.|\n)*training splits: old, new"),
        ({"mix": {"old": 1}}, r"mix has no share for the split 'new'(.|\n)*0 to exclude it"),
        ({"class_shares": {"maybe": 1}}, r"there is no 'maybe'(.|\n)*class_shares(.|\n)*classes: no, yes"),
    ],
)
def test_names_that_do_not_fit_what_there_is_are_refused(options, match):
    with pytest.raises(InfeedError, match=match):
        shares(**options)


def test_classes_of_a_label_without_a_vocabulary_have_no_names():
    with pytest.raises(InfeedError, match=r"classes have no names(.|\n)*vocabulary"):
        shares((), class_shares="equal")
