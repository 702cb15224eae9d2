"""Public names of `infeed`, for static tools."""

from . import components as components
from . import pipelines as pipelines
from . import templates as templates
from .components import *  # noqa: F403
from .components.dataset.reading import inspect as inspect
from .components.example_gen.local import ingest as ingest
from .components.load.dataset import load as load
from .pipelines.cluster.compile.runner import KubeflowRunner as KubeflowRunner
from .pipelines.config import PipelineConfig as PipelineConfig
from .pipelines.pipeline import create_pipeline as create_pipeline

__version__: str
