"""OpenAPI descriptions of the interfaces: the answers to `GET /api-description` and `OPTIONS`."""

from __future__ import annotations

from typing import Any

from .models import Model
from .ts.version import __version__

_ERRORS = {"type": "object", "required": ["code", "type", "message"],
           "properties": {"code": {"type": "integer"}, "type": {"type": "string"}, "message": {"type": "string"}}}  # fmt: skip


def _parameter(name: str, where: str, kind: str, words: str, default: Any = None) -> dict[str, Any]:
    schema = {"type": kind} if default is None else {"type": kind, "default": default}
    return {"in": where, "name": name, "required": where == "path", "description": words, "schema": schema}


_NAME = _parameter("model_name", "path", "string", "The model's name.")
_VERSION = _parameter("model_version", "path", "string", "The model's version.")
_WORKFLOW = _parameter("workflow_name", "path", "string", "The workflow's name.")
_LIST = [
    _parameter("limit", "query", "integer", "How many to list at most.", 100),
    _parameter("next_page_token", "query", "string", "Where the last list ended."),
]
_REGISTER = [
    _parameter("url", "query", "string", "The archive: a file of the model store, or an allowed URL."),
    _parameter("model_name", "query", "string", "A name other than the archive's."),
    _parameter("handler", "query", "string", "A handler other than the archive's."),
    _parameter("runtime", "query", "string", "python, python3 or LSP."),
    _parameter("batch_size", "query", "integer", "How many requests a worker gets at once at most.", 1),
    _parameter("max_batch_delay", "query", "integer", "How long a request waits for others, in ms.", 100),
    _parameter("response_timeout", "query", "integer", "How long a worker may take to answer, in s.", 120),
    _parameter("startup_timeout", "query", "integer", "How long a worker may take to load the model, in s.", 120),
    _parameter("initial_workers", "query", "integer", "How many workers to start.", 0),
    _parameter("synchronous", "query", "boolean", "Whether to answer when the workers have started.", True),
    _parameter("s3_sse_kms", "query", "boolean", "Accepted; archives come over HTTP(S) or from files.", False),
]
_SCALE = [
    _parameter("min_worker", "query", "integer", "At least so many workers.", 1),
    _parameter("max_worker", "query", "integer", "At most so many workers."),
    _parameter("number_gpu", "query", "integer", "Accepted; number_of_gpu of the server counts."),
    _parameter("synchronous", "query", "boolean", "Whether to answer when it is done.", False),
    _parameter("timeout", "query", "integer", "Accepted; workers finish what they have.", -1),
]


def _operation(
    name: str, words: str, parameters: list | None = None, body: bool = False, answer: str = "application/json"
) -> dict:
    operation: dict[str, Any] = {
        "operationId": name,
        "description": words,
        "responses": {
            "200": {"description": "Done.", "content": {answer: {"schema": {"type": "object"}}}},
            "default": {"description": "An error.", "content": {"application/json": {"schema": _ERRORS}}},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body:
        any_type = {"schema": {"type": "string", "format": "binary"}}
        form = {"schema": {"type": "object", "properties": {"data": {"type": "string", "format": "binary"}}}}
        operation["requestBody"] = {
            "required": True,
            "content": {"*/*": any_type, "application/json": {"schema": {}}, "multipart/form-data": form},
        }
    return operation


def _inference() -> dict[str, Any]:
    def predict(name: str, words: str, *parameters: dict) -> dict[str, Any]:
        return {
            "post": _operation(name, words, list(parameters), True, "*/*"),
            "options": _operation(f"{name}Options", words),
        }

    return {
        "/": {"options": _operation("apiDescription", "This description.")},
        "/api-description": {"get": _operation("api-description", "This description.")},
        "/ping": {"get": _operation("ping", "Whether the server is healthy.")},
        "/predictions/{model_name}": predict("predictions", "The answer of a model's default version.", _NAME),
        "/predictions/{model_name}/{model_version}": predict(
            "versionPredictions", "A version's answer.", _NAME, _VERSION
        ),
        "/explanations/{model_name}": predict("explanations", "What an answer rests on.", _NAME),
        "/invocations": predict(
            "invocations", "SageMaker's form.", _parameter("model_name", "query", "string", "The model.")
        ),
        "/models/{model_name}/invoke": predict("invoke", "SageMaker's form for several models.", _NAME),
        "/v1/models/{model_name}:predict": predict("kserveV1", "KServe's first protocol.", _NAME),
        "/v1/models/{model_name}:explain": predict("kserveV1Explain", "KServe's first protocol.", _NAME),
        "/v2/models/{model_name}/infer": predict("kserveV2", "KServe's second protocol.", _NAME),
        "/v2/models/{model_name}/explain": predict("kserveV2Explain", "KServe's second protocol.", _NAME),
        "/wfpredict/{workflow_name}": predict("workflow", "The answer of a workflow.", _WORKFLOW),
    }


def _model_paths() -> dict[str, Any]:
    one = {
        "get": _operation("describeModel", "What is known about a model.", [
            _NAME, _parameter("customized", "query", "boolean", "Whether to ask the handler, too.", False)]),
        "put": _operation("setAutoScale", "Changes how many workers a model has.", [_NAME, *_SCALE]),
        "delete": _operation("unregisterModel", "Takes a model out of service.", [_NAME]),
    }  # fmt: skip
    version = {
        "get": _operation(
            "describeModelVersion", "What is known about a version; `all` for every one.", [_NAME, _VERSION]
        ),
        "put": _operation("scaleVersion", "Changes how many workers a version has.", [_NAME, _VERSION, *_SCALE]),
        "delete": _operation("unregisterVersion", "Takes a version out of service.", [_NAME, _VERSION]),
    }
    return {
        "/models/{model_name}": one,
        "/models/{model_name}/{model_version}": version,
        "/models/{model_name}/{model_version}/set-default": {
            "put": _operation("setDefault", "Makes a version the default.", [_NAME, _VERSION])
        },
    }


def _management() -> dict[str, Any]:
    kind = [_parameter("type", "query", "string", "management or inference")]
    register = [
        _parameter("url", "query", "string", "The archive."),
        _parameter("workflow_name", "query", "string", "Its name."),
    ]
    return {
        "/models": {
            "get": _operation("listModels", "The registered models.", _LIST),
            "post": _operation("registerModel", "Registers a model.", _REGISTER),
        },
        **_model_paths(),
        "/v1/models/{model_name}": {"get": _operation("ready", "Whether a model has workers.", [_NAME])},
        "/token": {"get": _operation("token", "Makes a new key.", kind)},
        "/workflows": {
            "get": _operation("listWorkflows", "The registered workflows.", _LIST),
            "post": _operation("registerWorkflow", "Registers a workflow.", register),
        },
        "/workflows/{workflow_name}": {
            "get": _operation("describeWorkflow", "What is known about a workflow.", [_WORKFLOW]),
            "delete": _operation("unregisterWorkflow", "Takes a workflow out of service.", [_WORKFLOW]),
        },
    }


def _metrics() -> dict[str, Any]:
    names = _parameter("name[]", "query", "array", "Names of metrics; all if left out.")
    return {"/metrics": {"get": _operation("metrics", "Numbers for Prometheus.", [names], answer="text/plain")}}


def _document(title: str, paths: dict[str, Any]) -> dict[str, Any]:
    return {"openapi": "3.0.1", "info": {"title": title, "version": __version__}, "paths": paths}


def describe(offers: set[str]) -> dict[str, Any]:
    """Return the description of the interfaces of one address."""
    parts = {"inference": _inference, "management": _management, "metrics": _metrics}
    paths: dict[str, Any] = {}
    for name, make in parts.items():
        if name in offers:
            paths.update(make())
    return _document("TorchServe APIs, served by Flambeau", paths)


def describe_model(model: Model) -> dict[str, Any]:
    """Return the description of the requests to one model."""
    words = _operation("predict", f"An answer of {model.name} {model.version}.", None, True, "*/*")
    return _document(f"RESTful API for: {model.name}", {f"/predictions/{model.name}": {"post": words}})


def describe_management(model: Model) -> dict[str, Any]:
    """Return the description of the management requests for one model."""
    paths = {key.replace("{model_name}", model.name): value for key, value in _model_paths().items()}
    return _document(f"RESTful Management API for: {model.name}", paths)
