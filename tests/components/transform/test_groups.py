"""Features of like columns are computed together: the same values, in a graph that hardly grows with the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import Clip, Fill, LowerCase
from infeed.components.transform.kinds.encode import Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.scale import Cycle, Log, MinMax, Robust, ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

COLUMNS, ROWS = 10, 40
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
            values: list[Any] = [b"Word %d" % n for n in draw.zipf(1.6, ROWS) % (2 + number % 7)]
        else:
            values = (draw.normal(size=ROWS) * (number + 1)).astype(np.float32).tolist()
            values[number % ROWS] = float("nan")
        missing = draw.random(ROWS) < 0.2 if sparse else np.zeros(ROWS, bool)
        found[f"c{number}"] = [[] if gone else [value] for value, gone in zip(values, missing, strict=True)]
    return found


def batch_of(columns: dict[str, list[list[Any]]], *, sparse: bool) -> dict[str, Any]:
    import tensorflow as tf

    ragged = {name: tf.ragged.constant(rows, inner_shape=()) for name, rows in columns.items()}
    return {name: one.to_sparse() if sparse else one.to_tensor(shape=[ROWS, 1]) for name, one in ragged.items()}


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

    from infeed.components.transform.feature import Tables
    from infeed.components.transform.groups import outputs_of

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
    from infeed.components.transform import groups

    monkeypatch.setattr(groups, "FEWEST", 4)
    monkeypatch.setattr(groups, "MOST", 6)
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
    from infeed.components.transform.columns import explained
    from infeed.components.transform.groups import FEWEST

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

    from infeed.components.transform.groups import FEWEST, MOST, groups_of

    raw = {f"c{number}": tf.zeros([2, 1]) for number in range(MOST + 1)}
    sizes = [len(group) for group in groups_of([ZScore(name) for name in raw], raw)]
    assert sum(sizes) == MOST + 1
    assert all(FEWEST <= size <= MOST for size in sizes)
    lists = [ZScore(name, values="all") for name in raw]
    assert {len(group) for group in groups_of(lists, raw)} == {1}
