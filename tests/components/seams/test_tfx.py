"""The ways round where TFX lacks a name."""

import logging

import pytest

from infeed.components.base.errors import InfeedError

pytestmark = [pytest.mark.tfx, pytest.mark.stack]


def test_without_a_name_beam_runs_by_its_own_default(take_away, caplog):
    from apache_beam.options.pipeline_options import StandardOptions

    from infeed.components.engine.beam_runner import LOCAL_RUNNER, local_runner

    before = StandardOptions.DEFAULT_RUNNER
    with local_runner():
        assert StandardOptions.DEFAULT_RUNNER == LOCAL_RUNNER
    take_away("beam.RUNNER")
    with local_runner():
        assert before == StandardOptions.DEFAULT_RUNNER
    assert "Beam's own default runner" in caplog.text


def test_without_a_name_an_executor_makes_pipelines_of_the_options_that_it_was_given(take_away, caplog):
    from infeed.components.transform.executor import TransformExecutor

    take_away("tfx.BEAM_OPTIONS")
    context = TransformExecutor.Context(beam_pipeline_args=["--direct_num_workers=2", "--sdk_container_image=x"])
    made = TransformExecutor(context).make_pipeline()
    assert made.options.get_all_options(drop_default=True)["direct_num_workers"] == 2
    assert "do not get the user's modules" in caplog.text


def test_without_a_name_tfx_feeds_a_run_fn(take_away, caplog, monkeypatch):
    from tfx.components.trainer.executor import GenericExecutor

    from infeed.components.trainer.executor import TrainerExecutor

    ran = []
    monkeypatch.setattr(GenericExecutor, "Do", lambda self, *given: ran.append(vars(self)))
    take_away("tfx.FN_ARGS")
    with caplog.at_level(logging.WARNING):
        TrainerExecutor().Do({"examples": []}, {}, {"custom_config": "null"})
    assert ran
    assert "_GetFnArgs" not in ran[0]
    assert "TFX's own reader feeds the run_fn" in caplog.text


def test_without_a_name_tfx_keeps_its_file_systems(take_away, caplog):
    from infeed.components.kubeflow import tfx_filesystem

    take_away("tfx.FILESYSTEMS")
    tfx_filesystem.register()
    assert "cannot open s3://" in caplog.text


def test_without_a_name_of_kfp_nothing_is_submitted(take_away):
    from infeed.pipelines.cluster.submit.kubeflow import Client

    take_away("kfp.CLIENT")
    with pytest.raises(InfeedError, match="_taken_away"):
        Client("http://localhost:1")
