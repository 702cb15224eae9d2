"""Spans: numbered or dated parts of a growing input, such as `span-{SPAN}/*.csv` or `{YYYY}-{MM}-{DD}.csv`.

window = Spans("span-{SPAN}/*.csv", last=3).window("s3://bucket/taxi")
window  # {7: "span-7/*.csv", 8: "span-8/*.csv", 9: "span-9/*.csv"}
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from infeed.components.base.checks import at_least, require
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files

_PLACEHOLDER = re.compile(r"\{(SPAN|YYYY|MM|DD)\}")
_DIGITS = {"SPAN": r"\d+", "YYYY": r"\d{4}", "MM": r"\d{2}", "DD": r"\d{2}"}
_EPOCH = datetime.date(1970, 1, 1)


def has_spans(path: str) -> bool:
    """Return whether a path has span placeholders."""
    return bool(_PLACEHOLDER.search(path))


@dataclass(frozen=True)
class Spans:
    """Spans of an input, and the number of latest spans to read.

    Attributes:
      pattern: pattern of the files below the input's folder, with {SPAN}, or with {YYYY}, {MM} and {DD}, each once.
      last: number of latest spans to read. None for all.
      cache: folder that caches the Examples of each span.
    """

    pattern: str
    last: int | None = None
    cache: str = ""

    def __post_init__(self) -> None:
        at_least(self, 1, "last")
        names = sorted(_PLACEHOLDER.findall(self.pattern))
        given = names in (["SPAN"], ["DD", "MM", "YYYY"])
        require(given, self, "pattern", "use {SPAN} once, or {YYYY}, {MM} and {DD} once each")

    @property
    def glob(self) -> str:
        """Pattern of the files of all spans."""
        return _PLACEHOLDER.sub("*", self.pattern)

    def window(self, root: str) -> dict[int, str]:
        """Return the file pattern of each span to read, by span number, latest last.

        A date counts as the number of days since 1970, as in TFX. Raises InfeedError if there is no span, or two spans
        have the same number.
        """
        signs = {"*": "[^/]*", "?": "[^/]"}
        signs |= {f"{{{name}}}": f"(?P<{name}>{digits})" for name, digits in _DIGITS.items()}
        parts = re.split(r"(\{(?:SPAN|YYYY|MM|DD)\}|\*|\?)", self.pattern)
        regex = re.compile("".join(signs.get(part, re.escape(part)) for part in parts))
        found: dict[int, str] = {}
        for file in files.glob(root, self.glob):
            if match := regex.fullmatch(files.relative(file.path, root)):
                pattern = _PLACEHOLDER.sub(lambda name: match[name[1]], self.pattern)
                if found.setdefault(number := _number(match, file.path), pattern) != pattern:
                    what = f"{pattern} and {found[number]} are both span {number}"
                    raise InfeedError(what, where=root, do="write all numbers with the same number of digits")
        if not found:
            raise InfeedError("there is no span", where=files.join(root, self.pattern), do="add files that match")
        return {number: found[number] for number in sorted(found)[-self.last if self.last else 0 :]}

    def pattern_of_window(self, root: str) -> str:
        """Return one pattern for the files of all spans to read, such as `{span-1/*.csv,span-2/*.csv}`."""
        patterns = [*self.window(root).values()]
        return f"{{{','.join(patterns)}}}" if len(patterns) > 1 else patterns[0]


def split_path(path: str) -> tuple[str, str]:
    """Split a path into the folder above the first placeholder or wildcard, and the pattern below it."""
    parts = path.split("/")
    first = next(place for place, part in enumerate(parts) if _PLACEHOLDER.search(part) or set("*?") & set(part))
    return "/".join(parts[:first]) or ".", "/".join(parts[first:])


def _number(match: re.Match[str], path: str) -> int:
    named = match.groupdict()
    if "SPAN" in named:
        return int(named["SPAN"])
    try:
        return (datetime.date(int(named["YYYY"]), int(named["MM"]), int(named["DD"])) - _EPOCH).days
    except ValueError as error:
        raise InfeedError(f"not a date: {error}", where=path, do="rename the file or its folder") from error
