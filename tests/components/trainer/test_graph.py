"""Where features come from; `test_data` feeds by it, `test_export` serves by it."""

import pytest

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

SCHEMA = """
feature { name: "x" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "share" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "y" type: INT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
"""


@pytest.fixture
def open_graph():
    from infeed.components.trainer.graph import open_graph

    return open_graph


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    return str(tmp_path / "schema.pbtxt")


def test_nothing_to_read_features_from_is_refused(open_graph):
    with pytest.raises(InfeedError, match=r"are unknown(.|\n)*schema_gen"):
        open_graph(None, None, "y")


def test_raw_examples_are_their_own_features(open_graph, schema):
    graph = open_graph(None, schema, "y", "share")
    assert not graph.transforms
    assert set(graph.transformed_spec) == {"x", "share", "y"}
    assert set(graph.serving_spec()) == {"x"}  # a client sends neither label nor weight
    assert graph.transform({"x": 1}) == {"x": 1}
    assert (graph.classes, graph.vocabulary_sizes) == ((), {})


def test_a_changed_schema_is_another_graph(open_graph, schema, tmp_path):
    other = tmp_path / "other.pbtxt"
    other.write_text(SCHEMA.replace("INT", "FLOAT"))
    graphs = [open_graph(None, path, "y") for path in (schema, schema, str(other))]
    assert len({graph.fingerprint for graph in graphs}) == 2


def test_a_transform_graph_tells_its_classes_and_what_a_client_has_to_send(open_graph, table):
    graph = open_graph(str(table[0] / "class" / "graph"), None, "kind")
    assert graph.transforms
    assert graph.classes == ("big", "small")
    assert set(graph.serving_spec()) == {"x", "z"}  # and not the label
    assert not graph.serving_spec(unused=("x", "z"))


def test_a_transform_graph_is_loaded_once(open_graph, table, monkeypatch):
    import tensorflow as tf

    load, loaded = tf.saved_model.load, []
    monkeypatch.setattr(tf.saved_model, "load", lambda *args, **named: loaded.append(args) or load(*args, **named))
    graph = open_graph(str(table[0] / "class" / "graph"), None, "kind")
    made = graph.transform({"x": tf.constant([[5.0]]), "z": tf.sparse.from_dense([[1.0]])})  # a client has no label
    assert set(made) == set(graph.transformed_spec) - {"kind"}
    assert set(graph.serving_spec()) == {"x", "z"}
    assert graph.held is not None
    assert len(loaded) == 1


@pytest.mark.parametrize("words", ["Op type not registered 'FastBertNormalize' in binary", "there is no such file"])
def test_a_graph_of_a_tokenizer_is_loaded_once_tensorflow_text_is_imported(words, monkeypatch):
    from infeed.components.trainer import graph

    imported = []

    def load(folder):
        if not imported:
            raise RuntimeError(words)
        return folder

    monkeypatch.setattr(graph, "required", imported.append)
    if "registered" in words:
        assert graph._loaded("folder", load) == "folder"
        assert imported == ["tensorflow_text"]
    else:
        with pytest.raises(RuntimeError, match=words):
            graph._loaded("folder", load)
        assert imported == []
