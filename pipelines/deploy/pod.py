"""Settings of a Kubernetes pod: tolerations, variables, files, volumes, labels, affinity, and the rules for names.

resources:
  default:
    secrets: [{name: store, env: {accesskey: AWS_ACCESS_KEY_ID, secretkey: AWS_SECRET_ACCESS_KEY}}]
    volumes: [{claim: photos, mount: /mnt/photos}]
  Trainer: {shared_memory: 4Gi, pod: {metadata: {labels: {team: rides}}, spec: {imagePullSecrets: [{name: registry}]}}}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import about, check_fields, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.engine import project_archive
from infeed.components.kubeflow import compiled_with, disk
from infeed.components.kubeflow.message import ROOT_VARIABLE

# Kubernetes' rules for names. Without the checks, Kubernetes rejects the pod only after the run has started.
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_LABEL = re.compile(r"([a-zA-Z0-9]([-\w.]{0,61}[a-zA-Z0-9])?)?", re.ASCII)
_OBJECT = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # DNS subdomain
_VOLUME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # DNS label
_OF_KUBEFLOW = re.compile(
    r"kfp-launcher|(gcs|s3|minio)-scratch|dot-[a-z0-9-]*-scratch|var-run-argo|tmp-dir-argo|shm|ephemeral-\d+"
)
"""Names of volumes that Kubeflow Pipelines, Argo and `deploy.resources` add to a step's pod."""
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_RESERVED = re.compile(
    r"KFP_POD_(NAME|UID)|KFP_RETRY_INDEX|ARGO_\w+|JOB_COMPLETION_INDEX|TF_CONFIG"
    rf"|{compiled_with.VARIABLE}|{disk.READING_VARIABLE}|{disk.LIMIT_VARIABLE}"
    rf"|{project_archive.VARIABLE}|{ROOT_VARIABLE}"
)
"""Variables that Kubeflow Pipelines or the compiler sets in a step, or a training job on its machines."""
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_QUANTITY = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_UNITS)})")
_AS_QUANTITY = "use a Kubernetes quantity, such as 4 or 500m for cpu, 16Gi or 500M for memory"
_MOST_CORES, _LEAST_MEMORY = 10_000, 1e6
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Operator = Literal["Equal", "Exists"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
Pod = Mapping[str, Mapping[str, Any]]
"""Part of a Pod as Kubernetes writes it: `metadata`, and `spec` without containers."""


def check_object(options: object, name: str) -> None:
    """Raise OptionError unless the option is the name of an object of Kubernetes."""
    do = "use the object's name in Kubernetes: lower-case letters, digits, '-' and '.', at most 253"
    require(_OBJECT.fullmatch(getattr(options, name)), options, name, do)


def check_volume(options: object, name: str) -> None:
    """Raise OptionError unless Kubeflow can name a volume of the pod after the option's object."""
    given = getattr(options, name)
    do = "mount an object whose name has lower-case letters, digits and '-', no '.', and at most 63 characters"
    require(_VOLUME.fullmatch(given), options, name, do)
    do = "mount an object of another name: the pod has such a volume"
    require(not _OF_KUBEFLOW.fullmatch(given), options, name, do)


def check_variables(options: object, name: str, variables: Iterable[str]) -> None:
    """Raise OptionError about the option `name` if Kubernetes rejects the name of an environment variable."""
    for variable in variables:
        do = f"name {variable!r} with letters, digits, -, _ and ., and no digit first"
        require(_VARIABLE.fullmatch(variable), options, name, do)
        do = "use another name: the pod has a variable of this name"
        require(not _RESERVED.fullmatch(variable), options, name, do)


def check_distinct(options: object, named: Mapping[str, Sequence[str]], use: str) -> None:
    """Raise OptionError if a pod would have two things of one name. `named` holds the names by option."""
    counts = Counter(name for names in named.values() for name in names)
    for option, names in named.items():
        if twice := [name for name in names if counts[name] > 1]:
            by = " and ".join(other for other, given in named.items() if twice[0] in given)
            what = f"{twice[0]!r} is {use} twice, by {by}"
            raise refused(options, option, "use it once, or under another name", what)


def check_labels(options: object, name: str, labels: Mapping[str, str]) -> None:
    """Raise OptionError about the option `name` if Kubernetes rejects the key or value of a label."""
    check_keys(options, name, labels)
    for label, value in labels.items():
        do = f"write {label} with at most 63 letters, digits, -, _ and ., and begin and end with a letter or digit"
        require(_LABEL.fullmatch(value), options, name, do)


def check_keys(options: object, name: str, keys: Iterable[str]) -> None:
    """Raise OptionError about the option `name` if Kubernetes rejects the key of a label or annotation."""
    for key in keys:
        prefix, slash, own = key.rpartition("/")
        fits = bool(own) and _LABEL.fullmatch(own) and (not slash or _OBJECT.fullmatch(prefix))
        do = f"write {key!r} as NAME or DOMAIN/NAME, where NAME has at most 63 letters, digits, '-', '_' and '.'"
        require(fits, options, name, do)


@dataclass(frozen=True)
class Toleration:
    """Kubernetes toleration of a taint. The fields are those of Kubernetes; `seconds` is `tolerationSeconds`."""

    key: str | None = None
    operator: Operator = "Equal"
    value: str | None = None
    effect: Effect | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        exists = self.operator == "Exists"
        check_labels(self, "key", {self.key: self.value or ""} if self.key else {})
        require(self.key or exists, self, "key", "name the key of the taint, or use operator: Exists for all taints")
        require(not (exists and self.value), self, "value", "leave it out: operator Exists takes none")
        fits = self.seconds is None or self.effect == "NoExecute"
        require(fits, self, "seconds", "leave it out, or use effect: NoExecute")


@dataclass(frozen=True)
class KeySource:
    """Secret or ConfigMap whose keys the container gets as environment variables, as files, or both.

    Attributes:
      name: name of the Secret or ConfigMap.
      env: environment variable by key.
      mount: folder in which each key becomes a file.
      optional: start the pod even if the Secret or ConfigMap does not exist.
    """

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    mount: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        check_object(self, "name")
        if self.mount:
            check_volume(self, "name")
        for key in self.env:
            do = f"write the key {key!r} with letters, digits, '-', '_' and '.' alone"
            require(_KEY.fullmatch(key), self, "env", do)
        check_variables(self, "env", self.env.values())
        require(bool(self.env or self.mount), self, "env", "give env: {KEY: VARIABLE}, or mount: /FOLDER")
        _check_folder(self, "mount")


@dataclass(frozen=True)
class Volume:
    """PersistentVolumeClaim that the container mounts.

    Attributes:
      claim: name of the PersistentVolumeClaim.
      mount: folder in the container.
      path: folder of the volume to mount; by default all of it.
    """

    claim: str
    mount: str
    path: str = ""

    def __post_init__(self) -> None:
        check_volume(self, "claim")
        _check_folder(self, "mount")
        inside = not self.path.startswith("/") and ".." not in self.path.split("/")
        require(inside, self, "path", "use a path below the root of the volume, such as photos/2024")


@dataclass(frozen=True)
class EphemeralVolume:
    """Volume that Kubernetes creates for the pod and deletes with it, for example for a cache.

    Attributes:
      mount: folder in the container.
      size: Kubernetes quantity, for example 100Gi.
      storage_class: StorageClass; by default the cluster's.
    """

    mount: str
    size: str
    storage_class: str | None = None

    def __post_init__(self) -> None:
        _check_folder(self, "mount")
        check_quantity(self, "size")
        if self.storage_class is not None:
            check_object(self, "storage_class")


def quantity(text: str, name: str) -> float:
    """Convert a Kubernetes quantity to a number of cores or bytes. Raises InfeedError if `text` is not a quantity."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise InfeedError(f"{name} is {text!r}", where="deploy.resources", do=_AS_QUANTITY)
    return float(match[1]) * _UNITS[match[2]]


def check_quantity(options: object, name: str) -> None:
    """Raise OptionError unless an option is a plausible Kubernetes quantity. A memory of 16 would mean 16 bytes."""
    with about(options, name):
        amount = quantity(getattr(options, name), name)
    if name.startswith("cpu"):
        require(0 < amount <= _MOST_CORES, options, name, _AS_QUANTITY)
    else:
        require(amount >= (_LEAST_MEMORY if name == "memory" else 1), options, name, _AS_QUANTITY)


def check_pod(options: object, name: str) -> None:
    """Raise OptionError unless an option is metadata and spec of a Pod, with names that Kubernetes accepts."""
    pod: Pod = getattr(options, name) or {}
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    require(pod.keys() <= {"metadata", "spec"}, options, name, "use metadata and spec, as Kubernetes writes a Pod")
    require(metadata.keys() <= {"labels", "annotations"}, options, name, "use labels and annotations in metadata")
    for values in metadata.values():
        is_text = isinstance(values, Mapping) and all(isinstance(value, str) for value in values.values())
        require(is_text, options, name, "write the values of labels and annotations as text, in quotes")
    check_labels(options, name, metadata.get("labels", {}))
    check_keys(options, name, metadata.get("annotations", {}))
    require("containers" not in spec, options, name, "leave containers out: `resources` has settings of the container")
    try:
        node_affinity(pod), pull_secrets(pod)
    except (AttributeError, ValueError) as error:
        do = "write affinity and imagePullSecrets as Kubernetes writes them"
        raise refused(options, name, do, f"{name} has another form than a Pod of Kubernetes: {error}") from error


def node_affinity(pod: Pod) -> list[dict[str, Any]]:
    """Return the required terms (a machine must meet one), and each preferred term with its weight.

    Raises ValueError for another outer form. Kubernetes itself checks the terms.
    """
    affinity = pod.get("spec", {}).get("affinity", {}).get("nodeAffinity", {})
    _check_form(affinity, "nodeAffinity", {_REQUIRED: Mapping, _PREFERRED: Sequence}, optional=True)
    required, preferred = affinity.get(_REQUIRED, {"nodeSelectorTerms": ()}), affinity.get(_PREFERRED, ())
    _check_form(required, _REQUIRED, {"nodeSelectorTerms": Sequence})
    for one in preferred:
        _check_form(one, _PREFERRED, {"preference": Mapping, "weight": int})
    for term in required["nodeSelectorTerms"]:
        _check_form(term, "nodeSelectorTerms", {"matchExpressions": Sequence, "matchFields": Sequence}, optional=True)
    return [*required["nodeSelectorTerms"], *({**one["preference"], "weight": one["weight"]} for one in preferred)]


def pull_secrets(pod: Pod) -> list[str]:
    """Return the names of the Secrets for the registry of the image. Raises ValueError for another form."""
    secrets = pod.get("spec", {}).get("imagePullSecrets", ())
    _check_form({"imagePullSecrets": secrets}, "spec", {"imagePullSecrets": Sequence})
    for one in secrets:
        _check_form(one, "imagePullSecrets", {"name": str})
        if not _OBJECT.fullmatch(one["name"]):
            raise ValueError(f"imagePullSecrets names {one['name']!r}, which is no name of a Secret")
    return [one["name"] for one in secrets]


def _check_form(given: Any, of: str, fields: Mapping[str, Any], *, optional: bool = False) -> None:
    """Raise ValueError unless `given` is a mapping with these fields and types."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{of} has {given!r}, which is no mapping")
    if unknown := given.keys() - fields.keys():
        raise ValueError(f"{of} has no field {min(unknown, key=str)!r}")
    for name, kind in fields.items():
        if name not in given and not optional:
            raise ValueError(f"{of} lacks {name}")
        if name in given and (not isinstance(given[name], kind) or (kind is not str and isinstance(given[name], str))):
            raise ValueError(f"{name} of {of} is {given[name]!r}")


def of_machines_alone(pod: Pod) -> list[str]:
    """Return the fields of a pod that Kubeflow Pipelines cannot set in a step's pod."""
    spec = pod.get("spec", {})
    found = [f"spec.{field}" for field in spec.keys() - {"affinity", "imagePullSecrets"}]
    return sorted(found + [f"spec.affinity.{kind}" for kind in spec.get("affinity", {}).keys() - {"nodeAffinity"}])


def merged(base: Any, more: Any) -> Any:
    """Merge two parts of a pod: mappings by key, lists by concatenation. Of other values, `more` takes precedence."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        return {**base, **{key: merged(base[key], value) if key in base else value for key, value in more.items()}}
    return [*base, *more] if isinstance(base, list) and isinstance(more, list) else more


def _check_folder(options: object, name: str) -> None:
    folder = getattr(options, name)
    fits = folder is None or (folder.startswith("/") and ":" not in folder)
    require(fits, options, name, "use an absolute path in the container, without ':'")
