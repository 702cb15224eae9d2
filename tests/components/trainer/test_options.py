import json

import pytest

from infeed.components.base import schema
from infeed.components.base.errors import InfeedError, OptionError
from infeed.components.feed.options import Augment, FeedOptions, Normalise
from infeed.components.trainer.options import Output, TrainOptions


def test_options_travel_as_json_and_come_back_equal():
    options = TrainOptions(
        model_fn="model:build",
        label="y",
        strategy="mirrored",
        patience=3,
        hparams={"units": [8, 4]},
        feed=FeedOptions(batch_size=32, seed=5),
        augment=Augment(shift=1),
        normalise=Normalise(mean=0.4),
        images=["image"],
    )
    assert schema.read(TrainOptions, json.loads(json.dumps(options.to_dict()))) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"patience": 0}, "patience is 0"),
        ({"task": "ranking"}, "task is 'ranking'(.|\n)*classification, regression"),
        ({"strategy": "quantum"}, "there is no strategy 'quantum'(.|\n)*auto, one_device, mirrored"),
        ({"augment": Augment()}, "normalise is None"),
        ({"augment": Augment(), "input_fn": "m:f"}, "augment is Augment(.|\n)*input_fn"),
        ({"mixed_precision": "float64"}, "mixed_precision is 'float64'"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds is 0"),
        ({"profile_steps": [5, 2]}, r"profile_steps is \[5, 2\]"),
        ({"task": "regression", "class_weight": {"a": 2.0}}, "class_weight is"),
        ({"task": "regression", "class_weight": "balanced"}, "class_weight is 'balanced'(.|\n)*classification"),
        ({"backend": "jax", "strategy": "mirrored"}, "strategy is 'mirrored'(.|\n)*backend jax"),
        ({"backend": "jax", "steps_per_call": 4}, "steps_per_call is 4"),
        ({"backend": "jax", "xla": False}, "xla is False"),
        ({"backend": "jax", "feed": FeedOptions(tier="device")}, "tier is 'device'"),
        ({"class_weight": "equal"}, "class_weight is 'equal'(.|\n)*use balanced, or a weight for each class"),
        ({"class_weight": "balanced", "input_fn": "m:f"}, "class_weight is 'balanced'(.|\n)*class frequencies"),
        ({"class_weight": "balanced", "feed": FeedOptions(class_shares="equal")}, "(.|\n)*class frequencies"),
    ],
)
def test_options_out_of_range_are_refused_when_built(options, message):
    with pytest.raises(InfeedError, match=message):
        TrainOptions(model_fn="m:f", label="y", **options)


def test_weights_of_classes_are_read_by_name_or_as_balanced():
    plain = {"model_fn": "m:f", "label": "y"}
    for given in ({"a": 2.0}, "balanced"):
        assert schema.read(TrainOptions, {**plain, "class_weight": given}).class_weight == given
    for wrong in (3, "balance"):
        with pytest.raises(InfeedError, match=f"class_weight is {wrong!r}(.|\n)*{{name: value}}, or 'balanced'"):
            schema.read(TrainOptions, {**plain, "class_weight": wrong})


def test_an_option_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InfeedError, match=r"no setting 'epoch'; did you mean 'epochs'(.|\n)*epochs, patience"):
        schema.read(TrainOptions, {"model_fn": "m:f", "label": "y", "epoch": 3})


OUTPUTS = {"price": Output("regression", "euros"), "sold": Output()}


def test_several_outputs_travel_as_json_and_each_has_the_label_of_its_name_unless_it_names_another():
    options = TrainOptions("m:f", OUTPUTS)
    assert schema.read(TrainOptions, json.loads(json.dumps(options.to_dict()))) == options
    given = {"model_fn": "m:f", "label": {"price": {"task": "regression", "feature": "euros"}, "sold": {}}}
    assert schema.read(TrainOptions, given) == options
    assert options.labels == ("euros", "sold")
    assert TrainOptions("m:f", "y", "multilabel").outputs == {"": Output("multilabel", "y")}
    assert TrainOptions("m:f", OUTPUTS, class_weight=None).class_weights == {}


@pytest.mark.parametrize(
    ("options", "option", "value"),
    [
        ({"label": {}}, "label", "label is {}"),
        ({"label": {"a/b": Output()}}, "label", "without '/'"),
        ({"label": {"a": "regression"}}, "label", "Output"),
        ({"task": "regression"}, "task", "each output"),
        ({"threshold": 0.2}, "threshold", "each output"),
        ({"class_weight": "balanced"}, "class_weight", "several labels"),
        ({"feed": FeedOptions(class_shares="equal")}, "feed", "several labels"),
        ({"masks": ["sold"]}, "masks", "only label"),
        ({"label": "tags", "task": "multilabel", "class_weight": {"a": 2.0}}, "class_weight", "multilabel"),
        ({"class_weight": {"sold": {"yes": 2.0}, "price": {"a": 2.0}}}, "class_weight.price", "regression"),
        ({"class_weight": {"bought": "balanced"}}, "class_weight.bought", "price, sold"),
        ({"class_weight": {"yes": 3.0}}, "class_weight.yes", "price, sold"),
        ({"class_weight": {"sold": "equal"}}, "class_weight.sold", "balanced"),
        ({"class_weight": {"sold": {"yes": -1.0}}}, "class_weight.sold", "-1.0"),
        ({"class_weight": {"sold": {"yes": "3"}}}, "class_weight.sold", "'3'} use a number of at least 0"),
        ({"class_weight": {"sold": {"yes": True}}}, "class_weight.sold", "a number of at least 0"),
        ({"class_weight": {"sold": None}}, "class_weight.sold", "a weight for each class"),
        ({"class_weight": {"sold": "balanced"}, "input_fn": "m:f"}, "class_weight.sold", "class frequencies"),
        ({"label": "sold", "class_weight": {"sold": {"yes": 3.0}}}, "class_weight", "'sold'"),
    ],
)
def test_what_several_labels_rule_out_is_refused_when_built(options, option, value):
    with pytest.raises(OptionError) as raised:
        TrainOptions("m:f", **{"label": OUTPUTS, **options})
    assert raised.value.option == option
    assert value in f"{raised.value.what} {raised.value.do}"


def test_the_threshold_of_an_output_is_a_probability():
    with pytest.raises(InfeedError, match="threshold is 2"):
        Output(threshold=2)
