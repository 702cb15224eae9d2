import dataclasses
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from infeed.components import DecodeImage, InfeedError, Label, Vocabulary, ZScore
from infeed.pipelines.project import Settings, read_project
from infeed.pipelines.resolve import Overrides, resolve

MODEL = "def build_model(spec):\n    raise NotImplementedError\n"
CONFIG = """
source: csv
data: {data}
label: y
features: [{{kind: z_score, column: x}}, {{kind: label, column: y}}]
model: model.py:build_model
"""


@pytest.fixture
def project(tmp_path):
    """A project of one's own: a config with its model and data beside it."""
    (tmp_path / "data.csv").write_text("x,word,y\n" + "1,a,no\n2,b,yes\n3,a,no\n" * 10)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "config.yaml").write_text(CONFIG.format(data=tmp_path / "data.csv"))
    return tmp_path


def add(project, text):
    with (project / "config.yaml").open("a") as file:
        file.write(text + "\n")


def resolved(project, **overrides):
    return resolve(read_project(str(project / "config.yaml")), Overrides(**overrides))


def test_a_config_with_literal_features(project):
    config = resolved(project, root="r")
    assert config.features == (ZScore("x"), Label("y"))
    assert config.train.model_fn == f"{project / 'model.py'}:build_model"
    assert config.train.label == "y"
    assert (config.blessing.metric, config.blessing.bound) == ("accuracy", pytest.approx(2 / 3))
    assert config.name == project.name


def test_a_function_beside_the_config_decides_from_the_survey(project):
    (project / "features.py").write_text(
        "from infeed.components import Label, Vocabulary\n"
        "def features(survey):\n"
        "    words = [column.name for column in survey.columns if column.type == 'bytes']\n"
        "    return [*(Vocabulary(word) for word in words), Label(survey.label.name)]\n"
    )
    text = (project / "config.yaml").read_text()
    start = text.index("features: [")
    end = text.index("\n", start)
    (project / "config.yaml").write_text(text[:start] + "features: features.py:features" + text[end:])
    assert resolved(project).features == (Vocabulary("word"), Label("y"))


def test_the_command_line_overrides_the_file(project):
    add(project, "train: {epochs: 9, batch_size: 32, patience: 2}")
    config = resolved(project, epochs=3, strategy="mirrored", root="elsewhere")
    assert (config.train.epochs, config.train.strategy, config.train.patience) == (3, "mirrored", 2)
    assert config.train.feed.batch_size == 32
    assert config.root.endswith("/elsewhere")


def test_each_data_set_gets_a_pipeline_of_its_own(project):
    (project / "other.csv").write_text("x,y\n" + "1,no\n2,yes\n" * 10)
    assert resolved(project, data=str(project / "other.csv")).name == f"{project.name}-other"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epochs: 3", "there is no setting 'epochs'(.|\n)*beam_pipeline_args"),
        ("train: {epoch: 3}", "there is no setting 'epoch'; did you mean 'epochs'"),
        ("train: {strategy: quantum}", "there is no strategy 'quantum'"),
        ("augment: {shift: -1}\nnormalise: {mean: 0.5, std: 0.5}", "shift is -1"),
        ("blessing: features.py:threshold", "there is no file .*features.py"),
        ("label: {", "not valid YAML"),
        ("train: 5", r"train is 5\n  where: .*config\.yaml, train\n  do:    Write a mapping there"),
        ("train: {epochs: ten}", r"epochs is 'ten'\n  where: train\.epochs\n  do:    Write a whole number there"),
        ("train: {batch_size: big}", r"batch_size is 'big'\n  where: train\.batch_size"),
        ("augment: {shft: 1}\nnormalise: {}", "there is no setting 'shft'; did you mean 'shift'"),
        ("normalise: {men: 1}", "there is no setting 'men'; did you mean 'mean'"),
        ("hparams: [1]", r"hparams is \[1\]\n  where: train\.hparams"),
        ("blessing: 0.9", r"0\.9 holds no settings\n  where: blessing"),
        ("blessing: {bond: 0.9}", "there is no setting 'bond'; did you mean 'bound'"),
        ("blessing: {metric: f1}", r"metric is 'f1'(.|\n)*Use one of accuracy, mse"),
        ("max_wait_fraction: 5", "max_wait_fraction is 5(.|\n)*from 0 to 1"),
        ("beam_pipeline_args: --runner=DirectRunner", "beam_pipeline_args is '--runner(.|\n)*Write a list there"),
        ("lable: y", "there is no setting 'lable'; did you mean 'label'"),
        ("deploy: {vertex: {project: p}}", r"'region' is missing\n  where: .*config\.yaml, deploy\.vertex"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_starts(project, line, message):
    add(project, line)
    with pytest.raises(InfeedError, match=message):
        resolved(project)


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("model.py:build_model", "model.py:build", "defines no function 'build'(.|\n)*It defines: build_model"),
        ("model.py:build_model", "net.py:build_model", "there is no file .*net.py"),
        ("features: [", "features: 3  # [", r"features is 3(.|\n)*Write a list of features there"),
        ("column: x}", "column: xx}", "no column 'xx' in the data; did you mean 'x'"),
        ("label: y\n", "label: z\n", "there is no column 'z' to learn"),
        (", {kind: label, column: y}", "", "no feature makes a label of 'y'"),
        ("source: csv", "source: excel", "source is 'excel'(.|\n)*csv, jsonl, parquet, avro, images"),
        ("model: model.py:build_model\n", "", "the setting 'model' is missing"),
    ],
)
def test_a_config_that_does_not_fit_is_told_before_anything_starts(project, given, instead, message):
    text = (project / "config.yaml").read_text()
    assert given in text
    (project / "config.yaml").write_text(text.replace(given, instead))
    with pytest.raises(InfeedError, match=message):
        resolved(project)


def test_a_root_in_an_object_store_is_left_as_it_is(project):
    config = resolved(project, root="gs://bucket/runs")
    assert config.artifacts == "gs://bucket/runs/artifacts"
    assert config.logs == f"runs/{project.name}/logs"  # and no local folder called "gs:"


def test_an_exponent_makes_a_number(project):
    add(project, "hparams: {learning_rate: 1e-3, words: 1e, half: .5E+0}")
    assert resolved(project).train.hparams == {"learning_rate": 0.001, "words": "1e", "half": 0.5}


def test_a_setting_without_a_value_is_as_if_it_was_not_there(project):
    add(project, "train:\ndeploy:")
    assert resolved(project).train.epochs == 10


def test_the_kind_of_table_is_told_from_the_names_of_other_data(project):
    pq.write_table(pa.table({"x": [1, 2] * 10, "y": ["no", "yes"] * 10}), project / "other.parquet")
    config = resolved(project, data=str(project / "other.parquet"))
    assert (config.source, config.features) == ("parquet", (ZScore("x"), Label("y")))


def test_another_delimiter(project):
    (project / "data.csv").write_text("x;y\n" + "1;no\n2;yes\n" * 10)
    with pytest.raises(InfeedError, match=r"a single column named 'x;y'(.|\n)*--delimiter ';'"):
        resolved(project)
    assert resolved(project, delimiter=";").delimiter == ";"


def test_too_few_rows_to_hold_some_out(project):
    (project / "data.csv").write_text("x,y\n1,no\n2,yes\n")
    with pytest.raises(InfeedError, match="there are only 2 rows: too few to train on some and evaluate on others"):
        resolved(project)


def test_neither_a_template_nor_a_file():
    with pytest.raises(InfeedError, match=r"there is no template or config file 'imgae'(.|\n)*image, tabular"):
        read_project("imgae")


def test_the_tabular_template_makes_features_of_all_columns_and_refers_to_its_own_package(tmp_path):
    config = resolve(read_project("tabular"), Overrides(root=str(tmp_path)))
    assert len(config.features) == 31
    assert config.features[-1] == Label("diagnosis")
    assert config.train.model_fn == "infeed.templates.tabular.model:build_model"
    assert config.blessing.bound == pytest.approx(357 / 569)


def test_the_tabular_template_on_a_quantity_learns_a_regression(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text("rooms,town,price\n" + "".join(f"{i % 5},t{i % 3},{i * 1.5}\n" for i in range(40)))
    config = resolve(read_project("tabular"), Overrides(data=str(path), label="price", root=str(tmp_path)))
    assert config.features == (
        ZScore("rooms", output="rooms"),
        Vocabulary("town", output="town", size=10_000),
        Label("price", task="regression"),
    )
    assert config.train.task == "regression"
    assert config.train.hparams["label_mean"] == pytest.approx(29.25)
    assert config.blessing.metric == "mse"


def test_the_image_template_follows_the_pictures_and_mirrors_no_digit(tmp_path):
    config = resolve(read_project("image"), Overrides(root=str(tmp_path)))
    assert config.features == (DecodeImage(height=8, width=8, channels=1), Label("label/text"))
    augment = config.train.augment
    assert (augment.shift, augment.flip, augment.cutout) == (1, "none", 2)


def test_the_image_template_mirrors_cats(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (40, 30)).save(tmp_path / "pets" / name / f"{i}.jpg")
    config = resolve(read_project("image"), Overrides(data=str(tmp_path / "pets"), root=str(tmp_path / "runs")))
    assert config.features[0] == DecodeImage(height=30, width=40, channels=3)
    assert config.train.augment.flip == "horizontal"


def test_the_page_about_the_file_tells_of_every_setting():
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text()
    told = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert told == {field.name for field in dataclasses.fields(Settings)}


def test_a_config_is_frozen(project):
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolved(project).name = "other"
