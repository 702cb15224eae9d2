"""A feature of the user's own: the class that docs/transform.md shows, in a file of a project."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.features import features_from_json, features_to_json, own_kinds

PAGE = Path(__file__).parents[3] / "docs" / "transform.md"

pytestmark = pytest.mark.slow  # its file imports TensorFlow


@pytest.fixture
def kind(tmp_path: Path) -> str:
    section = PAGE.read_text().partition("## Write your own feature")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example
    (tmp_path / "features.py").write_text(example[1])
    return f"{tmp_path}/features.py:Asinh"


def test_it_is_plain_data_and_computes_with_constants_of_the_training_rows(
    kind: str, transform: Callable[..., dict[str, np.ndarray]]
) -> None:
    features = features_from_json([{"kind": kind, "column": "x"}])
    assert own_kinds(features) == [kind]
    plain = json.loads(json.dumps(features_to_json(features)))
    assert plain == [{"kind": kind, "column": "x"}]
    assert features_from_json(plain) == features
    made = transform({"x": [1.0, 2.0, 3.0, 4.0, 5.0]}, features, served={"x": [3.0, None, 23.0, -17.0]})["x"]
    np.testing.assert_allclose(made, np.arcsinh([[0.0], [0.0], [10.0], [-10.0]]), rtol=1e-6)


def test_another_process_takes_it(kind: str) -> None:
    pickled = pickle.dumps(features_from_json([{"kind": kind, "column": "x"}]))
    code = "import pickle, sys; print(*pickle.load(sys.stdin.buffer))"
    found = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert found.stdout.decode().strip() == "Asinh(column='x')"


@pytest.mark.parametrize(
    ("item", "where", "what"),
    [
        ({"column": [5]}, "features[0].column", "column"),
        ({"column": "x", "scale": 2}, "features[0]", "'scale'"),
        ({}, "features[0]", "'column'"),
        ({"kind": "Quantiles"}, "option features[0].kind", "Quantiles"),
        ({"kind": "Absent"}, "option features[0].kind", "'Absent'"),
    ],
)
def test_a_wrong_option_or_class_is_refused_with_its_place(
    kind: str, item: dict[str, Any], where: str, what: str
) -> None:
    named = kind.replace("Asinh", item.get("kind", "Asinh"))
    with pytest.raises(InfeedError, match=what) as raised:
        features_from_json([item | {"kind": named}])
    assert raised.value.where.startswith(where)


@pytest.mark.tfx
def test_an_edited_class_is_another_component(kind: str) -> None:
    from tfx.types import channel_utils, standard_artifacts

    from infeed.components import Transform

    def digests() -> Any:
        inputs = {"examples": standard_artifacts.Examples(), "schema": standard_artifacts.Schema()}
        channels = {name: channel_utils.as_channel([artifact]) for name, artifact in inputs.items()}
        return Transform(**channels, features=features_from_json([{"kind": kind, "column": "x"}])).exec_properties

    first = digests()
    assert digests() == first
    path = Path(kind.partition(":")[0])
    path.write_text(path.read_text().replace("1e-6", "1e-3"))
    assert digests() != first
