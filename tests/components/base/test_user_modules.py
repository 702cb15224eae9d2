"""A project's files import one another, each is loaded once, and no name of theirs hides one of somebody else's."""

from __future__ import annotations

import colorsys
import dataclasses
import os
import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infeed.components.base import user_code, user_modules
from infeed.components.base.errors import InfeedError


def write(folder: Path, sources: Mapping[str, str]) -> None:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def load(folder: Path, text: str) -> Callable[..., Any]:
    return user_code.load(str(folder / text), "model_fn")


def test_neighbours_and_packages_are_imported_in_every_form(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "helpers.py": "def scale(x):\n    return 2 * x\n",
            "layers/__init__.py": "from .dense import units\n",
            "layers/dense.py": "import helpers\nfrom layers.deep import sizes\nunits = helpers.scale(sizes.BASE)\n",
            "layers/deep/sizes.py": "BASE = 10\n",
            "model.py": """
import helpers, layers.dense
import layers.dense as dense
from helpers import scale as twice
from layers import units
from layers.deep import sizes

def build(spec):
    import helpers as again
    from layers.dense import units as late
    assert again is helpers and late == layers.dense.units == dense.units == units
    return twice(spec) + units + sizes.BASE
""",
        },
    )
    assert load(tmp_path, "model.py:build")(1) == 2 + 20 + 10


def test_a_file_is_loaded_once_whoever_names_or_imports_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "shared.py": "class Spec: pass\nfound = []\ndef add():\n    found.append(0)\n    return len(found)\n",
            "features.py": "import shared\ndef make(): return shared.Spec()\ndef add(): return shared.add()\n",
            "model.py": "from shared import Spec, add\ndef check(one): return isinstance(one, Spec)\n",
        },
    )
    assert load(tmp_path, "model.py:check")(load(tmp_path, "features.py:make")())
    assert [load(tmp_path, name)() for name in ("features.py:add", "model.py:add", "shared.py:add")] == [1, 2, 3]


def test_an_edit_of_any_file_loads_the_project_again(tmp_path: Path) -> None:
    write(tmp_path, {"helpers.py": "VALUE = 1\n", "model.py": "import helpers\ndef build(): return helpers.VALUE\n"})
    assert load(tmp_path, "model.py:build")() == 1
    write(tmp_path, {"helpers.py": "VALUE = 2\n"})
    assert load(tmp_path, "model.py:build")() == 2


def test_two_projects_have_files_of_the_same_names(tmp_path: Path) -> None:
    late = "def build():\n    import helpers\n    return helpers.NAME\n"
    for name in ("one", "two"):
        write(tmp_path / name, {"helpers.py": f"NAME = {name!r}\n", "model.py": late})
    assert [load(tmp_path / name, "model.py:build")() for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_a_projects_names_hide_nothing_from_others_and_come_first_in_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"colorsys.py": "MINE = True\n", "model.py": "import colorsys\ndef build(): return colorsys\n"})
    assert load(tmp_path, "model.py:build")().MINE
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")
    assert "model" not in sys.modules


def test_a_folder_without_init_does_not_hide_an_installed_package(tmp_path: Path) -> None:
    write(tmp_path, {"numpy/notes.py": "", "model.py": "import numpy\ndef build(): return numpy.arange(3).sum()\n"})
    assert load(tmp_path, "model.py:build")() == 3


@pytest.mark.parametrize("init", [{}, {"__init__.py": ""}])
def test_a_project_that_is_a_package_itself_imports_its_neighbours_too(tmp_path: Path, init: dict[str, str]) -> None:
    project = tmp_path / "my_project"
    sources = {"helpers.py": "A = 1\n", "model.py": "import helpers\nfrom . import helpers as same\n"}
    write(project, {**init, **sources})
    with (project / "model.py").open("a") as model:
        model.write("def build(): return helpers is same\n")
    assert load(project, "model.py:build")()


def test_names_that_are_no_identifiers(tmp_path: Path) -> None:
    project = tmp_path / "my-project.v2"
    write(
        project, {"__init__.py": "", "helpers.py": "A = 1\n", "my-model.v1.py": "import helpers\ndef f(): return 1\n"}
    )
    assert load(project, "my-model.v1.py:f")() == 1


def test_circular_imports(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import b\ndef f(): return b.g()\n", "b.py": "import a\ndef g(): return a.__name__\n"})
    assert load(tmp_path, "a.py:f")().endswith(".a")


def test_annotations_and_dataclasses_of_a_project_resolve(tmp_path: Path) -> None:
    source = (
        "from __future__ import annotations\nimport dataclasses\n\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
    )
    write(tmp_path, {"model.py": f"{source}\ndef build(): return A()\n"})
    one = load(tmp_path, "model.py:build")()
    assert dataclasses.asdict(one) == {"x": 1}
    assert typing.get_type_hints(type(one)) == {"x": int}


def test_an_error_in_a_neighbour_names_its_file_and_line(tmp_path: Path) -> None:
    write(tmp_path, {"helpers.py": "\n1 / 0\n", "model.py": "import helpers\ndef build(): pass\n"})
    with pytest.raises(InfeedError, match="ZeroDivisionError") as raised:
        load(tmp_path, "model.py:build")
    assert f"{tmp_path / 'helpers.py'}, line 2" in raised.value.where
    write(tmp_path, {"helpers.py": ""})
    load(tmp_path, "model.py:build")


def test_a_neighbour_that_is_not_there_is_an_error_with_the_line(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": "import helpers_that_are_not_there\ndef build(): pass\n"})
    with pytest.raises(InfeedError, match="helpers_that_are_not_there") as raised:
        load(tmp_path, "model.py:build")
    assert "line 1" in raised.value.where


def test_nothing_is_written_into_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"helpers.py": "", "model.py": "import helpers\ndef build(): pass\n"})
    load(tmp_path, "model.py:build")
    assert sorted(os.listdir(tmp_path)) == ["helpers.py", "model.py"]


def test_the_digest_follows_neighbours_and_packages(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "model.py": "import helpers\nfrom layers import dense\ndef build(): pass\n",
            "helpers.py": "",
            "layers/dense.py": "",
            "unused.py": "",
        },
    )
    digests = []
    for name in ("unused.py", "helpers.py", "layers/dense.py"):
        write(tmp_path, {name: "edited = True\n"})
        digests.append(user_code.digest(str(tmp_path / "model.py:build"), "model_fn"))
    assert len(set(digests)) == 3
    write(tmp_path, {"unused.py": "edited = 2\n"})
    assert user_code.digest(str(tmp_path / "model.py:build"), "model_fn") == digests[-1]


# The layout of TFX's own templates.
FILES = {
    "models/__init__.py": "",
    "models/preprocessing.py": "import tensorflow\nfrom models import features\nfrom .keras import constants as c\n",
    "models/features.py": "import json\nimport settings\n",
    "models/keras/__init__.py": "",
    "models/keras/constants.py": "UNITS = 4\n",
    "models/unused.py": "",
    "settings.py": "import models.preprocessing\n",
    "runner.py": "import models.preprocessing\n",
}
OWN = {"models/__init__.py", "models/preprocessing.py", "models/features.py", "models/keras/__init__.py"}
OWN |= {"models/keras/constants.py", "settings.py"}


@pytest.fixture
def project(tmp_path):
    write(tmp_path, FILES)
    return tmp_path


def sources(project, module, file):
    return {str(one.relative_to(project)) for one in user_modules.own_sources(project / file, module)}


def test_what_a_module_imports_from_its_project_is_followed_and_nothing_else(project):
    assert sources(project, "models.preprocessing", "models/preprocessing.py") == OWN


def test_a_file_is_followed_like_a_module(project):
    assert sources(project, f"{project}/models/preprocessing.py", "models/preprocessing.py") == OWN


def test_a_package_that_has_no_init_is_followed(project):
    (project / "models/__init__.py").unlink()
    found = sources(project, "models.preprocessing", "models/preprocessing.py")
    assert found == OWN - {"models/__init__.py"}


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_fingerprint_changes_with_each_source_and_with_no_other_file(project, name):
    def digest():
        return user_modules.fingerprint(project / "models/preprocessing.py", "models.preprocessing")

    before = digest()
    (project / name).write_text(FILES[name] + "# edited\n")
    assert (digest() != before) == (name in OWN)


def test_a_project_that_is_moved_keeps_its_fingerprint(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    project.rename(elsewhere / "project")
    moved = user_modules.fingerprint(elsewhere / "project/models/preprocessing.py", "models.preprocessing")
    (elsewhere / "project").rename(project)
    assert moved == user_modules.fingerprint(project / "models/preprocessing.py", "models.preprocessing")


def test_of_an_installed_library_only_the_package_itself_is_followed():
    assert user_modules.own_sources(Path(colorsys.__file__), "colorsys") == {Path(colorsys.__file__)}
    packages = {file.parent.name for file in user_modules.own_sources(Path(pytest.__file__), "pytest")}
    assert packages == {"pytest"}


def test_a_sibling_that_does_not_parse_is_left_to_the_import(project):
    (project / "models/features.py").write_text("def (")
    assert "models/features.py" in sources(project, "models.preprocessing", "models/preprocessing.py")


def test_libraries_are_known_without_links_as_sources_are():
    """Else a function of an installed package is taken for the user's, and all that is installed for its project."""
    assert {os.path.realpath(folder) for folder in user_modules.LIBRARIES} == user_modules.LIBRARIES
