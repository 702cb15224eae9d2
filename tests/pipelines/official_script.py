"""Runs some of TFX's own pipelines with our components in the place of theirs: `official_script.py ROOT NAME...`.

In a process of its own: which Keras `tf.keras` is, TensorFlow decides once, by the variable TF_USE_LEGACY_KERAS.
ROOT/NAME/models.json says where the models of our Trainer and of TFX's own are, or ROOT/NAME/error.txt why not.
"""

import gc
import json
import os
import sys
import traceback
from pathlib import Path

import tensorflow as tf
from official_pipelines import OFFICIAL, SEED, build, trainers
from tensorflow.python.autograph.core import config as autograph
from tfx.components import Trainer as TfxTrainer
from tfx.orchestration.local.local_dag_runner import LocalDagRunner

from infeed.components import CsvExampleGen, ImportExampleGen, StatisticsGen, Trainer, Transform, Tuner
from infeed.components.engine.beam_runner import local_runner

# Trained by TFX's own Trainer too, and compared: of those that it can train under Keras 3 the one with most features.
COMPARED = ("template_taxi",)


def run(name: str, root: Path) -> dict[str, str]:
    """The models that came of it, by whose Trainer made them."""
    kinds = [Trainer, TfxTrainer] if name in COMPARED else [Trainer]
    replaced = {
        "CsvExampleGen": CsvExampleGen,
        "ImportExampleGen": ImportExampleGen,
        "StatisticsGen": StatisticsGen,
        "Transform": Transform,
        "Tuner": Tuner,
        "Trainer": trainers(OFFICIAL[name], *kinds),
    }
    # Of 80 unlucky first weights of the penguin template's 16 hidden units, one set never learned the third species.
    tf.keras.utils.set_random_seed(SEED)
    with local_runner():
        LocalDagRunner().run(build(OFFICIAL[name], root, replaced))
    (pushed,) = (root / "serving").iterdir()
    models = {"infeed": str(pushed)}
    for folder in (root / "artifacts" / "OtherTrainer").glob("model/*/Format-Serving"):
        models["tfx"] = str(folder)
    return models


def spare_time() -> None:
    """Without this, a process of tf_keras takes half as long again."""
    gc.freeze()  # TFX is a million objects that stay
    gc.set_threshold(100_000, 50, 100)
    # AutoGraph leaves Keras's own code as it is, by the name `keras`; the same code as `tf_keras` it would translate.
    autograph.CONVERSION_RULES = (autograph.DoNotConvert("tf_keras"), *autograph.CONVERSION_RULES)


if __name__ == "__main__":
    spare_time()
    for name in sys.argv[2:]:
        root = Path(sys.argv[1], name)
        try:
            (root / "models.json").write_text(json.dumps(run(name, root)))
        except Exception:  # the others are run all the same
            (root / "error.txt").write_text(traceback.format_exc())
        os.environ["UNSUPPORTED_DO_NOT_PACKAGE_USER_MODULES"] = "1"  # one was enough of wheels made of user modules
