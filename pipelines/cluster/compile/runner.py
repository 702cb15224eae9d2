"""Compiles a user's own `tfx.dsl.Pipeline`: a runner that replaces TFX's `KubeflowV2DagRunner`."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infeed.components.base import schema, user_code
from infeed.components.base.errors import InfeedError
from infeed.components.kubeflow.message import FOLDERS
from infeed.pipelines.cluster.compile import edits
from infeed.pipelines.cluster.compile.checks import (
    check_accelerators,
    check_backend,
    check_stores,
    check_target,
    version_of,
)
from infeed.pipelines.cluster.compile.compile import cluster_name
from infeed.pipelines.cluster.compile.kubeflow import CompileOptions, compile_kubeflow
from infeed.pipelines.cluster.job.compiled import Schema, Target
from infeed.pipelines.deploy.options import Deploy
from infeed.pipelines.project.config_file import read_yaml

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

_PIPELINE = "FILE.py:FUNCTION"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KubeflowRunner:
    """Runner that compiles a `tfx.dsl.Pipeline` of any components, with the entry point and settings of this package.

    Attributes:
      output: job file, *.json or *.yaml.
      image: container image of every step, with this package, TFX and the user's modules. Defaults to `deploy.image`.
      root: folder of everything that the pipeline writes. Defaults to `deploy.root`, and then to `pipeline_root`.
      deploy: settings as under `deploy` of a config.yaml, as plain data.
      target: kubeflow or vertex.
      schema: version of the pipeline spec.
      folder: folder of the user's modules in the image. The job names functions in its files relative to it.
      kfp: version of Kubeflow Pipelines on the cluster, such as "2.17.0", to check the settings for.
    """

    output: str
    image: str | None = None
    root: str | None = None
    deploy: Mapping[str, Any] = field(default_factory=dict)
    target: Target = "kubeflow"
    schema: Schema = "2.1"
    folder: str | None = None
    kfp: str | None = None

    def run(self, pipeline: Pipeline) -> str:
        """Write the compiled pipeline to `output` and return that path. A pipeline can be compiled once.

        TFX writes a wheel of each `module_file` to `_wheels` below the root, also if the root is in a store.

        Raises:
          InfeedError: the image or the root is missing, the platform cannot run a component, a store cannot be opened,
            or a setting does not fit. See also `compile_kubeflow`.
        """
        deploy = self._settings(pipeline)
        check_target(deploy, self.target, self.schema)
        check_stores(deploy.root or "", "", self.target)
        if self.target == "vertex":
            check_accelerators(deploy)
        else:
            _check_places(pipeline, deploy.root or "")
        for warning in self.warnings(pipeline):
            _log.warning(warning)
        assert deploy.image, "check_target requires an image"
        # TFX's compiler writes the root into the job, and wheels of module files below it.
        pipeline.pipeline_info.pipeline_root = deploy.root
        options = CompileOptions(self.output, self.target, self.schema, self.folder)
        with _of_tfx(pipeline):
            return compile_kubeflow(pipeline, options, image=deploy.image, deploy=deploy)

    def warnings(self, pipeline: Pipeline) -> list[str]:
        """Return warnings about the job: inputs that stay empty, local folders, settings without effect.

        Raises InfeedError if a component requires the output of a resolver, and the platform runs no resolvers. Also
        raises it if the version `kfp` ignores or breaks a setting.
        """
        empty = edits.inputs_of_resolvers(pipeline) if self.target == "kubeflow" else []
        notes = [f"{one} stays empty, as in a first run, because Kubeflow's backend runs no resolvers" for one in empty]
        deploy = self._settings(pipeline)
        root, dropped = deploy.root or "", check_backend(deploy, version_of(self.kfp)) if self.kfp else ""
        local = f"the root is {root} on this machine, where a cluster cannot read it: set deploy.root or --root"
        return [*notes, *([] if "://" in root else [local]), *([dropped] if dropped else [])]

    def _settings(self, pipeline: Pipeline) -> Deploy:
        deploy = schema.read(Deploy, self.deploy, "deploy")
        root = self.root or deploy.root or pipeline.pipeline_info.pipeline_root
        if not (isinstance(root, str) and root):
            do = "set deploy.root or --root to a folder in a store, such as s3://bucket/taxi"
            raise InfeedError(f"pipeline_root is {root!r}", where=_name(pipeline), do=do)
        return dataclasses.replace(deploy, image=self.image or deploy.image, root=root)


def load_pipeline(text: str) -> Pipeline:
    """Call a function such as `my_pipeline.py:create_pipeline`, without arguments, and return its pipeline.

    Raises InfeedError if there is no such function, it fails, or it returns something else.
    """
    reference = user_code.resolve(text, _PIPELINE)
    if reference.is_file:
        # Steps import the executors of this file as a top-level module, from the working directory of the image.
        folder, module = Path(reference.file).parent, Path(reference.file).stem
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        text = f"{module}:{reference.function}"
    function = user_code.load(text, _PIPELINE)
    from tfx.orchestration.pipeline import Pipeline

    try:
        made = function()
    except TypeError as error:  # it takes arguments; errors in its body are translated
        raise InfeedError(str(error), where=text, do="name a function without required arguments") from error
    if not isinstance(made, Pipeline):
        what = f"the function returns {type(made).__name__}, not a Pipeline"
        raise InfeedError(what, where=text, do="return the tfx.dsl.Pipeline")
    return made


def read_deploy(path: str | None) -> dict[str, Any]:
    """Return the section `deploy` of a YAML file. Raises InfeedError if the file has another section, or none."""
    if path is None:
        return {}
    plain = read_yaml(Path(path)) if Path(path).is_file() else None
    if not isinstance(plain, dict) or plain.keys() != {"deploy"}:
        found = "no such file" if plain is None else ", ".join(map(str, plain)) if isinstance(plain, dict) else "text"
        do = "give a YAML file with the section deploy and no other"
        raise InfeedError(f"the file of settings has {found}, not deploy", where=path, do=do)
    return dict(plain["deploy"] or {})


def _check_places(pipeline: Pipeline, root: str) -> None:
    """Raise InfeedError for a place that TFX or Kubeflow cannot open. Jobs with a local root are not checked."""
    from tfx.dsl.components.common.importer import SOURCE_URI_KEY, Importer

    for node in pipeline.components if "://" in root else ():
        uri = node.exec_properties.get(SOURCE_URI_KEY) if isinstance(node, Importer) else None
        if isinstance(uri, str) and uri.partition("://")[0] not in FOLDERS:
            schemes = ", ".join(f"{scheme}://" for scheme in FOLDERS)
            what = f"source_uri is {uri!r}, which Kubeflow cannot import"
            raise InfeedError(what, where=f"node {node.id}", do=f"copy it to a store: {schemes}")
        executor = getattr(node.executor_spec, "executor_class", None)
        if not getattr(executor, "__module__", "infeed").startswith("infeed"):
            _check_minio(node.id, root if node.exec_properties.get("module_file") else "", "a wheel of module_file")
            _check_minio(node.id, node.exec_properties.get("input_base"), "input_base")


def _check_minio(node: str, place: Any, what: str) -> None:
    if isinstance(place, str) and place.startswith("minio://"):
        do = "use s3:// with AWS_ENDPOINT_URL in deploy.resources, or the component of infeed"
        raise InfeedError(f"a step of TFX cannot open {what} on {place}", where=f"node {node}", do=do)


@contextmanager
def _of_tfx(pipeline: Pipeline) -> Iterator[None]:
    """Translate errors of TFX's compiler to InfeedErrors, and let TFX's `fileio` open s3:// and minio://."""
    from infeed.components.kubeflow import tfx_filesystem

    name = _name(pipeline)
    if (allowed := cluster_name(pipeline.pipeline_info.pipeline_name)) != pipeline.pipeline_info.pipeline_name:
        raise InfeedError("pipeline_name is not a name on a cluster", where=name, do=f"name it {allowed!r}")
    tfx_filesystem.register()
    try:
        yield
    except InfeedError:
        raise
    except OSError as error:
        do = "check the root and the credentials of its store: TFX writes wheels of module files there"
        raise InfeedError(f"{type(error).__name__}: {error}", where=name, do=do) from error
    except (LookupError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        do = "change the pipeline so that TFX compiles it for Kubeflow"
        raise InfeedError(f"cannot compile the pipeline: {error}", where=name, do=do) from error


def _name(pipeline: Pipeline) -> str:
    return f"pipeline {pipeline.pipeline_info.pipeline_name!r}"
