"""What errors tell people to do can be done: each flag, option, setting and command that a `do` names is there."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from infeed.components.example_gen.formats import FORMATS
from infeed.pipelines.cli import main

ROOT = Path(__file__).parents[1]
FLOORS = ("components", "pipelines", "templates")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
SET = re.compile(r"--set '?(\w+)=")
COMMAND = re.compile(r"\binfeed ([a-z]+)\b")
CALL = re.compile(r"(?<![\w.])([A-Z]\w+)\(([^()]*)\)")
SETTING = re.compile(r"(?<![\w-])(train|blessing|deploy|ingest|augment|normalise)(?:\.|: \{)(\w+)")
OTHER_PROGRAMS = re.compile(r"\b(?:pip|kfp|docker|buildah|podman|git|gcloud|kubectl|dvc)\b[^;,]*")

Remedy = tuple[str, str]  # place in the sources, words


class Words:
    """The literal words of expressions, those of the module's constants and local variables among them."""

    def __init__(self, module: ast.Module) -> None:
        self._named: dict[str, list[ast.expr]] = {}
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._named.setdefault(node.targets[0].id, []).append(node.value)

    def of(self, node: ast.AST, seen: tuple[str, ...] = ()) -> str:
        """`{}` stands for what is only known when the error is raised."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.Name):
            known = self._named.get(node.id, []) if node.id not in seen else []
            return " ; ".join(self.of(value, (*seen, node.id)) for value in known) or "{}"
        if isinstance(node, ast.JoinedStr):
            return "".join(
                self.of(part.value if isinstance(part, ast.FormattedValue) else part, seen) for part in node.values
            )
        if isinstance(node, ast.IfExp):
            return f"{self.of(node.body, seen)} ; {self.of(node.orelse, seen)}"
        if isinstance(node, ast.BinOp):
            return self.of(node.left, seen) + self.of(node.right, seen)
        return "{}"


@cache
def remedies(floor: str) -> list[Remedy]:
    found = []
    for path in sorted((ROOT / floor).rglob("*.py")):
        module = ast.parse(path.read_text())
        words = Words(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                found += [(f"{path.relative_to(ROOT)}:{node.lineno}", words.of(do)) for do in spoken(node)]
    return found


def spoken(call: ast.Call) -> Iterator[ast.expr]:
    """What a call of an error, or of a check, says is to be done."""
    function = ast.unparse(call.func)
    place = {"require": 3, "refused": 2}.get(function)
    if place is not None and len(call.args) > place:
        yield call.args[place]
    if function.endswith(("Error", "refused", "require")):
        yield from (word.value for word in call.keywords if word.arg == "do")


@cache
def flags() -> dict[str, set[str]]:
    """Command -> its flags."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {
        name: {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        for name, command in commands.items()
        if command
    }


@cache
def source_options() -> set[str]:
    """The options of all formats."""
    return set().union(*(arguments_of_classes()[one.settings] for one in FORMATS.values() if one.settings))


@cache
def settings_of(setting: str) -> set[str]:
    """What can stand below a setting of the config."""
    from infeed.components.dataset.options import IngestOptions
    from infeed.components.feed.options import Augment, FeedOptions, Normalise
    from infeed.components.trainer.options import TrainOptions
    from infeed.pipelines.config import Blessing
    from infeed.pipelines.deploy.options import Deploy

    classes: dict[str, tuple[Any, ...]] = {
        "train": (TrainOptions, FeedOptions),
        "blessing": (Blessing,),
        "deploy": (Deploy,),
        "ingest": (IngestOptions,),
        "augment": (Augment,),
        "normalise": (Normalise,),
    }
    return {field.name for one in classes[setting] for field in dataclasses.fields(one)}


def unknown_flags(words: str) -> list[str]:
    words = OTHER_PROGRAMS.sub("", words)
    of_any = {"--worker_timeout"}.union(*flags().values())  # that one stands among Beam's options
    return [flag for flag in FLAG.findall(words) if flag not in of_any]


def unknown_source_options(words: str) -> list[str]:
    return [name for name in SET.findall(words) if name not in source_options()]


def unknown_commands(words: str) -> list[str]:
    return [name for name in COMMAND.findall(words) if name not in flags()]


@cache
def arguments_of_classes() -> dict[str, set[str]]:
    """Class -> what it can be given, by its annotations, those of its bases and its `__init__`; nothing is imported."""
    paths = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    own, bases = dict[str, set[str]](), dict[str, list[str]]()
    for node in nodes:
        fields = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        inits = [one.args for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        named = {argument.arg for init in inits for argument in (*init.args, *init.kwonlyargs)}
        own[node.name] = own.get(node.name, set()) | fields | named
        bases[node.name] = [ast.unparse(base) for base in node.bases]
    return {name: own[name].union(*(own.get(base, set()) for base in bases[name])) for name in own}


def unknown_arguments(words: str) -> list[str]:
    """Of the product's classes: options that these do not have. Other classes have a path, such as tf.data.Dataset."""
    given = [(name, one) for name, arguments in CALL.findall(words) for one in re.findall(r"\b(\w+)=", arguments)]
    return [f"{name}.{one}" for name, one in given if one not in arguments_of_classes().get(name, set())]


def unknown_settings(words: str) -> list[str]:
    return [f"{setting}.{name}" for setting, name in SETTING.findall(words) if name not in settings_of(setting)]


CHECKS = (unknown_flags, unknown_source_options, unknown_commands, unknown_arguments, unknown_settings)


@pytest.mark.parametrize("floor", ["components", "pipelines"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_remedies_name_is_there(check: Any, floor: str) -> None:
    assert [(place, wrong) for place, words in remedies(floor) for wrong in check(words)] == []


@pytest.mark.parametrize(
    ("check", "words", "wrong"),
    [
        (unknown_flags, "give --labels, or --label", ["--labels"]),
        (unknown_flags, "kfp --endpoints x, or pip install --user", []),
        (unknown_source_options, "--set colums=x --set 'nulls=[]'", ["colums"]),
        (unknown_commands, "use `infeed rum tabular` or infeed run", ["rum"]),
        (unknown_arguments, "CsvOptions(delimeter=';'), IngestOptions(on_bad_row='reject')", ["CsvOptions.delimeter"]),
        (unknown_settings, "deploy.image, blessing: {metrics: x}", ["blessing.metrics"]),
    ],
)
def test_what_is_not_there_is_found(check: Any, words: str, wrong: list[str]) -> None:
    assert check(words) == wrong


def test_remedies_are_found_in_constants_variables_and_conditions() -> None:
    constants = "_DO = 'use --a'\ndo = _DO if x else f'{_DO} or {y} --b'\n"
    source = f"{constants}raise InfeedError('x', do=do)\nrequire(x, o, 'n', 'c')"
    module = ast.parse(source)
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    words = [Words(module).of(do) for call in calls for do in spoken(call)]
    assert words == ["use --a ; use --a or {} --b", "c"]


def test_there_are_remedies_to_look_at() -> None:
    words = [text for floor in FLOORS for _, text in remedies(floor)]
    assert len(words) > 500
    assert sum(bool(FLAG.search(text)) for text in words) > 30
