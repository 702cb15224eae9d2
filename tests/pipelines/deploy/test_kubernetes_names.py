"""Names of objects, labels and variables, as Kubernetes checks them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from infeed.components.base.errors import OptionError
from infeed.pipelines.deploy.kubernetes_names import (
    check_data_keys,
    check_keys,
    check_object,
    check_variables,
    check_volume,
    check_volumes,
)


@dataclass
class Options:
    name: str = ""
    env: str = ""
    labels: str = ""
    volumes: str = ""


@pytest.mark.parametrize("name", ["a", "my-store", "a1-b2", "a" * 63])
def test_a_name_that_kubernetes_and_kubeflow_take(name: str) -> None:
    options = Options(name)
    check_object(options, "name")
    check_volume(options, "name")


@pytest.mark.parametrize(
    "name",
    [
        *("my.certs", "a" * 64, "A", "a_b", "-a", "a-", ""),
        *("kfp-launcher", "gcs-scratch", "s3-scratch", "minio-scratch", "dot-local-scratch", "var-run-argo"),
        *("tmp-dir-argo", "shm", "ephemeral-0"),
    ],
)
def test_a_name_of_no_volume(name: str) -> None:
    with pytest.raises(OptionError) as error:
        check_volume(Options(name), "name")
    assert error.value.option == "name"


def test_an_object_that_is_not_mounted_may_have_dots() -> None:
    check_object(Options("my.certs.example"), "name")


def test_one_volume_for_two_options_names_both() -> None:
    with pytest.raises(OptionError, match="by secrets and volumes"):
        check_volumes(Options(), {"secrets": ["a", "b"], "volumes": ["b"]})


@pytest.mark.parametrize("variable", ["A B", "1A", "KFP_POD_NAME", "TF_CONFIG", "ARGO_TEMPLATE", "INFEED_PROJECT"])
def test_a_variable_that_no_pod_may_have(variable: str) -> None:
    with pytest.raises(OptionError):
        check_variables(Options(), "env", [variable])


@pytest.mark.parametrize("key", ["team", "Team_1", "kueue.x-k8s.io/queue-name", "a" * 63])
def test_a_key_that_kubernetes_takes(key: str) -> None:
    check_keys(Options(), "labels", [key])


@pytest.mark.parametrize("key", ["", "bad key!", "a" * 64, "/a", "example.com/", "Example.com/a", "a/b/c"])
def test_a_key_that_kubernetes_refuses(key: str) -> None:
    with pytest.raises(OptionError):
        check_keys(Options(), "labels", [key])


@pytest.mark.parametrize(("key", "fits"), [("tls.crt", True), ("..data", True), ("a b", False), ("k" * 254, False)])
def test_keys_of_a_secret(key: str, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(OptionError):
        check_data_keys(Options(), "env", [key])
