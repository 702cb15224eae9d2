"""Trainers of others on the batches of `infeed.load`, each in the way its documentation shows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from infeed.components.load.dataset import LoadedDataset, load

pytestmark = pytest.mark.frameworks
TRAIN, EVAL, SIZE = 100, 23, 8
STEPS = TRAIN // SIZE


@pytest.fixture
def split(write, cache):
    """split("train", **options): 100 rows in train, 23 in eval, each with its number as `id`."""
    for name, count in (("train", TRAIN), ("eval", EVAL)):
        path = write(f"t-{name}.tfrecord", {"id": list(range(count)), "x": np.arange(count, dtype=np.float32) / count})
    folder = path.rsplit("/", 1)[0]
    return lambda name, **options: load(folder, name, cache_dir=cache, batch_size=SIZE, seed=1, **options)


@pytest.fixture(autouse=True)
def no_warnings_of_lightning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def module(train: list[list[int]], validated: list[list[int]]) -> Any:
    """A module of Lightning that keeps the ids of each epoch."""
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            train[-1] += batch["id"].tolist()
            return self.layer(batch["x"].reshape(-1, 1)).square().mean()

        def validation_step(self, batch: Any, number: int) -> None:
            if not self.trainer.sanity_checking:
                validated[-1] += batch["id"].tolist()

        def on_train_epoch_end(self) -> None:
            train.append([])

        def on_validation_epoch_end(self) -> None:
            if not self.trainer.sanity_checking:
                validated.append([])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module()


def trainer(folder: Any, **options: Any) -> Any:
    import lightning

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(
        **{"max_epochs": 3, "accelerator": "cpu", "enable_checkpointing": False, "default_root_dir": folder}
        | quiet
        | options
    )


def ids(data: LoadedDataset, epoch: int) -> list[int]:
    """The rows of one epoch, which are the ids, in their order."""
    sampler = data.rows(epochs=1)
    sampler.set_epoch(epoch)
    return [row for rows in sampler for row in rows]


def test_lightning_validates_on_all_rows_in_each_epoch_and_shuffles_anew(split, tmp_path):
    train, validated = [[]], [[]]
    data, evaluated = split("train"), split("eval", shuffle=False)
    trainer(tmp_path).fit(module(train, validated), data.torch(epochs=1), evaluated.torch())
    assert validated[:3] == [list(range(EVAL))] * 3
    assert train[:3] == [ids(data, 0), ids(data, 1), ids(data, 2)]


def test_lightning_shuffles_the_rows_of_a_sampler_anew_in_each_epoch(split, tmp_path):
    from torch.utils.data import DataLoader

    data = split("train")
    for sampler, limit in ((data.rows(epochs=1), None), (data.rows(), STEPS)):
        train = [[]]
        loader = DataLoader(data, batch_sampler=sampler)
        trainer(tmp_path, limit_train_batches=limit).fit(module(train, [[]]), loader)
        assert train[:3] == [ids(data, 0), ids(data, 1), ids(data, 2)]


def test_lightning_goes_on_in_the_middle_of_an_epoch(split, tmp_path):
    import lightning

    data, train, path = split("train"), [[]], str(tmp_path / "broken.ckpt")

    class Break(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == STEPS + 5:
                trainer.save_checkpoint(path)
                trainer.should_stop = True

    trainer(tmp_path, callbacks=[Break()]).fit(module(train, [[]]), data.torch(epochs=1))
    resumed = [[]]
    trainer(tmp_path).fit(module(resumed, [[]]), data.torch(epochs=1), ckpt_path=path)
    assert resumed[0] == ids(data, 1)[5 * SIZE :]
    assert resumed[1] == ids(data, 2)


@pytest.mark.parametrize(
    ("when", "by_rows"),
    [({}, False), ({"save_on_train_epoch_end": True}, False), ({"every_n_train_steps": 5}, False), ({}, True)],
    ids=str,
)
def test_lightning_goes_on_from_each_checkpoint_of_its_own(split, tmp_path, when, by_rows):
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import DataLoader

    data, evaluated = split("train"), split("eval", shuffle=False)

    def batches() -> Any:
        return DataLoader(data, batch_sampler=data.rows(epochs=1)) if by_rows else data.torch(epochs=1)

    orders = [row for epoch in range(3) for row in ids(data, epoch)]
    kept = ModelCheckpoint(tmp_path / "kept", save_top_k=-1, **when)
    fit = trainer(tmp_path, enable_checkpointing=True, callbacks=[kept]).fit
    fit(module([[]], [[]]), batches(), evaluated.torch())
    for path in sorted((tmp_path / "kept").iterdir()):
        resumed = [[]]
        trainer(tmp_path).fit(module(resumed, [[]]), batches(), evaluated.torch(), ckpt_path=path)
        done = int(path.stem.rpartition("step=")[2])
        assert [row for epoch in resumed for row in epoch] == orders[done * SIZE :], path.name


@pytest.mark.parametrize("split_batches", [False, True])
def test_accelerate_shares_the_batches_of_a_sampler(split, split_batches):
    from accelerate.data_loader import BatchSamplerShard

    data = split("train")
    shards = [
        BatchSamplerShard(data.rows(epochs=1), num_processes=2, process_index=index, split_batches=split_batches)
        for index in range(2)
    ]
    rows = [row for shard in shards for batch in shard for row in batch]
    assert set(rows) == set(ids(data, 0))


def test_accelerate_sets_the_epoch_of_a_sampler(split):
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    data = split("train")
    loader = Accelerator(cpu=True).prepare(DataLoader(data, batch_sampler=data.rows(epochs=1)))
    loader.set_epoch(4)
    assert [row for batch in loader for row in batch["id"].tolist()] == ids(data, 4)


def test_torchdatas_loader_restores_its_place(split):
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = split("train")
    for workers in (0, 2):
        loaders = [StatefulDataLoader(data, batch_sampler=data.rows(epochs=1), num_workers=workers) for _ in range(2)]
        batches = iter(loaders[0])
        first = [next(batches)["id"].tolist() for _ in range(4)]
        loaders[1].load_state_dict(loaders[0].state_dict())
        rest = [batch["id"].tolist() for batch in loaders[1]]
        assert [row for rows in first + rest for row in rows] == ids(data, 0)
