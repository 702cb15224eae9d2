"""Each component in somebody else's pipeline: ours among TFX's own, TFX's own among ours, under TFX's own runner."""

import pytest

pytestmark = pytest.mark.tfx

# How people write these for TFX's own components.
MODULE = """
import keras
import tensorflow as tf
import tensorflow_transform as tft
from tfx_bsl.public import tfxio

NUMBERS = ["mean_radius", "mean_texture"]
LABEL = "diagnosis"


def preprocessing_fn(inputs):
    outputs = {}
    for name in NUMBERS:
        dense = inputs[name]
        if isinstance(dense, tf.SparseTensor):
            dense = tft.sparse_tensor_to_dense_with_shape(dense, [None, 1])
        outputs[name] = tft.scale_to_z_score(dense)
    outputs[LABEL] = tft.compute_and_apply_vocabulary(inputs[LABEL], vocab_filename=LABEL)
    return outputs


def run_fn(fn_args):
    graph = tft.TFTransformOutput(fn_args.transform_output)
    options = tfxio.TensorFlowDatasetOptions(batch_size=32, label_key=LABEL)
    train = fn_args.data_accessor.tf_dataset_factory(
        fn_args.train_files, options, graph.transformed_metadata.schema
    )
    inputs = {name: keras.Input([1], name=name) for name in NUMBERS}
    x = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(train, steps_per_epoch=fn_args.train_steps, verbose=2)
    model.export(fn_args.serving_model_dir)


def build_model(spec):
    inputs = {name: keras.Input([1], name=name) for name in NUMBERS}
    x = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
"""
COLUMNS = ("mean_radius", "mean_texture", "diagnosis")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Three columns of the table, with empty cells, and the user's module."""
    import pandas

    from infeed.pipelines.project.sources import materialise

    root = tmp_path_factory.mktemp("drop_in")
    (root / "data").mkdir()
    table = pandas.read_csv(materialise("bundled:breast_cancer", root))
    table[list(COLUMNS)].to_csv(root / "data" / "table.csv", index=False)
    (root / "code").mkdir()
    (root / "code" / "user.py").write_text(MODULE)
    return root


def example_gen(home, whose):
    from tfx.components import CsvExampleGen as TfxCsvExampleGen

    from infeed.components import CsvExampleGen

    kind = CsvExampleGen if whose == "infeed" else TfxCsvExampleGen
    return kind(input_base=str(home / "data"))


def statistics_gen(whose, examples):
    from tfx.components import StatisticsGen as TfxStatisticsGen

    from infeed.components import StatisticsGen

    return (StatisticsGen if whose == "infeed" else TfxStatisticsGen)(examples=examples)


def transform(home, whose, examples, schema):
    from tfx.components import Transform as TfxTransform

    from infeed.components import Label, Transform, ZScore

    if whose == "tfx":
        module = str(home / "code" / "user.py")
        return TfxTransform(examples=examples, schema=schema, module_file=module, disable_statistics=True)
    features = [ZScore("mean_radius"), ZScore("mean_texture"), Label("diagnosis")]
    return Transform(examples, schema, features=features, materialize=True)


def trainer(home, whose, transform):
    from tfx.components import Trainer as TfxTrainer
    from tfx.proto import trainer_pb2

    from infeed.components import FeedOptions, Trainer, TrainOptions

    given = {
        "examples": transform.outputs["transformed_examples"],
        "transform_graph": transform.outputs["transform_graph"],
        "train_args": trainer_pb2.TrainArgs(num_steps=20),
        "eval_args": trainer_pb2.EvalArgs(num_steps=2),
    }
    module = str(home / "code" / "user.py")
    if whose == "tfx":
        return TfxTrainer(module_file=module, **given)
    options = TrainOptions(model_fn=f"{module}:build_model", label="diagnosis", feed=FeedOptions(batch_size=32))
    return Trainer(options=options, **given)


# Who makes the rows, the features and the model. The first hands over everything from each to the other.
HERE = [("infeed", "tfx", "infeed")]
IN_IMAGE = [
    ("tfx", "infeed", "tfx"),
    ("infeed", "tfx", "tfx"),
    ("tfx", "tfx", "infeed"),
    ("tfx", "infeed", "infeed"),
    ("infeed", "infeed", "tfx"),
]


@pytest.fixture(scope="module")
def models(request, home):
    """Mix -> folder of its model. One pipeline trains them all, so that what several have in common runs once."""
    from tfx.components import SchemaGen
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.orchestration.metadata import sqlite_metadata_connection_config
    from tfx.orchestration.pipeline import Pipeline

    mixes = [item.callspec.params["mix"] for item in request.session.items if item.path == request.path]
    nodes = {}

    def rows(whose, described_by):
        made = nodes[f"{whose}_rows"] = example_gen(home, whose)
        statistics = nodes[f"{whose}_statistics"] = statistics_gen(described_by, made.outputs["examples"])
        schema = SchemaGen(statistics=statistics.outputs["statistics"], infer_feature_shape=True)
        nodes[f"{whose}_schema"] = schema
        return made.outputs["examples"], schema.outputs["schema"]

    read = {"infeed": rows("infeed", "tfx"), "tfx": rows("tfx", "infeed")}
    with pytest.MonkeyPatch.context() as patch:
        # Else TFX makes wheels of the module, with pip install for each node; test_official.py holds that they work.
        patch.setenv("UNSUPPORTED_DO_NOT_PACKAGE_USER_MODULES", "1")
        for rows_by, features_by, model_by in mixes:
            mix = f"{rows_by}_{features_by}"
            if mix not in nodes:
                nodes[mix] = transform(home, features_by, *read[rows_by])
            nodes[f"{mix}_{model_by}"] = trainer(home, model_by, nodes[mix])
    pipeline = Pipeline(
        pipeline_name="mixed",
        pipeline_root=str(home / "root"),
        components=[node.with_id(name) for name, node in nodes.items()],
        metadata_connection_config=sqlite_metadata_connection_config(str(home / "metadata.sqlite")),
    )
    LocalDagRunner().run(pipeline)
    return {mix: home / "root" / "_".join(mix) / "model" for mix in mixes}


@pytest.mark.parametrize(
    "mix", [*HERE, *(pytest.param(mix, marks=pytest.mark.image) for mix in IN_IMAGE)], ids="-".join
)
def test_a_pipeline_of_both(models, mix):
    import tensorflow as tf

    (exported,) = models[mix].glob("*/Format-Serving")
    assert tf.saved_model.load(str(exported)).signatures
