"""Sparse, ragged and dense columns come out alike: one value a row or lists, with a flag for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.transform.columns import TracedPass, analyze, as_column
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Clip, Fill, LowerCase
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.scale import Cycle, Log, MinMax, Robust, ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

ROWS = tf.ragged.constant([[3.0], [], [5.0]])


@pytest.mark.parametrize("raw", [ROWS, ROWS.to_sparse()], ids=["ragged", "sparse"])
def test_an_empty_row_is_missing(raw: tf.RaggedTensor | tf.SparseTensor) -> None:
    column = as_column("fare", raw, many=False)
    assert column.values.numpy().tolist() == [3.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [True, False, True]
    assert column.splits is None


@pytest.mark.parametrize(
    ("values", "empty"),
    [([[1], []], 0), ([[b"Basel"], []], b""), ([[1.5], []], 0.0)],
)
def test_columns_of_all_types_keep_their_own_values(values: list[list[object]], empty: object) -> None:
    column = as_column("x", tf.ragged.constant(values).to_sparse(), many=False)
    assert column.values.numpy().tolist() == [values[0][0], empty]


def test_a_batch_without_any_value_is_a_batch_of_missing_ones() -> None:
    column = as_column("x", tf.ragged.constant([[], []], tf.int64, ragged_rank=1).to_sparse(), many=False)
    assert column.values.numpy().tolist() == [0, 0]
    assert not column.present.numpy().any()


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_a_dense_column_has_no_missing_row(shape: list[int]) -> None:
    column = as_column("fare", tf.reshape(tf.constant([3, 4, 5], tf.int64), shape), many=False)
    assert column.values.numpy().tolist() == [3, 4, 5]
    assert column.present.numpy().all()


@pytest.mark.parametrize("many", [False, True])
def test_nan_and_infinity_are_missing(many: bool) -> None:
    column = as_column("fare", tf.constant([[np.nan], [np.inf], [5.0]]), many)
    assert column.values.numpy().tolist() == [0.0, 0.0, 5.0]
    assert column.present.numpy().tolist() == [False, False, True]


LISTS = tf.ragged.constant([[1, 2], [], [3]], tf.int64)


@pytest.mark.parametrize("raw", [LISTS, LISTS.to_sparse()], ids=["ragged", "sparse"])
def test_lists_are_their_values_and_where_rows_end(raw: tf.RaggedTensor | tf.SparseTensor) -> None:
    column = as_column("tags", raw, many=True)
    assert column.values.numpy().tolist() == [1, 2, 3]
    assert column.splits.numpy().tolist() == [0, 2, 2, 3]


def test_a_list_of_lists_counts_as_one() -> None:
    column = as_column("tags", tf.ragged.constant([[[1, 2], [3]], [], [[4]]]), many=True)
    assert column.values.numpy().tolist() == [1, 2, 3, 4]
    assert column.splits.numpy().tolist() == [0, 3, 3, 4]


def test_a_fixed_shape_is_a_list_of_that_length() -> None:
    column = as_column("embedding", tf.reshape(tf.range(6), [2, 3]), many=True)
    assert column.splits.numpy().tolist() == [0, 3, 6]


def test_a_row_of_several_values_is_an_error_that_names_the_column() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"several values[\s\S]*tags"):
        as_column("tags", LISTS.to_sparse(), many=False)


def test_a_fixed_shape_of_several_values_is_an_error_that_names_the_column() -> None:
    with pytest.raises(InfeedError, match=r"column 'embedding' has \(8,\) values per row"):
        as_column("embedding", tf.zeros([2, 8]), many=False)


def test_batches_of_several_sizes_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """To trace a graph takes seconds where there are many columns."""
    traced: list[tf.Tensor] = []
    monkeypatch.setattr(ZScore, "analyzed", lambda feature, column: traced.append(column.values) or column)
    batches: list[dict[str, tf.SparseTensor]] = [{"fare": ROWS[:size].to_sparse()} for size in (3, 1, 2)]
    analyze([ZScore("fare")], lambda one: TracedPass(one).over(batches), {})
    assert len(traced) == 1


COLUMNS, COUNT = 10, 40
KINDS: dict[str, Callable[[str], Feature]] = {
    "z_score": ZScore,
    "z_score_filled": lambda name: ZScore(name, fill=1.5),
    "clipped": lambda name: ZScore(name, clean=(Clip(-1.0, 1.0),)),
    "min_max": MinMax,
    "robust": Robust,
    "log": Log,
    "cycle": lambda name: Cycle(name, 24),
    "fill": lambda name: Fill(name, -1.0),
    "vocabulary": Vocabulary,
    "lower_case": lambda name: Vocabulary(name, clean=(LowerCase(),), oov=2),
    "one_hot": OneHot,
    "hash": lambda name: Hash(name, 10),
}
OF_TEXT = ("vocabulary", "lower_case", "one_hot", "hash")


def columns_of(kind: str, *, sparse: bool, count: int = COLUMNS) -> dict[str, list[list[Any]]]:
    """Rows of each column, lists of at most one value; a fifth is missing if `sparse`."""
    draw = np.random.default_rng(2)
    found = {}
    for number in range(count):
        if kind in OF_TEXT:
            values: list[Any] = [b"Word %d" % n for n in draw.zipf(1.6, COUNT) % (2 + number % 7)]
        else:
            values = (draw.normal(size=COUNT) * (number + 1)).astype(np.float32).tolist()
            values[number % COUNT] = float("nan")
        missing = draw.random(COUNT) < 0.2 if sparse else np.zeros(COUNT, bool)
        found[f"c{number}"] = [[] if gone else [value] for value, gone in zip(values, missing, strict=True)]
    return found


def batch_of(columns: dict[str, list[list[Any]]], *, sparse: bool) -> dict[str, Any]:
    import tensorflow as tf

    ragged = {name: tf.ragged.constant(rows, inner_shape=()) for name, rows in columns.items()}
    return {name: one.to_sparse() if sparse else one.to_tensor(shape=[COUNT, 1]) for name, one in ragged.items()}


def found_of(features: Sequence[Feature], columns: dict[str, list[list[Any]]]) -> dict[Any, Any]:
    found = {}
    for feature in features:
        given = [value for row in columns[feature.column] for value in row if value == value]
        for need in feature.needs:
            analysis = found[feature.stream, need] = need()
            analysis.add(np.array(given, object if isinstance(given[0], bytes) else np.float32))
    return found


def graph_of(features: Sequence[Feature], found: Any, batch: dict[str, Any], folder: str, *, alone: bool) -> Any:
    """A concrete function of the batch."""
    import tensorflow as tf

    from infeed.components.transform.columns import outputs_of
    from infeed.components.transform.feature import Tables

    tables = Tables(folder)
    apply = tf.function(lambda raw: outputs_of(features, raw, found, tables, alone=alone), autograph=False)
    concrete = apply.get_concrete_function(batch)
    concrete.tables = tables  # as long as the graph lives
    return concrete


def outputs(graph: Any, batch: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    return {name: one.numpy() for name, one in graph(*tf.nest.flatten(batch, expand_composites=True)).items()}


@pytest.mark.parametrize(("kind", "sparse"), [*((kind, True) for kind in KINDS), ("z_score", False), ("hash", False)])
def test_together_gives_what_each_feature_gives_alone(
    kind: str, sparse: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed.components.transform.columns.FEWEST", 4)
    monkeypatch.setattr("infeed.components.transform.columns.MOST", 6)
    columns = columns_of(kind, sparse=sparse)
    features, batch = [KINDS[kind](name) for name in columns], batch_of(columns, sparse=sparse)
    found = found_of(features, columns)
    graphs = [graph_of(features, found, batch, str(tmp_path), alone=alone) for alone in (False, True)]
    together, apart = (outputs(graph, batch) for graph in graphs)
    assert list(together) == list(apart)
    for name, expected in apart.items():
        assert together[name].dtype == expected.dtype
        np.testing.assert_array_equal(together[name], expected, name)
    assert len(graphs[0].graph.get_operations()) < len(graphs[1].graph.get_operations())


@pytest.mark.parametrize("kind", ["z_score", "vocabulary"])
def test_a_column_adds_its_input_and_its_output_to_the_graph(kind: str, tmp_path: Any) -> None:
    columns = columns_of(kind, sparse=False, count=200)
    features, batch = [KINDS[kind](name) for name in columns], batch_of(columns, sparse=False)
    graph = graph_of(features, found_of(features, columns), batch, str(tmp_path), alone=False)
    assert len(graph.graph.get_operations()) < 2 * 200 + 150


def test_the_error_of_a_row_of_several_values_names_the_column(tmp_path: Any) -> None:
    from infeed.components.transform.columns import FEWEST, explained

    columns = columns_of("log", sparse=True, count=FEWEST)
    features = [Log(name) for name in columns]
    graph = graph_of(features, {}, batch_of(columns, sparse=True), str(tmp_path), alone=False)
    columns["c17"][3] = [1.0, 2.0]
    with pytest.raises(InfeedError, match="several values") as error, explained():
        outputs(graph, batch_of(columns, sparse=True))
    assert error.value.where == "column 'c17'"


def test_few_like_columns_stay_apart() -> None:
    """So whoever reads the graph of a narrow table sees which columns a feature depends on."""
    import tensorflow as tf

    from infeed.components.transform.columns import FEWEST, MOST, groups_of

    raw = {f"c{number}": tf.zeros([2, 1]) for number in range(MOST + 1)}
    sizes = [len(group) for group in groups_of([ZScore(name) for name in raw], raw)]
    assert sum(sizes) == MOST + 1
    assert all(FEWEST <= size <= MOST for size in sizes)
    lists = [ZScore(name, values="all") for name in raw]
    assert {len(group) for group in groups_of(lists, raw)} == {1}
