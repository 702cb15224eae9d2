import subprocess
import sys
import zipfile

import pytest

from infeed.components import InfeedError
from infeed.pipelines.cluster.image import build

AGAIN = """
import pathlib, sys
from infeed.pipelines.cluster.image.build import package_wheel
package_wheel(pathlib.Path(sys.argv[1]))
"""


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist() if not name.endswith("/RECORD")}


@pytest.mark.slow
def test_installed_from_a_wheel_the_image_gets_just_those_files(tmp_path):
    first, site, second = (tmp_path / name for name in ("first", "site", "second"))
    first.mkdir()
    second.mkdir()
    original = build.package_wheel(first)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, original]
    subprocess.run(pip, check=True)
    subprocess.run([sys.executable, "-c", AGAIN, second], check=True, env={"PYTHONPATH": str(site)}, cwd=tmp_path)
    (again,) = second.iterdir()
    assert again.name == original.name
    assert contents(again) == contents(original)
    for wheel in (original, again):  # whenever it is built: an engine knows a layer again by its bytes
        with zipfile.ZipFile(wheel) as file:
            assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.slow
def test_the_wheel_of_a_source_tree_that_cannot_be_built(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_SOURCES", ("setup.py",))
    (tmp_path / "setup.py").write_text("import nothing_of_that_name")
    with pytest.raises(InfeedError, match=r"building the package failed(.|\n)*nothing_of_that_name"):
        build._from_source(tmp_path, tmp_path / "wheel")
