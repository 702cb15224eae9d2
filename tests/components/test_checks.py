from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from infeed.components import schema
from infeed.components.checks import about, as_tuples, at_least, check_choices, require
from infeed.components.errors import InfeedError, OptionError


def check_word(word: str) -> None:
    if word == "no":
        raise InfeedError("no such word", where="words", do="use another")


@dataclass(frozen=True)
class Options:
    kind: Literal["a", "b"] = "a"
    other: Literal["a", "b"] | None = None
    size: int | None = None
    share: float = 0.5
    names: tuple[str, ...] = ()
    word: str = ""

    def __post_init__(self) -> None:
        as_tuples(self, "names")
        check_choices(self)
        at_least(self, 1, "size")
        require(0 < self.share < 1, self, "share", "use a share between 0 and 1")
        with about(self, "word"):
            check_word(self.word)


WRONG: list[tuple[str, Any, str, str]] = [
    ("kind", "c", "kind is 'c'", "use one of a, b"),
    ("other", "c", "other is 'c'", "use one of a, b"),
    ("size", 0, "size is 0", "use a number of at least 1"),
    ("size", float("nan"), "size is nan", "use a number of at least 1"),
    ("share", 1.5, "share is 1.5", "use a share between 0 and 1"),
    ("word", "no", "no such word", "use another"),
]


@pytest.mark.parametrize(("name", "value", "what", "do"), WRONG)
def test_an_option_that_cannot_be_is_refused_with_its_name(name: str, value: Any, what: str, do: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options(**{name: value})
    assert (caught.value.what, caught.value.do, caught.value.option) == (what, do, name)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value, *_ in WRONG if name in ("share", "word")])
def test_read_from_a_file_it_is_told_with_its_path(name: str, value: Any) -> None:
    with pytest.raises(InfeedError, match=rf"  where: options\.{name}\n"):
        schema.read(Options, {name: value}, "options")


def test_options_that_are_none_pass_and_lists_become_tuples() -> None:
    assert Options(names=["x"]) == Options(names=("x",))  # type: ignore[arg-type]
