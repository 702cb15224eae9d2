"""A model starts from an exported one: weights in order, rows of embeddings by word."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
import trained

from infeed import ingest
from infeed.components.base.errors import InfeedError
from infeed.components.statistics.inference import infer_schema
from infeed.components.trainer.model import ModelSpec
from infeed.components.trainer.options import TrainOptions
from infeed.components.transform import plain
from infeed.components.transform.features import Label, OneHot, Vocabulary

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

BEFORE = {
    "city": ["rome", "rome", "rome", "oslo", "oslo", "bern"],
    "color": ["red", "red", "blue", "blue", "red", "red"],
}
# oslo is now the most frequent, lima is new, bern is gone; the colors change places
AFTER = {
    "city": ["oslo", "oslo", "oslo", "rome", "rome", "lima"],
    "color": ["blue", "blue", "red", "blue", "red", "blue"],
}
OPTIONS = TrainOptions(model_fn="m:f", label="y")


def graph_of(folder, columns, kind=Vocabulary, labels=("no", "yes", "no")):
    """The transform graph of a table."""
    from infeed.components.trainer.graph import TransformGraph

    folder.mkdir()
    rows = [",".join(row) for row in zip(*columns.values(), labels * 2, strict=True)]
    (folder / "rows.csv").write_text("\n".join([",".join([*columns, "y"]), *rows]))
    ingest(str(folder / "rows.csv"), str(folder / "dataset"), splits={"train": 1})
    schema = infer_schema(str(folder / "dataset"), ["train"], map)
    features = [*(kind(name) for name in columns), Label("y")]
    plain.transform(str(folder / "dataset"), schema, features, None, str(folder / "graph"))
    return TransformGraph(str(folder / "graph"), "y")


def build(spec):
    """One table for two columns, as the template of tables has it, and a layer whose weights need no words."""
    inputs = {name: keras.Input(one.shape, dtype=one.dtype.name) for name, one in spec.inputs.items()}
    rows = np.array([spec.vocabulary_sizes[name] + 2 for name in inputs])
    first = (np.cumsum(rows) - rows)[:, np.newaxis]
    table = keras.layers.Embedding(int(rows.sum()), 4)
    vectors = keras.layers.Flatten()(table(keras.ops.stack(list(inputs.values()), axis=1) + first))
    return compiled(inputs, vectors)


def of_vectors(spec):
    inputs = {name: keras.Input(one.shape, dtype=one.dtype.name) for name, one in spec.inputs.items()}
    return compiled(inputs, keras.layers.Concatenate()(list(inputs.values())))


def compiled(inputs, vectors):
    from infeed.components.trainer.model_inputs import inputs_of

    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(vectors))
    model.compile("adam", "sparse_categorical_crossentropy")
    specs = {name: tf.TensorSpec([None, *one.shape[1:]], one.dtype) for name, one in inputs.items()}
    return model, inputs_of(model, specs, "")


def spec_of(graph):
    inputs = {
        name: tf.TensorSpec(one.shape, one.dtype, name) for name, one in graph.transformed_spec.items() if name != "y"
    }
    sizes = {name: size for name, size in graph.vocabulary_sizes.items() if name in inputs}
    return ModelSpec(inputs, "classification", graph.classes, sizes, {})


def exported(graph, folder, function):
    from infeed.components.trainer.export import ServingModel

    model, inputs = function(spec_of(graph))
    ServingModel(model, inputs, graph, OPTIONS).save(str(folder / "model"))
    return model, str(folder / "model")


def started(graph, base, function=build):
    from infeed.components.trainer import warm_start

    spec = spec_of(graph)
    starts = warm_start.starts_of(base, graph, spec, function)
    model, _ = function(spec)
    untouched = model.variables[0].numpy()
    warm_start.assign(model, starts, base)
    return model, untouched


def rows_of(graph, model):
    """Vector of each word, by column and word."""
    table, base, found = model.variables[0].numpy(), 0, {}
    for column, size in sorted(graph.vocabulary_sizes.items()):
        if column != "y":
            found |= {(column, word.decode()): table[base + 1 + n] for n, word in enumerate(graph.words(column))}
            found |= {(column, None): table[base], (column, "unseen"): table[base + 1 + size]}
            base += size + 2
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    graph = graph_of(folder / "table", BEFORE)
    return graph, *exported(graph, folder, build)


def test_with_the_same_words_all_weights_are_those_of_the_model(before):
    graph, model, base = before
    trained.check_weights(started(graph, base)[0].variables, model.variables)


def test_words_keep_their_vectors_and_new_ones_start_anew(before, tmp_path):
    graph, base_model, base = before
    later = graph_of(tmp_path / "later", AFTER)
    assert later.words("color") == graph.words("color")[::-1]
    model, untouched = started(later, base)
    theirs, ours = rows_of(graph, base_model), rows_of(later, model)
    assert set(ours) - set(theirs) == {("city", "lima")}
    for place in set(ours) & set(theirs):
        np.testing.assert_array_equal(ours[place], theirs[place], str(place))
    assert any(np.array_equal(ours["city", "lima"], row) for row in untouched)
    trained.check_weights(model.variables[1:], base_model.variables[1:])


def test_a_table_that_grew_has_all_earlier_words(before, tmp_path):
    graph, base_model, base = before
    grown = {**AFTER, "city": ["oslo", "kiel", "nice", "rome", "bern", "lima"]}
    later = graph_of(tmp_path / "later", grown)
    model, _ = started(later, base)
    theirs, ours = rows_of(graph, base_model), rows_of(later, model)
    assert len(ours) == len(theirs) + 3
    for place in theirs:
        np.testing.assert_array_equal(ours[place], theirs[place], str(place))


def test_other_classes_and_moved_words_outside_of_embeddings_are_errors(before, tmp_path):
    base = before[2]
    other = graph_of(tmp_path / "other", BEFORE, labels=("no", "yes", "perhaps"))
    with pytest.raises(InfeedError, match="classes") as error:
        started(other, base)
    assert error.value.where == base
    vectors = graph_of(tmp_path / "vectors", BEFORE, OneHot)
    _, base = exported(vectors, tmp_path, of_vectors)
    with pytest.raises(InfeedError, match="'city' has changed"):
        started(graph_of(tmp_path / "later", AFTER, OneHot), base, of_vectors)


def test_weights_of_other_shapes_change_nothing_and_may_be_ignored(before, caplog):
    from infeed.components.trainer import warm_start

    graph, _, base = before

    def wider(spec):
        model, inputs = build(dataclasses.replace(spec, vocabulary_sizes={**spec.vocabulary_sizes, "city": 9}))
        return model, inputs

    with pytest.raises(InfeedError, match=r"first that differs is \[9, 4\] there, \[15, 4\] here") as error:
        started(graph, base, wider)
    assert "other_base_model: ignore" in error.value.do
    with warm_start.may_start_anew("ignore"):
        started(graph, base, wider)
    assert "random weights" in caplog.text


def test_a_model_that_somebody_else_exported_is_an_error(before, tmp_path):
    graph, model = before[:2]
    model.export(str(tmp_path / "theirs"), verbose=False)
    for folder in (tmp_path / "theirs", tmp_path):
        with pytest.raises(InfeedError, match=r"not exported by this Trainer(.|\n)*fn_args\.base_model"):
            started(graph, str(folder))
