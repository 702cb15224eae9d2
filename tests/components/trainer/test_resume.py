"""A training killed in the middle of an epoch, and started again by the same words."""

import functools
import re
import shutil
import signal

import pytest
import trained

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.feed.options import FeedOptions

pytestmark = pytest.mark.tfx

# 64 training rows are 4 steps an epoch of 16; EarlyStopping has best weights to remember.
OPTIONS = {
    "label": "kind",
    "epochs": 3,
    "patience": 2,
    "steps_per_call": 1,
    "checkpoint_seconds": 1e-6,
    "callbacks_fn": "callbacks",
}
KILLED_AFTER = 6  # steps: in the middle of the second epoch


@pytest.fixture(scope="module")
def whole_of(table, train_into, tmp_path_factory):
    """whole_of(tier) -> the results of a training that nothing broke off."""

    @functools.cache
    def train(tier):
        feed = FeedOptions(batch_size=16, tier=tier, cache_dir=str(tmp_path_factory.mktemp("cache")))
        return train_into(tmp_path_factory.mktemp(tier), table[0], "class", "dropping", feed=feed, **OPTIONS)

    return train


@pytest.mark.parametrize(
    "tier", [*(pytest.param(tier, marks=pytest.mark.image) for tier in ("columns", "disk")), "stream"]
)
def test_the_resumed_training_ends_with_the_same_weights_bit_for_bit(
    table, start, train, whole_of, tmp_path, capfd, tier
):
    broken = tmp_path / "broken"
    feed = FeedOptions(batch_size=16, tier=tier, cache_dir=str(tmp_path / "cache"))
    given = table[0], "class", "dropping"
    killed = start(broken, *given, env={"KILL_AFTER": str(KILLED_AFTER)}, feed=feed, **OPTIONS)
    whole = whole_of(tier)
    code, output = killed.finish()
    assert code == -signal.SIGKILL, output
    assert not (broken / "model").exists()

    capfd.readouterr()
    train(*given, place=broken, feed=feed, **OPTIONS)
    assert re.findall(r"Epoch \d/3", capfd.readouterr().out) == ["Epoch 2/3", "Epoch 3/3"]
    trained.check_weights(trained.weights(broken), trained.weights(whole))

    assert trained.history(broken) == trained.history(whole)
    for place in (broken, whole):
        assert [epoch["steps"] for epoch in trained.profile(place)["epochs"]] == [4] * 3
    assert not list((broken / "run" / "checkpoints").glob("*"))


def test_after_an_export_that_failed_the_same_again_only_exports(table, train, whole_of, tmp_path, capfd):
    given = {"feed": FeedOptions(batch_size=16, tier="columns"), **OPTIONS}
    failed = tmp_path / "failed"
    failed.mkdir()
    (failed / "model").touch()  # where a folder should be: not even root can write there
    with pytest.raises(InfeedError, match=r"(?s)cannot be exported: .*failed/model.*12 steps of training are saved in"):
        train(table[0], "class", "dropping", place=failed, **given)

    capfd.readouterr()
    train(table[0], "class", "dropping", place=failed, **given)
    assert "Epoch" not in capfd.readouterr().out
    assert (failed / "model" / "saved_model.pb").exists()
    trained.check_weights(trained.weights(failed), trained.weights(whole_of("columns")))
    assert len(trained.profile(failed)["epochs"]) == 3
    assert not list((failed / "run" / "checkpoints").glob("*"))


@pytest.mark.image  # `test_cluster_machines` resumes from such checkpoints, too
def test_checkpoints_in_an_s3_store_outlive_the_machine(table, start, train, tmp_path, capfd, s3):
    place = tmp_path / "pod"
    given = {**OPTIONS, "feed": FeedOptions(batch_size=16), "checkpoint_dir": f"{s3}/checkpoints"}
    killed = start(place, table[0], "class", "dropping", env={"KILL_AFTER": str(KILLED_AFTER)}, **given)
    code, output = killed.finish()
    assert code == -signal.SIGKILL, output
    assert any(file.path.endswith(".index") for file in files.list_files(f"{s3}/checkpoints", depth=1))
    shutil.rmtree(place / "run", ignore_errors=True)

    capfd.readouterr()
    train(table[0], "class", "dropping", place=place, **given)
    assert re.findall(r"Epoch \d/3", capfd.readouterr().out) == ["Epoch 2/3", "Epoch 3/3"]
    assert files.list_files(f"{s3}/checkpoints", depth=1) == []
