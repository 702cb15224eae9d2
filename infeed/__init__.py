"""tfx-infeed: TFX components that keep accelerators fed.

    from infeed import CsvExampleGen, Transform, Trainer, InputReport
    batches = infeed.load("data", batch_size=256).numpy()

This module exports all names of `infeed.components`, the functions that work without a pipeline, and those that create
one. Names are imported at their first use, so `import infeed` loads neither TFX nor TensorFlow, Beam or pyarrow. It
imports no other module at all: the command `infeed` handles Ctrl-C only after this import.

`infeed.components`, `infeed.pipelines` and `infeed.templates` are links to the folders of these names at the top of the
source tree. A checkout, an editable install and a wheel thus have the same modules, and static tools follow them.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from infeed.names import NAMES, find

    return NAMES if name == "__all__" else find(name)


def __dir__() -> list[str]:
    from infeed.names import NAMES

    return NAMES
