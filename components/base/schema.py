"""Convert plain data (YAML, JSON, exec_properties) to checked frozen dataclasses, and back.

    options = read(TrainOptions, {"model_fn": "model:build", "label": "y", "feed": {"batch_size": 32}}, "train")
    to_plain(options)  # JSON and YAML types; `read` restores equal options

The annotations of the classes define each option, and pydantic validates them. pydantic is imported on first use,
because the import takes 0.1 s. `__post_init__` checks the rest (see `checks`), and the path in the data is added to
its errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from infeed.components.base.annotations import bare, choices_of, follow, hints_of, is_tag, range_of, tag_name, tags_of
from infeed.components.base.errors import InfeedError, OptionError

T = TypeVar("T")
_SHOWN = 200  # maximum characters of a shown value
_NAMES = 20  # maximum names of data in an error
_NAME = re.compile(r"[\w./-]{1,100}")  # names that need no quotes in a path
# Type of a pydantic error -> (description, remedy).
_WORDS = {
    "string": ("is not text", "use text"),
    "bool": ("is not true or false", "use true or false"),
    "int": ("is not an integer", "use an integer"),
    "float": ("is not a number", "use a number"),
    "list": ("is not a list", "use a list: [value, value]"),
    "tuple": ("is not a list", "use a list: [value, value]"),
    "too": ("has the wrong length", "use the right number of values"),
    "dict": ("is not an object", "use a mapping: {name: value}"),
    "json": ("is not JSON", "use JSON"),
    "dataclass": ("is not an object", "use a mapping: {name: value}"),
}
_OTHER = ("is not a valid value", "see docs/config.md for valid values")


def read(kind: type[T], given: Any, where: str = "", *, exact: bool = False) -> T:
    """Create a dataclass, and nested ones, from plain data.

    Two common YAML slips are corrected. `name:` without a value is dropped if None is invalid, or has the defaults of
    its dataclass. The number in `cpu: 4` becomes text if the option expects text: that of `number_with_text`, if any.

    Args:
      kind: the dataclass, or another annotation.
      given: a mapping of plain data, which may contain dataclasses.
      where: path of the mapping in its file, for errors. Empty for the whole file.
      exact: whether to skip these corrections.

    Raises:
      InfeedError: an option does not exist, is missing, has the wrong type, or is rejected by its class.
    """
    plain = _plain(given, where)
    found: T
    found, problems = _validated(kind, json.dumps(plain).encode())
    if not exact and any(problem.mend(plain) for problem in problems):
        return read(kind, plain, where)
    if problems:
        # Within a union, the longest path belongs to the member that is meant.
        first = min(problems, key=lambda problem: (problem.rank, -len(problem.path)))
        raise first.error(where) from first.cause
    return found


def read_json(kind: type[T], text: bytes, check_header: Callable[[Any], None] | None = None) -> T:
    """Read untrusted JSON, such as the manifest of a foreign dataset, without correcting values.

    Args:
      text: standard JSON in UTF-8, without NaN and without repeated names in an object.
      check_header: called first, with the plain data, to reject other versions of the format.

    Raises:
      ValueError: the text is not such JSON, or a value is invalid. The error names its location.
    """
    try:
        plain = json.loads(text.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if check_header:
        check_header(plain)
    found: T
    found, problems = _validated(kind, text)
    if problems:
        raise ValueError(problems[0].sentence)
    return found


def to_plain(options: Any, *, defaults: bool = True) -> dict[str, Any]:
    """Convert a dataclass, and nested ones, to dicts and lists. `read` restores an equal object.

    Unless `defaults`, options with default values are omitted. Tags are kept.
    """
    plain: dict[str, Any] = _plain(options, "", defaults)
    return plain


class _Int(int):
    text: str


class _Float(float):
    text: str


def number_with_text(value: Any, text: str) -> Any:
    """Return a number with its text in a file, which `read` uses if an option expects text: 12e4567, 3.10.

    Return any other value unchanged.
    """
    kept: Any = {int: _Int, float: _Float}.get(type(value))
    if kept is None:
        return value
    found = kept(value)
    found.text = text
    return found


def check_known(given: Iterable[Any], known: Iterable[str], where: str, noun: str = "setting") -> None:
    """Raise InfeedError for an unknown name in `given`, and suggest the nearest known name.

    `noun` is the kind of the names. Names of data, such as columns, may be many, so the error shows the first ones.
    """
    names = list(known)
    if unknown := [str(name) for name in given if name not in names]:
        what = f"there is no {noun} {unknown[0]!r}{nearest(unknown[0], names)}"
        some = names if noun == "setting" else [*map(repr, names[:_NAMES]), *["..."] * (len(names) > _NAMES)]
        raise InfeedError(what, where=where, do=f"use one of {', '.join(some)}" if names else "leave it out")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'age'?`, or "" if no name is similar."""
    by_folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def shown(value: Any) -> str:
    """Return `repr(value)`, at most 200 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _plain(value: Any, where: str, defaults: bool = True) -> Any:
    if dataclasses.is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if defaults or _is_written(f, value)}
        return {name: _plain(one, _path([name], where), defaults) for name, one in given.items()}
    if isinstance(value, Mapping):
        return {_key(name, where): _plain(one, _path([str(name)], where), defaults) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, _path([number], where), defaults) for number, one in enumerate(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise InfeedError(f"{_name(where)} is {shown(value)}", where=where, do="use text, a number, a list or a mapping")


def _is_written(option: dataclasses.Field[Any], of: Any) -> bool:
    """Return whether `to_plain` writes an option without `defaults`: it is a tag, or differs from its default."""
    kind: Any = type(of)
    return getattr(of, option.name) != option.default or is_tag(hints_of(kind)[option.name])


def _key(name: Any, where: str) -> str:
    """Return a key as text. YAML parses `1:` as a number, and `yes:` as a boolean, which is an error."""
    if isinstance(name, bool) or not isinstance(name, str | int | float):
        raise InfeedError(f"the name {shown(name)} is not text", where=where, do="write it in quotes")
    return _text(name)


def _text(value: str | int | float) -> str:
    return value.text if isinstance(value, _Int | _Float) else str(value)


def _validated(kind: Any, text: bytes) -> tuple[Any, list[_Problem]]:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(b"[%b]" % text)[0], []
    except ValidationError as error:
        problems = [_Problem.of(kind, one) for one in error.errors(include_url=False)]
        for cause in (one.cause for one in problems):
            if isinstance(cause, InfeedError) and not isinstance(cause, OptionError):
                raise cause from None  # this error already has a location
        words = {one.path: one.words for one in problems if one.words}
        return None, [dataclasses.replace(one, words=words.get(one.path, "")) for one in problems]


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    # Strict mode does not convert numbers to text. JSON mode accepts lists as tuples. Dataclasses accept no config.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True))


@dataclass(frozen=True)
class _Problem:
    """A pydantic error, described in our words."""

    kind: str  # pydantic's type of the error
    path: tuple[Any, ...]  # names and indices of the value, including a missing or unknown option
    holder: Any  # type that contains the last step
    hint: Any  # expected type of the value
    value: Any
    cause: Any  # error of a `__post_init__`
    words: str = ""  # alternatives of a `Literal` in a union with other types

    @classmethod
    def of(cls, root: Any, error: Mapping[str, Any]) -> _Problem:
        kind, cause = error["type"], error.get("ctx", {}).get("error")
        path, holder, hint = follow(root, error["loc"][1:])
        if kind == "missing" and isinstance(path[-1], int):
            kind, path = "too_short", path[:-1]
        if kind == "union_tag_not_found":
            kind, path = "missing", (*path, tag_name(hint))
        words = "" if choices_of(hint) else error.get("ctx", {}).get("expected", "")
        return cls(kind, path, holder, hint, error["input"], cause, words if kind == "literal_error" else "")

    @property
    def rank(self) -> int:
        """Sort key: misspelled options first, then missing ones (perhaps misspelled), then wrong values."""
        return ("unexpected_keyword_argument", "missing", self.kind).index(self.kind)

    def mend(self, plain: Any) -> bool:
        """Correct `plain` as `read` describes. Return False if that is not possible."""
        if not self.path:  # the value is the whole of `plain`, which cannot be replaced
            return False
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        not_given = self.value is None and dataclasses.is_dataclass(self.holder) and self.kind.endswith("_type")
        is_empty = self.value is None and self.kind == "dataclass_type"
        if not (self.kind == "string_type" and is_number) and not not_given and not is_empty:
            return False
        for step in self.path[:-1]:
            plain = plain[step]
        if not_given:
            del plain[self.path[-1]]
        elif is_empty:
            plain[self.path[-1]] = {}
        else:
            plain[self.path[-1]] = _text(plain[self.path[-1]])
        return True

    def error(self, where: str) -> InfeedError:
        """Return the error to raise for the data at `where`."""
        above, place = _path(self.path[:-1], where), _path(self.path, where)
        if isinstance(self.cause, OptionError):
            return InfeedError(self.cause.what, where=_path(filter(None, [self.cause.option]), place), do=self.cause.do)
        if self.kind == "missing":
            return InfeedError(f"the setting {self.path[-1]!r} is missing", where=above, do="add it")
        if self.kind == "unexpected_keyword_argument":
            known = [f.name for f in dataclasses.fields(self.holder)]
            what = f"there is no setting {self.path[-1]!r}{nearest(self.path[-1], known)}"
            elsewhere = getattr(self.holder, "ELSEWHERE", {}).get(self.path[-1])
            return InfeedError(what, where=above, do=elsewhere or f"use one of {', '.join(known)}")
        if self.kind == "union_tag_invalid":
            tag, tags = self.value[tag_name(self.hint)], tags_of(self.hint)
            what = f"{tag_name(self.hint)} is {shown(tag)}{nearest(str(tag), tags)}"
            return InfeedError(what, where=_path([tag_name(self.hint)], place), do=self._words[1])
        if self.kind == "dataclass_type":
            return InfeedError(f"{shown(self.value)} is not a mapping of settings", where=place, do=self._as_mapping)
        do = f"{self._words[1]}, or {self.words}" if self.words else self._words[1]
        return InfeedError(f"{_name(place)} is {shown(self.value)}{self._nearest}", where=place, do=do)

    @property
    def sentence(self) -> str:
        """Describe the problem in a manifest or another untrusted file."""
        if self.kind == "missing":
            return f"{_path(self.path)} is missing"
        if self.kind == "unexpected_keyword_argument":
            return sentence(self.path[:-1], self.path[-1], "is not a field")
        return sentence(self.path, self.value, self._words[0])

    @property
    def _nearest(self) -> str:
        known = [one for one in choices_of(self.hint) if isinstance(one, str)] or re.findall("'(.+?)'", self.words)
        return nearest(self.value, known) if isinstance(self.value, str) else ""

    @property
    def _as_mapping(self) -> str:
        """Describe the settings of a dataclass, or write the setting that has this value as a choice."""
        kind = bare(self.hint)
        settings = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        meant = (f"{name}: {self.value}" for name in settings if self.value in choices_of(hints_of(kind)[name]))
        known = f", with settings from {', '.join(settings)}" if settings else ""
        return f"use a mapping: {{{next(meant, 'name: value')}}}{known}"

    @property
    def _words(self) -> tuple[str, str]:
        if self.kind == "string_type" and isinstance(self.value, bool):
            return "is not text", "use text, in quotes"
        if self.kind in ("literal_error", "union_tag_invalid"):
            choices = ", ".join(map(str, choices_of(self.hint) or tags_of(self.hint)))
            return f"is not one of {choices}", f"use one of {choices}"
        if bounds := range_of(self.hint) if self.kind.endswith("than_equal") else None:
            if self.kind.startswith("greater"):
                return "is too small", f"use a number of at least {bounds.least}"
            return "is too large", f"use a number of at most {bounds.most}"
        return _WORDS.get(self.kind.partition("_")[0], _OTHER)


def sentence(path: Iterable[Any], value: Any, why: str) -> str:
    """Describe an invalid value from an untrusted file: shortened, without control characters."""
    place = _path(path)
    return f"{place + ': ' if place else ''}{reprlib.repr(value)} {why}"


def _path(steps: Iterable[Any], where: str = "") -> str:
    """Append to a path, such as `deploy.resources` or `tolerations[1]`. Unusual names are quoted."""
    for step in steps:
        name = f"[{step}]" if isinstance(step, int) else step if _NAME.fullmatch(step) else reprlib.repr(step)
        where = f"{where}{name}" if isinstance(step, int) or not where else f"{where}.{name}"
    return where


def _name(place: str) -> str:
    return place.rpartition(".")[2]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{reprlib.repr(name)} occurs twice")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
