import math

import pytest
from PIL import Image

from infeed.components.errors import InfeedError
from infeed.pipelines.survey import survey_images, survey_table


def table(tmp_path, rows, name="data.csv"):
    path = tmp_path / name
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return str(path)


def surveyed(tmp_path, rows, label="y", task=None):
    return survey_table(table(tmp_path, rows), label, task)


ROWS = [("a", "city", "y"), (1, "Bern", "no"), (2, "Basel", "yes"), ("", "Bern", "no"), (4, "", "no")]


def test_columns_are_typed_counted_and_measured(tmp_path):
    survey = surveyed(tmp_path, ROWS)
    a, city = survey.columns
    assert (a.name, a.type, a.rows, a.missing, a.distinct) == ("a", "int", 4, 1, 3)
    assert a.mean == pytest.approx(7 / 3)
    assert a.std == pytest.approx(math.sqrt(((1 - 7 / 3) ** 2 + (2 - 7 / 3) ** 2 + (4 - 7 / 3) ** 2) / 3))
    assert (city.type, city.missing, city.distinct, city.commonest) == ("bytes", 1, 2, 2)
    assert survey.label.name == "y"


@pytest.mark.parametrize(
    ("labels", "task", "guess"),
    [
        (["no", "yes", "no", "no"], "classification", 0.75),
        ([0, 1, 2, 1], "classification", 0.5),
        ([0.5, 1.5, 2.5, 3.5], "regression", 1.25),  # a quantity: the guess is the mean, its error the variance
    ],
)
def test_the_task_is_told_from_the_label(tmp_path, labels, task, guess):
    survey = surveyed(tmp_path, [("x", "y"), *zip("abcd", labels, strict=True)])
    assert survey.task == task
    assert survey.guess == pytest.approx(guess)


def test_an_integer_with_many_values_is_a_quantity(tmp_path):
    assert surveyed(tmp_path, [("x", "y"), *((i % 3, i) for i in range(21))]).task == "regression"
    assert surveyed(tmp_path, [("x", "y"), *((i % 3, i) for i in range(20))]).task == "classification"


def test_the_task_can_be_said(tmp_path):
    assert surveyed(tmp_path, [("x", "y"), (1, 3), (2, 4)], task="regression").task == "regression"


def test_columns_that_teach_nothing_are_left_out_with_the_reason(tmp_path):
    rows = [("constant", "empty", "id", "x", "y")]
    rows += [(1, "", f"row-{i}", i % 7, i % 2) for i in range(300)]
    assert surveyed(tmp_path, rows).left_out == {
        "constant": "every row has the same value",
        "empty": "it is empty",
        "id": "nearly every row has a value of its own",
    }


def test_a_folder_of_files_is_one_table(tmp_path):
    (tmp_path / "part").mkdir()
    table(tmp_path / "part", [("x", "y"), (1, 0)], "1.csv")
    table(tmp_path / "part", [("x", "y"), (2, 1)], "2.csv")
    (tmp_path / "part" / "_SUCCESS").touch()
    assert survey_table(str(tmp_path / "part"), "y").rows == 2


@pytest.mark.parametrize(
    ("rows", "label", "task", "message"),
    [
        ([("x", "y"), (1, 2)], "z", None, "there is no column 'z' to learn(.|\n)*--label: x, y"),
        ([("x", "y")], "y", None, "a CSV with no rows"),
        ([("x", "y"), (1, ""), (2, 3)], "y", None, "1 of 2 rows have no label(.|\n)*column 'y'"),
        ([("x", "y"), (1, 5), (2, 5)], "y", None, "every row has the same label"),
        ([("x", "y"), (1, "a"), (2, "b")], "y", "regression", "a text cannot be a quantity"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_told_so(tmp_path, rows, label, task, message):
    with pytest.raises(InfeedError, match=message):
        surveyed(tmp_path, rows, label, task)


def test_no_such_file(tmp_path):
    with pytest.raises(InfeedError, match=r"there is no such file or folder(.|\n)*nothing.csv"):
        survey_table(str(tmp_path / "nothing.csv"), "y")


def picture(path, size, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


def test_pictures_have_the_size_and_depth_of_most(tmp_path):
    picture(tmp_path / "cat" / "1.png", (10, 8))
    picture(tmp_path / "cat" / "2.jpg", (10, 8))
    picture(tmp_path / "dog" / "3.png", (99, 77))
    survey = survey_images(str(tmp_path))
    assert survey.classes == ("cat", "dog")
    assert (survey.height, survey.width, survey.channels) == (8, 10, 3)
    assert (survey.rows, survey.guess) == (3, pytest.approx(2 / 3))


def test_grey_pictures_stay_grey_and_transparent_ones_become_rgb(tmp_path):
    for name in "ab":
        picture(tmp_path / name / "1.png", (4, 4), "L")
    assert survey_images(str(tmp_path)).channels == 1
    for name in "abc":
        picture(tmp_path / name / "2.png", (4, 4), "RGBA")
        picture(tmp_path / name / "3.png", (4, 4), "RGBA")
    assert survey_images(str(tmp_path)).channels == 3


def test_a_single_class_is_nothing_to_learn(tmp_path):
    picture(tmp_path / "cat" / "1.png", (4, 4))
    with pytest.raises(InfeedError, match="there is one class only: 'cat'"):
        survey_images(str(tmp_path))
