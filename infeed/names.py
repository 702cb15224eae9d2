"""The public names of `infeed`, each imported at its first use."""

from pathlib import Path

import lazy_loader

# The stub of the components is the only list of their public names.
_component, _, _COMPONENTS = lazy_loader.attach_stub(
    "infeed.components", str(Path(__file__).parent / "components" / "__init__.py")
)
_other, _, _OTHERS = lazy_loader.attach(
    "infeed",
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
NAMES = sorted([*_COMPONENTS, *_OTHERS])


def find(name: str) -> object:
    """Return what has the name. Raises AttributeError for another name than NAMES."""
    if name not in NAMES:
        raise AttributeError(f"module 'infeed' has no attribute {name!r}")
    from infeed.components.base.errors import naming_extras

    with naming_extras():
        return (_component if name in _COMPONENTS else _other)(name)
