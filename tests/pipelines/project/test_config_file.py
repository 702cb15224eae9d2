"""What a config file names."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.project.config_file import LabelSettings, read_project, read_yaml


def test_a_dotted_module_of_the_project_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "dense.py").write_text("def build(spec): pass\n")
    config = tmp_path / "config.yaml"
    config.write_text("{source: csv, data: a.csv, label: a, model: networks.dense:build, features: []}")
    project = read_project(str(config))
    assert project.reference("networks.dense:build") == f"{tmp_path}/networks/dense.py:build"
    assert project.reference("os.path:join") == "os.path:join"


def test_a_function_that_returns_the_rows_stands_in_place_of_data(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{source: 'data.py:rows', label: a, model: 'model.py:build', features: []}")
    settings = read_project(str(config)).settings
    assert (settings.source, settings.data) == ("reader", "data.py:rows")
    config.write_text("{source: 'data.py:rows', data: a.csv, label: a, model: 'model.py:build', features: []}")
    with pytest.raises(InfeedError, match="with a function") as error:
        read_project(str(config))
    assert error.value.where == f"{config}, data"


BOMB = "a0: &a0 [" + "lol, " * 9 + "lol]\n"
BOMB += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
REFUSED = {
    "a name twice": ("train:\n  epochs: 1\n  seed: 3\n  epochs: 2\n", r"'epochs' is already in line 2", 4),
    "a quoted name twice": ("data: a\n'data': b\n", r"'data' is already in line 1", 2),
    "aliases of aliases": (BOMB, r"more than 1 MB after expanding", 6),
    "long text by aliases": (f"a: &a {'x' * 5000}\nb: [{'*a, ' * 300}]\n", r"more than 1 MB after expanding", 2),
    "an alias inside of itself": ("a: &a [1, *a]\n", r"\*a is inside its own value", 1),
    "brackets": ("data: " + "[" * 100_000, r"nested more than 50 deep", 1),
    "mappings": ("\n".join(" " * n + "a:" for n in range(1000)), r"nested more than 50 deep", 50),
    "digits without end": ("data: x\nspans: 1" + "0" * 5000, r"'10000.*' is not a valid value: ", 2),
    "a tag of Python": ("data: x\nname: !!python/object/apply:os.system [id]\n", r"could not determine a constr", 2),
    "an end that is missing": ("data: 'x\n", r"found unexpected end of stream", 2),
    "two documents": ("a: 1\n---\nb: 2\n", r"but found another document", 2),
    "a control character": ("data: x\nname: \0\n", r"special characters are not allowed", 2),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.mark.parametrize(("text", "problem", "line"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_read_otherwise_than_it_looks_is_refused_at_once(
    path: Path, text: str, problem: str, line: int
) -> None:
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(InfeedError, match=rf"invalid YAML: .*{problem}(.|\n)*config\.yaml, line {line}\n"):
        read_project(str(path))
    assert time.process_time() - began < 60  # where brackets or aliases are followed, it takes minutes


def test_text_of_another_encoding_is_told_with_its_line(path: Path) -> None:
    path.write_bytes("data: x\nlabel: Größe\n".encode("latin-1"))
    with pytest.raises(InfeedError, match=r"invalid YAML: invalid start byte(.|\n)*line 2\n"):
        read_project(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_say_what_they_are_are_read(path: Path, encoding: str) -> None:
    path.write_text("label: Größe\nrate: 1e-3\n", encoding=encoding)
    assert read_yaml(path) == {"label": "Größe", "rate": 0.001}


NUMBERS = {
    "12e4567": math.inf,
    "0x1F": 31,
    "1_000": 1000,
    "0b11": 3,
    "3.10": 3.1,
    ".5": 0.5,
    "1.": 1.0,
    "+1": 1,
    "1e-3": 0.001,
}
TEXTS = [
    "2021-01-01",
    "2020-13-45",
    "2021-01-01 10:00:00",
    "1:30",
    "190:20:30.15",
    "017",
    "-007",
    "0o17",
    "-_1",
    "1.2.3",
]


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS])
def test_an_option_of_text_gets_the_text_of_the_file(path: Path, text: str) -> None:
    path.write_text(f"{{resources: {{default: {{env: {{SHA: {text}}}}}}}}}")
    assert schema.read(Deploy, read_yaml(path)).resources["default"].env == {"SHA": text}


@given(
    st.text("0123456789+-._eExob:", min_size=1, max_size=8).filter(lambda text: text[0].isdigit() and text[-1] != ":")
)
def test_names_and_values_like_numbers_keep_their_text(text: str) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"? {text}\n: {text}\n".encode())
        file.flush()
        assert schema.read(dict[str, str], read_yaml(Path(file.name))) == {text: text}


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_an_option_of_numbers_gets_the_number(path: Path, text: str, number: float) -> None:
    path.write_text(text)
    assert schema.read(float, read_yaml(path)) == number


def test_what_yaml_1_1_alone_reads_as_a_number_is_no_number(path: Path) -> None:
    path.write_text("{source: csv, data: a, label: a, model: 'm:f', features: [], spans: 010}")
    with pytest.raises(InfeedError, match="spans is '010'"):
        read_project(str(path))


def test_a_file_of_data_is_refused_before_it_is_read(path: Path) -> None:
    path.write_text("- 1\n" * 400_000)
    with pytest.raises(InfeedError, match="more than 1 MB"):
        read_project(str(path))


def test_a_few_aliases_and_merged_mappings_are_no_bomb(path: Path) -> None:
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\n")
    assert read_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("y", {"y": LabelSettings()}),
        ("[price, sold]", {"price": LabelSettings(), "sold": LabelSettings()}),
        (
            "{price: {task: regression}, sold: {threshold: 0.3}, tags: {}}",
            {"price": LabelSettings("regression"), "sold": LabelSettings(threshold=0.3), "tags": LabelSettings()},
        ),
    ],
)
def test_one_label_several_and_their_settings(path: Path, label: str, expected: dict[str, LabelSettings]) -> None:
    path.write_text(f"{{source: csv, data: a, label: {label}, model: 'm:f', features: []}}")
    assert read_project(str(path)).settings.labels == expected


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("label: {price: {tak: regression}}", "label.price"),
        ("label: {price: {threshold: 2}}", "label.price.threshold"),
        ("label: [price, sold], task: regression", "task"),
    ],
)
def test_settings_of_labels_that_do_not_fit(path: Path, given: str, where: str) -> None:
    path.write_text(f"{{source: csv, data: a, {given}, model: 'm:f', features: []}}")
    with pytest.raises(InfeedError) as raised:
        read_project(str(path))
    assert raised.value.where.endswith(f"config.yaml, {where}")
