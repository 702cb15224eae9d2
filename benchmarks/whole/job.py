"""Run one whole job in a new process, from a CSV to a pushed model: as in TFX's guides, the same lean, or ours.

    python benchmarks/whole/job.py tfx FOLDER ROWS

`benchmarks/whole.py` starts this script. It writes the cost of each node to `nodes.jsonl` in the folder, one per line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
EPOCHS = 3
_LEAST_ACCURACY = 0.5


def main(side: str, folder: Path, rows: int) -> None:
    """Run a job in `folder`, which holds the table in `data`."""
    measure_nodes(folder / "nodes.jsonl")
    JOBS[side](folder, rows)


def measure_nodes(file: Path) -> None:
    """Make TFX's launcher, which both sides use, write the cost of each node."""
    from clock import Stopwatch
    from tfx.orchestration.portable import launcher

    class Launcher(launcher.Launcher):
        def __init__(self, pipeline_node: Any, **more: Any) -> None:
            super().__init__(pipeline_node=pipeline_node, **more)
            self.node = pipeline_node.node_info.id

        def launch(self) -> Any:
            watch = Stopwatch()
            try:
                return super().launch()
            finally:
                cost = watch.cost
                with file.open("a") as lines:
                    lines.write(json.dumps({"node": self.node, "cpu": cost.cpu, "wall": cost.wall}) + "\n")

    launcher.Launcher = Launcher


def run_tfx(folder: Path, rows: int, *, lean: bool = False) -> None:
    """Run the components as in TFX's guides with LocalDagRunner.

    Args:
      lean: name functions by import path, because TFX builds and installs a wheel of a module file for each component;
        and run Transform without statistics and cache.
    """
    from tfx import v1 as tfx

    sys.path.insert(0, str(HERE))
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="whole",
        pipeline_root=str(folder / "artifacts"),
        components=_components(folder, rows, lean),
        enable_cache=True,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(folder / "metadata.sqlite")
        ),
    )
    tfx.orchestration.LocalDagRunner().run(pipeline)
    if not list((folder / "serving").glob("*/saved_model.pb")):
        raise SystemExit("TFX pushed no model")


def _components(folder: Path, rows: int, lean: bool) -> list[Any]:
    import guide
    from tfx import v1 as tfx

    module = {"module_file": str(HERE / "guide.py")}
    by_name = {"preprocessing_fn": "guide.preprocessing_fn"}
    less = {"disable_statistics": True, "disable_analyzer_cache": True}
    steps = EPOCHS * (2 * rows // 3) // guide.BATCH_SIZE
    gen = tfx.components.CsvExampleGen(input_base=str(folder / "data"))
    examples = gen.outputs["examples"]
    statistics = tfx.components.StatisticsGen(examples=examples)
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
    schema_of = {"schema": schema.outputs["schema"]}
    validator = tfx.components.ExampleValidator(statistics=statistics.outputs["statistics"], **schema_of)
    transform = tfx.components.Transform(examples=examples, **schema_of, **({**by_name, **less} if lean else module))
    trainer = tfx.components.Trainer(
        **({"run_fn": "guide.run_fn"} if lean else module),
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        **schema_of,
        train_args=tfx.proto.TrainArgs(num_steps=max(1, steps)),
        eval_args=tfx.proto.EvalArgs(num_steps=max(1, rows // 3 // guide.BATCH_SIZE)),
    )
    model = trainer.outputs["model"]
    evaluator = tfx.components.Evaluator(examples=examples, model=model, eval_config=_eval_config(guide.LABEL))
    pusher = tfx.components.Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=str(folder / "serving"))
        ),
    )
    return [gen, statistics, schema, validator, transform, trainer, evaluator, pusher]


def _eval_config(label: str) -> Any:
    import tensorflow_model_analysis as tfma

    bound = tfma.GenericValueThreshold(lower_bound={"value": _LEAST_ACCURACY})
    accuracy = tfma.MetricConfig(
        class_name="SparseCategoricalAccuracy", threshold=tfma.MetricThreshold(value_threshold=bound)
    )
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default", preprocessing_function_names=["transform_features"], label_key=label
            )
        ],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[tfma.MetricsSpec(metrics=[tfma.MetricConfig(class_name="ExampleCount"), accuracy])],
    )


def run_infeed(folder: Path, rows: int) -> None:
    """Run `infeed run` on a project with the same features, model, batch size and steps; it also writes a report."""
    sys.path.insert(0, str(HERE))
    import guide

    from infeed.pipelines.cli import main as infeed

    features = [
        *({"kind": "z_score", "column": name} for name in guide.NUMBERS),
        *({"kind": "vocabulary", "column": name} for name in guide.WORDS),
        {"kind": "label", "column": guide.LABEL},
    ]
    config = {
        "source": "csv",
        "data": str(folder / "data" / "table.csv"),
        "label": guide.LABEL,
        "features": features,
        "model": str(HERE / "guide.py") + ":build_model",
        "train": {"epochs": EPOCHS, "batch_size": guide.BATCH_SIZE},
        "blessing": {"metric": "accuracy", "bound": _LEAST_ACCURACY},
        "root": str(folder / "infeed"),
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is valid YAML
    infeed(["run", str(folder / "config.yaml"), "--json"])


JOBS: dict[str, Callable[[Path, int], None]] = {
    "tfx": run_tfx,
    "tfx lean": lambda folder, rows: run_tfx(folder, rows, lean=True),
    "infeed": run_infeed,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
