import pytest

from infeed.components import InfeedError
from infeed.pipelines.commands.new import create_project
from infeed.pipelines.project.config_file import TEMPLATES, read_project
from infeed.pipelines.project.resolve import Overrides, resolve


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_copied_template_decides_as_the_template_does_but_from_its_own_files(tmp_path, template):
    create_project(template, str(tmp_path / "mine"))
    root = Overrides(root=str(tmp_path / "runs"))
    copied, shipped = (resolve(read_project(name), root) for name in (str(tmp_path / "mine"), template))
    assert copied.features == shipped.features
    assert copied.train.augment == shipped.train.augment
    assert copied.train.model_fn == f"{tmp_path}/mine/model.py:build_model"
    assert shipped.train.model_fn == f"infeed.templates.{template}.model:build_model"


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InfeedError, match="not an empty folder"):
        create_project("image", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("template", ["tabular", "text"])
def test_own_data_a_label_and_columns_to_drop_become_settings(tmp_path, template):
    own = {"data": "trips: 1.csv", "label": ["#tip, é"], "drop": ["trip 'id'", "no"]}
    create_project(template, str(tmp_path / "mine"), **own)
    settings = read_project(str(tmp_path / "mine")).settings
    assert (settings.data, [settings.label], list(settings.ingest["drop"])) == tuple(own.values())
    create_project(template, str(tmp_path / "unlabeled"), data="trips.csv")
    assert read_project(str(tmp_path / "unlabeled")).settings.label is None


def test_several_labels_of_a_file_in_another_format_become_settings(tmp_path):
    (tmp_path / "homes.jsonl").write_text('{"price": 1, "sold": "no"}\n')
    data = str(tmp_path / "homes.jsonl")
    create_project("tabular", str(tmp_path / "mine"), data=data, label=["price", "sold"])
    settings = read_project(str(tmp_path / "mine")).settings
    assert (settings.source, settings.label) == ("jsonl", ("price", "sold"))


def test_images_have_data_and_no_columns(tmp_path):
    create_project("image", str(tmp_path / "mine"), data="flowers")
    settings = read_project(str(tmp_path / "mine")).settings
    assert (settings.data, settings.label) == ("flowers", "label/text")
    for option in ({"label": ["y"]}, {"drop": ["y"]}):
        with pytest.raises(InfeedError, match="images have no columns"):
            create_project("image", str(tmp_path / "other"), **option)


def test_an_unknown_template(tmp_path):
    with pytest.raises(InfeedError, match=r"there is no template 'audio'(.|\n)*image, tabular"):
        create_project("audio", str(tmp_path / "mine"))
