"""tf.data: TFRecords, a shuffle buffer, decoding of the window alone, as TensorFlow's ResNet reads ImageNet."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from jpegs import FILE_SIDE, LEAST, RATIO, SIDE, Batches, Job, serve

_DCT = "INTEGER_FAST"


def make(job: Job) -> Batches:
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        image = (_cut if job.kind == "cut" else _resized)(example["image"])
        return tf.image.random_flip_left_right(image), example["label"]

    paths = tf.data.Dataset.list_files(str(job.folder / "records" / "*"))
    records = tf.data.TFRecordDataset(paths, num_parallel_reads=tf.data.AUTOTUNE).cache().shuffle(1000).repeat()
    images = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return iter(images.batch(job.batch).prefetch(tf.data.AUTOTUNE).with_options(options).as_numpy_iterator())


def _cut(encoded: Any) -> Any:
    corner = tf.random.uniform([2], 0, FILE_SIDE - SIDE + 1, tf.int32)
    return tf.image.decode_and_crop_jpeg(encoded, tf.concat([corner, [SIDE, SIDE]], 0), 3, dct_method=_DCT)


def _resized(encoded: Any) -> Any:
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded), whole, area_range=(LEAST, 1.0), aspect_ratio_range=(1 / RATIO, RATIO)
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(encoded, window, 3, dct_method=_DCT)
    return tf.cast(tf.round(tf.image.resize(image, [SIDE, SIDE])), tf.uint8)


if __name__ == "__main__":
    serve(make)
