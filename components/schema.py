"""Plain data (YAML, JSON, exec_properties) <-> checked frozen dataclasses.

    options = read(TrainOptions, {"model_fn": "model:build", "label": "y", "feed": {"batch_size": 32}}, "train")
    to_plain(options)  # what JSON and YAML can hold; `read` gives equal options back

The annotations of the classes say what each option has to be, and pydantic compares. It is imported when something is
read, not before: that takes a tenth of a second. What annotations cannot say, `__post_init__` checks (see `checks`):
its errors are told with the path in the data as well.
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

from infeed.components.annotations import choices_of, follow, hints_of, is_tag, tag_name, tags_of
from infeed.components.errors import InfeedError, OptionError

T = TypeVar("T")
_SHOWN = 200  # characters of a value
_NAME = re.compile(r"[\w./-]{1,100}")  # that can stand in a path as it is
# Kind of pydantic's error -> what the value is not, what to write in its place.
_WORDS = {
    "string": ("is no text", "write text there"),
    "bool": ("is neither true nor false", "write true or false there"),
    "int": ("is no count", "write a whole number there"),
    "greater": ("is no count", "write a larger number there"),
    "less": ("is no count", "write a smaller number there"),
    "float": ("is no number", "write a number there"),
    "list": ("is no list", "write a list there: [value, value]"),
    "tuple": ("is no list", "write a list there: [value, value]"),
    "too": ("is of another length", "write as many values there as it has"),
    "dict": ("is no object", "write a mapping there: {name: value}"),
    "json": ("is no JSON", "write JSON there"),
    "dataclass": ("is no object", "write a mapping there: {name: value}"),
}
_OTHER = ("is no value of it", "write what docs/config.md says of it")


def read(kind: type[T], given: Any, where: str = "", *, exact: bool = False) -> T:
    """A dataclass of the options in `given`, and those that it is made of likewise.

    People write `name:` for an option that they do not give, and `cpu: 4` where text is meant: None is left out where
    it is no value of the option, and such a number becomes text.

    Args:
      kind: the dataclass, or another annotation.
      given: a mapping of plain data; whole dataclasses may be in it.
      where: path of the mapping in its file, for errors; empty for the whole file.
      exact: whether None and numbers are taken for nothing but themselves.

    Raises:
      InfeedError: an option that does not exist, is missing, is of another type, or is refused by its class.
    """
    plain = _plain(given, where)
    found: T
    found, problems = _validated(kind, json.dumps(plain).encode())
    if not exact and any(problem.mend(plain) for problem in problems):
        return read(kind, plain, where)
    if problems:
        first = min(problems, key=lambda problem: problem.rank)
        raise first.error(where) from first.cause
    return found


def read_json(kind: type[T], text: bytes, check_header: Callable[[Any], None] | None = None) -> T:
    """Read untrusted JSON, such as the manifest of a foreign dataset, without correcting values.

    Args:
      kind: the dataclass, or another annotation.
      text: standard JSON in UTF-8: no NaN, no name twice in one object.
      check_header: is given the plain data first, so that it can refuse another version of the format.

    Raises:
      ValueError: no such JSON, or not what `kind` says, with the place of the value.
    """
    plain = _strict_json(text)
    if check_header:
        check_header(plain)
    found: T
    found, problems = _validated(kind, text)
    if problems:
        raise ValueError(problems[0].sentence)
    return found


def _strict_json(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def to_plain(options: Any, *, defaults: bool = True) -> dict[str, Any]:
    """A dataclass, and those in it, as dicts and lists; `read` gives an equal one back.

    Args:
      defaults: whether options are said that have their default; tags always are.
    """
    plain: dict[str, Any] = _plain(options, "", defaults)
    return plain


def check_known(given: Iterable[Any], known: Iterable[str], where: str) -> None:
    """Raise InfeedError for an unknown name in `given`, and suggest the nearest known name."""
    names = list(known)
    if unknown := [str(name) for name in given if name not in names]:
        what = f"there is no setting {unknown[0]!r}{nearest(unknown[0], names)}"
        raise InfeedError(what, where=where, do=f"use one of {', '.join(names)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'age'?`, or nothing where no name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: Any) -> str:
    """`repr(value)`, cut after 200 characters."""
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
    raise InfeedError(f"{_name(where)} is {shown(value)}", where=where, do="write text, a number, a list or a mapping")


def _is_written(option: dataclasses.Field[Any], of: Any) -> bool:
    """Whether the option stands in plain data without defaults: it differs from its default, or is a tag."""
    kind: Any = type(of)
    return getattr(of, option.name) != option.default or is_tag(hints_of(kind)[option.name])


def _key(name: Any, where: str) -> str:
    """YAML reads `1:` as a number, and `yes:` as a truth value, which is not what it looks like."""
    if isinstance(name, bool) or not isinstance(name, str | int | float):
        raise InfeedError(f"the name {shown(name)} is no text", where=where, do="write it in quotes")
    return str(name)


def _validated(kind: Any, text: bytes) -> tuple[Any, list[_Problem]]:
    """The value, or what is wrong."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(b"[%b]" % text)[0], []
    except ValidationError as error:
        problems = [_Problem.of(kind, one) for one in error.errors(include_url=False)]
        words = {one.path: one.words for one in problems if one.words}
        return None, [dataclasses.replace(one, words=words.get(one.path, "")) for one in problems]


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    # Strict: a number is no text. Read as JSON, where a list is a tuple; in a tuple, since a dataclass takes no config.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True))


@dataclass(frozen=True)
class _Problem:
    """One error of pydantic's, in words of ours.

    Attributes:
      kind: what pydantic calls it.
      path: names and indexes down to the value; to an option that is missing or unknown as well.
      holder: type of what the last step is taken from.
      hint: type that the value should have.
      value: what was found.
      cause: the error of a `__post_init__`.
      words: that may stand there as well, where a union has a `Literal` beside other types.
    """

    kind: str
    path: tuple[Any, ...]
    holder: Any
    hint: Any
    value: Any
    cause: Any
    words: str = ""

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
        """A misspelt option comes before the one that is missing therefore, and both before wrong values."""
        return ("unexpected_keyword_argument", "missing", self.kind).index(self.kind)

    def mend(self, plain: Any) -> bool:
        """Makes of `plain` what people mean who write it so; False where that is not known."""
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        not_given = self.value is None and dataclasses.is_dataclass(self.holder)
        if not (self.kind == "string_type" and is_number) and not (self.kind.endswith("_type") and not_given):
            return False
        for step in self.path[:-1]:
            plain = plain[step]
        plain[self.path[-1]] = str(self.value)
        if not_given:
            del plain[self.path[-1]]
        return True

    def error(self, where: str) -> InfeedError:
        """For who wrote the data at `where`."""
        above, place = _path(self.path[:-1], where), _path(self.path, where)
        if isinstance(self.cause, OptionError):
            return InfeedError(self.cause.what, where=_path(filter(None, [self.cause.option]), place), do=self.cause.do)
        if self.kind == "missing":
            return InfeedError(f"the setting {self.path[-1]!r} is missing", where=above, do="add it")
        if self.kind == "unexpected_keyword_argument":
            known = [f.name for f in dataclasses.fields(self.holder)]
            what = f"there is no setting {self.path[-1]!r}{nearest(self.path[-1], known)}"
            return InfeedError(what, where=above, do=f"use one of {', '.join(known)}")
        if self.kind == "union_tag_invalid":
            tag, tags = self.value[tag_name(self.hint)], tags_of(self.hint)
            what = f"{tag_name(self.hint)} is {shown(tag)}{nearest(str(tag), tags)}"
            return InfeedError(what, where=_path([tag_name(self.hint)], place), do=self._words[1])
        if self.kind == "dataclass_type":
            return InfeedError(f"{shown(self.value)} holds no settings", where=place, do=self._words[1])
        do = f"{self._words[1]}, or {self.words}" if self.words else self._words[1]
        return InfeedError(f"{_name(place)} is {shown(self.value)}", where=place, do=do)

    @property
    def sentence(self) -> str:
        """Describe the problem for untrusted data."""
        if self.kind == "missing":
            return f"{_path(self.path)} is missing"
        if self.kind == "unexpected_keyword_argument":
            return sentence(self.path[:-1], self.path[-1], "is no field of it")
        return sentence(self.path, self.value, self._words[0])

    @property
    def _words(self) -> tuple[str, str]:
        if self.kind in ("literal_error", "union_tag_invalid"):
            choices = ", ".join(map(str, choices_of(self.hint) or tags_of(self.hint)))
            return f"is none of {choices}", f"use one of {choices}"
        return _WORDS.get(self.kind.partition("_")[0], _OTHER)


def sentence(path: Iterable[Any], value: Any, why: str) -> str:
    """What is wrong with a value that nobody vouches for: cut short, and without control characters."""
    place = _path(path)
    return f"{place + ': ' if place else ''}{reprlib.repr(value)} {why}"


def _path(steps: Iterable[Any], where: str = "") -> str:
    """`deploy.resources`, `tolerations[1]`; a name that does not look like one is quoted."""
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
        raise ValueError(f"{reprlib.repr(name)} stands there twice")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
