import logging

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.seams import tensorflow as tensorflow_seam

pytestmark = [pytest.mark.slow, pytest.mark.stack]


@pytest.fixture(scope="module")
def tf():
    import tensorflow as tf

    return tf


def test_a_checkpoint_names_its_variables_by_their_paths(tf, tmp_path):
    held = tf.Module()
    held.weights = [tf.Variable(1.0), tf.Variable(2.0)]
    path = tf.train.Checkpoint(model=held, step=tf.Variable(7)).write(str(tmp_path / "ckpt"))
    assert tf.train.load_variable(path, tensorflow_seam.name_in_checkpoint("step")) == 7
    assert tf.train.load_variable(path, tensorflow_seam.name_in_checkpoint("model/weights/1")) == 2.0


def test_an_error_of_a_graph_gives_its_message_and_its_nodes(tf):
    @tf.function
    def refuse(x):
        with tf.name_scope("inner"):
            tf.debugging.assert_positive(x, message="x is wrong", name="check")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        refuse(tf.constant(-1.0))
    text = str(raised.value)
    assert "x is wrong" in text
    operation = tensorflow_seam.failed_operation(text, refuse.get_concrete_function(tf.constant(-1.0)).graph)
    assert operation.name.startswith("inner/")
    assert tensorflow_seam.failed_operation("no node", operation.graph) is None
    assert tensorflow_seam.message_of(text)
    assert "[[" not in tensorflow_seam.message_of(text)


def test_an_error_of_an_operation_gives_its_reason_alone(tf):
    with pytest.raises(tf.errors.OpError) as raised:
        tf.io.read_file("/no/such/file")
    reason = tensorflow_seam.reason_of(raised.value.message)
    assert "No such file" in reason
    assert "{{" not in reason
    assert "[Op:" not in reason


def test_an_operation_of_a_library_that_is_not_imported_is_recognized(tf):
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="a", op="NoSuchOperation")
    with pytest.raises((ValueError, RuntimeError, tf.errors.OpError)) as raised, tf.Graph().as_default():
        tf.graph_util.import_graph_def(graph)
    assert tensorflow_seam.is_unregistered_operation(raised.value)
    assert not tensorflow_seam.is_unregistered_operation(ValueError("another"))


def test_devices_have_limits(tf):
    assert any(name.endswith("CPU:0") and limit > 0 for name, limit in tensorflow_seam.memory_limits().items())


def test_without_a_name_the_memory_of_devices_is_unknown(take_away, caplog):
    from infeed.components.feed.capacity import Machine

    take_away("tensorflow.DEVICE_MEMORY")
    with caplog.at_level(logging.WARNING):
        assert Machine.here(devices=("/device:GPU:0",)).device_bytes is None
    assert "the memory of GPUs is unknown" in caplog.text


def test_without_a_name_iterators_end_with_the_process(take_away, caplog, monkeypatch):
    registered = []
    monkeypatch.setattr(tensorflow_seam.atexit, "register", registered.append)
    take_away("tensorflow.ITERATORS")
    tensorflow_seam.leave_iterators_at_exit.__wrapped__()
    assert registered == []
    assert "up to a minute" in caplog.text


def test_a_row_has_the_spec_of_its_batch_without_the_first_dimension(tf, take_away):
    specs = tf.TensorSpec([None, 3]), tf.RaggedTensorSpec([None, None], tf.int64), tf.SparseTensorSpec([None, 5])
    assert [tensorflow_seam.row_spec(spec).shape.as_list() for spec in specs] == [[3], [None], [5]]
    take_away("tensorflow.ROW_SPECS")
    with pytest.raises(InfeedError, match="_taken_away"):
        tensorflow_seam.row_spec(specs[0])
