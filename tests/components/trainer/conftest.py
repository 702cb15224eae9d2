"""A small table and small pictures as Examples with a transform graph, and training on them as TFX would do it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tf_examples import serialize

sys.path.append(str(Path(__file__).parent))  # for `loop_script` and other modules beside the tests
ROWS = 96
RUN_SCRIPT = Path(__file__).with_name("run_script.py")

MODELS = """
import json, os, signal
import keras
import numpy as np

def table(spec):
    inputs = {name: keras.Input([1], name=name) for name in spec.inputs}
    x = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(len(spec.classes), activation="softmax")(x))
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

def only_x(spec):
    x = keras.Input([1], name="x")
    model = keras.Model([x], keras.layers.Dense(1)(x))
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    return model

def table_of_xz(spec):
    inputs = [keras.Input([1], name=name) for name in ("x", "z")]
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.Concatenate()(inputs)))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model

def dropping(spec):
    inputs = {name: keras.Input([1], name=name) for name in spec.inputs}
    x = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(list(inputs.values())))
    x = keras.layers.Dense(len(spec.classes), activation="softmax")(keras.layers.Dropout(0.5)(x))
    model = keras.Model(inputs, x)
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

def search(hp):
    hp.Choice("units", [3, 5])

def tuned(spec):
    inputs = {name: keras.Input([1], name=name) for name in spec.inputs}
    x = keras.layers.Dense(spec.hparams["units"], activation="relu")(keras.layers.Concatenate()(list(inputs.values())))
    model = keras.Model(inputs, keras.layers.Dense(len(spec.classes), activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy", steps_per_execution=2)
    return model

def callbacks(spec):
    return [Watch(spec.folder)]

class Watch(keras.callbacks.Callback):
    def __init__(self, folder):
        super().__init__()
        self._folder, self.steps = folder, 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == int(os.environ.get("KILL_AFTER", 0)):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, logs=None):
        os.makedirs(self._folder, exist_ok=True)
        np.savez(f"{self._folder}/weights.npz", *[weight.numpy() for weight in self.model.weights])
        with open(f"{self._folder}/history.json", "w") as file:
            json.dump(self.model.history.history, file, default=float)

def preprocessing_fn(inputs):
    return {name: inputs[name] for name in ("word", "place", "x")}

def adapted(layer, values):
    layer.adapt(np.array(values))
    return layer

def looking_up(spec):
    inputs = {name: keras.Input([1], name=name, dtype=tensor.dtype.name) for name, tensor in spec.inputs.items()}
    word, place, x = (inputs[name] for name in ("word", "place", "x"))
    indices = [
        adapted(keras.layers.StringLookup(), [["to"], ["from"], ["to"]])(word),
        adapted(keras.layers.IntegerLookup(), [[1], [3], [3]])(place),
        keras.layers.Hashing(8)(word),
    ]
    columns = [keras.layers.Flatten()(keras.layers.Embedding(8, 2)(index)) for index in indices]
    columns.append(adapted(keras.layers.Normalization(), [[3.0], [5.0], [8.0]])(x))
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(columns))
    hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization(momentum=0.5)(hidden))
    model = keras.Model(inputs, keras.layers.Dense(len(spec.classes), activation="softmax")(hidden))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model

def number(spec):
    inputs = {name: keras.Input([1], name=name) for name in spec.inputs}
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(list(inputs.values()))))
    model.compile("sgd", "mse")
    return model

def heads(spec):
    x = keras.Input([1], name="x")
    kinds = {"regression": (None, "mse"), "classification": ("softmax", "sparse_categorical_crossentropy")}
    kinds["multilabel"] = ("sigmoid", "binary_crossentropy")
    outputs = {
        name: keras.layers.Dense(len(label.classes) or 1, kinds[label.task][0])(x)
        for name, label in spec.outputs.items()
    }
    model = keras.Model({"x": x}, outputs)
    losses = {name: kinds[label.task][1] for name, label in spec.outputs.items()}
    model.compile(keras.optimizers.Adam(0.01), losses, metrics={"price": ["mae"], "sold": ["accuracy"]})
    return model

def picture(spec):
    image = keras.Input(spec.inputs["image"].shape, name="image")
    model = keras.Model({"image": image}, keras.layers.Dense(2, activation="softmax")(keras.layers.Flatten()(image)))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

def segment(spec):
    image = keras.Input(spec.inputs["image"].shape, name="image")
    x = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    model = keras.Model({"image": image}, keras.layers.Conv2D(2, 1, activation="softmax")(x))
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=255)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    return model

def locate(spec):
    image = keras.Input(spec.inputs["image"].shape, name="image")
    x = keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(image))
    model = keras.Model({"image": image}, keras.layers.Dense(4)(x))
    model.compile(keras.optimizers.Adam(0.005), "mse")
    return model
"""


def write_examples(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A third of the rows to eval, in the layout of an Examples artifact, without a manifest."""
    import tensorflow as tf

    for split, part in (("train", rows[ROWS // 3 :]), ("eval", rows[: ROWS // 3])):
        (folder / f"Split-{split}").mkdir(parents=True)
        path = str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz")
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for row in part:
                writer.write(serialize(row))


def write_graph(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    spec: Mapping[str, Any],
    features: Any,
    preprocessing_fn: str | None = None,
) -> str:
    """The transform graph of the features and of a user's function, analyzed on the rows."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import metadata_io

    from infeed.components.base import user_code
    from infeed.components.transform import declared
    from infeed.components.transform.columns import TracedPass, analyze

    metadata = tft.DatasetMetadata.from_feature_spec(dict(spec))
    vocabularies = folder / "vocabularies"
    vocabularies.mkdir(parents=True)
    batch = tf.io.parse_example([serialize({name: row[name] for name in spec}) for row in rows], dict(spec))
    found = analyze(features, lambda one: TracedPass(one).over([batch]), {})
    if not preprocessing_fn:
        declared.write_graph(str(folder / "graph"), features, metadata.schema, found, str(vocabularies))
        return str(folder / "graph")
    own = user_code.load(preprocessing_fn, "preprocessing_fn")
    lists = [{name: _as_list(row[name]) for name in spec} for row in rows]
    with tft_beam.Context(temp_dir=str(folder / "tmp")):
        both = declared.make_preprocessing_fn(features, own, found, str(vocabularies))
        graph = (lists, metadata) | tft_beam.AnalyzeDataset(both)
        graph | tft_beam.WriteTransformFn(str(folder / "graph"))
    metadata_io.write_metadata(metadata, str(folder / "graph" / "metadata"))  # TFX's executor adds the raw schema too
    return str(folder / "graph")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed's own cache lies in the home folder, where tests leave nothing behind."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def meter() -> SimpleNamespace:
    """A meter that says what it is told to."""
    made = SimpleNamespace(seconds=[0.0])
    made.reset = lambda: setattr(made, "seconds", [0.0])
    return made


@pytest.fixture(scope="session")
def example() -> Callable[[Mapping[str, Any]], bytes]:
    """example({"x": 1.0}) -> a serialized tf.Example."""
    return serialize


@pytest.fixture(scope="session")
def table(once: Callable[..., Path]) -> tuple[Path, list[dict[str, Any]]]:
    """x decides the class, z is often missing, n is a number to predict."""
    import tensorflow as tf

    from infeed.components.transform.kinds.label import Label
    from infeed.components.transform.kinds.scale import ZScore

    x = np.random.default_rng(0).normal(5, 2, ROWS)
    rows = [
        {"x": float(v), "z": None if i % 3 else float(v), "kind": b"big" if v > 5 else b"small", "n": float(2 * v)}
        for i, v in enumerate(x)
    ]
    one, some = tf.io.FixedLenFeature([1], tf.float32), tf.io.VarLenFeature(tf.float32)
    spec = {"x": one, "z": some, "kind": tf.io.FixedLenFeature([1], tf.string), "n": one}

    def write(folder: Path) -> None:
        write_examples(folder, rows)
        write_graph(folder / "class", rows, spec, [ZScore("x"), ZScore("z"), Label("kind")])
        write_graph(folder / "number", rows, spec, [ZScore("x"), ZScore("z"), Label("n", task="regression")])

    return once("table", write), rows


@pytest.fixture(scope="session")
def sales(once: Callable[..., Path]) -> tuple[Path, list[dict[str, Any]]]:
    """x decides three labels: a price, whether it is sold, and colors. `offer` is the price, or missing if x > 1."""
    import tensorflow as tf

    from infeed.components.transform.kinds.clean import Fill
    from infeed.components.transform.kinds.label import Label

    rows = [
        {
            "x": float(x),
            "euros": float(3 * x + 1),
            "sold": b"yes" if x > 0 else b"no",
            "colors": [b"red"] * bool(x > 0) + [b"blue"] * bool(x < 1) + [b"green"] * bool(x < -1),
            "importance": float(1 + (x > 0)),
            "offer": None if x > 1 else float(3 * x + 1),
        }
        for x in np.random.default_rng(0).normal(0, 1, ROWS)
    ]
    spec: dict[str, Any] = dict.fromkeys(("x", "euros", "importance"), tf.io.FixedLenFeature([1], tf.float32))
    spec |= {"sold": tf.io.FixedLenFeature([1], tf.string), "colors": tf.io.VarLenFeature(tf.string)}
    spec |= {"offer": tf.io.VarLenFeature(tf.float32)}
    labels = [Label("euros", "regression"), Label("offer", "regression", "mark"), Label("sold")]
    features = [Fill("x", 0.0), Fill("importance", 1.0), *labels, Label("colors", "multilabel")]

    def write(folder: Path) -> None:
        write_examples(folder, rows)
        write_graph(folder / "all", rows, spec, features)

    return once("sales", write), rows


@pytest.fixture(scope="session")
def pictures(once: Callable[..., Path]) -> tuple[Path, list[dict[str, Any]]]:
    """Dark and light pictures of 6 x 6 gray pixels."""
    import tensorflow as tf

    from infeed.components.transform.kinds.image import DecodeImage
    from infeed.components.transform.kinds.label import Label

    draw, rows = np.random.default_rng(0), []
    for i in range(ROWS):
        pixels = draw.integers(0, 100, (6, 6)) + 155 * (i % 2)
        rows.append({"image/encoded": png(pixels.astype(np.uint8)), "label/text": [b"dark", b"light"][i % 2]})
    spec = {name: tf.io.FixedLenFeature([1], tf.string) for name in rows[0]}
    features = [DecodeImage(height=6, width=6, channels=1), Label("label/text")]

    def write(folder: Path) -> None:
        write_examples(folder, rows)
        write_graph(folder / "class", rows, spec, features)

    return once("pictures", write), rows


@pytest.fixture(scope="session")
def scenes(once: Callable[..., Path]) -> tuple[Path, list[dict[str, Any]]]:
    """A light rectangle of gray noise in each picture of 16 x 16 pixels, its mask and its box."""
    import tensorflow as tf

    from infeed.components.transform.kinds.clean import Fill
    from infeed.components.transform.kinds.image import DecodeImage

    draw, rows = np.random.default_rng(0), []
    for _ in range(ROWS):
        (top, left), (height, width) = draw.integers(0, 8, 2), draw.integers(4, 8, 2)
        mask = np.zeros((16, 16), np.uint8)
        mask[top : top + height, left : left + width] = 1
        box = [float(edge) / 16 for edge in (top, left, top + height, left + width)]
        pixels = (draw.integers(0, 100, (16, 16)) + 120 * mask).astype(np.uint8)
        rows.append({"image/encoded": png(pixels), "mask/encoded": png(mask), "boxes": box})
    spec = {
        "image/encoded": tf.io.FixedLenFeature([1], tf.string),
        "mask/encoded": tf.io.FixedLenFeature([1], tf.string),
        "boxes": tf.io.FixedLenFeature([4], tf.float32),
    }
    masks = DecodeImage(16, 16, channels=1, column="mask/encoded", output="mask", method="nearest")
    features = [DecodeImage(16, 16, channels=1), masks, Fill("boxes", 0.0, values="all", length=4)]

    def write(folder: Path) -> None:
        write_examples(folder, rows)
        write_graph(folder / "both", rows, spec, features)

    return once("scenes", write), rows


def png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    return encoded.getvalue()


@pytest.fixture(scope="session")
def words(once: Callable[..., Path]) -> tuple[Path, list[dict[str, Any]]]:
    """A word, a whole number and a number, which a user's `preprocessing_fn` hands to the model as they are."""
    import tensorflow as tf

    from infeed.components.transform.kinds.label import Label

    rows = [
        {"word": [b"to", b"from", b"by"][i % 3], "place": i % 5, "x": float(i), "kind": [b"low", b"high"][i % 2]}
        for i in range(ROWS)
    ]
    kinds = {"word": tf.string, "place": tf.int64, "x": tf.float32, "kind": tf.string}
    spec = {name: tf.io.FixedLenFeature([1], kind) for name, kind in kinds.items()}

    def write(folder: Path) -> None:
        (folder / "user.py").write_text(MODELS)
        write_examples(folder, rows)
        write_graph(folder / "class", rows, spec, [Label("kind")], f"{folder}/user.py:preprocessing_fn")

    return once("words", write), rows


def fn_args(
    place: Path,
    folder: Path,
    graph: str,
    model: str,
    *,
    steps: int | None = None,
    base_model: str | None = None,
    **options: Any,
) -> Any:
    """Arguments of FnArgs: train on the examples in `folder`, write `model` and `run` into `place`.

    `model` is one of `MODELS`, or named as users name theirs.
    """
    from infeed.components.feed.options import FeedOptions
    from infeed.components.trainer.options import TrainOptions

    (place / "models.py").write_text(MODELS)
    settings = {"epochs": 2, "feed": FeedOptions(batch_size=16)} | options
    if ":" not in settings.get("callbacks_fn", ":"):
        settings["callbacks_fn"] = f"{place}/models.py:{settings['callbacks_fn']}"
    train_options = TrainOptions(model_fn=model if ":" in model else f"{place}/models.py:{model}", **settings)
    return {
        "train_files": [f"{folder}/Split-train/*"],
        "eval_files": [f"{folder}/Split-eval/*"],
        "train_steps": steps,
        "base_model": base_model,
        "transform_graph_path": str(folder / graph / "graph"),
        "serving_model_dir": str(place / "model"),
        "model_run_dir": str(place / "run"),
        "custom_config": {"infeed": train_options.to_dict()},
    }


@pytest.fixture(scope="session")
def arguments() -> Callable[..., dict[str, Any]]:
    """arguments(place, folder, graph, model, steps=None, **options) -> those of TFX's FnArgs."""
    return fn_args


def train_here(place: Path, *args: Any, hyperparameters: Any = None, **options: Any) -> Path:
    """Trains in this process, with the arguments of `fn_args`, and returns `place`."""
    from tfx.components.trainer.fn_args_utils import FnArgs

    from infeed.components.trainer.loop import measure_ceiling
    from infeed.components.trainer.run_fn import run_fn

    place.mkdir(exist_ok=True)
    arguments = fn_args(place, *args, **options)
    (place / "fn_args_0.json").write_text(json.dumps(arguments))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(measure_ceiling.__kwdefaults__, "seconds", 0.05)
        run_fn(FnArgs(hyperparameters=hyperparameters, **arguments))
    return place


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Path]:
    """train(folder, graph, model, steps=None, hyperparameters=None, place=None, **options) -> `place` with the results.

    They are the folders `model` and `run`; a place of its own is the test's `tmp_path`.
    """

    def run(*args: Any, place: Path = tmp_path, **options: Any) -> Path:
        return train_here(place, *args, **options)

    return run


@pytest.fixture(scope="session")
def train_into() -> Callable[..., Path]:
    """train_into(place, *as in train) -> `place`: for fixtures that several tests share."""

    def run(place: Path, *args: Any, **options: Any) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(place))
            return train_here(place, *args, **options)

    return run


@pytest.fixture(scope="session")
def classifier(
    table: tuple[Path, list[dict[str, Any]]], train_into: Callable[..., Path], once: Callable[..., Path]
) -> Path:
    """A model of the table's classes, trained for 12 epochs: the folders `model` and `run`."""
    return once("classifier", lambda place: train_into(place, table[0], "class", "table", label="kind", epochs=12))


class Started:
    """A training in a process of its own. What it prints goes to a file: a full pipe would stop it."""

    def __init__(self, place: Path, arguments: Mapping[str, Any], env: Mapping[str, str]) -> None:
        number = len(list(place.glob("fn_args_*")))
        file, self._log = place / f"fn_args_{number}.json", place / f"log_{number}.txt"
        file.write_text(json.dumps(arguments))
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, RUN_SCRIPT, file], env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT
            )

    def finish(self) -> tuple[int, str]:
        """Exit code and what was printed."""
        return self.process.wait(timeout=300), self._log.read_text()


@pytest.fixture
def start(warm: Mapping[str, str]) -> Iterator[Callable[..., Started]]:
    """start(place, *as in train, env={}) -> a process that trains into `place`; whatever happens, it ends."""
    started: list[Started] = []

    def run(place: Path, *args: Any, env: Mapping[str, str] | None = None, **options: Any) -> Started:
        place.mkdir(exist_ok=True)
        started.append(Started(place, fn_args(place, *args, **options), {**warm, **(env or {})}))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.fixture
def answers_alike(saved_models: ModuleType) -> Callable[..., None]:
    """answers_alike(place, rows, tolerance=1e-5): all signatures, by all loaders, give what the model in memory says.

    The training that wrote into `place` had `callbacks_fn="callbacks"`.
    """
    import served

    loaders = (saved_models.by_python, saved_models.by_session, saved_models.by_cpp)
    return partial(served.check_all_answers, example=serialize, loaders=loaders)
