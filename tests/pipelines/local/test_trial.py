"""What would have ended the Trainer is told before anything long starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.pipelines.commands.new import create_project
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

pytestmark = pytest.mark.slow  # TensorFlow and Keras take seconds to load


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create_project("tabular", str(tmp_path / "project"))
    rows = "".join(f"{number % 7},{number % 3}t,{'abc'[number % 3]}\n" for number in range(60))
    (tmp_path / "data.csv").write_text("x,town,y\n" + rows)
    return tmp_path / "project"


def try_out(project: Path, **overrides: Any) -> None:
    from infeed.pipelines.local import trial

    given = Overrides(data=str(project.parent / "data.csv"), label="y", root=str(project.parent / "runs"), **overrides)
    trial.try_out(resolve(read_project(str(project)), given))


def test_the_templates_models_pass_and_leave_no_trace_in_the_names_of_layers(project: Path, tmp_path: Path) -> None:
    import keras

    for name in ("cat", "dog"):
        for number in range(10):
            (tmp_path / "pets" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 16)).save(tmp_path / "pets" / name / f"{number}.png")
    from infeed.pipelines.local import trial

    try_out(project)
    trial.try_out(resolve(read_project("image"), Overrides(data=str(tmp_path / "pets"), root=str(tmp_path / "runs"))))
    assert keras.layers.Dense(1).name == "dense"


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        (
            '"accuracy"',
            '"acuracy"',
            "cannot be trained: .*metric identifier: acuracy(.|\n)*model.py",
        ),
        ("sparse_categorical_crossentropy", "sparse_crossentropy", "cannot be trained: .*loss identifier"),
        ("sparse_categorical_crossentropy", "categorical_crossentropy", "cannot be trained: .*same rank"),
        ("    return model\n", "", "the function returned builtins.NoneType"),
        ("model.compile(", "dict(", "the model is not compiled"),
        (
            "model = keras.Model(",
            "model = keras.Modell(",
            r"'Modell'(.|\n)*model.py, line \d+, in build_model: 'model =",
        ),
        ("len(classes), ", "7, ", "the model has 7 outputs per example, but there are 3 classes"),
        ('"sparse_categorical_crossentropy"', "(lambda y, p: p)", "unknown whether .* probabilities"),
    ],
)
def test_a_model_that_cannot_be_trained(project: Path, given: str, instead: str, message: str) -> None:
    model = project / "model.py"
    text = model.read_text().replace(', activation="softmax"', "") if "lambda" in instead else model.read_text()
    assert given in text
    model.write_text(text.replace(given, instead))
    with pytest.raises(InfeedError, match=message):
        try_out(project)


def test_a_strategy_that_is_not_there(project: Path) -> None:
    with pytest.raises(InfeedError, match="there is no TPU"):
        try_out(project, train={"strategy": "tpu"})


def test_every_feature_has_the_shape_and_type_that_the_trainer_will_give(project: Path) -> None:
    (project / "features.py").write_text(
        "from infeed.components import Bucketize, Fill, Label, Vocabulary\n"
        "def features(survey):\n"
        "    return [Vocabulary('town', size=2), Bucketize('x', 3, output='b'), Fill('x', 0), Label('y')]\n"
        "def hparams(survey):\n    return {}\n"
    )
    (project / "model.py").write_text(
        "def build_model(spec):\n"
        "    told = {name: (tuple(one.shape), one.dtype.name) for name, one in spec.inputs.items()}\n"
        "    raise ValueError(f'{told} {dict(spec.vocabulary_sizes)} {spec.classes}')\n"
    )
    with pytest.raises(InfeedError) as error:
        try_out(project)
    inputs = dict.fromkeys(("b", "town", "x"), ((1,), "int64"))
    assert error.value.what == f"ValueError: {inputs} {{'town': 2}} ('a', 'b', 'c')"


def with_function(project: Path, body: str) -> None:
    """The project with a preprocessing_fn in the place of its features."""
    (project / "own.py").write_text(f"import tensorflow as tf\n\ndef preprocessing_fn(inputs):\n    {body}\n")
    config = (project / "config.yaml").read_text()
    (project / "config.yaml").write_text(config.replace("features: features.py:features", "preprocessing_fn: own.py"))


def test_a_preprocessing_fn_that_can_be_traced_passes(project: Path) -> None:
    with_function(project, 'return {"x": tf.cast(inputs["x"], tf.float32), "y": inputs["y"]}')
    try_out(project)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('raise ValueError("no town")', r"ValueError: no town\n  where: .*own\.py, line 4, in preprocessing_fn"),
        ('return {"gone": inputs["gone"]}', r"KeyError: 'gone'\n  where: .*own\.py, line 4"),
        ('return {"x": inputs["x"]}', r"no feature is the label 'y'(.|\n)*kind: label, column: y"),
        ("return {}", "preprocessing_fn returns {}"),
    ],
)
def test_a_preprocessing_fn_that_raises_is_told_with_its_line(project: Path, body: str, message: str) -> None:
    with_function(project, body)
    with pytest.raises(InfeedError, match=message):
        try_out(project)


def test_a_column_that_many_rows_miss_is_traced_as_a_sparse_one(project: Path) -> None:
    with (project.parent / "data.csv").open("a") as file:
        file.write(",0t,a\n" * 60)
    with_function(project, 'return {"x": tf.sparse.to_dense(inputs["x"]), "y": inputs["y"]}')
    try_out(project)
    (project / "own.py").write_text((project / "own.py").read_text().replace("tf.sparse.to_dense(", "tf.math.log("))
    with pytest.raises(InfeedError, match=r"own\.py, line 4(.|\n)*; column 'x' holds \d, \d, \d"):
        try_out(project)


def test_a_file_that_transform_would_not_find_is_told_before(project: Path) -> None:
    feature = '{kind: pretrained_vectors, column: town, file: "/no/vocab.txt"}'
    config = (project / "config.yaml").read_text()
    (project / "config.yaml").write_text(
        config.replace("features: features.py:features", f"features: [{feature}, {{kind: label, column: y}}]")
    )
    with pytest.raises(InfeedError, match=r"(?s)no file '/no/vocab.txt'.*column='town'"):
        try_out(project)


def test_nothing_is_traced_where_the_shape_of_a_column_is_not_known_before_the_data_are_ingested(project: Path) -> None:
    with (project.parent / "data.csv").open("a") as file:
        file.write(",0t,a\n")
    with_function(project, "raise NotImplementedError")
    try_out(project)
