import pytest

from infeed.components.errors import InfeedError
from infeed.components.trainer.strategy import check_name, describe, make_strategy


def test_an_unknown_strategy_is_refused_with_the_names_there_are():
    with pytest.raises(InfeedError, match=r"there is no strategy 'tpu_pod'(.|\n)*auto, one_device, mirrored"):
        check_name("tpu_pod")


@pytest.mark.parametrize("name", ["auto", "one_device"])
def test_one_device_is_the_default_strategy(name):
    strategy = make_strategy(name)
    assert describe(strategy) == "one_device"
    assert strategy.num_replicas_in_sync == 1
