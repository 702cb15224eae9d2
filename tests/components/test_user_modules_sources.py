"""Which files a user's function stands on, so that an edit of any of them is seen."""

import colorsys
import os
from pathlib import Path

import pytest

from infeed.components import user_code, user_modules

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
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
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


def test_the_digest_of_a_function_is_that_of_its_sources(project, monkeypatch):
    (project / "models/preprocessing.py").write_text("from models import features\ndef preprocessing_fn(inputs): ...\n")
    reference = f"{project}/models/preprocessing.py:preprocessing_fn"
    before = user_code.digest(reference, "preprocessing_fn")
    (project / "settings.py").write_text("UNITS = 5\n")
    assert user_code.digest(reference, "preprocessing_fn") != before


def test_libraries_are_known_without_links_as_sources_are():
    """Else a function of an installed package is taken for the user's, and all that is installed for its project."""
    assert {os.path.realpath(folder) for folder in user_modules.LIBRARIES} == user_modules.LIBRARIES
