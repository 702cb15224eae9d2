import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions

pytestmark = pytest.mark.tfx


def feed(folder, *, training, split, graph="class", label="kind", feed=None, packed=False, **options):
    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.options import TrainOptions

    made = TrainOptions(model_fn="m:f", label=label, feed=FeedOptions(batch_size=8, **(feed or {})), **options)
    loaded = TransformGraph(str(folder / graph / "graph"), label, made.feed.weight)
    return make_feed([f"{folder}/Split-{split}/*"], loaded, made, training=training, packed=packed).dataset()


@pytest.fixture
def with_a_stranger(table, tmp_path, example):
    """The table's graph, and a split in which one record of five has a class that the graph does not know."""
    import tensorflow as tf

    folder, rows = table
    (tmp_path / "class").symlink_to(folder / "class")
    (tmp_path / "Split-odd").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "Split-odd" / "part-0")) as writer:
        for i, row in enumerate(rows[:20]):
            writer.write(example({**row, "kind": b"huge" if i % 5 == 0 else row["kind"]}))
    return tmp_path


def test_features_and_label_are_those_of_the_transform_graph(table):
    features, label = next(iter(feed(table[0], training=False, split="eval")))
    x = np.array([row["x"] for row in table[1]])
    np.testing.assert_allclose(features["x"][:, 0], (x[:8] - x.mean()) / x.std(), atol=1e-4)
    np.testing.assert_array_equal(label, [row["kind"] == b"small" for row in table[1][:8]])  # classes are sorted


def test_an_evaluation_record_of_an_unknown_class_is_left_out(with_a_stranger):
    batches = list(feed(with_a_stranger, training=False, split="odd"))
    labels = np.concatenate([label.numpy() for _, label in batches])
    assert len(labels) == 16
    assert labels.min() >= 0
    assert sum(len(features["x"]) for features, _ in batches) == 16


def test_training_on_a_record_of_an_unknown_class_stops_with_the_reason(with_a_stranger):
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match="label kind"):
        list(feed(with_a_stranger, training=True, split="odd").take(3))


def test_pictures_are_cached_as_bytes_and_fed_as_numbers(pictures):
    from infeed.components.feed.options import Normalise

    scaled = feed(pictures[0], training=False, split="eval", label="label/text", normalise=Normalise())
    features, _ = next(iter(scaled))
    assert features["image"].dtype.name == "float32"
    assert -1 <= features["image"].numpy().min() <= features["image"].numpy().max() <= 1
    plain = feed(pictures[0], training=False, split="eval", label="label/text")
    assert plain.element_spec[0]["image"].dtype.name == "uint8"


def test_columns_kept_on_disk_are_those_of_memory_and_of_another_graph_are_others(table, tmp_path):
    folder, disk = table[0], {"tier": "disk", "cache_dir": str(tmp_path)}
    held, kept = (feed(folder, training=True, split="train", feed=one) for one in ({"tier": "columns"}, disk))
    for one, other in zip(held.take(10), kept.take(10), strict=True):
        for name in one[0]:
            np.testing.assert_array_equal(one[0][name], other[0][name])
        np.testing.assert_array_equal(one[1], other[1])
    feed(folder, training=True, split="train", graph="number", label="n", feed=disk)
    kept = [path for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith("counted")]
    assert len(kept) == 2


@pytest.mark.parametrize("tier", ["columns", "stream"])
def test_a_corrupt_record_is_named_or_left_out_where_that_is_allowed(table, tmp_path, example, tier):
    import tensorflow as tf

    path = tmp_path / "Split-train" / "part-0"
    path.parent.mkdir()
    (tmp_path / "class").symlink_to(table[0] / "class")
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in table[1][:16]:
            writer.write(example(row))
    data = bytearray(path.read_bytes())
    data[-5] ^= 0xFF  # the last byte of the last record
    path.write_bytes(data)
    with pytest.raises(InfeedError, match=r"wrong checksum(.|\n)*part-0, record 15"):
        feed(tmp_path, training=True, split="train", feed={"tier": tier})
    left = feed(tmp_path, training=False, split="train", feed={"tier": tier, "skip_corrupt": 1})
    assert sum(len(label) for _, label in left) == 15


@pytest.mark.parametrize("tier", ["columns", "disk", "stream"])
def test_an_epoch_holds_of_each_dataset_or_class_what_was_asked_for(table, tmp_path, example, tier):
    """Each dataset is of one class, so what labels there are tells what was drawn."""
    import tensorflow as tf

    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.options import TrainOptions

    for kind in (b"big", b"small"):
        folder = tmp_path / kind.decode() / "Split-train"
        folder.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / "part-0")) as writer:
            for row in table[1][:32]:
                writer.write(example({**row, "kind": kind}))
    graph = TransformGraph(str(table[0] / "class" / "graph"), "kind")
    patterns = [f"{tmp_path}/{kind}/Split-train/*" for kind in ("big", "small")]

    def smalls(**shares):
        options = FeedOptions(batch_size=8, tier=tier, cache_dir=str(tmp_path / "cache"), **shares)
        made = make_feed(patterns, graph, TrainOptions("m:f", "kind", feed=options), training=True)
        assert made.plan.steps_per_epoch == 8
        return sum(int(label.numpy().sum()) for _, label in made.dataset().take(8))

    assert smalls(mix={"big": 1, "small": 3}) == 48
    if tier != "stream":
        assert smalls(class_shares={"big": 3, "small": 1}) == 16
        assert smalls(class_shares="equal") == 32
    counted = [path for path in (tmp_path / "cache").iterdir() if path.name.startswith("counted")]
    assert len(counted) == 2  # neither dataset has a manifest


@pytest.mark.parametrize("tier", ["columns", "stream"])
def test_a_feature_that_weighs_the_examples_is_kept_from_the_model(table, tier):
    options = {"weight": "n", "tier": tier}
    made = feed(table[0], training=False, split="eval", graph="number", label="x", feed=options)
    features, _, weight = next(iter(made))
    assert "n" not in features
    np.testing.assert_allclose(weight, [row["n"] for row in table[1][:8]], rtol=1e-6)


def test_a_weight_below_0_stops_training_with_the_reason(table):
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weight is negative or not a number; FeedOptions.weight"):
        list(feed(table[0], training=True, split="train", graph="number", label="n", feed={"weight": "x"}).take(1))


def test_a_weight_that_the_graph_does_not_give_is_refused(table):
    with pytest.raises(InfeedError, match=r"no feature 'importance'(.|\n)*feed.weight(.|\n)*kind, x, z"):
        feed(table[0], training=True, split="train", feed={"weight": "importance"})


def test_class_shares_are_given_by_the_names_in_the_vocabulary(table):
    shares = {"big": 1.0, "small": 3.0}
    made = feed(table[0], training=True, split="train", feed={"class_shares": shares, "tier": "columns"})
    labels = np.concatenate([label.numpy() for _, label in made.take(8)])  # an epoch: two thirds of the 96 rows
    assert np.bincount(labels).tolist() == [16, 48]  # classes are sorted


@pytest.mark.parametrize(("runs", "tier"), [(1, "stream"), (3, "columns")])
def test_what_a_search_reads_in_every_trial_is_decoded_once(table, monkeypatch, runs, tier):
    from infeed.components.feed import capacity
    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.options import TrainOptions

    monkeypatch.setattr(capacity, "_CHEAP_BYTES", 0)
    graph = TransformGraph(str(table[0] / "class" / "graph"), "kind")
    options = TrainOptions(model_fn="m:f", label="kind", epochs=1, feed=FeedOptions(batch_size=8))
    made = make_feed([f"{table[0]}/Split-train/*"], graph, options, training=True, runs=runs)
    assert made.plan.tier == tier


@pytest.fixture
def functions(tmp_path):
    path = tmp_path / "maps.py"
    path.write_text(MAPS)
    return str(path)


MAPS = """
import tensorflow as tf

def adds(features):
    return {**features, "more": features["x"]}

def casts(features):
    return {**features, "x": tf.cast(features["x"], tf.int64)}

def drops(features):
    return {"x": features["x"] * 0}

def refuses(features):
    tf.debugging.assert_less(features["x"], -100.0)
    return features
"""


@pytest.mark.parametrize(("function", "word"), [("adds", "'more'"), ("casts", "int64")])
def test_a_map_may_return_only_what_serving_computes(table, functions, function, word):
    told = {"feed": {"map_batches": f"{functions}:{function}"}, "training": True, "split": "train"}
    assert feed(table[0], **told).element_spec  # a `run_fn` of the user's own exports what it likes
    with pytest.raises(InfeedError, match=word) as error:
        feed(table[0], packed=True, **told)
    assert error.value.where == f"FeedOptions.map_batches, {functions}:{function}"


def test_a_map_may_leave_features_out(table, functions):
    made = feed(table[0], training=True, split="train", packed=True, feed={"map_batches": f"{functions}:drops"})
    assert set(next(iter(made))[0]) == {"x"}


def test_training_names_the_line_of_a_map_that_fails(table, functions, train):
    feed_options = FeedOptions(batch_size=16, map_batches=f"{functions}:refuses")
    with pytest.raises(InfeedError, match="x < y") as error:
        train(table[0], "class", "table", label="kind", epochs=1, feed=feed_options)
    assert "assert_less" in error.value.where
    assert "FeedOptions.map_batches" in error.value.where
