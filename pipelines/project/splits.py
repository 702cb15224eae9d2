"""Assignment of rows to splits: for training, for early stopping, and for the final score."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.dataset.splits import (
    Buckets,
    ByColumns,
    ByLabel,
    ByName,
    ByRecord,
    ByTime,
    SplitBy,
    check_splits,
    no_such_split,
)
from infeed.pipelines.config import EVAL, SPLITS, TEST, TRAIN
from infeed.pipelines.project.ingest_settings import IngestSettings
from infeed.pipelines.project.notes import spread_by_chance
from infeed.pipelines.surveys import Survey, TableSurvey

# Twentieths of the rows for train, eval and test, up to a number of rows. Few rows need larger scoring shares. The
# hash ranges nest, so rows of train stay in train while a table grows.
_SHARES = ((60, (10, 5, 5)), (1_000, (12, 4, 4)), (10_000, (14, 3, 3)), (1_000_000, (16, 2, 2)))
_SHARES_OF_MANY = (18, 1, 1)
_FEW = 500  # rows. With fewer, split sizes by hash vary: 3 to 13 rows instead of 8, and 82 to 118 instead of 100
_SURELY_SEEN = 7  # expected rows of a class in a split at which the hash misses the class only once in 1,000 times
_ROWS_OF_A_CLASS = 8  # average rows per class. With fewer, exact shares would round to 0 in the last split
_MOST_LABELS = 1_000  # with more, a stratified split of a large table needs much memory
_FEW_SCORED = 100  # rows with which an accuracy is known to about 10 %

Note = tuple[str, str]
_DOES = {TRAIN: "trained on", EVAL: "decides when training stops", TEST: "scored once, at the end"}


def shares_of(survey: Survey, asked: IngestSettings, options: IngestOptions) -> dict[str, int]:
    """Return the shares of the splits, as `asked` in the config or on the command line, or by the number of rows.

    Raises InfeedError if the splits are not usable, or a rule does not match them.
    """
    rule, patterns = options.split_by, survey.patterns
    if asked.shares is not None:
        shares = asked.shares
        if isinstance(rule, ByName) and (named := _named_in(survey, rule.column)):
            where = f"split by column {rule.column!r}"
            for name in (one for one in named if one not in shares):
                raise no_such_split(name, shares, where)
            for name in (one for one in shares if one not in named):
                raise InfeedError(f"no row names the split {name!r}", where=where, do=f"use {', '.join(named)}")
    elif isinstance(rule, ByName) and (named := _named_in(survey, rule.column)):
        shares = named
    else:
        shares = choose_shares(survey.undivided, patterns)
        if isinstance(rule, ByTime):  # one cut fewer means one split fewer
            shares = dict(list(shares.items())[: len(rule.cuts) + 1])
    _check_names(shares, patterns, rule)
    if rule and not shares:
        what = f"the split rule is {rule.how}, but {', '.join(map(_place, patterns.values()))} already are splits"
        raise InfeedError(what, where="ingest", do="remove the rule")
    if shares:
        check_splits(Buckets(tuple(shares.items())), rule)
    if options.balance and (scored := set(options.balance.splits) - {TRAIN}):
        what = f"the split {min(scored)!r} would be balanced, which inflates its score"
        raise InfeedError(what, where="balance_split", do="balance only train")
    return shares


def _named_in(survey: Survey, column: str) -> dict[str, int]:
    """Count the rows of each split in a split column, the splits of a run first. Empty if unknown."""
    columns = survey.columns if isinstance(survey, TableSurvey) else ()
    found = next((one.statistics for one in columns if one.name == column), None)
    if not found or not found.counts.exact:
        return {}
    counts = found.counts.items()
    rows = {v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v): count for v, count in counts}
    return {name: rows[name] for name in (*SPLITS, *sorted(set(rows) - set(SPLITS))) if name in rows}


def _check_names(shares: Mapping[str, int], patterns: Mapping[str, str], rule: SplitBy | None) -> None:
    if both := [name for name in shares if name in patterns and name != TRAIN]:
        where = _place(patterns[both[0]])
        raise InfeedError(f"split {both[0]!r} already has files", where=where, do="remove it from the shares")
    names = {*shares, *patterns}
    if isinstance(rule, ByTime) and not rule.cuts:
        do = "add --cut, or cut under ingest"
        raise InfeedError("split_time requires cut", where=f"column {rule.column!r}", do=do)
    strangers, missing = sorted(names - set(SPLITS)), [name for name in (TRAIN, EVAL) if name not in names]
    if patterns and shares and TRAIN not in shares:
        missing = [TRAIN]
    if strangers or missing:
        what = f"there is an unknown split {strangers[0]!r}" if strangers else f"there is no split {missing[0]!r}"
        what = f"{what}, and a run takes train, eval and test"
        do = "name them train (training), eval (early stopping) and optionally test (final score)"
        raise InfeedError(what, where="--split, or split under ingest", do=do)


def choose_shares(rows: int, patterns: Collection[str]) -> dict[str, int]:
    """Return the shares of train and of each split without files in `patterns`.

    Empty if every split has its own files.
    """
    fitting = next((shares for most, shares in _SHARES if rows < most), _SHARES_OF_MANY)
    wanted = dict(zip(SPLITS, fitting, strict=True))
    if set(patterns) >= set(SPLITS):
        return {}
    given = sum(share for name, share in wanted.items() if name in patterns and name != TRAIN)
    return {
        name: share + (given if name == TRAIN else 0)
        for name, share in wanted.items()
        if name == TRAIN or name not in patterns
    }


def stratified(survey: Survey, label: str, shares: Mapping[str, int], options: IngestOptions) -> IngestOptions:
    """Give each split its exact share of few rows, or of each label if hashing might omit a class or be uneven."""
    rule = options.split_by
    if options.shuffle_seed is None or not shares or not (rule is None or isinstance(rule, ByRecord)):
        return options
    exact = options
    if survey.undivided < _FEW:
        exact = replace(options, split_by=replace(rule or ByRecord(""), exact=True))
    if survey.task == "multilabel":  # a row has several classes
        return exact
    # The hash keeps equal rows together. If most rows equal others by chance, as those of a few categories, splits vary
    # in size, and a row is scored only if no equal row, with the same label, is in train.
    if (
        not rule
        and isinstance(survey, TableSurvey)
        and 0 < (survey.label.distinct or 0) <= _MOST_LABELS
        and survey.repeats.effective < survey.repeats.rows / 2
    ):
        return replace(options, split_by=ByLabel(label))
    if rule or not survey.classes:
        return exact
    seen = min(survey.class_rows) * min(shares.values()) / sum(shares.values())
    if seen >= _SURELY_SEEN or survey.rows < _ROWS_OF_A_CLASS * len(survey.classes):
        return exact
    return replace(options, split_by=ByLabel(label))


def with_seed(options: IngestOptions, seed: int, shares: Mapping[str, int]) -> IngestOptions:
    """Divide and shuffle the rows differently for each seed. Seed 0 changes nothing.

    A salt and a shuffle seed of the options take precedence. `shares` is empty if the input is already divided.
    """
    rule = options.split_by
    if seed and isinstance(rule, ByColumns | ByRecord) and not rule.salt:
        rule = replace(rule, salt=str(seed))
    elif seed and rule is None and shares:
        rule = ByRecord(str(seed))
    shuffle_seed = seed if options.shuffle_seed == 0 else options.shuffle_seed  # None keeps the order of the input
    return replace(options, split_by=rule, shuffle_seed=shuffle_seed)


def trained_on(survey: Survey, shares: Mapping[str, int]) -> int:
    """Estimate the number of training rows."""
    return round(survey.undivided * shares[TRAIN] / sum(shares.values())) if shares else survey.undivided


def splits_note(survey: Survey, shares: Mapping[str, int], options: IngestOptions) -> Note:
    """Describe the content and the purpose of each split."""
    patterns, rule = survey.patterns, options.split_by
    names = [name for name in SPLITS if name in {*patterns, *shares}]
    words = "; ".join(f"{name}{_made_of(name, patterns, shares, options)}: {_DOES[name]}" for name in names)
    if TEST not in names:
        words += ", and is scored, so the score is inflated"
    if isinstance(rule, ByColumns):
        words += f"; rows with equal {', '.join(rule.columns)} are in one split"
    elif isinstance(rule, ByLabel):
        words += f"; each has its share of every {rule.column}{spread_by_chance(survey)}"
    elif isinstance(rule, ByTime):
        words += f"; rows are split by the time in {rule.column}"
    elif isinstance(rule, ByName):
        words += f"; {rule.column} names them"
    if TEST not in names:
        return "splits", words
    scored = survey.undivided * shares[TEST] // sum(shares.values()) if TEST in shares else survey.rows_of[TEST]
    if scored < _FEW_SCORED:
        about = "" if options.divides_later else "about "
        words += f"; {about}{scored} rows for scoring are few, so the score is unreliable"
    return "splits", words


def _made_of(name: str, patterns: Mapping[str, str], shares: Mapping[str, int], options: IngestOptions) -> str:
    """Return ` (80%)`, ` (20% of train/)` or ` (test/)`, or "" if the shares do not determine the rows."""
    if name not in shares:
        return f" ({_place(patterns[name])})"
    if isinstance(options.split_by, ByTime | ByName):
        return ""
    share = f"{shares[name] / sum(shares.values()):.0%}"
    return f" ({share} of {_place(patterns[TRAIN])})" if patterns else f" ({share})"


def _place(pattern: str) -> str:
    """Return the folder or the file of a pattern."""
    folder, slash, _ = pattern.partition("/")
    return folder + slash
