import re
import stat
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infeed import templates
from infeed.components import InfeedError
from infeed.pipelines.cluster.image import build
from infeed.pipelines.cluster.image.build import beam_sdk, make_context, pip_secrets, pip_settings
from infeed.pipelines.commands.new import create_project


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.setattr(build, "_config_list", str)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def test_indexes_proxies_and_certificates_are_taken_over():
    listing = "global.index-url='https://user:word@index.example/simple'\nglobal.proxy='http://proxy:3128'\n"
    assert pip_settings(listing) == {
        "index-url": "https://user:word@index.example/simple",
        "proxy": "http://proxy:3128",
    }


def test_the_environment_wins_over_the_file():
    listing = ":env:.default-timeout='180'\n:env:.index-url='https://b'\nglobal.index-url='https://a'\n"
    assert pip_settings(listing) == {"index-url": "https://b", "timeout": "180"}


def test_folders_of_this_machine_are_left_out():
    listing = "global.find-links='/wheels'\nglobal.extra-index-url='file:///index https://index.example'\n"
    assert pip_settings(listing) == {"extra-index-url": "https://index.example"}


def test_certificates_are_a_secret_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setattr(build, "_config_list", lambda: f"global.cert='{tmp_path}/ca.pem'\n")
    secrets = pip_secrets(tmp_path)
    assert secrets == {"ca.crt": f"{tmp_path}/ca.pem", "pip.conf": f"{tmp_path}/pip.conf"}
    assert "cert = /run/secrets/ca.crt" in (tmp_path / "pip.conf").read_text()


def test_nobody_else_may_read_them(tmp_path):
    assert stat.S_IMODE(Path(pip_secrets(tmp_path)["pip.conf"]).stat().st_mode) == 0o600


IMAGE = Path(build.__file__).parent
DOCKERFILE = Path(templates.__file__).parent / "Dockerfile"


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch):
    """It takes seconds to build, and has tests of its own."""
    monkeypatch.setattr(build, "package_wheel", lambda folder: None)


@pytest.fixture
def project(tmp_path):
    create_project("tabular", str(tmp_path / "taxi"))
    return tmp_path / "taxi"


def context(tmp_path, project, **options):
    folder = tmp_path / "context"
    folder.mkdir()
    make_context(folder, project, **options)
    return folder


def pins(file):
    """The versions that scripts/lock-image.sh wrote down."""
    lines = (IMAGE / file).read_text().splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if not line.startswith(" "))


def test_it_holds_the_dockerfile_the_pinned_stack_and_the_project(tmp_path, project):
    folder = context(tmp_path, project)
    assert {path.name for path in folder.iterdir()} == {
        *("Dockerfile", "entrypoint.sh", "build-requirements.txt", "constraints.txt"),
        *("package", "project", "project-requirements.txt", "requirements.txt"),
    }
    assert {path.name for path in (folder / "project").iterdir()} == {path.name for path in project.iterdir()}


def test_the_image_of_beams_workers_fits_the_pinned_beam_and_python():
    assert beam_sdk() == f"docker.io/apache/beam_python3.13_sdk:{pins('requirements.txt')['apache-beam']}"


def test_only_the_last_stage_has_anything_of_beams_workers():
    steps, worker = DOCKERFILE.read_text().split("FROM steps AS worker\n")
    copied = [line for line in worker.splitlines() if line.startswith("COPY")]
    assert copied == [
        "COPY --from=beam /opt/apache/beam /opt/apache/beam",
        "COPY entrypoint.sh /opt/infeed/entrypoint.sh",
    ]
    assert "ENTRYPOINT" not in steps
    assert steps.rstrip().endswith("FROM ${BEAM_SDK} AS beam")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--id=1", "--provision_endpoint=host:1 2"], "boot --id=1 --provision_endpoint=host:1 2"),
        (["--worker_pool"], "boot --worker_pool"),
        (["echo", "python", "-m", "step"], "python -m step"),
    ],
)
def test_the_entry_point_serves_workers_and_commands(tmp_path, arguments, expected):
    boot = tmp_path / "boot"
    boot.write_text('#!/bin/sh\necho boot "$@"\n')
    boot.chmod(0o755)
    script = (IMAGE / "entrypoint.sh").read_text().replace("/opt/apache/beam/boot", str(boot))
    (tmp_path / "entrypoint.sh").write_text(script)
    done = subprocess.run(["sh", tmp_path / "entrypoint.sh", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_what_the_project_needs_beside_the_stack_is_read_from_its_requirements(tmp_path, project):
    (project / "requirements.txt").write_text("lightgbm\n")
    assert (context(tmp_path, project) / "project-requirements.txt").read_text() == "lightgbm\n"


def test_without_a_project_the_image_holds_the_package_alone(tmp_path):
    folder = context(tmp_path, None)
    assert list((folder / "project").iterdir()) == []
    assert (folder / "project-requirements.txt").read_text() == ""


@pytest.mark.parametrize(
    "name", [".env", ".git/config", "runs/taxi/metadata.sqlite", "env/pyvenv.cfg", "a/__pycache__/b.pyc"]
)
def test_secrets_results_and_environments_stay_out(tmp_path, project, name):
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("secret")
    assert not (context(tmp_path, project) / "project" / name).exists()


def test_data_in_the_project_is_refused_by_name_and_size(tmp_path, project):
    (project / "data").mkdir()
    with (project / "data" / "taxi.csv").open("wb") as file:
        file.truncate(300 << 20)
    message = r"315 MB(.|\n)*--exclude 'data'"
    with pytest.raises(InfeedError, match=message):
        context(tmp_path, project)


def test_and_may_be_left_out(tmp_path, project):
    (project / "data.csv").write_text("large")
    assert not (context(tmp_path, project, exclude=("*.csv",)) / "project" / "data.csv").exists()


def test_every_file_of_the_stack_is_known_by_its_hash():
    entries = re.split(r"\n(?=\S)", (IMAGE / "requirements.txt").read_text())
    assert len(entries) == len(pins("requirements.txt"))
    assert all(re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", entry) for entry in entries)
    assert "--no-deps --require-hashes" in DOCKERFILE.read_text()


def test_what_builds_packages_is_of_the_same_stack_and_what_limits_the_project_has_no_hashes(tmp_path):
    folder = context(tmp_path, None)
    tools = (folder / "build-requirements.txt").read_text()
    assert re.findall(r"^(\w+)==", tools, re.M) == ["setuptools", "wheel"]
    assert tools.count("--hash=") == 4
    limits = dict(line.split("==") for line in (folder / "constraints.txt").read_text().splitlines())
    assert limits == pins("requirements.txt")


def test_every_requirement_of_the_package_is_pinned_to_a_version_that_it_allows():
    pinned = pins("requirements.txt")
    of_image = [{"python_version": "3.13", "extra": extra} for extra in ("", "tfx")]
    for requirement in map(Requirement, metadata.requires("tfx-infeed")):
        if requirement.marker is None or any(map(requirement.marker.evaluate, of_image)):
            assert requirement.specifier.contains(pinned[requirement.name.lower()]), requirement
