"""A stand-in for a container of TensorFlow Serving: its gRPC API, over the C++ loader that it uses.

It is given to TFX's InfraValidator in the place of the runner that starts a container, and is told of the model by the
same mount and variables.
"""

# ruff: noqa: N802 - the names are those of the API and of TFX

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tfx.components.infra_validator.model_server_runners.base_runner import BaseModelServerRunner

Load = Callable[[Path], Mapping[str, Callable[..., Any]]]


class ModelServer(BaseModelServerRunner, prediction_service_pb2_grpc.PredictionServiceServicer):
    """Serves what the container would find in its mount."""

    def __init__(self, load: Load, container: Mapping[str, Any]) -> None:
        (mount,), variables = container["mounts"], container["environment"]
        assert mount["Target"] == "{MODEL_BASE_PATH}/{MODEL_NAME}/1".format(**variables)  # where the container looks
        self._signatures = load(Path(mount["Source"]))
        self._server = grpc.server(ThreadPoolExecutor(1))
        self.answered: list[Mapping[str, Any]] = []

    def Start(self) -> None:
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(self, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Available(), self._server)
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def WaitUntilRunning(self, deadline: float) -> None:
        pass

    def GetEndpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def GetLogs(self) -> None:
        return None

    def Stop(self) -> None:
        self._server.stop(None).wait()

    def __repr__(self) -> str:
        return "ModelServer"

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        given = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        answer = self._signatures[request.model_spec.signature_name](**given)
        self.answered.append(answer)
        return predict_pb2.PredictResponse(outputs={name: tf.make_tensor_proto(it) for name, it in answer.items()})


class _Available(model_service_pb2_grpc.ModelServiceServicer):
    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        status = get_model_status_pb2.ModelVersionStatus(state=get_model_status_pb2.ModelVersionStatus.State.AVAILABLE)
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])
