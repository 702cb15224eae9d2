import math
from pathlib import Path

import pytest
from PIL import Image

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.local import ingest
from infeed.pipelines.project import tables
from infeed.pipelines.project.survey import survey_images, survey_table


def picture(path, size, mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path, **options)


def test_a_picture_whose_camera_lay_on_its_side_is_surveyed_as_it_is_looked_at(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("cat", "dog"):
        picture(tmp_path / name / "1.jpg", (4, 3), exif=exif)
    survey = survey_images(str(tmp_path))
    assert (survey.height, survey.width) == (4, 3)


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
        (["1.0", "0.0", "", "1.0"], "classification", 2 / 3),  # as pandas writes 0 and 1 beside an empty cell
        ([0.5, 1.5, 2.5, 3.5], "regression", 1.25),  # a quantity: the guess is the mean, its error the variance
    ],
)
def test_the_task_is_told_from_the_label(tmp_path, labels, task, guess):
    survey = surveyed(tmp_path, [("x", "y"), *zip("abcd", labels, strict=True)])
    assert survey.task == task
    assert survey.guess == pytest.approx(guess)


def test_whole_floats_are_named_as_their_integers(tmp_path):
    survey = surveyed(tmp_path, [("x", "y"), *((i, f"{i % 11}.0") for i in range(44))])
    assert survey.classes == tuple(map(str, range(11)))
    assert survey.label.type == "float"


def test_many_whole_floats_are_classes_if_asked(tmp_path):
    rows = [("x", "y"), *((i, f"{i % 30}.0") for i in range(90))]
    assert surveyed(tmp_path, rows).task == "regression"
    assert len(surveyed(tmp_path, rows, task="classification").classes) == 30


def test_an_integer_with_many_values_is_a_quantity(tmp_path):
    assert surveyed(tmp_path, [("x", "y"), *((i % 3, i) for i in range(21))]).task == "regression"
    assert surveyed(tmp_path, [("x", "y"), *((i % 3, i) for i in range(20))]).task == "regression"  # that never repeat
    assert surveyed(tmp_path, [("x", "y"), *((i % 3, i % 20) for i in range(40))]).task == "classification"


def test_columns_that_teach_nothing_are_left_out_with_the_reason(tmp_path):
    rows = [("constant", "empty", "id", "x", "y")]
    rows += [(1, "", f"row-{i}", i % 7, i % 2) for i in range(300)]
    assert surveyed(tmp_path, rows).left_out == {
        "constant": "every row has the same value",
        "empty": "it is empty",
        "id": "nearly every row has a distinct value",
    }


def test_texts_and_dates_call_for_features_and_the_others_for_advice(tmp_path):
    rows = [("review", "id", "bought", "price", "rooms", "y")]
    rows += [
        (f"film {i} was good enough", i, f"2024-01-{1 + i % 28:02}", f"${i % 9}.50", ["none?", 1, 2][i % 3], i % 2)
        for i in range(200)
    ]
    survey = surveyed(tmp_path, rows)
    assert survey.left_out == {"id": "it numbers the rows"}
    outputs = {column.name: [feature.output_name for feature in column.features] for column in survey.columns}
    assert outputs["review"] == ["review"]
    assert outputs["bought"] == ["bought_days", "bought_month", "bought_weekday"]
    advice = {column.name: column.advice for column in survey.columns}
    assert advice["review"] == advice["bought"] == ""
    assert survey.numbers == {"price": "$1234.5"}
    assert """--set 'nulls=["", "none?"]'""" in advice["rooms"]


def priced(tmp_path, cells, task=None, label="price", **settings):
    (tmp_path / "t.csv").write_text("price,y\n" + "".join(f'"{cell}",{i % 2}\n' for i, cell in enumerate(cells)))
    return survey_table(str(tmp_path / "t.csv"), label, task, settings=settings)


def test_a_column_of_amounts_has_the_type_and_the_statistics_of_numbers(tmp_path):
    [price] = priced(tmp_path, [f"${n * 50:,}.00" for n in range(1, 101)], label="y").columns
    assert (price.type, price.mean, price.advice) == ("float", 2525.0, "")


def test_a_label_of_amounts_is_a_quantity(tmp_path):
    survey = priced(tmp_path, [f"${n * 50:,}.00" for n in range(1, 101)])
    assert (survey.task, survey.label.mean, survey.numbers) == ("regression", 2525.0, {"price": "$1,234.5"})


def test_a_label_of_a_few_shares_stays_classes_unless_it_is_to_be_a_quantity(tmp_path):
    cells = ["10%", "20%"] * 20
    assert priced(tmp_path, cells).classes == ("10%", "20%")
    assert priced(tmp_path, cells, "regression").label.mean == 15.0


def test_a_label_that_is_mostly_numbers_is_told_how_to_read_it(tmp_path):
    with pytest.raises(InfeedError, match="--set thousands=,"):
        priced(tmp_path, [f"{n * 50:,}.00" for n in range(1, 101)] + ["free"])


def test_amounts_are_read_as_such_from_the_statistics_that_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("infeed.pipelines.project.tables._KEPT_BYTES", 1)
    monkeypatch.setattr("infeed.pipelines.project.tables.CACHE_DIR", str(tmp_path / "cache"))
    cells = [f"${n * 50:,}.00" for n in range(1, 101)]
    assert priced(tmp_path, cells, label="y") == priced(tmp_path, cells, label="y")


def test_numbers_that_go_up_by_one_over_several_files_number_the_rows(tmp_path):
    (tmp_path / "part").mkdir()
    for part in range(3):
        rows = range(10 * part, 10 * part + 10)
        table(tmp_path / "part", [("id", "gap", "y"), *((i, i + (i > 25), i % 2) for i in rows)], f"{part}.csv")
    assert survey_table(str(tmp_path / "part"), "y").left_out == {"id": "it numbers the rows"}


def test_numbers_of_the_rows_are_told_in_any_order_and_from_other_whole_numbers(tmp_path):
    shuffled = [(i * 7 % 30 - 5, i // 2 * 2, i % 2) for i in range(30)]
    survey = surveyed(tmp_path, [("id", "even", "y"), *shuffled])
    assert survey.left_out == {"id": "it numbers the rows"}


def test_classes_are_counted_in_the_order_of_their_index(tmp_path):
    survey = surveyed(tmp_path, [("x", "y"), (1, 10), (2, 9), (3, 10)])
    assert (survey.classes, survey.class_rows) == (("9", "10"), (1, 2))


def test_what_is_no_number_counts_as_missing(tmp_path):
    survey = surveyed(tmp_path, [("x", "y"), (1, "nan"), (2, 3.5), (3, "inf"), (4, 1.5)])
    assert (survey.rows, survey.unlabeled) == (2, 2)


def test_an_empty_text_is_no_label(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f'{{"x": {i}, "y": {y}}}\n' for i, y in enumerate(['""', '"a"', "null", '"b"', '"a"'])))
    survey = survey_table(str(path), "y", source="jsonl")
    assert (survey.classes, survey.class_rows, survey.unlabeled) == (("a", "b"), (2, 1), 2)


@pytest.mark.parametrize("workers_bytes", [0, 1 << 40])
def test_rows_without_a_label_are_counted_again_from_the_cache(tmp_path, monkeypatch, workers_bytes):
    monkeypatch.setattr(tables, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "_KEPT_BYTES", workers_bytes)
    rows = [("x", "y"), *((i, "" if i % 5 else "ab"[i % 2]) for i in range(100))]
    path = table(tmp_path, rows)
    assert [survey_table(path, "y").unlabeled for _ in range(2)] == [80, 80]


def test_a_folder_of_files_is_one_table(tmp_path):
    (tmp_path / "part").mkdir()
    table(tmp_path / "part", [("x", "y"), (1, 0)], "1.csv")
    table(tmp_path / "part", [("x", "y"), (2, 1)], "2.csv")
    (tmp_path / "part" / "_SUCCESS").touch()
    assert survey_table(str(tmp_path / "part"), "y").rows == 2


@pytest.mark.parametrize(
    ("rows", "label", "task", "message"),
    [
        ([("x", "y"), (1, 2)], "z", None, "there is no column 'z' to learn(.|\n)*--label(.|\n)*'x', 'y'"),
        ([("x", "y")], "y", None, "the CSV file has no rows"),
        ([("x", "y"), (1, ""), (2, "")], "y", None, "none of the 2 rows has a label(.|\n)*column 'y'"),
        ([("x", "y"), (1, 5), (2, 5)], "y", None, "every row has the same label"),
        ([("x", "y"), (1, "a"), (2, "b")], "y", "regression", "a text cannot be a quantity"),
        ([("x", "y"), (1, 0.5), (2, 1.5)], "y", "classification", "a class cannot be a fraction"),
        ([("x", "y"), *((i, f"name {i}") for i in range(30))], "y", None, "30 classes in 30 rows: too few rows"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_told_so(tmp_path, rows, label, task, message):
    with pytest.raises(InfeedError, match=message):
        surveyed(tmp_path, rows, label, task)


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
    with pytest.raises(InfeedError, match="only one class: 'cat'"):
        survey_images(str(tmp_path))


def damaged(folder: Path) -> None:
    """Two classes of three pictures each, and files beside them that are no whole PNG or JPEG."""
    for name in ("cat", "dog"):
        for number in range(3):
            picture(folder / name / f"{number}.png", (8, 6))
    noise = Image.effect_noise((64, 48), 60)
    noise.save(folder / "cat" / "cut.png")
    noise.save(folder / "dog" / "cut.jpg")
    for path in (folder / "cat" / "cut.png", folder / "dog" / "cut.jpg"):
        path.write_bytes(path.read_bytes()[:-400])
    noise.save(folder / "cat" / "foreign.png", "bmp")
    (folder / "dog" / "empty.png").touch()


def test_as_many_pictures_are_set_aside_by_the_survey_as_by_ingest(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    damaged(tmp_path / "in")
    options = IngestOptions(on_bad_row="reject")
    survey = survey_images(str(tmp_path / "in"), options)
    manifest = ingest(tmp_path / "in", tmp_path / "out", options=options)
    assert (survey.rows, survey.rejected) == (6, 4) == (manifest.rows_read - 4, manifest.rejected.rows)


def test_a_foreign_picture_is_an_error_with_the_formats_that_are_read_and_a_way_to_set_it_aside(tmp_path: Path) -> None:
    damaged(tmp_path)
    (tmp_path / "dog" / "empty.png").unlink()
    with pytest.raises(InfeedError, match="BMP") as raised:
        survey_images(str(tmp_path))
    assert raised.value.where.endswith("cat/foreign.png")
    assert "PNG or JPEG" in raised.value.do
    assert "--on-bad-row reject" in raised.value.do


def test_pictures_beyond_the_limit_are_counted_by_their_headers(tmp_path: Path) -> None:
    for name, side in (("cat/a.png", 4), ("dog/b.png", 4), ("dog/large.png", 700)):
        picture(tmp_path / name, (side, side))
    with pytest.raises(InfeedError, match="700 x 700") as raised:
        survey_images(str(tmp_path), IngestOptions(max_row_mb=1))
    assert "--max-row-mb 2" in raised.value.do
    assert survey_images(str(tmp_path), IngestOptions(max_row_mb=1, on_bad_row="reject")).rejected == 1
    assert survey_images(str(tmp_path), IngestOptions(max_row_mb=2)).rows == 3


def test_pictures_that_are_all_rejected_are_no_matter_of_the_filter(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "a.png", (700, 700))
    with pytest.raises(InfeedError, match="every row is rejected") as raised:
        survey_images(str(tmp_path), IngestOptions(max_row_mb=1, on_bad_row="reject"))
    assert raised.value.where.endswith("a.png")


@pytest.mark.parametrize("rows", [9_000, 12_000])
def test_more_values_than_are_counted_do_not_change_what_a_column_is(tmp_path, rows):
    days = (f"2024-01-01 {i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}" for i in range(rows))
    cells = ((f"film {i} was very good", day, f"u{i}x", "ab"[i % 2]) for i, day in enumerate(days))
    survey = surveyed(tmp_path, [("text", "at", "code", "y"), *cells])
    kinds = {
        column.name: [type(step).__name__ for one in column.features for step in one.steps] for column in survey.columns
    }
    assert "Tokens" in kinds["text"]
    assert "DatePart" in kinds["at"]
    assert (kinds["code"], survey.left_out) == ([], {"code": "nearly every row has a distinct value"})


def test_a_text_that_is_kept_is_read_as_words(tmp_path):
    path = table(tmp_path, [("code", "y"), *((f"u{i}x", "ab"[i % 2]) for i in range(300))])
    [code] = survey_table(path, "y", keep=["code"]).columns
    assert (len(code.features), code.useless) == (1, "")
