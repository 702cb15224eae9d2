"""`infeed ingest`: a dataset without a pipeline. Neither TFX nor, without --runner, Beam is imported."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from typing import Any

import click

from infeed.components.dataset.manifest import Manifest
from infeed.components.dataset.options import Balance, IngestOptions
from infeed.components.dataset.shards import ShardOptions
from infeed.components.dataset.splits import Buckets, ByColumns, ByLabel, ByName, ByTime, SplitBy
from infeed.components.errors import InfeedError
from infeed.components.example_gen import ingest as steps
from infeed.components.example_gen.formats import FORMATS, guess_format, open_source
from infeed.components.example_gen.workers import processes, processes_that_pay
from infeed.pipelines.commands.exits import errors
from infeed.pipelines.commands.ingest_output import check_output, unfinished
from infeed.pipelines.commands.ingest_view import show_opening, show_progress, summary

DEFAULT_SPLITS = ("train=2", "eval=1")
BEAM_RUNNERS = {
    "direct": "DirectRunner",
    "dask": "apache_beam.runners.dask.dask_runner.DaskRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}
_NEEDS = {"cuts": "split_time", "split_salt": "by_columns", "beam_options": "runner"}


@click.command()
@click.argument("source")
@click.argument("output")
@click.option(
    "--format", "kind", type=click.Choice(list(FORMATS)), help="Of the source; told from its names by default."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Option of the format, as JSON or text.")
@click.option("--split", "splits", multiple=True, metavar="NAME[=SHARE]", help="[default: train=2, eval=1]")
@click.option("--split-by", "by_columns", multiple=True, metavar="COLUMN", help="Keep rows that agree in it together.")
@click.option("--split-salt", default="", metavar="TEXT", help="Another division by the same columns.")
@click.option("--split-label", metavar="COLUMN", help="Give every split its share of each label.")
@click.option("--split-time", metavar="COLUMN", help="Splits in order of time; needs --cut.")
@click.option("--cut", "cuts", multiple=True, metavar="TIME", help="Where the next split begins.")
@click.option("--split-name", metavar="COLUMN", help="The column holds the name of the split.")
@click.option("--columns", metavar="A,B,...", help="Write these columns only.")
@click.option("--filter", "row_filter", metavar="EXPRESSION", help='Keep rows for which it is true: "fare > 0".')
@click.option("--balance", metavar="COLUMN", help="Every label of it as often as any other.")
@click.option("--balance-by", type=click.Choice(["over", "under"]), default="over", show_default=True)
@click.option("--balance-split", multiple=True, default=["train"], show_default=True, metavar="NAME")
@click.option("--shards", type=click.IntRange(min=1), help="In each split; by size by default.")
@click.option("--target-shard-mb", type=click.IntRange(min=1), help="Megabytes of records in a shard, about.")
@click.option("--compression", type=click.Choice(["gzip", "none"]), default="gzip", show_default=True)
@click.option("--level", type=click.IntRange(0, 9), default=1, show_default=True, help="Of gzip.")
@click.option("--shuffle-seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the input.")
@click.option("--on-bad-row", type=click.Choice(["fail", "reject"]), default="fail", show_default=True)
@click.option("--bad-row-limit", type=click.IntRange(min=0), default=1_000, show_default=True)
@click.option("--compat", type=click.Choice(["none", "tfx"]), default="none", show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Processes; as many as pay by default.")
@click.option("--runner", metavar="NAME", help=f"Run on Beam: {', '.join(BEAM_RUNNERS)}, or a class of yours.")
@click.option("--beam-option", "beam_options", multiple=True, metavar="--NAME=VALUE", help="For the Beam runner.")
@click.option("--overwrite", is_flag=True, help="Replace the dataset at OUTPUT.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def ingest(source: str, output: str, overwrite: bool, as_json: bool, debug: bool, **given: Any) -> None:
    """Write SOURCE (a folder, a file or a quoted pattern) as sharded TFRecords to OUTPUT."""
    with errors(as_json, debug):
        began = time.perf_counter()
        _check_needs(given)
        check_output(output, overwrite)
        manifest = _ingest(source, output, quiet=as_json, **given)
        seconds = time.perf_counter() - began
    if as_json:
        found = {"output": output, "seconds": seconds, "manifest": dataclasses.asdict(manifest)}
        click.echo(json.dumps(found))
    else:
        click.echo(summary(manifest, output, seconds))


def _ingest(
    source: str, output: str, *, quiet: bool, kind: str | None, settings: tuple[str, ...], **given: Any
) -> Manifest:
    options, buckets = _options(**given), _buckets(given["splits"])
    with show_opening(quiet):
        opened = open_source(source, kind or guess_format(source), options, dict(map(_setting, settings)))
    with unfinished(output) as root:
        job = steps.Job.of(opened, root=root, splits=buckets.names, buckets=buckets, options=options)
        if given["runner"]:
            return _run_on_beam(opened, job, given["runner"], given["beam_options"])
        return _run_here(opened, job, given["workers"], quiet)


def _run_here(opened: steps.Input, job: steps.Job, workers: int | None, quiet: bool) -> Manifest:
    count = workers or processes_that_pay(len(opened.tasks), opened.source.bytes)
    with show_progress(opened, job.options.block_bytes, quiet) as watcher, processes(count) as each:
        return steps.ingest(opened.tasks, job, each=each, watcher=watcher)


def _run_on_beam(opened: steps.Input, job: steps.Job, runner: str, beam_options: tuple[str, ...]) -> Manifest:
    import apache_beam as beam

    from infeed.components.example_gen.transforms import run_pipeline

    if runner == "dask" and not any("dask_npartitions" in one or "dask_partition_size" in one for one in beam_options):
        beam_options = (*beam_options, "--dask_partition_size=1")  # else 128 tasks of some 64 MB go to one worker
    # Not as the option --runner: the Dask runner hands every option it finds to its client, which stops at that one.
    run_pipeline(opened.tasks, job, lambda: beam.Pipeline(BEAM_RUNNERS.get(runner, runner), argv=list(beam_options)))
    return Manifest.read(job.root)


def _options(
    *,
    columns: str | None,
    row_filter: str | None,
    balance: str | None,
    balance_by: Any,
    balance_split: tuple[str, ...],
    shards: int | None,
    target_shard_mb: int | None,
    compression: Any,
    level: int,
    shuffle_seed: int,
    no_shuffle: bool,
    on_bad_row: Any,
    bad_row_limit: int,
    compat: Any,
    **given: Any,
) -> IngestOptions:
    return IngestOptions(
        shards=_shards(shards, target_shard_mb),
        compression=compression,
        level=level,
        shuffle_seed=None if no_shuffle else shuffle_seed,
        split_by=_split_by(**given),
        columns=tuple(columns.split(",")) if columns else None,
        filter=row_filter,
        balance=Balance(balance, tuple(balance_split), balance_by) if balance else None,
        on_bad_row=on_bad_row,
        bad_row_limit=bad_row_limit,
        compat=compat,
    )


def _shards(count: int | None, target_mb: int | None) -> ShardOptions:
    """A target that is asked for is meant: no more shards than it takes, so that many readers have one each."""
    if target_mb is None:
        return ShardOptions(count=count)
    target = target_mb * 1_000_000
    return ShardOptions(
        count=count, target_bytes=target, min_bytes=min(target, ShardOptions().min_bytes), readers_per_host=1
    )


def _split_by(
    *,
    by_columns: tuple[str, ...],
    split_salt: str,
    split_label: str | None,
    split_time: str | None,
    cuts: tuple[str, ...],
    split_name: str | None,
    **_: Any,
) -> SplitBy | None:
    rules: list[SplitBy] = []
    if by_columns:
        rules.append(ByColumns(by_columns, split_salt))
    if split_label:
        rules.append(ByLabel(split_label))
    if split_time:
        rules.append(ByTime(split_time, cuts))
    if split_name:
        rules.append(ByName(split_name))
    if len(rules) > 1:
        raise InfeedError(
            f"split by {' and by '.join(rule.how for rule in rules)}",
            do="give one of --split-by, --split-label, --split-time and --split-name",
        )
    return rules[0] if rules else None


def _buckets(splits: tuple[str, ...]) -> Buckets:
    shares = []
    for text in splits or DEFAULT_SPLITS:
        name, _, share = text.partition("=")
        if share and not share.isdecimal():
            raise InfeedError(f"share {share!r}", where=f"--split {text}", do="give a whole number, such as train=2")
        shares.append((name, int(share or 1)))
    return Buckets(tuple(shares))


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InfeedError(f"no value in {text!r}", where="--set", do="write NAME=VALUE, such as delimiter=;")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _check_needs(given: Mapping[str, Any]) -> None:
    """An option that would do nothing without another one is a mistake."""
    flags = {option.name: option.opts[0] for option in ingest.params}
    for name, needed in _NEEDS.items():
        if given[name] and not given[needed]:
            raise InfeedError(f"{flags[name]} without {flags[needed]}", do=f"give {flags[needed]} as well")
