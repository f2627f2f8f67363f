"""The messages of TorchServe's gRPC interfaces, by name and number, created on first use.

The descriptors are in a separate pool, so that they do not collide with generated code of the same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, message_factory

INFERENCE = "org.pytorch.serve.grpc.inference"
MANAGEMENT = "org.pytorch.serve.grpc.management"
OPEN_INFERENCE = "org.pytorch.serve.grpc.openinference"
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES, "bool": _FIELD.TYPE_BOOL, "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64, "uint32": _FIELD.TYPE_UINT32, "uint64": _FIELD.TYPE_UINT64, "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE,
}  # fmt: skip

# A field is (name, number, type); a type is a scalar's or a message's name, with `*` in front if repeated, `?` if its presence
# counts, `map:T` for a map from strings to T. A message is a list of fields, and of messages in it as (name, fields).
Field = tuple[str, int, str]

_STATUS = {"Status": [("code", 1, "int32"), ("message", 2, "string"), ("details", 3, "*.google.protobuf.Any")]}
_INFERENCE = {
    "PredictionsRequest": [
        ("model_name", 1, "string"), ("model_version", 2, "string"), ("input", 3, "map:bytes"), ("sequence_id", 4, "?string"),
    ],
    "PredictionResponse": [("prediction", 1, "bytes"), ("sequence_id", 2, "?string"), ("status", 3, "?.google.rpc.Status")],
    "TorchServeHealthResponse": [("health", 1, "string")],
}  # fmt: skip
_MANAGEMENT = {
    "ManagementResponse": [("msg", 1, "string")],
    "DescribeModelRequest": [("model_name", 1, "string"), ("model_version", 2, "string"), ("customized", 3, "bool")],
    "ListModelsRequest": [("limit", 1, "int32"), ("next_page_token", 2, "int32")],
    "RegisterModelRequest": [
        ("batch_size", 1, "int32"), ("handler", 2, "string"), ("initial_workers", 3, "int32"), ("max_batch_delay", 4, "int32"),
        ("model_name", 5, "string"), ("response_timeout", 6, "int32"), ("runtime", 7, "string"), ("synchronous", 8, "bool"),
        ("url", 9, "string"), ("s3_sse_kms", 10, "bool"), ("startup_timeout", 11, "int32"),
    ],
    "ScaleWorkerRequest": [
        ("model_name", 1, "string"), ("model_version", 2, "string"), ("max_worker", 3, "int32"), ("min_worker", 4, "int32"),
        ("number_gpu", 5, "int32"), ("synchronous", 6, "bool"), ("timeout", 7, "int32"),
    ],
    "SetDefaultRequest": [("model_name", 1, "string"), ("model_version", 2, "string")],
    "UnregisterModelRequest": [("model_name", 1, "string"), ("model_version", 2, "string")],
}  # fmt: skip
_TENSOR: list[Field] = [
    ("name", 1, "string"), ("datatype", 2, "string"), ("shape", 3, "*int64"), ("parameters", 4, "map:InferParameter"),
    ("contents", 5, "InferTensorContents"),
]  # fmt: skip
_METADATA: list[Field] = [("name", 1, "string"), ("datatype", 2, "string"), ("shape", 3, "*int64")]
_OPEN_INFERENCE: dict[str, list[Any]] = {
    "ServerLiveRequest": [], "ServerLiveResponse": [("live", 1, "bool")],
    "ServerReadyRequest": [], "ServerReadyResponse": [("ready", 1, "bool")],
    "ModelReadyRequest": [("name", 1, "string"), ("version", 2, "string")],
    "ModelReadyResponse": [("ready", 1, "bool")],
    "ServerMetadataRequest": [],
    "ServerMetadataResponse": [("name", 1, "string"), ("version", 2, "string"), ("extensions", 3, "*string")],
    "ModelMetadataRequest": [("name", 1, "string"), ("version", 2, "string")],
    "ModelMetadataResponse": [
        ("TensorMetadata", _METADATA), ("name", 1, "string"), ("versions", 2, "*string"), ("platform", 3, "string"),
        ("inputs", 4, "*ModelMetadataResponse.TensorMetadata"), ("outputs", 5, "*ModelMetadataResponse.TensorMetadata"),
    ],
    "ModelInferRequest": [
        ("InferInputTensor", _TENSOR),
        ("InferRequestedOutputTensor", [("name", 1, "string"), ("parameters", 2, "map:InferParameter")]),
        ("model_name", 1, "string"), ("model_version", 2, "string"), ("id", 3, "string"),
        ("parameters", 4, "map:InferParameter"), ("inputs", 5, "*ModelInferRequest.InferInputTensor"),
        ("outputs", 6, "*ModelInferRequest.InferRequestedOutputTensor"), ("raw_input_contents", 7, "*bytes"),
    ],
    "ModelInferResponse": [
        ("InferOutputTensor", _TENSOR),
        ("model_name", 1, "string"), ("model_version", 2, "string"), ("id", 3, "string"),
        ("parameters", 4, "map:InferParameter"), ("outputs", 5, "*ModelInferResponse.InferOutputTensor"),
        ("raw_output_contents", 6, "*bytes"),
    ],
    "InferParameter": [
        ("bool_param", 1, "|bool"), ("int64_param", 2, "|int64"), ("string_param", 3, "|string"),
    ],
    "InferTensorContents": [
        ("bool_contents", 1, "*bool"), ("int_contents", 2, "*int32"), ("int64_contents", 3, "*int64"),
        ("uint_contents", 4, "*uint32"), ("uint64_contents", 5, "*uint64"), ("fp32_contents", 6, "*float"),
        ("fp64_contents", 7, "*double"), ("bytes_contents", 8, "*bytes"),
    ],
}  # fmt: skip


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _set_type(field: Any, kind: str, package: str) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = kind if kind.startswith(".") else f".{package}.{kind}"


def _fill(message: Any, fields: list[Any], package: str, path: str) -> None:
    for entry in fields:
        if len(entry) == 2:
            inner = message.nested_type.add(name=entry[0])
            _fill(inner, entry[1], package, f"{path}.{entry[0]}")
            continue
        name, number, kind = entry
        field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        if kind.startswith("map:"):
            pair = message.nested_type.add(name=f"{_camel(name)}Entry")
            pair.options.map_entry = True
            pair.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
            _set_type(pair.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL), kind[4:], package)
            field.label = _FIELD.LABEL_REPEATED
            _set_type(field, f".{package}.{path}.{pair.name}", package)
            continue
        if kind[0] == "*":
            field.label = _FIELD.LABEL_REPEATED
        elif kind[0] == "|":
            if not message.oneof_decl:
                message.oneof_decl.add(name="parameter_choice")
            field.oneof_index = 0
        _set_type(field, kind.lstrip("*?|"), package)
    for entry in fields:  # the invented oneofs of optional fields come after the real ones
        if len(entry) == 3 and entry[2][0] == "?":
            field = next(f for f in message.field if f.name == entry[0])
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{entry[0]}")


def _file(name: str, package: str, messages: dict[str, list[Any]], needs: list[str]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=needs)
    for message_name, fields in messages.items():
        _fill(file.message_type.add(name=message_name), fields, package, message_name)
    return file


def _build() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, empty_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    files = (
        _file("google/rpc/status.proto", "google.rpc", _STATUS, ["google/protobuf/any.proto"]),
        _file("inference.proto", INFERENCE, _INFERENCE, ["google/rpc/status.proto"]),
        _file("management.proto", MANAGEMENT, _MANAGEMENT, []),
        _file("open_inference_grpc.proto", OPEN_INFERENCE, _OPEN_INFERENCE, []),
    )
    classes = {"Empty": empty_pb2.Empty}
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            classes[message.name] = message_factory.GetMessageClass(descriptor)
    return classes


CLASSES = _build()

# Services: method -> (request, answer, request streamed, answer streamed)
SERVICES: dict[str, dict[str, tuple[str, str, bool, bool]]] = {
    f"{INFERENCE}.InferenceAPIsService": {
        "Ping": ("Empty", "TorchServeHealthResponse", False, False),
        "Predictions": ("PredictionsRequest", "PredictionResponse", False, False),
        "StreamPredictions": ("PredictionsRequest", "PredictionResponse", False, True),
        "StreamPredictions2": ("PredictionsRequest", "PredictionResponse", True, True),
    },
    f"{MANAGEMENT}.ManagementAPIsService": {
        name: (f"{name}Request", "ManagementResponse", False, False)
        for name in ("DescribeModel", "ListModels", "RegisterModel", "ScaleWorker", "SetDefault", "UnregisterModel")
    },
    f"{OPEN_INFERENCE}.GRPCInferenceService": {
        name: (f"{name}Request", f"{name}Response", False, False)
        for name in ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
    },
}
