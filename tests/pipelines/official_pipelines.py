"""The pipelines that TFX itself ships, on small data in the form of theirs, with some of their components replaced.

Nothing of their code is changed: a component is replaced under the name by which their module sees it.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.dsl.context_managers import dsl_context_registry
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import trainer_pb2

SEED = 20


@dataclass(frozen=True)
class Official:
    """One of TFX's pipelines.

    Attributes:
      module: where its `create_pipeline` is.
      write_data: writes data in the form that it reads, into a folder.
      arguments: what `create_pipeline` is given besides folders.
      train_steps: so few that the test is quick, and enough to learn from the data.
      is_right: whether the model's output for a row, [n], is what the raw Example's features say.
    """

    module: str
    write_data: Callable[[Path], None]
    arguments: Callable[[Path], dict[str, Any]]
    train_steps: int
    is_right: Callable[[np.ndarray, Mapping[str, Any]], bool]


def build(official: Official, root: Path, replaced: Mapping[str, Any]) -> Pipeline:
    """Their pipeline in a folder of its own: `data`, `artifacts`, `metadata.db`, and `serving`, to which it pushes.

    Args:
      official: whose.
      root: does not exist yet.
      replaced: what is made in the place of a component, by the component's name.
    """
    official.write_data(root / "data")
    module = importlib.import_module(official.module)
    create = getattr(module, "create_pipeline", None) or module._create_pipeline
    with dsl_context_registry.new_registry(), seeing(module, replaced):
        return create(
            pipeline_name=root.name,
            pipeline_root=str(root / "artifacts"),
            serving_model_dir=str(root / "serving"),
            beam_pipeline_args=[],
            **official.arguments(root),
        )


@contextlib.contextmanager
def seeing(module: Any, replaced: Mapping[str, Any]) -> Iterator[None]:
    """Their newer modules see a component as `tfx.components.NAME`, their older ones import each by its name.

    Of the components that a template makes it lists a few: to uncomment the others is what it tells its user to do.
    Here the pipeline is made of all.
    """
    components = module.tfx.components if hasattr(module, "tfx") else module
    with pytest.MonkeyPatch.context() as patch:
        for name in replaced.keys() & set(dir(components)):
            patch.setattr(components, name, replaced[name])
        if hasattr(module, "tfx"):
            patch.setattr(module.tfx.dsl, "Pipeline", of_all_components)
        else:
            patch.setattr(module, "pipeline", SimpleNamespace(Pipeline=of_all_components))
        yield


def of_all_components(components: list[Any], **given: Any) -> Pipeline:
    return Pipeline(components=list(dsl_context_registry.get().all_nodes), **given)


def trainers(official: Official, *kinds: Any) -> Callable[..., Any]:
    """Makes a Trainer of each kind for the same data, and gives the first to the rest of the pipeline.

    They are told another number of steps than the pipeline has written down; the first gets the ids that it gives.
    """
    steps = {
        "train_args": trainer_pb2.TrainArgs(num_steps=official.train_steps),
        "eval_args": trainer_pb2.EvalArgs(num_steps=5),
    }

    def make(**given: Any) -> Any:
        first, *others = (kind(**{**given, **steps}) for kind in kinds)
        for other in others:
            other.with_id("OtherTrainer")
        return first

    return make


def _module_file(name: str) -> str:
    package, _, module = name.rpartition(".")
    (folder,) = importlib.import_module(package).__path__
    return f"{folder}/{module}.py"


# ------------------------------------------------------------------------------------------------------------ penguin


def _penguins(rows: int = 300) -> list[list[Any]]:
    """Three species that differ in size, as in `penguins_processed.csv`: measures between 0 and 1. A header first."""
    generator = np.random.default_rng(SEED)
    species = generator.integers(3, size=rows)
    means = np.array([[0.25, 0.65, 0.3, 0.3], [0.6, 0.6, 0.4, 0.35], [0.55, 0.2, 0.75, 0.7]])
    measures = np.clip(means[species] + generator.normal(0, 0.08, (rows, 4)), 0, 1)
    names = ["culmen_length_mm", "culmen_depth_mm", "flipper_length_mm", "body_mass_g"]
    table = [[kind, *(f"{value:.6f}" for value in row)] for kind, row in zip(species, measures, strict=True)]
    return [["species", *names], *table]


def write_penguins(data: Path) -> None:
    header, *rows = _penguins()
    _write_csv(data / "labelled" / "penguins.csv", header, rows)
    _write_csv(data / "unlabelled" / "penguins.csv", header[1:], [row[1:] for row in rows[:50]])


def penguin_arguments(root: Path) -> dict[str, Any]:
    return {
        "data_root": str(root / "data"),
        "module_file": _module_file("tfx.examples.penguin.penguin_utils_keras"),
        "accuracy_threshold": 0.6,
        "metadata_path": str(root / "metadata.db"),
        "user_provided_schema_path": None,
        "enable_tuning": False,
        "enable_bulk_inferrer": True,
        "enable_example_diff": False,
        "examplegen_input_config": None,
        "examplegen_range_config_date": None,
        "resolver_range_config": None,
        "enable_transform_input_cache": True,
    }


def write_labelled_penguins(data: Path) -> None:
    header, *rows = _penguins()
    _write_csv(data / "penguins.csv", header, rows)


def template_penguin_arguments(root: Path) -> dict[str, Any]:
    return _template_arguments(root, "penguin", "models.model.run_fn")


# --------------------------------------------------------------------------------------------------------------- taxi

TAXI_COLUMNS = [
    "pickup_community_area",
    "fare",
    "trip_start_month",
    "trip_start_hour",
    "trip_start_day",
    "trip_start_timestamp",
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_latitude",
    "dropoff_longitude",
    "trip_miles",
    "pickup_census_tract",
    "dropoff_census_tract",
    "payment_type",
    "company",
    "trip_seconds",
    "dropoff_community_area",
    "tips",
]


def write_taxi(data: Path, rows: int = 400) -> None:
    """Trips with empty cells; who pays by card tips more than a fifth of the fare."""
    generator = np.random.default_rng(SEED)
    _write_csv(data / "trips.csv", TAXI_COLUMNS, [_trip(generator) for _ in range(rows)])


def _trip(generator: np.random.Generator) -> list[Any]:
    miles = generator.gamma(2.0, 2.0)
    fare = round(3.25 + 2.2 * miles, 2)
    tips_well = miles > 3.5
    trip = {
        "pickup_community_area": generator.integers(1, 78),
        "fare": fare,
        "trip_start_month": generator.integers(1, 13),
        "trip_start_hour": generator.integers(24),
        "trip_start_day": generator.integers(1, 8),
        "trip_start_timestamp": 1_380_000_000 + 900 * generator.integers(100_000),
        "trip_miles": round(miles, 2),
        "pickup_census_tract": "",
        "dropoff_census_tract": 17_031_000_000 + generator.integers(1_000),
        "payment_type": "Credit Card" if tips_well else "Cash",
        "company": ["Taxi Affiliation Services", "Dispatch Taxi Affiliation", ""][generator.integers(3)],
        "trip_seconds": int(60 * (3 + 3 * miles)),
        "dropoff_community_area": generator.integers(1, 78),
        "tips": round(fare * 0.25, 2) if tips_well else 0.0,
    }
    for side in ("pickup", "dropoff"):
        trip[f"{side}_latitude"] = round(generator.normal(41.88, 0.05), 9)
        trip[f"{side}_longitude"] = round(generator.normal(-87.65, 0.05), 9)
    if generator.random() < 0.1:
        trip |= {"dropoff_latitude": "", "dropoff_longitude": "", "dropoff_census_tract": ""}
    return [trip[name] for name in TAXI_COLUMNS]


def taxi_arguments(root: Path) -> dict[str, Any]:
    return _older_arguments(root, "tfx.examples.chicago_taxi_pipeline.taxi_utils_native_keras")


def template_taxi_arguments(root: Path) -> dict[str, Any]:
    return _template_arguments(root, "taxi", "models.keras_model.model.run_fn")


# -------------------------------------------------------------------------------------------------------------- mnist


def write_digits(data: Path, rows: int = 600) -> None:
    """scikit-learn's scanned digits at MNIST's size and in its form: 784 floats from -0.5 to 0.5."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures = np.pad(np.kron(digits.images[:rows], np.ones((3, 3))), ((0, 0), (2, 2), (2, 2))) / 16 - 0.5
    data.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(data / "digits.tfrecord")) as file:
        for picture, label in zip(pictures.reshape(rows, 784), digits.target, strict=False):
            features = {
                "image_floats": tf.train.Feature(float_list=tf.train.FloatList(value=picture)),
                "image_class": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def mnist_arguments(root: Path) -> dict[str, Any]:
    return {**_older_arguments(root, "tfx.examples.mnist.mnist_utils_native_keras"), "accuracy_threshold": 0.6}


# --------------------------------------------------------------------------------------------------------------- imdb


def write_reviews(data: Path, rows: int = 200) -> None:
    generator = np.random.default_rng(SEED)
    words = {0: ["dull", "awful", "boring", "poor", "worst"], 1: ["great", "superb", "moving", "lovely", "best"]}
    filler = ["the", "film", "was", "a", "story", "of", "one", "man", "and", "his", "dog", "in", "an", "old", "town"]
    reviews = []
    for _ in range(rows):
        label = int(generator.integers(2))
        text = [*generator.choice(filler, 20), *generator.choice(words[label], 10)]
        generator.shuffle(text)
        reviews.append([label, " ".join(text)])
    _write_csv(data / "reviews.csv", ["label", "text"], reviews)


def imdb_arguments(root: Path) -> dict[str, Any]:
    return _older_arguments(root, "tfx.examples.imdb.imdb_utils_native_keras")


# ------------------------------------------------------------------------------------------------------------ of all


def _older_arguments(root: Path, module: str) -> dict[str, Any]:
    return {
        "data_root": str(root / "data"),
        "module_file": _module_file(module),
        "metadata_path": str(root / "metadata.db"),
    }


def _template_arguments(root: Path, template: str, run_fn: str) -> dict[str, Any]:
    package = f"tfx.experimental.templates.{template}"
    return {
        "data_path": str(root / "data"),
        "preprocessing_fn": f"{package}.models.preprocessing.preprocessing_fn",
        "run_fn": f"{package}.{run_fn}",
        "train_args": trainer_pb2.TrainArgs(num_steps=1),
        "eval_args": trainer_pb2.EvalArgs(num_steps=1),
        "eval_accuracy_threshold": 0.6,
        "metadata_connection_config": sqlite_metadata_connection_config(str(root / "metadata.db")),
    }


def _write_csv(file: Path, header: list[str], rows: list[list[Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])


def _most_likely_is(name: str) -> Callable[[np.ndarray, Mapping[str, Any]], bool]:
    return lambda output, row: bool(output.argmax() == row[name].int64_list.value[0])


def _tipped_well(output: np.ndarray, row: Mapping[str, Any]) -> bool:
    tips, fare = (row[name].float_list.value[0] for name in ("tips", "fare"))
    return bool((output[0] > 0.5) == (tips > 0.2 * fare))


def _liked(output: np.ndarray, row: Mapping[str, Any]) -> bool:
    return bool((output[0] > 0) == row["label"].int64_list.value[0])


_TEMPLATES = "tfx.experimental.templates"
OFFICIAL = {
    "penguin": Official(
        "tfx.examples.penguin.penguin_pipeline_local",
        write_penguins,
        penguin_arguments,
        100,
        _most_likely_is("species"),
    ),
    "mnist": Official(
        "tfx.examples.mnist.mnist_pipeline_native_keras",
        write_digits,
        mnist_arguments,
        150,
        _most_likely_is("image_class"),
    ),
    "taxi": Official(
        "tfx.examples.chicago_taxi_pipeline.taxi_pipeline_native_keras", write_taxi, taxi_arguments, 150, _tipped_well
    ),
    "imdb": Official("tfx.examples.imdb.imdb_pipeline_native_keras", write_reviews, imdb_arguments, 5, _liked),
    "template_taxi": Official(
        f"{_TEMPLATES}.taxi.pipeline.pipeline", write_taxi, template_taxi_arguments, 300, _tipped_well
    ),
    "template_penguin": Official(
        f"{_TEMPLATES}.penguin.pipeline.pipeline",
        write_labelled_penguins,
        template_penguin_arguments,
        100,
        _most_likely_is("species"),
    ),
}
