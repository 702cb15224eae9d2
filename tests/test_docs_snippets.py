"""Every Python snippet and `sh` block of the pages runs as it stands, snippets twice in one folder.

Other blocks only show commands: `test_docs.py` checks their names and options.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import infeed
from infeed.components.dataset.options import IngestOptions

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "templates").glob("*/*.md")]
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
BLOCKS = {str(page.relative_to(ROOT)): found for page in PAGES if (found := COMMANDS.findall(page.read_text()))}
SNIPPETS = {str(page.relative_to(ROOT)): found for page in PAGES if (found := SNIPPET.findall(page.read_text()))}
NOT_RUN = {
    "CONTRIBUTING.md": "shows how errors and docstrings are written, not what to run",
}
RUN_ELSEWHERE = {
    "docs/inputs.md": "tests/components/trainer/test_own_input.py",  # all but the first two: each feeds a training
    # The programs of other libraries are in tests/test_docs_readers.py.
    "docs/sources.md": "tests/components/example_gen/test_component.py",  # the last of the page
}


def write_tables(folder: Path) -> None:
    """`trips.csv` and datasets of it: fare, tips, ages and cities with missing cells, and y = 2 * x1 - x2."""
    lines = ["fare,tips,age,city,x1,x2,y,income"]
    for row in range(300):
        x1, x2 = row % 7 / 7, row % 11 / 11
        age, city = ("", "") if row % 9 == 0 else (row, f"c{row % 4}")
        lines.append(f"{row / 2},{row % 2},{age},{city},{x1},{x2},{2 * x1 - x2},{'high' if x1 > x2 else 'low'}")
    (folder / "trips.csv").write_text("\n".join(lines))
    for name in ("data", "out", "dataset"):
        infeed.ingest(folder / "trips.csv", folder / name)


def of_components(folder: Path) -> dict[str, Any]:
    """The nodes that the snippets connect."""
    import tensorflow_model_analysis as tfma
    from tfx import v1 as tfx

    (folder / "my_package").mkdir(exist_ok=True)
    for model in ("model.py", "my_package/model.py"):
        (folder / model).write_text("def build_model(spec): ...\n")
    (folder / "trainer.py").write_text("def run_fn(fn_args): ...\n")
    (folder / "preprocessing.py").write_text("def preprocessing_fn(inputs): return inputs\n")
    components = infeed.components
    example_gen = components.CsvExampleGen(input_base=str(folder))
    examples = example_gen.outputs["examples"]
    statistics = components.StatisticsGen(examples=examples)
    schema_gen = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    transform = components.Transform(
        examples=examples, schema=schema_gen.outputs["schema"], features=[components.ZScore("fare")]
    )
    trainer = components.Trainer(
        examples=examples,
        transform_graph=transform.outputs["transform_graph"],
        options=components.TrainOptions(model_fn="model.py:build_model", label="tips"),
    )
    resolver = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    )
    eval_config = tfma.EvalConfig(model_specs=[tfma.ModelSpec(label_key="tips")])
    evaluator = components.Evaluator(examples=examples, model=trainer.outputs["model"], eval_config=eval_config)
    return {**locals(), "rides": example_gen}


def of_run_fn(folder: Path) -> dict[str, Any]:
    """The nodes of the page, and a model for its `run_fn`, which `then` runs."""
    import keras

    def my_model() -> Any:
        inputs = {"fare": keras.Input([1], name="fare")}
        model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(inputs["fare"]))
        model.compile("sgd", "binary_crossentropy")
        return model

    return {**of_components(folder), "my_model": my_model}


def train(names: dict[str, Any], folder: Path) -> None:
    """Run the `run_fn` of the page on raw Examples."""
    from types import SimpleNamespace

    infeed.ingest(
        folder / "trips.csv", folder / "rides", options=IngestOptions(columns=("fare", "tips")), overwrite=True
    )
    schema = "".join(
        f'feature {{ name: "{name}" type: {kind} shape {{ dim {{ size: 1 }} }} presence {{ min_fraction: 1 }} }}\n'
        for name, kind in (("fare", "FLOAT"), ("tips", "INT"))
    )
    (folder / "schema.pbtxt").write_text(schema)
    names["run_fn"](
        SimpleNamespace(
            train_files=[f"{folder}/rides/Split-train/*"],
            eval_files=[f"{folder}/rides/Split-eval/*"],
            schema_path=f"{folder}/schema.pbtxt",
            transform_graph_path=None,
            data_accessor=SimpleNamespace(tf_dataset_factory=None),
            serving_model_dir=f"{folder}/model",
            custom_config={},
            train_steps=None,
        )
    )
    assert (folder / "model").is_dir()


@dataclass(frozen=True)
class Setting:
    """What a page's snippets find: names and files; and what happens after them."""

    names: Callable[[Path], dict[str, Any]] = lambda folder: {}
    then: Callable[[dict[str, Any], Path], None] = lambda names, folder: None
    snippets: slice = field(default_factory=lambda: slice(None))
    marks: tuple[pytest.MarkDecorator, ...] = ()


TFX, SLOW, FRAMEWORKS = (pytest.mark.tfx,), (pytest.mark.slow,), (pytest.mark.frameworks,)
SETTINGS = {
    "README.md": Setting(snippets=slice(1, None)),
    "README.md, components": Setting(of_components, snippets=slice(0, 1), marks=TFX),
    "docs/drop-in.md": Setting(of_components, marks=TFX),
    "docs/evaluation.md": Setting(of_components, marks=TFX),
    "docs/feed.md": Setting(marks=SLOW),
    "docs/images.md": Setting(marks=SLOW),
    "docs/index.md": Setting(),
    "docs/ingest.md": Setting(marks=TFX),
    "docs/inputs.md, options": Setting(snippets=slice(0, 2), marks=SLOW),
    "docs/load.md": Setting(marks=FRAMEWORKS),
    "docs/predict.md": Setting(of_components, marks=TFX),
    "docs/sources.md": Setting(snippets=slice(-2, -1), marks=TFX),
    "docs/statistics.md": Setting(of_components, marks=TFX),
    "docs/training.md": Setting(of_run_fn, train, marks=TFX),
    "docs/transform.md": Setting(of_components, marks=TFX),
}


def test_every_snippet_runs_here_or_elsewhere_or_has_a_reason() -> None:
    run = {page.partition(",")[0] for page in SETTINGS}
    assert set(SNIPPETS) == run | RUN_ELSEWHERE.keys() | NOT_RUN.keys()
    assert all((ROOT / test).exists() for test in RUN_ELSEWHERE.values())


@pytest.mark.parametrize("page", [pytest.param(page, marks=one.marks) for page, one in SETTINGS.items()])
def test_the_snippets_of_a_page_run_twice(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, found = SETTINGS[page], SNIPPETS[page.partition(",")[0]]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))  # of the cache
    write_tables(tmp_path)
    for _ in range(2):
        names = setting.names(tmp_path)
        for snippet in found[setting.snippets]:
            exec(compile(snippet, page, "exec"), names)
        setting.then(names, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", BLOCKS)
def test_the_command_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    write_tables(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for block in BLOCKS[page]:
        subprocess.run(["sh", "-euc", block], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
