import json

import pytest

from infeed.pipelines.doctor import Level, credentials

SECRET = "-----BEGIN PRIVATE KEY-----"


@pytest.fixture
def find(tmp_path):
    """The findings for Kubeflow and Google, on a machine that has nothing but what the test gives it."""

    def found(environment=(), vendor="Standard PC"):
        (tmp_path / "vendor").write_text(vendor)
        return tuple(credentials(dict(environment), tmp_path, tmp_path / "vendor"))

    return found


def key(path, **content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"private_key": SECRET, **content}))
    return path


def test_without_any_vertex_cannot_be_asked_but_many_kubeflows_can(find):
    kubeflow, google = find()
    assert (kubeflow.level, google.level) == (Level.OK, Level.WARNING)
    assert "gcloud auth application-default login" in google.do


def test_a_key_file_is_told_by_kind_and_never_by_content(find, tmp_path):
    file = key(tmp_path / "key.json", type="service_account")
    _, google = find({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    assert google.found == "service_account, named by GOOGLE_APPLICATION_CREDENTIALS"
    assert SECRET not in repr(google)


def test_the_named_file_comes_before_that_of_gcloud(find, tmp_path):
    file = key(tmp_path / "key.json", type="external_account")
    key(tmp_path / ".config" / "gcloud" / "application_default_credentials.json", type="authorized_user")
    assert find({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})[1].found.startswith("external_account")
    assert find()[1].found == "authorized_user, of gcloud"


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_a_file_that_is_no_key_is_a_problem(find, tmp_path, content):
    (tmp_path / "key.json").write_text(content)
    _, google = find({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")})
    assert google.level is Level.PROBLEM


def test_a_machine_of_google_has_an_account(find):
    assert find(vendor="Google Compute Engine")[1].found == "service account of this machine"


def test_a_pod_has_the_token_of_its_cluster(find, tmp_path):
    (tmp_path / "token").write_text(SECRET)
    kubeflow, _ = find({"KF_PIPELINES_SA_TOKEN_PATH": str(tmp_path / "token")})
    assert kubeflow.found == "service account token of a pod"
