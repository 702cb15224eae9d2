"""`infeed.load(...).map`: a function on the batches, with the feed's seeds."""

import os
import threading

import numpy as np
import pyarrow as pa
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.load.dataset import load


@pytest.fixture
def data(write, cache):
    path = write("t-train.tfrecord", {"x": pa.array(range(20)), "y": pa.array(range(20))})
    return lambda **options: load(path, cache_dir=cache, batch_size=4, **options)


def noisy(batch, seed):
    return {**batch, "x": batch["x"] + np.random.default_rng(seed).integers(0, 1000, len(batch["x"]))}


def xs(batches):
    return [batch["x"].tolist() for batch in batches]


def test_batches_are_mapped_in_order_with_a_seed_for_each(data):
    mapped = data().map(noisy).map(lambda batch: {"x": -batch["x"], "y": batch["y"]})
    noise = np.subtract(xs(data().numpy(epochs=2)), np.negative(xs(mapped.numpy(epochs=2))))
    assert len({tuple(one) for one in noise}) == 10
    assert xs(mapped.numpy(epochs=2))[6:] == xs(data(start_step=6).map(noisy).map(negated).numpy(epochs=2))
    assert {tuple(batch["y"]) for batch in mapped} == {tuple(batch["y"]) for batch in data()}


def negated(batch):
    return {"x": -batch["x"], "y": batch["y"]}


def test_a_label_is_mapped_with_its_batch(data):
    features, label = next(data().map(negated).numpy(label="x"))
    assert set(features) == {"y"}
    assert (label <= 0).all()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2, 3, 4], "int64"),
        (["a", "b", "c", "é"], "object"),
        (np.array([b"a", b"b", b"c", b"d"]), "object"),
        (np.arange(4, dtype=">f4"), "float32"),
    ],
    ids=["list", "text", "bytes", "byte order"],
)
def test_what_is_like_an_array_becomes_one(data, value, dtype):
    made = next(data().map(lambda batch: {"z": value}).numpy())["z"]
    assert (made.dtype, made.dtype.isnative) == (np.dtype(dtype), True)
    assert made.tolist() == [one.encode() if isinstance(one, str) else one for one in list(value)]


@pytest.mark.frameworks
@pytest.mark.parametrize("deliver", ["torch", "jax"])
def test_what_a_framework_has_not_is_named(data, deliver):
    times = data().map(lambda batch: {"at": batch["x"].astype("datetime64[s]")})
    with pytest.raises(InfeedError, match=r"'at'.*datetime64"):
        next(getattr(times, deliver)())


@pytest.mark.frameworks
def test_tensors_of_a_framework_become_arrays(data):
    import torch

    made = data().map(lambda batch: {name: torch.from_numpy(values) for name, values in batch.items()})
    assert xs(made.torch(epochs=1)) == xs(made.numpy(epochs=1)) == xs(data().numpy(epochs=1))


def test_functions_without_a_signature_are_called_with_the_batch(data):
    assert xs(data().map(dict).numpy(epochs=1)) == xs(data().numpy(epochs=1))


def test_a_label_that_the_function_leaves_out_is_named(data):
    with pytest.raises(InfeedError, match="'y'"):
        next(data().map(lambda batch: {"x": batch["x"]}).numpy(label="y"))


@pytest.mark.frameworks
def test_torch_gets_what_numpy_gets(data):
    made = data().map(noisy)
    assert xs(made.torch(epochs=1)) == xs(made.numpy(epochs=1))


def test_an_error_names_the_line_and_the_step(data):
    def fails(batch):
        return {"x": batch["x"][[99]]}

    with pytest.raises(InfeedError, match="IndexError") as error:
        list(data(start_step=2).map(fails))
    assert "test_reading_mapping.py" in error.value.where
    assert "step 2" in error.value.where


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda batch: None, "NoneType"),
        (lambda batch: {"x": [1]}, "1 rows"),
        (lambda batch: {"x": 3}, "'x' is int"),
        (lambda batch: {"x": [[1], [2, 3], [], []]}, "'x' is no array"),
    ],
)
def test_a_function_has_to_return_a_dict_of_features_with_all_rows(data, function, word):
    with pytest.raises(InfeedError, match=word) as error:
        next(iter(data().map(function)))
    assert "step 0" in error.value.where


@pytest.mark.parametrize("deliver", [lambda data: data.numpy(pack=True), lambda data: data.tf()])
def test_what_cannot_be_mapped_is_refused(data, deliver):
    with pytest.raises(InfeedError):
        deliver(data().map(negated))


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 3])
def test_seeds_are_those_of_the_feed(step):
    from infeed.components.feed.options import GlobalBatch, MapFunction, WorkerContext
    from infeed.components.feed.stages.base import BatchFunctions, BuildContext
    from infeed.components.feed.stages.batches import MapFeatures
    from infeed.components.load.order import BatchOrder
    from infeed.components.load.reading import seed_of

    workers = WorkerContext(1, 2)
    context = BuildContext((), GlobalBatch(4, 7, workers), True, BatchFunctions(None, None), workers, 0)  # type: ignore[arg-type]
    import tensorflow as tf

    ours = MapFeatures("map_batches", MapFunction("a:b"))._seeds(tf.constant(step, tf.int64), tf.constant(2), context)
    assert seed_of(BatchOrder(20, GlobalBatch(4, 7, workers), True), step).tolist() == ours.numpy().tolist()


def with_objects(batch, seed):
    from infeed.components.feed.augment_batch import augment_batch
    from infeed.components.feed.options import Augment

    pixels = {name: batch[name].reshape(-1, 16, 16, 3).astype(np.uint8) for name in ("image", "mask")}
    options = Augment(shift=3, flip="horizontal", rotate=10.0)
    return augment_batch({**batch, **pixels}, options, seed, masks=["mask"], boxes=["boxes"])


@pytest.mark.slow
def test_masks_and_boxes_of_a_mapped_dataset_move_with_their_images_and_resume(write, cache):
    draw = np.random.default_rng(0)
    places = draw.integers(4, 9, (12, 2))
    pixels, boxes = np.zeros((12, 16, 16, 3), np.uint8), np.zeros((12, 4), np.float32)
    for row, (top, left) in enumerate(places):
        pixels[row, top : top + 4, left : left + 4] = 255
        boxes[row] = np.array([top, left, top + 4, left + 4]) / 16
    flat = pa.array(pixels.reshape(12, -1).tolist(), pa.list_(pa.int64()))
    path = write("t-train.tfrecord", {"image": flat, "mask": flat, "boxes": pa.array(boxes.tolist())})
    first, *rest = load(path, cache_dir=cache, batch_size=4, seed=5).map(with_objects).numpy(epochs=2)
    assert first["image"].dtype == np.float32
    for image, mask, box in zip(first["image"], first["mask"], first["boxes"], strict=True):
        rows, columns = np.nonzero(mask[..., 0])
        around = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
        np.testing.assert_allclose(box * 16, around, atol=1.0)
        assert image[mask > 0].mean() > image[mask == 0].mean() + 0.5
    resumed = load(path, cache_dir=cache, batch_size=4, seed=5, start_step=1).map(with_objects).numpy(epochs=2)
    for one, other in zip(rest, resumed, strict=True):
        for name in ("image", "mask", "boxes"):
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("ahead", [0, 3])
def test_threads_make_the_same_batches_and_a_state_counts_those_that_were_delivered(data, threads, ahead):
    expected = xs(data().map(noisy).numpy(epochs=3))
    batches = data().map(noisy, threads=threads).numpy(epochs=3, ahead=ahead)
    read = [next(batches)["x"].tolist() for _ in range(7)]
    resumed = data().map(noisy, threads=threads).numpy(epochs=3, ahead=ahead)
    resumed.load_state_dict(batches.state_dict())
    assert batches.state_dict()["step"] == 7
    assert read + xs(resumed) == read + xs(batches) == expected


def test_threads_call_the_function_at_the_same_time(data):
    together = threading.Barrier(3)

    def waits(batch):
        together.wait(30)
        return batch

    assert len(xs(data().map(negated).map(waits, threads=3).numpy(epochs=3))) == 15


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_thread_comes_after_the_batches_before_it_and_names_its_step(data, threads, ahead):
    def fails(batch, seed):
        return {"x": batch["x"][[99]]} if seed[1] == 3 else batch

    batches = data().map(fails, threads=threads).numpy(epochs=1, ahead=ahead)
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(InfeedError, match="IndexError") as error:
        next(batches)
    assert "test_reading_mapping.py" in error.value.where
    assert "step 3" in error.value.where


@pytest.mark.parametrize(("threads", "ahead"), [(1, 2), (4, 0), (4, 2)])
def test_a_loop_that_is_left_leaves_no_thread(data, threads, ahead):
    for _ in data().map(negated, threads=threads).numpy(ahead=ahead):
        break
    left = [one for one in threading.enumerate() if one.name.startswith("infeed-ahead")]
    for one in left:
        one.join(30)
    assert not any(one.is_alive() for one in left)


def test_the_plan_names_the_functions_and_their_threads(data):
    mapped = data().map(negated).map(noisy, threads=3)
    assert "negated, noisy on 3 threads" in str(mapped.plan)
    assert "negated between steps" in str(data().map(negated).plan)
    assert "negated" not in str(data().plan)


FUNCTIONS = """
import os, signal
import numpy as np

def noisy(batch, seed):
    noise = np.random.default_rng(seed).integers(0, 1000, len(batch["x"]))
    return {**batch, "x": batch["x"] + noise, "process": np.full(len(noise), os.getpid())}

def fails(batch, seed):
    return {"x": batch["x"][[99]]} if seed[1] == 3 else batch

def exits(batch):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.mark.slow
def test_processes_make_the_same_batches_and_resume(data, mine):
    made = data().map(f"{mine}:noisy", processes=2)
    batches = list(made.numpy(epochs=2, ahead=1))
    assert xs(batches) == xs(data().map(noisy).numpy(epochs=2))
    assert os.getpid() not in {process for batch in batches for process in batch["process"]}
    resumed = data(start_step=3).map(f"{mine}:noisy", processes=2).map(f"{mine}:noisy")
    assert xs(resumed.numpy(epochs=2)) == xs(data().map(noisy).map(noisy).numpy(epochs=2))[3:]
    next(iter(made))  # a loop that is left
    assert "noisy on 2 processes" in str(made.plan)


@pytest.mark.slow
def test_an_error_in_a_process_comes_after_the_batches_before_it_and_names_its_step(data, mine):
    batches = data().map(f"{mine}:fails", processes=2).numpy(epochs=1)
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(InfeedError, match="IndexError") as error:
        next(batches)
    assert "mine.py" in error.value.where
    assert "step 3" in error.value.where
    with pytest.raises(InfeedError, match="exited") as error:
        list(data().map(f"{mine}:exits", processes=2))
    assert "exits" in error.value.where
    mine.write_text(FUNCTIONS.replace("[[99]]", "[[0]]").replace("seed[1] == 3", "False"))
    assert len(list(data().map(f"{mine}:fails", processes=2))) == 5


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"processes": -1}, "processes is -1"),
        ({"processes": 2, "threads": 2}, "threads is 2"),
        ({"processes": 1}, "name"),
    ],
)
def test_processes_call_a_function_that_they_can_import(data, options, word):
    with pytest.raises(InfeedError, match=word) as error:
        data().map(lambda batch: batch, **options)
    assert error.value.where.startswith("infeed.load(...).map")


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_a_number_of_threads_is_a_positive_whole_number(data, value):
    with pytest.raises(InfeedError, match=f"threads is {value}") as error:
        data().map(negated, threads=value)
    assert error.value.where.endswith("map, threads")


@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_batches_ahead_are_a_whole_number(data, value):
    with pytest.raises(InfeedError, match=f"ahead is {value!r}") as error:
        data().numpy(ahead=value)
    assert error.value.where.endswith("numpy, ahead")


@pytest.mark.frameworks
@pytest.mark.parametrize("deliver", ["torch", "jax"])
def test_frameworks_get_what_the_threads_make(data, deliver):
    made = data().map(noisy, threads=3)
    for ahead in (0, 2):
        assert xs(getattr(made, deliver)(epochs=2, ahead=ahead)) == xs(data().map(noisy).numpy(epochs=2))
    with pytest.raises(InfeedError, match="ahead is -1"):
        getattr(made, deliver)(ahead=-1)
