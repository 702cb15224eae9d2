"""The loop of a training on JAX: what it measures, and what callbacks see."""

import json

import pytest
import trained

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.stack]


OWN = """
import json, keras

def callbacks(spec):
    return [Reads(f"{spec.folder}/read.json")]

class Reads(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self._path, self._read = path, []

    def on_train_batch_end(self, batch, logs=None):
        self.model.jax_state_sync()
        self._read.append([float(self.model.get_weights()[0][0, 0]), float(logs["loss"])])

    def on_train_end(self, logs=None):
        with open(self._path, "w") as file:
            json.dump(self._read, file)
"""


def test_the_profile_counts_steps_and_devices(on_one_device):
    made = trained.profile(on_one_device)
    assert [epoch["steps"] for epoch in made["epochs"]] == [2, 2, 2]
    assert (made["replicas"], made["hosts"], made["ceiling"]["floor_seconds"]) == (1, 1, 0.0)
    assert sum(made["timeline"]["steps"]) == 6


def test_a_callback_reads_the_weights_of_a_step_as_on_keras_own_loop(table, train, on_jax, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    place = train(table[0], "class", "table", **on_jax | {"callbacks_fn": f"{tmp_path}/own.py:callbacks"})
    read = json.loads((place / "run" / "read.json").read_text())
    assert len(read) == len({weight for weight, _ in read}) == 6
    assert all(0 < loss < 10 for _, loss in read)
