"""tfx-infeed: TFX components that keep accelerators fed.

    from infeed import CsvExampleGen, Transform, Trainer, InputReport
    batches = infeed.load("data", batch_size=256).numpy()

This module exports all names of `infeed.components`, the functions that work without a pipeline, and those that create
one. Names are imported at their first use, so `import infeed` loads neither TFX nor TensorFlow, Beam or pyarrow.

`infeed.components`, `infeed.pipelines` and `infeed.templates` are links to the folders of these names at the top of the
source tree. A checkout, an editable install and a wheel thus have the same modules, and static tools follow them.
"""

from pathlib import Path
from typing import Any

import lazy_loader

__version__ = "0.1.0"

# The stub of the components is the only list of their public names.
_component, _, _COMPONENTS = lazy_loader.attach_stub(
    f"{__name__}.components", str(Path(__file__).parent / "components" / "__init__.py")
)
_other, _, _OTHERS = lazy_loader.attach(
    __name__,
    ["components", "pipelines", "templates"],
    {
        "components.dataset.reading": ["inspect"],
        "components.example_gen.local": ["ingest"],
        "components.load.dataset": ["load"],
        "pipelines.cluster.compile.runner": ["KubeflowRunner"],
        "pipelines.config": ["PipelineConfig"],
        "pipelines.pipeline": ["create_pipeline"],
    },
)
__all__ = sorted([*_COMPONENTS, *_OTHERS])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from infeed.components.base.errors import naming_extras

    with naming_extras():
        return (_component if name in _COMPONENTS else _other)(name)


def __dir__() -> list[str]:
    return __all__
