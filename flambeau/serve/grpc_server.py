"""The gRPC interfaces: inference, management and open inference, with TorchServe's names, field numbers and status codes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from . import bounded_json, errors, tokens
from .http import MOST_UNSENT
from .job import CallbackJob, Parameters
from .models import Model
from .protos import CLASSES, INFERENCE, MANAGEMENT, OPEN_INFERENCE, SERVICES
from .registry import Registration
from .rest import no_worker, pretty
from .server import Server
from .settings import Address

logger = logging.getLogger("flambeau.serve.grpc")
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ALREADY_EXISTS,
}
_MAX_PENDING = 64  # requests of one conversation in progress, and answers that wait to be read
_JAVA = {"ModelNotFoundException": "org.pytorch.serve.archive.model", "ModelException": "org.pytorch.serve.archive.model",
         "ModelVersionNotFoundException": "org.pytorch.serve.archive.model"}  # fmt: skip


class Refused(Exception):
    """Raised to end a call with a status code and a message."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code, self.message = code, message


def _rpc_error(error: errors.ServeError, code: grpc.StatusCode | None = None) -> Refused:
    """Return the exception for an error, with TorchServe's text: the message, and the error's Java class on the next line."""
    package = _JAVA.get(error.kind, "org.pytorch.serve.http")
    if code is None:
        code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
    return Refused(code, f"{error.message}\n{package}.{error.kind}")


def _internal(kind: str, message: str) -> Refused:
    return Refused(grpc.StatusCode.INTERNAL, f"{message}\n{kind}.()")


class Calls:
    """Base of the three services: checks keys, converts errors, writes the log."""

    def __init__(self, server: Server):
        self.server = server

    def check(self, context: Any, method: str, kind: str) -> None:
        if not self.server.tokens.enabled or method == "Ping":
            return
        metadata = dict(context.invocation_metadata())
        header = metadata.get("authorization") or (f"Bearer {metadata['token']}" if "token" in metadata else None)
        try:
            self.server.tokens.check(header, kind)
        except errors.InvalidKeyException as e:
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, e.message) from e

    async def job(
        self, model: Model, version: str | None, parameters: Parameters, headers: dict[str, str],
        context: Any, *, sequence: str = "", describe: bool = False,
    ) -> AsyncIterator[tuple[bytes, dict[str, str]]]:  # fmt: skip
        """Yield the parts of a model's response."""
        answers: asyncio.Queue[tuple[bytes, dict[str, str], bool] | Refused] = asyncio.Queue()
        unread = 0

        def reply(status: int, phrase: str, kind: str, response: dict[str, str], body: bytes, more: bool) -> None:
            nonlocal unread
            if unread > MOST_UNSENT:
                return
            unread += len(body)
            if unread > MOST_UNSENT:
                answers.put_nowait(Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "The client does not read the answer."))
            elif status >= 400:
                answers.put_nowait(Refused(_CODES.get(status, grpc.StatusCode.INTERNAL), body.decode(errors="replace")))
            else:
                answers.put_nowait((body, response, more))

        def fail(status: int, message: str) -> None:
            answers.put_nowait(_internal("InternalServerException", message))

        job = CallbackJob(
            str(uuid.uuid4()), headers, parameters, reply, fail, lambda: not context.cancelled(), describe=describe,
            sequence=sequence, client_timeout_ms=model.settings.client_timeout_ms,
        )  # fmt: skip
        if not model.submit(job):
            raise _internal("InternalServerException", no_worker(model.name, version))
        while True:
            answer = await answers.get()
            if isinstance(answer, Refused):
                raise answer
            body, response, more = answer
            yield body, response
            unread -= len(body)
            if not more:
                self.server.answered(model, version, job)
                return

    def model(self, name: str, version: str | None) -> Model:
        if not name:
            raise _internal("BadRequestException", "Parameter model_name is required.")
        try:
            return self.server.registry.get(name, version)
        except errors.ServeError as e:
            raise _rpc_error(e, grpc.StatusCode.INTERNAL) from e


class Inference(Calls):
    """The gRPC service InferenceAPIsService."""

    async def Ping(self, request: Any, context: Any) -> Any:
        healthy = self.server.registry.healthy()
        return CLASSES["TorchServeHealthResponse"](
            health=json.dumps({"status": "Healthy" if healthy else "Unhealthy"}, indent=2)
        )

    async def Predictions(self, request: Any, context: Any) -> Any:
        last = None
        async for part in self.StreamPredictions(request, context):
            last = part
        return last

    async def StreamPredictions(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for body, _ in self._parts(request, context, {}, ""):
            yield CLASSES["PredictionResponse"](prediction=body)

    async def _parts(
        self, request: Any, context: Any, headers: dict[str, str], sequence: str
    ) -> AsyncIterator[tuple[bytes, dict]]:
        version = request.model_version or None
        model = self.model(request.model_name, version)
        self.server.counted(request.model_name, version)
        parameters = [(name, "", value) for name, value in request.input.items()]
        secret = ("authorization", "token") if self.server.tokens.enabled else ()
        told = context.invocation_metadata()
        headers = {k: v for k, v in told if isinstance(v, str) and k not in secret} | headers
        if model.settings.sequence_batching and not sequence:
            sequence = headers.get(self.server.settings.sequence_keys[0], "") or f"ts-seq-{uuid.uuid4()}"
            headers[self.server.settings.sequence_keys[0]] = sequence
        async for body, response in self.job(model, version, parameters, headers, context, sequence=sequence):
            yield body, response

    async def StreamPredictions2(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answer a stream of requests of a sequence one by one, errors included, until the client ends it."""
        id_key, start_key, end_key = self.server.settings.sequence_keys
        answers: asyncio.Queue[Any] = asyncio.Queue(_MAX_PENDING)  # a client that does not read is not read from
        running: set[asyncio.Task] = set()

        async def one(request: Any) -> None:
            first = request.input.get(start_key, b"").decode(errors="replace").lower() == "true"
            sequence = request.sequence_id
            response = CLASSES["PredictionResponse"]
            try:
                if not sequence and not first:
                    raise _internal("BadRequestException", "Parameter sequenceId is required.")
                sequence = sequence or f"ts-seq-{uuid.uuid4()}"
                headers = {id_key: sequence} | ({start_key: "true"} if first else {})
                if request.input.get(end_key, b"").decode(errors="replace").lower() == "true":
                    headers[end_key] = "true"
                async for body, _ in self._parts(request, context, headers, sequence):
                    await answers.put(response(prediction=body, sequence_id=sequence))
            except Refused as e:
                status = CLASSES["Status"](code=e.code.value[0], message=e.message.partition("\n")[0])
                await answers.put(response(sequence_id=sequence, status=status))

        async def read() -> None:
            async for request in requests:
                task = asyncio.ensure_future(one(request))
                running.add(task)
                task.add_done_callback(running.discard)
                while len(running) >= _MAX_PENDING:
                    await asyncio.wait(set(running), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # so that the jobs of a sequence are submitted in order
            while running:
                await asyncio.wait(set(running))
            await answers.put(None)

        reader = asyncio.ensure_future(read())
        try:
            while (answer := await answers.get()) is not None:
                yield answer
        finally:
            for task in (reader, *running):
                task.cancel()


class Management(Calls):
    """The gRPC service ManagementAPIsService."""

    def _answer(self, message: str) -> Any:
        return CLASSES["ManagementResponse"](msg=message)

    def _require_model_api(self) -> None:
        if not self.server.model_api:
            error = errors.ModelException("Model API disabled")
            raise _rpc_error(error, grpc.StatusCode.PERMISSION_DENIED)

    async def DescribeModel(self, request: Any, context: Any) -> Any:
        registry, version = self.server.registry, request.model_version or None
        found = registry.describe(request.model_name, version)
        if request.customized and version != "all":
            model = registry.get(request.model_name, version)
            async for body, _ in self.job(model, version, [], {"describe": "True"}, context, describe=True):
                found[0]["customizedMetadata"] = body.decode(errors="replace")
        return self._answer(pretty(found).decode().rstrip("\n"))

    async def ListModels(self, request: Any, context: Any) -> Any:
        listed = self.server.registry.page(request.limit, request.next_page_token)
        return self._answer(pretty(listed).decode().rstrip("\n"))

    async def RegisterModel(self, request: Any, context: Any) -> Any:
        self._require_model_api()
        asked = Registration(
            request.url or None, request.model_name or None, request.handler or None, request.runtime or None,
            request.batch_size or None, request.max_batch_delay or None, request.response_timeout or None,
            request.startup_timeout or None, request.initial_workers or None, request.synchronous,
        )  # fmt: skip
        _, message = await self.server.registry.register(asked)
        return self._answer(message)

    async def ScaleWorker(self, request: Any, context: Any) -> Any:
        minimum = request.min_worker or 1
        maximum = request.max_worker or minimum
        version = request.model_version or None
        _, message = await self.server.registry.scale(
            request.model_name, version, minimum, maximum, request.synchronous
        )
        return self._answer(message)

    async def SetDefault(self, request: Any, context: Any) -> Any:
        return self._answer(self.server.registry.set_default(request.model_name, request.model_version))

    async def UnregisterModel(self, request: Any, context: Any) -> Any:
        self._require_model_api()
        if not request.model_name:
            raise errors.BadRequestException("Parameter url is required.")
        await self.server.registry.unregister(request.model_name, request.model_version or None)
        return self._answer(f'Model "{request.model_name}" unregistered')


_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_RAW = {"BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
        "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d"}  # fmt: skip


class OpenInference(Calls):
    """The gRPC service GRPCInferenceService of KServe: tensors by name."""

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return CLASSES["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return CLASSES["ServerReadyResponse"](ready=self.server.registry.healthy())

    async def ModelReady(self, request: Any, context: Any) -> Any:
        if not request.name:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "Parameter name is required.")
        model = self.server.registry.get(request.name, request.version or None)
        return CLASSES["ModelReadyResponse"](ready=any(w.idle or w.jobs for w in model.workers))

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return CLASSES["ServerMetadataResponse"](
            name="Torchserve", version=self.server.version, extensions=["kserve", "kubeflow"]
        )

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        model = self.server.registry.get(request.name, request.version or None)
        versions = list(self.server.registry.models[request.name].by_version)
        return CLASSES["ModelMetadataResponse"](name=model.name, versions=versions, platform="")

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        """Send the tensors as KServe's JSON, and read the answer from its JSON: the handler's envelope is kservev2."""
        version = request.model_version or None
        model = self.model(request.model_name, version)
        self.server.counted(model.name, version)
        inputs = []
        for i, tensor in enumerate(request.inputs):
            raw = request.raw_input_contents[i] if i < len(request.raw_input_contents) else None
            inputs.append(
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": list(tensor.shape),
                    "data": _values(tensor, raw),
                }
            )
        body = json.dumps({"id": request.id or str(uuid.uuid4()), "inputs": inputs}).encode()
        answer = b""
        async for part, _ in self.job(model, version, [("body", "application/json", body)], {}, context):
            answer = part
        try:
            content = bounded_json.loads(answer)
            outputs = [_tensor(o) for o in content["outputs"]]
        except (ValueError, KeyError, TypeError) as e:
            raise _internal("InternalServerException", "the handler's answer is not in KServe's second form") from e
        return CLASSES["ModelInferResponse"](
            model_name=model.name, model_version=model.version, id=str(content.get("id", "")), outputs=outputs
        )


def _values(tensor: Any, raw: bytes | None) -> list[Any]:
    kind = tensor.datatype
    if kind not in _CONTENTS and kind not in _RAW:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{kind!r} is no datatype of a tensor")
    if raw is not None:
        if kind == "BYTES":
            return [raw.decode("latin-1")]
        code = _RAW[kind]
        if len(raw) % struct.calcsize(code):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"the raw contents of {tensor.name!r} are no whole numbers")
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))
    values = list(getattr(tensor.contents, _CONTENTS[kind]))
    return [v.decode("latin-1") for v in values] if kind == "BYTES" else values


def _tensor(output: dict[str, Any]) -> dict[str, Any]:
    kind = output["datatype"]
    data = [str(v).encode() for v in output["data"]] if kind == "BYTES" else output["data"]
    field = _CONTENTS.get(kind, "fp32_contents")
    return {"name": output["name"], "datatype": kind, "shape": output["shape"], "contents": {field: data}}


# -- the servers ---------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _handle_call(calls: Calls, context: Any, name: str, kind: str) -> AsyncIterator[None]:
    """Context manager of one call: check the key, end the call with the code of an error, write the log."""
    start, code = time.perf_counter(), "OK"
    peer = context.peer()  # asked of a call that its client has cancelled, grpc would crash the process
    try:
        calls.check(context, name, kind)
        yield
    except (errors.ServeError, Refused) as e:
        refusal = e if isinstance(e, Refused) else _rpc_error(e)
        code = refusal.code.name
        await context.abort(refusal.code, refusal.message)
    finally:
        spent = int((time.perf_counter() - start) * 1000)
        calls.server.logs.access(f'/{peer} "gRPC {name} HTTP/2.0" {code} {spent}')


def _unary(calls: Calls, name: str, kind: str) -> Callable:
    async def call(request: Any, context: Any) -> Any:
        async with _handle_call(calls, context, name, kind):
            return await getattr(calls, name)(request, context)

    return call


def _streamed(calls: Calls, name: str, kind: str) -> Callable:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        async with _handle_call(calls, context, name, kind):
            async for answer in getattr(calls, name)(request, context):
                yield answer

    return call


def _service(name: str, calls: Calls, kind: str) -> Any:
    handlers = {}
    for method, (request, answer, request_stream, answer_stream) in SERVICES[name].items():
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[request_stream, answer_stream]
        wrap = _streamed if answer_stream else _unary
        handlers[method] = make(
            wrap(calls, method, kind), CLASSES[request].FromString, CLASSES[answer].SerializeToString
        )
    return grpc.method_handlers_generic_handler(name, handlers)


class Running:
    """The running gRPC servers."""

    def __init__(self, servers: list[Any], addresses: list[Address]):
        self.servers, self.addresses = servers, addresses

    async def stop(self) -> None:
        await asyncio.gather(*(s.stop(1) for s in self.servers))


async def start(server: Server) -> Running:
    """Start inference (with open inference) on one port and management on another."""
    settings = server.settings
    sizes = [
        ("grpc.max_receive_message_length", settings.number("max_request_size", 6_553_500)),
        ("grpc.max_send_message_length", settings.number("max_response_size", 6_553_500)),
        ("grpc.so_reuseport", 0),
    ]
    inference = [
        _service(f"{INFERENCE}.InferenceAPIsService", Inference(server), tokens.INFERENCE),
        _service(f"{OPEN_INFERENCE}.GRPCInferenceService", OpenInference(server), tokens.INFERENCE),
    ]
    management = [_service(f"{MANAGEMENT}.ManagementAPIsService", Management(server), tokens.MANAGEMENT)]
    running, bound = [], []
    for name, address, services in (
        ("inference", settings.grpc_inference(), inference),
        ("management", settings.grpc_management(), management),
    ):
        options = list(sizes)
        for key in ("max_connection_age_ms", "max_connection_age_grace_ms"):
            if settings.text(f"grpc_{name}_{key}"):
                options.append((f"grpc.{key}", settings.number(f"grpc_{name}_{key}", 0)))
        grpc_server = grpc.aio.server(options=options)
        grpc_server.add_generic_rpc_handlers(tuple(services))
        where = f"{address.host}:{address.port}"
        try:
            if settings.flag("enable_grpc_ssl", False):
                port = grpc_server.add_secure_port(where, grpc.ssl_server_credentials([settings.certificates()]))
            else:
                port = grpc_server.add_insecure_port(where)
        except RuntimeError as e:
            raise errors.ConfigurationError(f"gRPC cannot listen at {where}: {e}") from e
        await grpc_server.start()
        running.append(grpc_server)
        bound.append(Address(address.host, port))
    return Running(running, bound)
