"""User code as in TFX's guides for the table of `benchmarks/whole.py`: preprocessing, model and training.

It follows TFX's examples for Keras: dense columns, one vocabulary per column of words, transformed examples from disk,
one `fit` of many steps, and a model saved with the signatures for serving and Evaluator. Ours trains the same network,
`build_model`.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
import tensorflow_transform as tft

NUMBERS = tuple(f"number_{index}" for index in range(13))
WORDS = tuple(f"word_{index}" for index in range(6))
LABEL = "answer"
BATCH_SIZE = 256
MANY_WORDS = 1_000
EXAMPLES = [tf.TensorSpec([None], tf.string, name="examples")]


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Scale numbers to mean 0 and deviation 1, and map words and label to vocabulary indices."""
    numbers = {name: tft.scale_to_z_score(_dense(inputs[name], 0)) for name in NUMBERS}
    words = {
        name: tft.compute_and_apply_vocabulary(_dense(inputs[name], ""), num_oov_buckets=1, vocab_filename=name)
        for name in WORDS
    }
    label = tft.compute_and_apply_vocabulary(_dense(inputs[LABEL], ""), vocab_filename=LABEL)
    return {**numbers, **words, LABEL: label}


def _dense(column: Any, empty: Any) -> Any:
    if not isinstance(column, tf.SparseTensor):
        return column
    value = tf.cast(empty, column.dtype) if column.dtype != tf.string else empty
    shape = [column.dense_shape[0], 1]
    return tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), value)


def build_model(spec: Any = None) -> keras.Model:
    """Return a model {name: [batch, 1]} -> probabilities [batch, 2]. `spec` comes from our Trainer and is not used."""
    numbers = {name: keras.Input([1], name=name) for name in NUMBERS}
    words = {name: keras.Input([1], name=name, dtype="int64") for name in WORDS}
    # The index of a missing word is negative in TFX's vocabularies, and 0 in ours.
    indices = [keras.ops.maximum(index, 0) for index in words.values()]
    columns = [keras.layers.Flatten()(keras.layers.Embedding(MANY_WORDS + 2, 16)(index)) for index in indices]
    x = keras.layers.Concatenate()([*numbers.values(), *columns])
    for units in (64, 32):
        x = keras.layers.Dense(units, activation="relu")(x)
    model = keras.Model({**numbers, **words}, keras.layers.Dense(2, activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def run_fn(fn_args: Any) -> None:
    """Train the model, as TFX's Trainer calls this function."""
    output = tft.TFTransformOutput(fn_args.transform_output)
    train, evaluation = (_dataset(files, fn_args, output) for files in (fn_args.train_files, fn_args.eval_files))
    with tf.distribute.MirroredStrategy().scope():
        model = build_model()
    model.fit(
        train,
        steps_per_epoch=fn_args.train_steps,
        validation_data=evaluation,
        validation_steps=fn_args.eval_steps,
        callbacks=[keras.callbacks.TensorBoard(log_dir=fn_args.model_run_dir, update_freq="epoch")],
    )
    tf.saved_model.save(model, fn_args.serving_model_dir, signatures=_signatures(model, output))


def _dataset(files: list[str], fn_args: Any, output: Any) -> Any:
    from tfx_bsl.public import tfxio  # imports Beam, and our side needs only the model of this file

    options = tfxio.TensorFlowDatasetOptions(batch_size=BATCH_SIZE, label_key=LABEL)
    return fn_args.data_accessor.tf_dataset_factory(files, options, output.transformed_metadata.schema).repeat()


def _signatures(model: Any, output: Any) -> dict[str, Any]:
    model.transform_layer = output.transform_features_layer()

    @tf.function(input_signature=EXAMPLES)
    def serve(examples: Any) -> Any:
        spec = output.raw_feature_spec()
        del spec[LABEL]
        return {"outputs": model(model.transform_layer(tf.io.parse_example(examples, spec)))}

    @tf.function(input_signature=EXAMPLES)
    def transform_features(examples: Any) -> Any:
        return model.transform_layer(tf.io.parse_example(examples, output.raw_feature_spec()))

    return {"serving_default": serve, "transform_features": transform_features}
