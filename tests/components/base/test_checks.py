from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from infeed.components.base import schema
from infeed.components.base.annotations import Placeholder
from infeed.components.base.checks import about, as_tuples, at_least, check_fields, require
from infeed.components.base.errors import InfeedError, OptionError


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
    optional: Annotated[str | None, Placeholder("WORD")] = None
    on: bool = False

    def __post_init__(self) -> None:
        as_tuples(self, "names")
        check_fields(self)
        at_least(self, 1, "size")
        require(0 < self.share < 1, self, "share", "use a share between 0 and 1")
        with about(self, "word"):
            check_word(self.word)


WRONG: list[tuple[str, Any, str, str]] = [
    ("kind", "c", "kind is 'c'", "use one of a, b"),
    ("other", "c", "other is 'c'", "use one of a, b"),
    ("size", 0, "size is 0", "use a number of at least 1"),
    ("size", float("nan"), "size is nan", "use an integer"),
    ("size", 1.5, "size is 1.5", "use an integer"),
    ("size", True, "size is True", "use an integer"),
    ("share", float("nan"), "share is nan", "use a share between 0 and 1"),
    ("share", "0.5", "share is '0.5'", "use a number"),
    ("optional", 3, "optional is 3", "use text"),
    ("on", 1, "on is 1", "use true or false"),
    ("share", 1.5, "share is 1.5", "use a share between 0 and 1"),
    ("word", "no", "no such word", "use another"),
]


@pytest.mark.parametrize(("name", "value", "what", "do"), WRONG)
def test_an_option_that_cannot_be_is_refused_with_its_name(name: str, value: Any, what: str, do: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options(**{name: value})
    assert (caught.value.what, caught.value.do, caught.value.option) == (what, do, name)


def test_scalars_of_numpy_are_of_the_type_too() -> None:
    Options(size=np.int64(3), share=np.float32(0.5), on=np.bool_(True))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value, *_ in WRONG if name in ("share", "word")])
def test_read_from_a_file_it_is_told_with_its_path(name: str, value: Any) -> None:
    with pytest.raises(InfeedError, match=rf"  where: options\.{name}\n"):
        schema.read(Options, {name: value}, "options")


def test_options_that_are_none_pass_and_lists_become_tuples() -> None:
    assert Options(names=["x"]) == Options(names=("x",))  # type: ignore[arg-type]
