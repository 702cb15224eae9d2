import csv

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits

from infeed.pipelines.project import sources


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def test_every_digit_is_a_png_of_its_own_in_its_class_folder(folder):
    root = sources.materialise("bundled:digits", folder)
    digits = load_digits()
    for number in (0, 5, 1796):
        path = root / str(digits.target[number]) / f"{number:04}.png"
        pixels = np.asarray(Image.open(path))
        np.testing.assert_array_equal((pixels.astype(float) * 16 / 255).round(), digits.images[number])
    assert len(list(root.glob("*/*.png"))) == 1797


def test_the_table_is_whole_but_for_about_one_value_in_fifty(folder):
    path = sources.materialise("bundled:breast_cancer", folder)
    data = load_breast_cancer()
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[0] == "mean_radius"
    assert header[-1] == "diagnosis"
    cells = np.array(rows)
    empty = cells[:, :-1] == ""
    assert 0.015 < empty.mean() < 0.025
    np.testing.assert_array_equal(np.where(empty, "0", cells[:, :-1]).astype(float), np.where(empty, 0, data.data))
    assert list(cells[:, -1]) == [data.target_names[label] for label in data.target]


def test_each_sentence_of_scipy_is_there_once_with_the_part_that_it_is_about(folder):
    with sources.materialise("bundled:scipy_sentences", folder).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["sentence", "part"]
    assert ["Compute the determinant of a matrix", "linalg"] not in rows
    parts = dict(rows)
    assert len(parts) == len(rows) > 2_000
    assert set(parts.values()) == {"linalg", "optimize", "signal", "sparse", "stats"}
    assert all(sentence.endswith(".") and 5 <= len(sentence.split()) <= 60 for sentence in parts)


def test_data_that_is_there_is_left_alone(folder):
    path = sources.materialise("bundled:breast_cancer", folder)
    before = path.stat().st_mtime_ns
    assert sources.materialise("bundled:breast_cancer", folder) == path
    assert path.stat().st_mtime_ns == before  # TFX's cache looks at the time
