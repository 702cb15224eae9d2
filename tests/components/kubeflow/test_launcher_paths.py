"""Local paths of artifacts, as Kubeflow's launcher derives them."""

import pytest

from infeed.components.kubeflow.launcher_paths import PathMap, local_path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("gs://bucket/run/model", "/gcs/bucket/run/model"),
        ("s3://bucket/run/model", "/s3/bucket/run/model"),
        ("minio://mlpipeline/v2/artifacts/x/", "/minio/mlpipeline/v2/artifacts/x"),
    ],
)
def test_a_uri_has_the_path_of_the_launcher(uri: str, path: str) -> None:
    assert local_path(uri) == path


@pytest.mark.parametrize("uri", ["/mnt/data", "hdfs://host/x", "https://host/x"])
def test_other_places_have_none(uri: str) -> None:
    assert local_path(uri) is None


def test_a_rehearsal_moves_the_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEED_LAUNCHER_ROOT", "/tmp/pod")
    assert local_path("s3://bucket/x") == "/tmp/pod/s3/bucket/x"


def test_messages_are_translated_both_ways() -> None:
    paths = PathMap.of(["s3://b/model", "s3://b/model2", "/here"])
    message = {"model": {"uri": "s3://b/model", "metadata": {"at": "s3://b/model/serving", "of": ["s3://b/model2", 3]}}}
    local = paths.to_local(message)
    assert local == {
        "model": {"uri": "/s3/b/model", "metadata": {"at": "/s3/b/model/serving", "of": ["/s3/b/model2", 3]}}
    }
    assert paths.to_uris(local) == message
