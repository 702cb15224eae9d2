import dataclasses
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from infeed.components import DecodeImage, InfeedError, Label, Vocabulary, ZScore
from infeed.components.kubeflow.message import pack
from infeed.pipelines.config import Resolved, read_resolved
from infeed.pipelines.project.config_file import read_project
from infeed.pipelines.project.resolve import Overrides, resolve

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


def change(project, pattern, instead):
    """Replace the only match of a pattern in the config."""
    text, times = re.subn(pattern, lambda _: instead, (project / "config.yaml").read_text())
    assert times == 1
    (project / "config.yaml").write_text(text)


def resolved(project, **overrides):
    return resolve(read_project(str(project / "config.yaml")), Overrides(**overrides))


def test_a_config_with_literal_features(project):
    config = resolved(project, root="r")
    assert config.features == (ZScore("x"), Label("y"))
    assert config.train.model_fn == f"{project / 'model.py'}:build_model"
    assert config.train.label == "y"
    assert (config.blessing.metric, config.blessing.bound) == ("accuracy", pytest.approx(2 / 3))
    assert config.name == project.name


OWN = """
from dataclasses import dataclass

from infeed.components import Feature


@dataclass(frozen=True)
class Square(Feature):
    column: str
    output: str | None = None
"""


def test_a_class_of_the_project_is_a_feature_in_the_config_and_in_its_steps(project):
    (project / "own.py").write_text(OWN)
    change(project, "kind: z_score", 'kind: "own.py:Square"')
    config = resolved(project, root="r")
    assert str(config.features[0]) == "Square(column='x')"
    assert f"{project}/own.py:Square" in config.user_functions.values()
    of_step = read_resolved(pack(Resolved.of(config).to_json()), {})
    assert of_step.features == config.features


def spans_of(project, *numbers):
    for number in numbers:
        (project / f"span-{number}").mkdir()
        (project / f"span-{number}" / "a.csv").write_text("x,word,y\n" + f"{number}.5,a,no\n2,b,yes\n" * 15)
    (project / "config.yaml").write_text(CONFIG.format(data=project / "span-{SPAN}/*.csv"))


def test_only_the_latest_spans_are_surveyed(project):
    spans_of(project, 8, 9, 10)
    add(project, "spans: 2")
    config = resolved(project, root="r")
    assert config.data == f"{project}/{{span-9/*.csv,span-10/*.csv}}"
    assert (config.span_data, config.spans) == (f"{project}/span-{{SPAN}}/*.csv", 2)
    assert config.survey.rows == 60
    assert config.ingest.fractions == ("x",)


def test_settings_that_leave_nothing_to_decide_are_taken_as_they_stand(project):
    add(project, "warm_start: true\nmax_wait_fraction: 0.2\nbeam_pipeline_args: [--runner=DirectRunner]")
    add(project, "deploy: {image: registry.example/taxi:1}")
    config = resolved(project, root="r")
    assert (config.warm_start, config.max_wait_fraction) == (True, 0.2)
    assert config.beam_pipeline_args == ("--runner=DirectRunner",)
    assert config.deploy.image == "registry.example/taxi:1"


def test_a_function_beside_the_config_decides_from_the_survey(project):
    (project / "features.py").write_text(
        "from infeed.components import Label, Vocabulary\n"
        "def features(survey):\n"
        "    words = [column.name for column in survey.columns if column.type == 'bytes']\n"
        "    return [*(Vocabulary(word) for word in words), Label(survey.label.name)]\n"
    )
    change(project, "features: .*", "features: features.py:features")
    assert resolved(project).features == (Vocabulary("word"), Label("y"))


FUNCTION = "def preprocessing_fn(inputs):\n    return dict(inputs)\n"


@pytest.mark.parametrize("spelling", ["own.py", "own.py:preprocessing_fn", "own_package.transforms:preprocessing_fn"])
def test_a_preprocessing_fn_takes_the_place_of_features(spelling, project, monkeypatch):
    (project / "own.py").write_text(FUNCTION)
    (project / "own_package").mkdir()
    (project / "own_package" / "transforms.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(str(project))
    change(project, "features: .*", f"preprocessing_fn: {spelling}")
    config = resolved(project)
    file = "own.py" if spelling.startswith("own.py") else "own_package/transforms.py"
    named = f"{project / file}:preprocessing_fn"
    assert (config.features, config.preprocessing_fn) == ((), named)
    assert config.user_functions["preprocessing_fn"] == named
    assert ("learned from", f"features that {named} computes from the columns") in config.notes


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("preprocessing_fn: gone.py", r"there is no file .*gone\.py\n  where: option preprocessing_fn"),
        ("preprocessing_fn: own.py:other", "defines no function 'other'(.|\n)*preprocessing_fn"),
        ("preprocessing_fn: no_such_module:function", "there is no module 'no_such_module'"),
        ("task: classification", r"features is None\n(.|\n)*list features, or set a preprocessing_fn"),
        (
            "preprocessing_fn: own.py\nblessing: {metric: f1}",
            "f1 is of the class 'yes'(.|\n)*kind: label, column: y",
        ),
    ],
)
def test_what_is_wrong_with_a_preprocessing_fn_is_told_before_anything_starts(lines, message, project):
    (project / "own.py").write_text(FUNCTION)
    change(project, "features: .*", lines)
    with pytest.raises(InfeedError, match=message):
        resolved(project)


def test_a_label_that_is_declared_beside_a_preprocessing_fn_says_which_class_is_which(project):
    (project / "own.py").write_text(FUNCTION)
    change(
        project,
        "features: .*",
        "preprocessing_fn: own.py\nfeatures: [{kind: label, column: y}]\nblessing: {metric: f1}",
    )
    config = resolved(project)
    assert (config.features, config.blessing.positive) == ((Label("y"),), "yes")


def test_the_command_line_overrides_the_file(project):
    add(project, "train: {epochs: 9, batch_size: 32, patience: 2}")
    config = resolved(project, train={"epochs": 3, "strategy": "mirrored"}, root="elsewhere")
    assert (config.train.epochs, config.train.strategy, config.train.patience) == (3, "mirrored", 2)
    assert config.train.feed.batch_size == 32
    assert config.root.endswith("/elsewhere")


def test_a_seed_divides_shuffles_and_trains_otherwise(project):
    plain, seeded = resolved(project), resolved(project, seed=7)
    assert (plain.ingest.shuffle_seed, plain.train.feed.seed) == (0, 0)
    assert (seeded.ingest.shuffle_seed, seeded.train.feed.seed) == (7, 7)
    add(project, "train: {seed: 3}")
    assert resolved(project).train.feed.seed == 3
    assert resolved(project, seed=7).train.feed.seed == 7


def test_each_data_set_gets_a_pipeline_of_its_own(project):
    (project / "other.csv").write_text("x,y\n" + "1,no\n2,yes\n" * 10)
    assert resolved(project, data=str(project / "other.csv")).name == f"{project.name}-other"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epochs: 3", "there is no setting 'epochs'(.|\n)*beam_pipeline_args"),
        ("train: {epoch: 3}", "there is no setting 'epoch'; did you mean 'epochs'"),
        ("train: {strategy: quantum}", "there is no strategy 'quantum'"),
        ("augment: {shift: -1}\nnormalise: {mean: 0.5, std: 0.5}", r"shift is -1\n  where: augment\.shift\n"),
        ("blessing: features.py:threshold", "there is no file .*features.py"),
        ("label: {", "invalid YAML"),
        ("train: 5", r"train is 5\n  where: .*config\.yaml, train\n  do:    use a mapping"),
        ("train: {epochs: ten}", r"epochs is 'ten'\n  where: train\.epochs\n  do:    use an integer"),
        ("train: {label: {y: {}, x: {task: regression}}}", r"(.|\n)*where: train\.label\n"),
        ("train: {task: multilabel}", r"'multilabel'(.|\n)*where: train\.task\n"),
        (
            "train: {label: {y: {tas: regression}}}",
            r"no setting 'tas'; did you mean 'task'\?\n  where: train\.label\.y\n",
        ),
        ("train: {label: {y: 5}}", r"5 is not a mapping of settings\n  where: train\.label\.y\n"),
        ("train: {batch_size: big}", r"batch_size is 'big'\n  where: train\.batch_size"),
        ("augment: {shft: 1}\nnormalise: {}", r"no setting 'shft'; did you mean 'shift'\?\n  where: augment\n"),
        ("normalise: {men: 1}", r"no setting 'men'; did you mean 'mean'\?\n  where: normalise\n"),
        ("hparams: [1]", r"hparams is \[1\]\n  where: train\.hparams"),
        ("blessing: 0.9", r"0\.9 is not a mapping of settings\n  where: blessing"),
        ("blessing: {bond: 0.9}", "there is no setting 'bond'; did you mean 'bound'"),
        ("blessing: {metric: f2}", r"metric is 'f2'(.|\n)*use one of accuracy, auc"),
        ("max_wait_fraction: 5", "max_wait_fraction is 5(.|\n)*from 0 to 1"),
        ("beam_pipeline_args: --runner=DirectRunner", "beam_pipeline_args is '--runner(.|\n)*use a list"),
        ("lable: y", "there is no setting 'lable'; did you mean 'label'"),
        ("deploy: {resources: {Trainer: {cpu: 4x}}}", r"cpu is '4x'\n  where: .*, deploy\.resources\.Trainer\.cpu\n"),
        ("deploy: {vertex: {project: p}}", r"'region' is missing\n  where: .*config\.yaml, deploy\.vertex"),
        ("spans: 2", r"spans is 2\n  where: .*spans\n"),
        ("source_options: {header: 3}", r"header is 3\n  where: source_options\.header\n"),
        ("source_options: {heder: true}", r"'heder'.*\n  where: source_options\n"),
        ('delimiter: ";;"', r"delimiter is ';;'\n  where: delimiter\n"),
        ("ingest: {levle: 3}", r"did you mean 'level'\?\n  where: ingest"),
        ("ingest: {level: 12}", r"12\n  where: ingest\.level"),
        ("ingest: {columns: [x]}", r"'y'.*\n  where: columns"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_starts(project, line, message):
    add(project, line)
    with pytest.raises(InfeedError, match=message):
        resolved(project)


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("model.py:build_model", "model.py:build", "defines no function 'build'(.|\n)*build_model"),
        ("model.py:build_model", "net.py:build_model", "there is no file .*net.py"),
        ("features: [", "features: 3  # [", r"features is 3(.|\n)*write a list of features there"),
        ("column: x}", "column: xx}", "no column 'xx' in the data; did you mean 'x'"),
        ("label: y\n", "label: z\n", "there is no column 'z' to learn"),
        ("label: y\n", "label: [y, x]\n", "no feature is a label of 'x'"),
        ("label: y\n", "label: 'x, y'\n", r"names 2 columns(.|\n)*--label x --label y"),
        (", {kind: label, column: y}", "", "no feature is a label of 'y'"),
        ("column: x}", "column: word}", "ZScore needs whole numbers or .*, but column 'word' holds text"),
        ("kind: z_score, column: x}", "kind: fill, column: x, value: 0.5}", "Fill needs numbers with fractions, but"),
        ("kind: z_score, column: x}", "kind: decode_image, column: x, height: 1, width: 1}", "DecodeImage needs text"),
        ("column: y}", "column: y, task: regression}", "Label needs .*, but column 'y' holds text"),
        ("source: csv", "source: excel", "source is 'excel'(.|\n)*parquet, arrow"),
        ("model: model.py:build_model\n", "", "the setting 'model' is missing"),
    ],
)
def test_a_config_that_does_not_fit_is_told_before_anything_starts(project, given, instead, message):
    change(project, re.escape(given), instead)
    with pytest.raises(InfeedError, match=message):
        resolved(project)


def test_a_feature_of_an_empty_column_or_of_lists_is_told(project):
    rows = {"x": pa.nulls(20, pa.int64()), "list": [[1, 2]] * 20, "y": ["no", "yes"] * 10}
    pq.write_table(pa.table(rows), project / "other.parquet")
    with pytest.raises(InfeedError, match="ZScore cannot take column 'x': it is empty"):
        resolved(project, data=str(project / "other.parquet"))
    change(project, "column: x", "column: list")
    with pytest.raises(InfeedError, match="ZScore cannot take column 'list': its rows hold lists"):
        resolved(project, data=str(project / "other.parquet"))


def test_what_the_survey_knows_to_fail_in_transform_is_told_with_values_of_the_column(project):
    change(project, "column: x}", "column: word}")
    with pytest.raises(InfeedError, match=r"ZScore needs (.|\n)*; column 'word' holds '\w+', '\w+'"):
        resolved(project)
    change(project, "kind: z_score, column: word}", "kind: vocabulary, column: word, min_count: 1000}")
    with pytest.raises(InfeedError, match=r"the vocabulary of 'word' is empty(.|\n)*values such as(.|\n)*min_count"):
        resolved(project)


def test_bad_rows_are_set_aside_where_that_is_asked_and_told(project):
    with (project / "data.csv").open("a") as file:
        file.write("4,no\n")
    with pytest.raises(InfeedError, match=r"(?s)2 cells.*line 32.*--on-bad-row reject"):
        resolved(project)
    config = resolved(project, ingest={"on_bad_row": "reject"})
    assert (config.survey.rows, config.survey.rejected, config.ingest.on_bad_row) == (30, 1, "reject")
    assert ("bad rows", "1 row rejected, in rejected.jsonl beside the examples") in config.notes
    add(project, "on_bad_row: reject\nbad_row_limit: 0")
    assert resolved(project, ingest={"bad_row_limit": 1}).survey.rejected == 1
    with pytest.raises(InfeedError, match="more than 0 bad rows"):
        resolved(project)


GAPS = "x,y\n" + "".join(f"{i},{'' if i % 10 == 0 else 'ab'[i % 2]}\n" for i in range(200))


def test_rows_without_a_label_are_left_out_and_counted(tmp_path):
    config = of_template(tmp_path, GAPS)
    assert (config.survey.rows, config.survey.rejected, config.survey.unlabeled) == (180, 0, 20)
    assert (config.ingest.required, config.ingest.labeled) == ((), ("y",))
    assert "20 rows without a label" in dict(config.notes)["left out"]


def test_a_required_label_makes_rows_without_it_bad_rows(tmp_path):
    with pytest.raises(InfeedError, match="20 of 200 rows have no label") as raised:
        of_template(tmp_path, GAPS, ingest={"required": ("y",)})
    assert "--on-bad-row reject" in raised.value.do
    config = of_template(tmp_path, GAPS, ingest={"required": ("y",), "on_bad_row": "reject"})
    assert (config.survey.rows, config.survey.rejected, config.survey.unlabeled) == (180, 20, 0)
    assert (config.ingest.required, config.ingest.labeled) == (("y",), ())


def test_dropped_columns_are_neither_surveyed_nor_learned_from(tmp_path):
    rows = "x,copy,y\n" + "".join(f"{i % 7},{'ab'[i % 2]},{'ab'[i % 2]}\n" for i in range(200))
    config = of_template(tmp_path, rows, ingest={"drop": ("copy",)})
    assert [column.name for column in config.survey.columns] == ["x"]
    assert config.ingest.written(["x", "copy", "y"]) == ("x", "y")
    assert "label leak" not in dict(config.notes)


@pytest.mark.parametrize(("drop", "word"), [("y", "label 'y'"), ("copi", "did you mean 'copy'")])
def test_a_column_that_cannot_be_dropped_is_reported(tmp_path, drop, word):
    rows = "x,copy,y\n" + "".join(f"{i % 7},{'ab'[i % 2]},{'ab'[i % 2]}\n" for i in range(200))
    with pytest.raises(InfeedError, match=word) as raised:
        of_template(tmp_path, rows, ingest={"drop": (drop,)})
    assert "drop" in raised.value.where


def test_the_settings_of_ingest_stand_in_the_file_and_the_command_line_wins(project):
    add(project, "ingest: {split: {train: 2, eval: 1}, filter: x > 2, level: 3}")
    config = resolved(project, ingest={"filter": "x != 3"})
    assert (config.splits, config.judged_on, config.ingest.filter, config.ingest.level) == (
        {"train": 2, "eval": 1},
        "eval",
        "x != 3",
        3,
    )
    assert config.survey.rows == 20
    add(project, "on_bad_row: reject")
    assert resolved(project, ingest={"filter": "x != 3"}).ingest.on_bad_row == "reject"


def test_a_filter_may_be_a_function_of_the_project(project):
    (project / "filters.py").write_text(
        "def keep(batch):\n    import pyarrow.compute as pc\n    return pc.equal(batch['x'], 1)\n"
    )
    add(project, "ingest: {filter: filters.py:keep}")
    (project / "data.csv").write_text("x,word,y\n" + "".join(f"{i % 2},{i},{'ab'[i % 3 % 2]}\n" for i in range(60)))
    config = resolved(project)
    assert config.survey.rows == 30
    assert config.user_functions["filter"] == f"{project}/filters.py:keep"


def test_nothing_is_learned_from_a_column_that_rows_are_split_by(tmp_path):
    rows = "user,age,y\n" + "".join(f"u{i % 9},{i % 60},{'ab'[i % 2]}\n" for i in range(200))
    left_out = of_template(tmp_path, rows, ingest={"split_by": ("user",)}).survey.left_out
    assert list(left_out) == ["user"]
    usage = rows.replace("u0", "test").replace("u1", "eval")
    for user in range(2, 9):
        usage = usage.replace(f"u{user}", "train")
    config = of_template(tmp_path, usage.replace("user,", "usage,"), ingest={"split_name": "usage"})
    assert list(config.survey.left_out) == ["usage"]
    assert list(config.splits) == ["train", "eval", "test"]


def test_a_function_of_the_project_that_fails_is_told_by_its_line(project):
    (project / "features.py").write_text("def features(survey):\n    return survey.colums\n")
    add(project, "hparams: features.py:features")
    with pytest.raises(
        InfeedError, match=r"AttributeError: .*'colums'(.|\n)*features.py, line 2, in features: 'return"
    ):
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
    assert resolved(project).train.epochs == 100  # fitted to the rows, see `schedule`


def test_the_kind_of_table_is_told_from_the_names_of_other_data(project):
    pq.write_table(pa.table({"x": [1, 2] * 10, "y": ["no", "yes"] * 10}), project / "other.parquet")
    config = resolved(project, data=str(project / "other.parquet"))
    assert (config.source, config.features) == ("parquet", (ZScore("x"), Label("y")))


def test_a_wrong_delimiter_is_told_before_the_rows_that_it_breaks(project):
    (project / "data.csv").write_text("x;y\n" + "1,5;no\n2,5;yes\n" * 10)
    with pytest.raises(InfeedError, match=r"named 'x;y'(.|\n)*data.csv, line 1"):
        resolved(project)


def test_whole_numbers_that_are_quantities_are_read_with_fractions(project):
    rows = [f"{n},{n % 3},{2**24 + n},{n / 2},{'no' if n % 4 else 'yes'}" for n in range(40)]
    (project / "data.csv").write_text("\n".join(["n,code,key,half,y", *rows]))
    kinds = ", ".join(f"{{kind: z_score, column: {name}}}" for name in ("n", "key", "half"))
    others = "{kind: vocabulary, column: code}, {kind: label, column: y}"
    change(project, "features: .*", f"features: [{kinds}, {others}]")
    assert resolved(project).ingest.fractions == ("n",)


def test_a_boolean_label_keeps_its_words(project):
    rows = [{"x": n, "y": n % 2 == 0} for n in range(40)]
    (project / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = resolved(project, data=str(project / "b.jsonl"))
    assert config.survey.classes == ("false", "true")
    assert config.ingest.words == ("y",)


@pytest.mark.parametrize("sign", [";", "\t"])
def test_another_delimiter(project, sign):
    (project / "data.csv").write_text(f"x{sign}y\n" + f"1{sign}no\n2{sign}yes\n" * 10)
    with pytest.raises(InfeedError, match=r"only column is named(.|\n)*--delimiter "):
        resolved(project)
    assert resolved(project, source_options={"delimiter": sign}).source_options["delimiter"] == sign


@pytest.mark.parametrize("name", ["data.tsv", "data.tsv.gz"])
def test_a_tsv_has_tabs(project, name):
    text = "x\ty\n" + "1\tno\n2\tyes\n" * 10
    (project / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    config = resolved(project, data=str(project / name))
    assert (config.source, config.source_options["delimiter"]) == ("csv", "\t")


def test_options_of_the_format_in_the_file_and_over_it(project):
    (project / "data.csv").write_text("x;y\n" + "NA;no\n2;yes\n1;yes\n" * 10)
    add(project, 'delimiter: ";"\nsource_options: {nulls: ["", "NA"]}')
    assert resolved(project).source_options.items() >= {"delimiter": ";", "nulls": ["", "NA"]}.items()
    with pytest.raises(InfeedError, match=r"no setting 'null'(.|\n)*nulls"):
        resolved(project, source_options={"null": "NA"})


def test_a_wrong_option_of_the_command_line_is_reported_as_one(project):
    with pytest.raises(InfeedError, match=r"header is 3\n  where: --set header\n.*--set accepts JSON"):
        resolved(project, source_options={"header": 3})


def test_options_of_the_file_are_not_for_data_of_another_format(project):
    add(project, 'delimiter: ";"')
    pq.write_table(pa.table({"x": [1, 2] * 10, "y": ["no", "yes"] * 10}), project / "other.parquet")
    assert resolved(project, data=str(project / "other.parquet")).source_options == {}


def test_a_pattern_is_data_too(project):
    (project / "notes.txt").write_text("no table")
    (project / "more.csv").write_text((project / "data.csv").read_text())
    assert resolved(project, data=f"{project}/*.csv").notes[0][1] == f"{project}/*.csv: 60 rows"


def of_template(tmp_path, table, features=None, **overrides):
    """The tabular template on the text of a CSV, the columns of a Parquet file, or the rows of JSON Lines."""
    if isinstance(table, dict):
        pq.write_table(pa.table(table), path := tmp_path / "survey.parquet")
    else:
        path = tmp_path / ("survey.csv" if isinstance(table, str) else "survey.jsonl")
        path.write_text(table if isinstance(table, str) else "".join(json.dumps(row) + "\n" for row in table))
    template, given = read_project("tabular"), {"data": str(path), "label": "y", "root": str(tmp_path)}
    if features:
        template = dataclasses.replace(template, settings=dataclasses.replace(template.settings, features=features))
    return resolve(template, Overrides(**{**given, **overrides}))


def test_what_is_decided_from_the_data_is_told_and_nothing_is_left_out_in_silence(tmp_path, golden):
    rows = "".join(f"u{i},{i % 60},{'ab'[i % 2]}\n" for i in range(200))
    notes = of_template(tmp_path, "user,age,y\n" + rows).notes
    golden("notes.txt", "".join(f"{subject}: {text}\n" for subject, text in notes), tmp_path)


def test_columns_that_the_features_do_not_name_are_told_too(project):
    assert ("left out", "word: no feature uses it") in resolved(project).notes


def test_columns_of_which_the_same_is_said_stand_together(tmp_path):
    names = [f"c{number}" for number in range(20)]
    rows = "".join(",".join(["1"] * 20) + f",{i % 7},{10**15 + 3 * i},{[' a', 'a'][i % 2]}\n" for i in range(40))
    notes = of_template(tmp_path, ",".join([*names, "x", "id", "y"]) + "\n" + rows).notes
    assert ("left out", f"{', '.join(names[:12])} and 8 more: every row has the same value") in notes
    assert ("note", "id: every row has a distinct number. If it only identifies the row, leave it out") in notes
    assert ("label", "y: 2 classes (' a' differs from 'a' only in spaces): a (50.0%), ' a' (50.0%)") in notes


def test_columns_that_no_example_can_hold_can_be_left_out(tmp_path):
    rows = {"items": [[{"k": 1}]] * 40, "x": [i % 7 for i in range(40)], "y": [i % 2 for i in range(40)]}
    with pytest.raises(InfeedError, match=r"column 'items'(.|\n)*--set 'columns="):
        of_template(tmp_path, rows)
    config = of_template(tmp_path, rows, source_options={"columns": ["x", "y"]})
    assert [feature.column for feature in config.features] == ["x", "y"]


def test_names_that_keras_would_confuse_are_kept_apart(tmp_path):
    rows = "".join(f"{i % 7},{i % 5},{i % 3},{i % 2}\n" for i in range(40))
    config = of_template(tmp_path, "a/b,a_b,y/,y\n" + rows)
    assert [feature.output_name for feature in config.features] == ["a_b_", "a_b", "y_", "y"]


def test_a_column_called_image_holds_no_pixels(tmp_path):
    rows = "".join(f"{i % 7}.5,{i % 2}\n" for i in range(40))
    assert of_template(tmp_path, "image,y\n" + rows).train.images == ()


def test_a_table_without_a_header_line_says_how_to_name_its_columns(tmp_path):
    with pytest.raises(
        InfeedError, match=r"no column 'y' to learn(.|\n)*if the first line is data: --set header=false"
    ):
        of_template(tmp_path, "5.1,3.5,setosa\n" * 30)


def test_a_quantity_of_two_values_may_be_classes(tmp_path):
    notes = of_template(tmp_path, "age,y\n" + "1,0.5\n3,1.0\n7,1.0\n" * 10).notes
    assert any("its 2 values may be classes" in words for _, words in notes)
    notes = of_template(tmp_path, "age,y\n" + "1,0.0\n3,1.0\n7,1.0\n" * 10, task="regression").notes
    assert any("--task classification" in words for _, words in notes)


def test_a_table_of_text_is_refused_at_once_with_what_to_do(tmp_path):
    rows = "".join(f"{f'${i}.50' if i % 3 else f'free {i}'},{i % 2}\n" for i in range(200))
    message = (
        r"the model can learn 'y' from no column: price \(nearly every row has a distinct value\)"
        r"(.|\n)*price: 133 of 200 cells look like '\$\d+\.50'"
    )
    with pytest.raises(InfeedError, match=message):
        of_template(tmp_path, "price,y\n" + rows)


def test_columns_that_are_read_as_numbers_are_read_so_by_ingest_and_by_predict(tmp_path):
    config = of_template(tmp_path, "price,y\n" + "".join(f"${i}.50,{i % 2}\n" for i in range(200)))
    assert config.source_options == {"numbers": {"price": "$1234.5"}}
    assert config.train.source_options == {"csv": config.source_options}
    assert [feature.column for feature in config.features] == ["price", "y"]
    assert "read as numbers" in dict(config.notes)["numbers"]


def test_lists_of_objects_are_left_out_with_a_way_to_learn_from_them(tmp_path):
    rows = [{"items": [{"sku": "ab"[i % 2]}] * (i % 3), "x": i % 7, "y": i % 2} for i in range(40)]
    config = of_template(tmp_path, rows)
    assert any(about == "left out" and "--set flatten=true" in words for about, words in config.notes)
    config = of_template(tmp_path, rows, source_options={"flatten": True})
    assert [feature.column for feature in config.features] == ["items.sku", "x", "y"]


def test_a_table_of_sentences_is_learned_from(tmp_path):
    rows = "".join(f"film {i} was good enough,{i % 2}\n" for i in range(200))
    (words, _) = of_template(tmp_path, "review,y\n" + rows).features
    assert (words.kind, words.column, words.length) == ("vocabulary", "review", 64)


def test_a_feature_of_one_value_a_row_takes_no_lists(tmp_path):
    rows = {"tags": [["a"], ["b", "c"]] * 20, "y": [0, 1] * 20}
    assert [feature.values for feature in of_template(tmp_path, rows).features] == ["all", "one"]
    one = [{"kind": "vocabulary", "column": "tags"}, {"kind": "label", "column": "y"}]
    with pytest.raises(InfeedError, match=r"Vocabulary cannot take column 'tags': its rows hold lists(.|\n)*values="):
        of_template(tmp_path, rows, one)


def test_a_date_that_reads_nothing_of_its_column_names_the_format(tmp_path):
    days = [f"{month}/{day}/2024" for month in range(1, 5) for day in range(11, 21)]

    def features(**options):
        date = {"kind": "date_part", "part": "days", **options}
        own = [{"kind": "z_score", "column": "day", "clean": [date]}, {"kind": "label", "column": "y"}]
        return of_template(tmp_path, {"day": days, "y": [0, 1] * 20}, own)

    with pytest.raises(InfeedError, match="'day' has no date of format 'iso', but values such as '") as raised:
        features()
    assert "DatePart('days', '%m/%d/%Y')" in raised.value.do
    assert features(format="%m/%d/%Y").features[0].column == "day"


@pytest.mark.parametrize(("rows", "words"), [("1,2\n", "is only 1 row"), ("1,no\n2,yes\n", "are only 2 rows")])
def test_too_few_rows_to_hold_some_out(tmp_path, rows, words):
    with pytest.raises(InfeedError, match=f"there {words}"):
        of_template(tmp_path, f"x,y\n{rows}")


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
    rows = "rooms,town,price\n" + "".join(f"{i % 5},t{i % 3},{i * 1.5}\n" for i in range(40))
    config = of_template(tmp_path, rows, label="price")
    assert config.features == (
        ZScore("rooms", output="rooms"),
        Vocabulary("town", output="town", size=10_000),
        Label("price", task="regression"),
    )
    assert config.train.task == "regression"
    assert config.train.hparams["scales"]["price"][0] == pytest.approx(29.25)
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


def test_a_config_is_frozen(project):
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolved(project).name = "other"


def test_how_pictures_are_resized_is_for_pictures_alone(project):
    with pytest.raises(InfeedError, match="crop") as raised:
        resolved(project, resize="crop")
    assert raised.value.where == "resize"


def rows_of_rules(project):
    """Columns that a rule of the splits, a filter or a weight may take, or not."""
    rows = ["x,word,day,gap,late,part,y"]
    for i in range(40):
        part, late = ("other" if i == 39 else ["train", "eval"][i % 2]), "soon" if i == 39 else f"2020-01-0{i % 5 + 1}"
        day, gap = f"2020-{i % 12 + 1:02d}-11", "" if i == 20 else f"2020-01-0{i % 5 + 1}"
        rows.append(f"{i / 7},{'ab'[i % 2]},{day},{gap},{late},{part},{['no', 'yes'][i % 3 == 0]}")
    (project / "data.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("ingest", "where", "what"),
    [
        ({"split_time": "x", "cut": ["2020-06-01"]}, "'x'", "double"),
        ({"split_time": "nope", "cut": ["2020-06-01"]}, "time", "'nope'"),
        ({"split_time": "word", "cut": ["2020-06-01"]}, "'word'", "'a'"),
        ({"split_time": "late", "cut": ["2020-06-01"]}, "'late'", "'soon'"),
        ({"split_time": "gap", "cut": ["2020-06-01"]}, "'gap'", "empty"),
        ({"split_time": "day", "cut": ["soon"]}, "'day'", "'soon'"),
        ({"split_time": "day", "cut": ["2020-06-01T00:00:00Z"]}, "'day'", "offset"),
        ({"split_time": "day", "cut": ["2020-06-01", "2020-02-01"]}, "'day'", "ascending"),
        ({"split_time": "day", "cut": ["2020-06-01"], "time_format": "%d.%m.%Y"}, "'day'", "%d.%m.%Y"),
        ({"split_time": "day", "cut": ["2020-06-01", "2021-07-01"]}, "'day'", "from 2021-07-01"),
        ({"split_time": "day", "cut": ["2020-01-01", "2020-07-01"]}, "'day'", "before 2020-01-01"),
        ({"split_time": "day", "cut": ["2020-06-01", "2020-06-02"]}, "'day'", "and before 2020-06-02"),
        ({"split_name": "part", "split": {"train": 1, "eval": 1}}, "'part'", "'other'"),
        ({"split_name": "part", "split": {"train": 1, "eval": 1, "other": 1, "test": 1}}, "'part'", "'test'"),
        ({"split_name": "part"}, "split", "'other'"),
        ({"split_name": "gap"}, "'gap'", "empty"),
        ({"split_by": ["word", "nope"]}, "columns", "'nope'"),
        ({"split_label": "nope"}, "label", "'nope'"),
        ({"balance": "nope"}, "balance", "'nope'"),
        ({"balance": "y", "balance_split": ["nope"]}, "balance_split", "'nope'"),
        ({"required": ["nope"]}, "required", "'nope'"),
        ({"drop": ["nope"]}, "drop", "'nope'"),
        ({"columns": ["x", "y", "nope"]}, "columns", "'nope'"),
        ({"filter": "nope > 3"}, "filter", "'nope'"),
        ({"filter": "word > 3"}, "filter", "'word'"),
    ],
)
def test_options_of_ingest_that_do_not_fit_the_rows_stop_before_the_first_node(project, ingest, where, what):
    rows_of_rules(project)
    with pytest.raises(InfeedError) as error:
        resolved(project, ingest=ingest, root=str(project / "root"))
    assert what in error.value.what
    assert where in error.value.where
    assert not (project / "root").exists()


@pytest.mark.parametrize(
    "ingest",
    [
        {"split_time": "day", "cut": ["2020-06-01", "2020-07-01"]},
        {"split_time": "gap", "cut": ["2020-01-03"], "required": ["gap"], "on_bad_row": "reject"},
        {"split_time": "late", "cut": ["2020-01-03"], "filter": 'late < "a"'},
        {"split_time": "x", "cut": ["2", "4.5"], "drop": ["day"]},
        {"split_name": "part", "split": {"train": 1, "eval": 1}, "filter": 'part != "other"'},
    ],
)
def test_rules_see_only_the_rows_that_are_written(project, ingest):
    rows_of_rules(project)
    assert resolved(project, ingest=ingest).ingest.split_by
