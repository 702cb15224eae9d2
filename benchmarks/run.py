"""Run all benchmarks and print one table.

    python benchmarks/run.py --short
    python benchmarks/run.py --only feed --only overlap

The benchmarks run one after the other, each in a new process. `--short` uses small sizes, which take some minutes in
total and give rough figures. The script downloads nothing. It exits with 1 if a benchmark fails, after all have run,
and shows the end of the failed one's output. A contender that is not installed is not a failure.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from harness import Result, Side, as_json, show

HERE = Path(__file__).parent
_LAST_LINES = 15


@dataclass(frozen=True)
class Benchmark:
    """A script with its options, and its options for `--short`."""

    name: str
    script: str
    options: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def arguments(self, *, short: bool) -> tuple[str, ...]:
        """Return the options of a run. Those of `short` replace others of the same name, which could add up."""
        if not short:
            return self.options
        replaced = {option.partition("=")[0] for option in self.short}
        return (*(option for option in self.options if option.partition("=")[0] not in replaced), *self.short)


BENCHMARKS = (
    Benchmark("ingest csv", "ingest.py", ("--format=csv",), ("--rows=10000",)),
    Benchmark("ingest parquet", "ingest.py", ("--format=parquet",), ("--rows=10000",)),
    Benchmark("ingest sql", "ingest.py", ("--format=sql",), ("--rows=20000",)),
    Benchmark("ingest png", "ingest.py", ("--format=png",), ("--rows=2000",)),
    Benchmark("ingest jpeg", "ingest.py", ("--format=jpeg",), ("--rows=2000",)),
    Benchmark("ingest memory", "ingest_memory.py", (), ("--megabytes=50",)),
    Benchmark("column statistics", "column_statistics.py", (), ("--rows=10000", "--turns=1")),
    Benchmark("transform", "transform.py", ("--rows=100000",), ("--rows=600", "--turns=1")),
    Benchmark("predictions", "predictions.py", (), ("--rows=2000", "--turns=1")),
    Benchmark("evaluation", "evaluation.py", (), ("--rows=2000", "--turns=1")),
    Benchmark("whole", "whole.py", ("--rows=100000",), ("--rows=6000",)),
    Benchmark("wide", "wide.py", (), ("--rows=200", "--columns=100")),
    Benchmark("quality", "quality.py", (), ("--case=breast_cancer", "--seeds=1")),
    Benchmark("imports", "imports.py", (), ("--only=run", "--only=ingest", "--only=StatisticsGen", "--turns=1")),
    Benchmark("feed", "feed.py", (), ("--rows=8000", "--batch-size=1024")),
    Benchmark("shuffle", "shuffle.py", (), ("--most-blocks=300",)),
    Benchmark("scale", "scale.py", (), ("--rows=4000", "--turns=1", "--step=statistics")),
    Benchmark("runner", "runner.py", (), ("--rows=400", "--turns=1", "--component=CsvExampleGen")),
    Benchmark("growth", "growth.py", (), ("--grows=rows", "--most-rows=100000", "--turns=1")),
    Benchmark("wait", "wait.py", (), ("--rows=64", "--turns=3", "--no-workers")),
    Benchmark("causes", "causes.py", (), ("--cause=a Python generator", "--turns=1", "--seconds=2")),
    Benchmark("overlap", "overlap.py", (), ("--records=1000", "--epochs=2")),
    Benchmark("load", "load.py", ("--no-install",), ("--rows=20000", "--batch=1024", "--turns=3", "--seconds=0.3")),
    Benchmark("jpeg", "jpeg.py", ("--no-install",), ("--pictures=200", "--kind=cut", "--turns=3", "--seconds=0.3")),
    Benchmark("images", "images.py", ("--no-install",), ("--images=2000", "--kind=png", "--turns=3", "--seconds=1")),
)


@dataclass(frozen=True)
class Outcome:
    """Results of a benchmark. `failure` is the reason if it failed."""

    results: tuple[Result, ...]
    failure: str = ""


@click.command()
@click.option("--short", is_flag=True, help="Use small sizes and few turns.")
@click.option(
    "--only",
    type=click.Choice([one.name for one in BENCHMARKS]),
    multiple=True,
    help="Benchmarks to run. Defaults to all.",
)
@as_json
def main(short: bool, only: tuple[str, ...], as_json: bool) -> None:
    """Run all benchmarks and print one table."""
    chosen = [one for one in BENCHMARKS if not only or one.name in only]
    outcomes = dict(run_all(chosen, short))
    results = [result for name, outcome in outcomes.items() for result in rows(name, outcome)]
    if as_json:
        click.echo("\n".join(result.to_json() for result in results))
    else:
        show(results)
    if failed := [name for name, outcome in outcomes.items() if outcome.failure]:
        raise click.ClickException(f"did not end well: {', '.join(failed)}")


def run_all(benchmarks: Sequence[Benchmark], short: bool) -> Iterator[tuple[str, Outcome]]:
    """Yield (name, outcome) of each benchmark, and write its duration to standard error."""
    for one in benchmarks:
        click.echo(f"{one.name} ... ", nl=False, err=True)
        began = time.monotonic()
        outcome = run([sys.executable, str(HERE / one.script), "--json", *one.arguments(short=short)])
        click.echo(f"{time.monotonic() - began:.0f} s", err=True)
        if outcome.failure:
            click.echo(outcome.failure, err=True)
        yield one.name, outcome


def run(command: Sequence[str]) -> Outcome:
    """Run a benchmark in a process. Return its results, also those before a failure."""
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    # Libraries may print other lines.
    results = tuple(Result.from_json(line) for line in lines if line.startswith(Result.FIRST))
    if ended.returncode == 0 and results:
        return Outcome(results)
    said = ended.stderr.splitlines()[-_LAST_LINES:]
    return Outcome(results, "\n".join([*said, f"exit code {ended.returncode}, {len(results)} results"]))


def rows(name: str, outcome: Outcome) -> Iterable[Result]:
    """Return the results of a benchmark, with a row for its failure, if it failed."""
    failed = Result(name, "", Side("did not end well", absent=outcome.failure.rpartition("\n")[2]), None, 0)
    return (*outcome.results, failed) if outcome.failure else outcome.results


if __name__ == "__main__":
    main()
