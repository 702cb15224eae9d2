"""Whether training, as it is asked for, can use the machines that it gets; told before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.components.errors import InfeedError
from infeed.components.trainer.options import TrainOptions
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.deploy.targets import Target

_OF_ONE_PROCESS = ("one_device", "mirrored")
_OF_ONE_DEVICE = ("one_device", "parameter_server")  # a batch goes to one device whole


@dataclass(frozen=True)
class Machines:
    """What a Trainer has to train on.

    Attributes:
      count: machines, all alike.
      gpus: of each of them.
      tpu: whether they have TPUs.
      servers: machines beside them that hold the weights.
      where: the setting that says it.
    """

    count: int = 1
    gpus: int = 0
    tpu: bool = False
    where: str = "deploy.resources.Trainer"
    servers: int = 0


def machines(deploy: Deploy, target: Target) -> Machines:
    """What the Trainer gets: the machines of its custom job, or the resources of its step."""
    training = deploy.vertex.training if target == "vertex" and deploy.vertex else None
    given = training or deploy.resources_of("Trainer")
    tpu = training.is_tpu if training else (given.accelerator or "").startswith(("TPU_", "google.com/tpu"))
    gpus = (given.accelerators or 1) if given.accelerator and not tpu else 0
    if not training:
        return Machines(1, gpus, tpu)
    return Machines(training.replicas, gpus, tpu, "deploy.vertex.training", training.parameter_servers)


def check_strategy(train: TrainOptions, found: Machines) -> None:
    """Raises InfeedError where `train.strategy` leaves machines unused, or a batch cannot be dealt out to the GPUs.

    A runtime parameter may set strategy and batch size anew; training checks them again by then.
    """
    use = "Set it under train in the config, or with --strategy."
    if found.tpu != (train.strategy == "tpu"):
        has = "TPUs, which the strategy tpu alone uses" if found.tpu else "no TPU"
        raise InfeedError(f"strategy is {train.strategy!r}, and the Trainer has {has}", where=found.where, do=use)
    if bool(found.servers) != (train.strategy == "parameter_server"):
        what = f"strategy is {train.strategy!r}, and the Trainer has {found.servers or 'no'} parameter servers"
        do = f"{use} Parameter servers are machines of a custom job: deploy.vertex.training.parameter_servers."
        raise InfeedError(what, where=found.where, do=do)
    if train.strategy == "parameter_server" and found.gpus > 1:
        what = f"under parameter_server a worker has one GPU, and each machine has {found.gpus}"
        raise InfeedError(what, where=found.where, do="Take more machines, with one accelerator each.")
    if found.count > 1 and train.strategy in _OF_ONE_PROCESS:
        what = f"strategy is {train.strategy!r}, which trains on one machine, and the Trainer has {found.count}"
        raise InfeedError(what, where=found.where, do=f"{use} Let it be auto.")
    gpus = found.count * found.gpus
    if train.strategy not in _OF_ONE_DEVICE and gpus and train.feed.batch_size % gpus:
        raise InfeedError(
            f"a global batch of {train.feed.batch_size} cannot be dealt out equally to {gpus} GPUs",
            where=found.where,
            do=f"Use a multiple of {gpus} as batch_size, such as {-(-train.feed.batch_size // gpus) * gpus}.",
        )
