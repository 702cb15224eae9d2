"""Settings that a version of Kubeflow Pipelines drops or breaks."""

from __future__ import annotations

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.training_job import TrainingJob
from infeed.pipelines.cluster.compile.backends import check_backend, version_of
from infeed.pipelines.deploy.options import Deploy, Resources
from infeed.pipelines.deploy.pod import Volume

SETTINGS = {
    "retries": (Resources(retries=1), "2.14"),
    "pod": (Resources(pod={"spec": {"affinity": {"nodeAffinity": {}}}}), "2.14"),
    "shared_memory": (Resources(shared_memory="1Gi"), "2.3"),
    "volumes": (Resources(volumes=(Volume("photos", "/mnt", "2024"),)), "2.16"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_needs_its_version(setting: str) -> None:
    resources, least = SETTINGS[setting]
    deploy = Deploy(resources={"Trainer": resources})
    assert check_backend(deploy, version_of(least)) == ""
    with pytest.raises(InfeedError, match=f"needs {least}") as error:
        check_backend(deploy, version_of("2.2.0"))
    assert error.value.where == f"deploy.resources.Trainer.{setting}"


def test_settings_of_default_count_for_all_nodes() -> None:
    with pytest.raises(InfeedError) as error:
        check_backend(Deploy(resources={"default": Resources(retries=2)}), version_of("2.5.0"))
    assert error.value.where == "deploy.resources.default.retries"


def test_retries_on_the_defaults_of_2_17_0_are_a_warning() -> None:
    deploy = Deploy(resources={"default": Resources(retries=2)})
    for version in ("2.17", "2.17.0"):
        assert "retryStrategy" in check_backend(deploy, version_of(version))
    assert check_backend(deploy, version_of("2.16.0")) == ""
    assert check_backend(Deploy(), version_of("2.17.0")) == ""


def test_settings_of_the_machines_of_a_job_do_not_go_through_the_backend() -> None:
    trainer = Resources(shared_memory="1Gi", volumes=(Volume("photos", "/mnt", "2024"),))
    assert check_backend(Deploy(resources={"Trainer": trainer}, training=TrainingJob(2)), version_of("2.2")) == ""


@pytest.mark.parametrize("text", ["2", "head", "2.x", "", "v2.5.0"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InfeedError, match=r"such as 2\.17\.0"):
        version_of(text)
