"""What is not installed, by the name of the extra that brings it: `pip install 'tfx-infeed[tfx]'`.

The core reads, writes and loads datasets. Training needs TensorFlow, and pipelines need TFX; their modules are imported
when they are asked for, and the error then says what to install.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infeed.components.errors import InfeedError

# Top-level module -> how people call it, and what brings it.
_EXTRAS = {
    "keras": ("Keras", "'tfx-infeed[tf]'"),
    "tensorflow": ("TensorFlow", "'tfx-infeed[tf]'"),
    "sqlalchemy": ("SQLAlchemy", "'tfx-infeed[sql]'"),
    "tensorflow_text": ("tensorflow-text", "'tfx-infeed[text]'"),
    "torch": ("PyTorch", "torch"),
    "jax": ("JAX", "jax"),
    **{
        module: (name, "'tfx-infeed[tfx]'")
        for module, name in {
            "apache_beam": "Apache Beam",
            "celpy": "cel-python",
            "google": "Google Cloud's client",
            "kfp": "Kubeflow Pipelines' SDK",
            "matplotlib": "Matplotlib",
            "ml_metadata": "ML Metadata",
            "packaging": "packaging",
            "sklearn": "scikit-learn",
            "tensorflow_data_validation": "TensorFlow Data Validation",
            "tensorflow_metadata": "tensorflow-metadata",
            "tensorflow_model_analysis": "TensorFlow Model Analysis",
            "tensorflow_transform": "TensorFlow Transform",
            "tfx": "TFX",
            "tfx_bsl": "tfx-bsl",
        }.items()
    },
}


def required(module: str) -> Any:
    """The module of this name.

    Raises:
      InfeedError: it is not installed, and how it can be.
    """
    with naming_extras():
        return importlib.import_module(module)


@contextmanager
def naming_extras() -> Iterator[None]:
    """For imports inside: of what is not installed the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top not in _EXTRAS:
            raise
        name, brought_by = _EXTRAS[top]
        raise InfeedError(f"{name} is not installed", do=f"pip install {brought_by}") from error
