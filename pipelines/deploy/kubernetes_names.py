"""Kubernetes' rules for names. Without these checks, Kubernetes would reject the pod only after the run has started.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from infeed.components.base.checks import refused, require
from infeed.components.engine import project_archive
from infeed.components.kubeflow import compiled_with, disk
from infeed.components.kubeflow.message import ROOT_VARIABLE

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


def check_object(options: object, name: str) -> None:
    """Raise OptionError unless the option is the name of an object of Kubernetes."""
    do = "use the object's name in Kubernetes: lower-case letters, digits, '-' and '.', at most 253"
    require(_OBJECT.fullmatch(getattr(options, name)), options, name, do)


def check_volume(options: object, name: str) -> None:
    """Raise OptionError unless Kubeflow can name a volume of the pod after the option's object."""
    given = getattr(options, name)
    do = "mount an object whose name has lower-case letters, digits and '-', no '.', and at most 63 characters"
    require(_VOLUME.fullmatch(given), options, name, do)
    require(
        not _OF_KUBEFLOW.fullmatch(given), options, name, "mount an object of another name: the pod has such a volume"
    )


def check_volumes(options: object, mounted: Mapping[str, Iterable[str]]) -> None:
    """Raise OptionError if two volumes of a pod get the same name. `mounted` holds the names of objects by option."""
    seen: dict[str, str] = {}
    for option, names in mounted.items():
        for name in names:
            if name in seen:
                what = f"{name!r} is mounted twice, by {seen[name]} and {option}, as one volume of the pod"
                raise refused(options, option, "mount it once, or under another name", what)
            seen[name] = option


def check_variables(options: object, name: str, variables: Iterable[str]) -> None:
    """Raise OptionError about the option `name` if Kubernetes rejects the name of an environment variable."""
    for variable in variables:
        do = f"name {variable!r} with letters, digits, -, _ and ., and no digit first"
        require(_VARIABLE.fullmatch(variable), options, name, do)
        do = "use another name: the pod has a variable of this name"
        require(not _RESERVED.fullmatch(variable), options, name, do)


def check_data_keys(options: object, name: str, keys: Iterable[str]) -> None:
    """Raise OptionError about the option `name` if no Secret and no ConfigMap has such a key."""
    for key in keys:
        require(
            _KEY.fullmatch(key), options, name, f"write the key {key!r} with letters, digits, '-', '_' and '.' alone"
        )


def check_distinct_variables(options: object, variables: Mapping[str, Iterable[str]]) -> None:
    """Raise OptionError if two options set the same variable of a pod. `variables` holds the names by option."""
    counts = Counter(variable for names in variables.values() for variable in names)
    for option, names in variables.items():
        if twice := [name for name in names if counts[name] > 1]:
            options_of_it = [one for one, given in variables.items() if twice[0] in given]
            what = f"the variable {twice[0]!r} is set twice, by {' and '.join(dict.fromkeys(options_of_it))}"
            raise refused(options, option, "set it once", what)


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
