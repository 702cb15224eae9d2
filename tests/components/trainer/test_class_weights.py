from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.columns import load_columns
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer.options import TrainOptions

pytestmark = [pytest.mark.slow, pytest.mark.tfx]  # TensorFlow and tft take seconds to load

BATCHES = tf.data.Dataset.from_tensors(({"x": [1.0, 2.0, 3.0]}, tf.constant([0, 2, 1], tf.int64)))
SCHEMA = """
feature { name: "x" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 } }
feature { name: "y" type: %s shape { dim { size: 1 } } presence { min_fraction: 1 } }
"""


def weighted(batches, weights):
    from infeed.components.trainer.class_weights import with_class_weights

    return with_class_weights(batches, weights if isinstance(weights, dict) else {"": weights})


def weights_of(class_weight, graph, patterns=(), **options):
    from infeed.components.trainer.class_weights import class_weights

    options = TrainOptions("m:f", graph.labels[0], class_weight=class_weight, **options)
    return class_weights(options, graph, patterns).get("", {})


def balanced_weights(rows, classes):
    from infeed.components.trainer.class_weights import balanced

    return balanced(rows, classes, "option class_weight", "set weights by name")


def named(*classes):
    """A graph of which nothing is known but the classes."""
    return SimpleNamespace(
        classes_of=lambda label: classes,
        labels=("kind",),
        transformed_spec={"kind": tf.io.FixedLenFeature([1], tf.int64)},
    )


def scikit_learns(labels):
    """scikit-learn's weights of the classes that occur, in ascending order."""
    from sklearn.utils.class_weight import compute_class_weight

    return compute_class_weight("balanced", classes=np.unique(labels), y=labels).tolist()


@pytest.fixture
def write_raw(tmp_path, example):
    """write_raw(labels, kind="INT") -> (the graph of raw Examples with these labels, their pattern)."""

    def write(labels, kind="INT"):
        from infeed.components.trainer.graph import open_graph

        folder = tmp_path / "examples" / "Split-train"
        folder.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001.gz"), "GZIP") as writer:
            for label in labels:
                writer.write(example({"x": 1.0, "y": label}))
        (tmp_path / "schema.pbtxt").write_text(SCHEMA % kind)
        return open_graph(None, str(tmp_path / "schema.pbtxt"), "y"), f"{folder}/*"

    return write


def test_an_example_weighs_what_its_class_does():
    features, label, weight = next(iter(weighted(BATCHES, [0.5, 1.0, 5.0])))
    assert features["x"].numpy().tolist() == [1, 2, 3]
    assert label.numpy().tolist() == [0, 2, 1]
    assert weight.numpy().tolist() == [0.5, 5, 1]


def test_weights_that_examples_have_already_are_multiplied():
    own = BATCHES.map(lambda features, label: (features, label, tf.constant([1.0, 2.0, 3.0])))
    assert next(iter(weighted(own, [1.0, 1.0, 5.0])))[2].numpy().tolist() == [1, 10, 3]


def test_a_step_that_gathers_its_rows_weighs_them():
    rows = weighted(RowBatches(load_columns(BATCHES), lambda steps: None), [1.0, 1.0, 5.0])
    assert rows.take(tf.constant([2, 1], tf.int64))[2].numpy().tolist() == [1, 5]


def test_without_weights_the_dataset_is_left_alone():
    assert weighted(BATCHES, weights_of({}, named("a"))) is BATCHES


def test_classes_are_weighed_by_name_and_those_left_out_weigh_one():
    assert weights_of({"c": 5.0, "a": 0.5}, named("a", "b", "c")) == (0.5, 1.0, 5.0)


def test_a_class_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InfeedError, match=r"there is no class 'd'(.|\n)*a, b, c"):
        weights_of({"d": 2.0}, named("a", "b", "c"))


@pytest.mark.parametrize("seed", range(5))
def test_balanced_is_what_scikit_learn_says(seed):
    draw = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(7), draw.choice(7, 500, p=draw.dirichlet(np.ones(7)))])
    assert balanced_weights(np.bincount(labels), "abcdefg") == pytest.approx(scikit_learns(labels))


def test_balanced_weights_leave_the_weight_of_all_rows_as_it_is():
    rows = np.array([3, 90, 7])
    by_class = rows * balanced_weights(rows, ["a", "b", "c"])
    assert by_class == pytest.approx([100 / 3] * 3)


def test_a_class_without_a_row_cannot_be_balanced():
    with pytest.raises(InfeedError, match="class 'b'"):
        balanced_weights(np.array([4, 0, 5]), ["a", "b", "c"])


def test_the_rows_of_a_label_that_is_text_are_counted_by_the_names_of_the_graph(table, arguments, tmp_path):
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.training import prepare

    folder, rows = table
    given = arguments(tmp_path, folder, "class", "table", label="kind", class_weight="balanced")
    training = prepare(FnArgs(**given))
    assert training.graph.classes == ("big", "small")  # ascending, as scikit-learn has them
    assert training.class_weights[""] == pytest.approx(scikit_learns([row["kind"] for row in rows[len(rows) // 3 :]]))


def test_labels_that_are_numbers_are_classes_where_they_occur(write_raw):
    labels = [1, 1, 3, 1, 4, 4, 3, 1]
    graph, pattern = write_raw(labels)
    found = weights_of("balanced", graph, [pattern])
    assert [found[label] for label in (1, 3, 4)] == pytest.approx(scikit_learns(labels))


def test_examples_of_several_splits_are_counted_together(write_raw):
    labels = [0, 1, 1]
    graph, pattern = write_raw(labels)
    assert weights_of("balanced", graph, [pattern, pattern]) == pytest.approx(scikit_learns(labels * 2))


def test_examples_that_are_transformed_hold_the_number_of_the_class(write_raw):
    labels = [2, 0, 1, 0, -1]  # -1: no label
    graph, pattern = write_raw(labels)
    found = weights_of("balanced", graph, [pattern], examples_are="transformed")
    assert found == pytest.approx(scikit_learns(labels[:-1]))


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([0.5, 1.0], "FLOAT", "label 'y' is 0.5"),
        ([0, 1 << 40], "INT", "label 'y' is 1099511627776"),
        (list(range(10_001)), "INT", "column 'y' has about [0-9,]+"),
    ],
)
def test_what_is_no_number_of_a_class_is_refused(write_raw, labels, kind, message):
    graph, pattern = write_raw(labels, kind)
    with pytest.raises(InfeedError, match=message):
        weights_of("balanced", graph, [pattern])


def test_a_number_beyond_the_classes_is_refused(write_raw):
    _, pattern = write_raw([0, 1, 2])
    graph = named("a", "b")
    graph.labels, graph.transformed_spec = ("y",), {"y": graph.transformed_spec["kind"]}
    with pytest.raises(InfeedError, match=r"label 'y' is 2\b.*2 classes"):
        weights_of("balanced", graph, [pattern], examples_are="transformed")


def test_a_label_that_is_made_of_several_columns_has_no_counts():
    graph = named("no", "yes")
    graph.raw_spec_of = lambda features: dict.fromkeys(["tips", "fare"])
    with pytest.raises(InfeedError, match="columns fare, tips"):
        weights_of("balanced", graph, ["examples/Split-train/*"])


def test_files_that_are_in_no_split_have_no_counts():
    with pytest.raises(InfeedError, match="where: some/folder"):
        weights_of("balanced", named("a"), ["some/folder/*"], examples_are="transformed")
