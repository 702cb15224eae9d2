"""What tft's private functions give for tiny cases, by hand."""

import numpy as np
import pytest

from infeed.components.seams import tft as tft_seam

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def test_rows_are_paired_with_their_keys_and_outputs_are_joined_over_keys():
    import tensorflow as tf

    keys, values = np.array([b"a", b"b"], object), np.array([[1.0, 2.0], [3.0, 4.0]])
    rows = [(key, [np.asarray(one).tolist() for one in row]) for key, row in tft_seam.rows_by_key((keys, values))]
    assert rows == [(b"a", [[1.0, 2.0]]), (b"b", [[3.0, 4.0]])]
    results = [(b"a", [np.float32(1)]), (b"b", [np.float32(2)])]
    outputs = tft_seam.outputs_by_tag(results, [tf.float32])
    assert outputs["key"].tolist() == [b"a", b"b"]
    assert outputs["0"].tolist() == [1.0, 2.0]


def test_boundaries_of_all_keys_are_one_ascending_list():
    boundaries, scales, shifts, buckets = tft_seam.joined_boundaries(np.array([[1.0, 3.0], [10.0, 20.0]]))
    assert (np.diff(boundaries) > 0).all()
    assert len(scales) == len(shifts) == 2
    assert int(buckets) == 3


def test_orders_of_vocabularies_have_names():
    from tensorflow_transform import analyzers

    kinds = analyzers._VocabOrderingType
    assert tft_seam.vocabulary_order(kinds.FREQUENCY) == "frequency"
    assert tft_seam.vocabulary_order(kinds.WEIGHTED_FREQUENCY) == "weighted_frequency"
    assert tft_seam.vocabulary_order(kinds.MUTUAL_INFORMATION) == "mutual_information"
    assert tft_seam.vocabulary_order(kinds.WEIGHTED_MUTUAL_INFORMATION) == "weighted_mutual_information"
    assert tft_seam.vocabulary_order(99) == ""


def test_a_token_that_tells_the_label_has_more_information_than_one_that_does_not():
    tokens, counts = np.array([b"yes", b"any", b"all"], object), np.array([10, 10, 20])
    means = np.array([[0.0, 1.0], [0.5, 0.5], [0.25, 0.75]], np.float32)
    combiner = tft_seam.label_means_combiner(weighted=False)
    found = {
        token: combiner.extract_output(combiner.add_input(combiner.create_accumulator(), one))
        for token, one in tft_seam.label_means((tokens, means, counts), weighted=False)
    }
    told = {
        token: tft_seam.mutual_information(token, found[token], found[b"all"], adjusted=False, least=0.0)
        for token in (b"yes", b"any")
    }
    assert told[b"yes"][0] != told[b"any"][0]
    assert [frequency for _, frequency in told.values()] == [10, 10]


def test_an_empty_vocabulary_has_an_entry():
    (order, token) = tft_seam.empty_vocabulary_entry("string")
    assert order
    assert isinstance(token, bytes)


def test_a_feature_without_a_size_is_recognized():
    import tensorflow as tf
    from tensorflow_transform import schema_inference

    with tf.Graph().as_default() as graph:
        features = {"x": tf.compat.v1.placeholder(tf.float32, [None, None])}
        with tf.compat.v1.Session() as session, pytest.raises(ValueError, match="x") as raised:
            schema_inference.infer_feature_schema(features, graph, session)
    assert tft_seam.is_unsized_feature(raised.value)
    assert not tft_seam.is_unsized_feature(ValueError("another"))


def test_sparse_variances_leave_out_what_is_not_finite_so_that_batches_do_not_matter():
    import tensorflow as tf
    from tensorflow_transform import tf_utils

    nan, inf = float("nan"), float("inf")

    @tf.function(input_signature=[tf.SparseTensorSpec([None, 2], tf.float32)])
    def moments(column):
        return dict(zip("nmv", tf_utils.reduce_batch_count_mean_and_var(column, False), strict=True))

    finite = tft_seam.traced(moments, tf.Module(), "moments")
    for rows in ([[-4, 10], [2, 4]], [[-4, 10], [nan, inf], [2, 4]]):
        column = tf.sparse.from_dense(np.array(rows, np.float32))
        count, mean, variance = (finite(column)[name].numpy().tolist() for name in "nmv")
        assert (count, mean, variance) == ([2, 2], [-1, 7], [9, 9])
