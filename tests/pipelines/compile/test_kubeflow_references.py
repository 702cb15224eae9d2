from __future__ import annotations

import json

from infeed.pipelines.compile.kubeflow import relative_function_paths


def test_functions_of_the_projects_files_are_named_relative_to_its_folder() -> None:
    assert relative_function_paths(["/p/model.py:build", {"a": "/p/deep/x.py:f"}], "/p") == [
        "model.py:build",
        {"a": "deep/x.py:f"},
    ]


def test_also_inside_of_json_and_in_any_script() -> None:
    options = {"model_fn": "/café/model.py:build"}
    assert json.loads(relative_function_paths(json.dumps(options), "/café")) == {"model_fn": "model.py:build"}


def test_data_in_the_folder_and_files_elsewhere_stay() -> None:
    kept = {"data": "/p/data.csv", "other": "/q/model.py:build", "module": "package.model:build", "number": 3}
    assert relative_function_paths(kept, "/p") == kept
