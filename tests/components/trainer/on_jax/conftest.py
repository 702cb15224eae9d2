"""Options of trainings on JAX, and one on one device that others are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def options() -> dict[str, Any]:
    """64 rows for training and 32 for evaluation: two steps an epoch, and a short last batch of evaluation."""
    from infeed.components.feed.options import FeedOptions

    return {"label": "kind", "epochs": 3, "feed": FeedOptions(batch_size=24), "callbacks_fn": "callbacks"}


@pytest.fixture(scope="session")
def on_jax(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"backend": "jax"}


@pytest.fixture(scope="module")
def on_one_device(
    table: tuple[Path, Any], train_into: Callable[..., Path], once: Callable[..., Path], on_jax: dict[str, Any]
) -> Path:
    settings = on_jax | {"strategy": "one_device"}
    return once("on_one_device", lambda place: train_into(place, table[0], "class", "table", **settings))


@pytest.fixture(scope="module", autouse=True)
def processes_find_jax_imported(warm_jax: dict[str, str]) -> Iterator[None]:
    """Those of trainings get the `sys.path` of this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[3] / "warm"))
        for name, value in warm_jax.items():
            patch.setenv(name, value)
        yield
