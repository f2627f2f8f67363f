"""The REST interface: routes of requests, with TorchServe's paths, parameters, answers and errors."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from . import bounded_json, openapi, page
from .bodies import body_parameters
from .errors import (
    BadRequestException,
    InternalServerException,
    MethodNotAllowedException,
    ResourceNotFoundException,
    ServeError,
    ServiceUnavailableException,
    error_body,
)
from .http import Connection, Request
from .job import Job, Parameters
from .models import Model
from .registry import Registration
from .tokens import INFERENCE, MANAGEMENT, TOKEN_API

if TYPE_CHECKING:
    from .server import Server

logger = logging.getLogger("flambeau.serve.rest")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1", re.ASCII)
# Names that no stranger's server can answer for.
_LOCAL = re.compile(r"localhost|127\.[0-9.]+|\[[0-9a-f:.]+\]|[0-9.]+", re.ASCII)
NO_WORKER = (
    '" has no worker to serve inference request. Please use scale workers API to add workers. If this is a sequence'
    " inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize"
)


def pretty(value: Any) -> bytes:
    """Return a value as JSON in TorchServe's format."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def no_worker(name: str, version: str | None) -> str:
    return f'Model "{name}' + (f'" Version {version}' if version else "") + NO_WORKER


def integer(parameters: dict[str, list[str]], key: str, default: Any) -> Any:
    """Return a query parameter as an integer; text that is no integer counts as absent, as in TorchServe."""
    try:
        return int(parameters[key][0])
    except (KeyError, ValueError):
        return default


def workers(parameters: dict[str, list[str]], key: str, default: int) -> int:
    """Return a number of workers; other text is an error. Empty or `nan`, as sent by forms, counts as absent, as in TorchServe."""
    text = one(parameters, key)
    if text is None or text.lower() in ("", "nan"):
        return default
    if not _INTEGER.fullmatch(text):
        raise BadRequestException(f"{key} is a whole number, got {text[:80]!r}.")
    return int(text)


def one(parameters: dict[str, list[str]], key: str) -> str | None:
    return parameters[key][0] if key in parameters else None


def truth(value: str | None, default: bool) -> bool:
    return default if value is None else value.lower() == "true"


class Rest:
    """Answers the requests of one listener: those of the interfaces in `offers` (inference, management, metrics)."""

    def __init__(self, server: Server, offers: set[str]):
        self.server, self.offers = server, offers
        self.registry = server.registry

    def __call__(self, connection: Connection, request: Request) -> None:
        segments = request.path.rstrip("/").split("/")
        if len(segments) == 1 or segments[1] == "api-description" and len(segments) == 2:
            self._describe_api(connection, request, segments)
            return
        if "inference" in self.offers and (self.offers == {"inference"} or not self._is_management(segments)):
            self.server.tokens.check(request.lower.get("authorization"), INFERENCE)
            if self._inference(connection, request, segments):
                return
        if "management" in self.offers and self._management(connection, request, segments):
            return
        if "metrics" in self.offers and segments[1] == "metrics":
            text = self.server.metrics.text(request.parameters().get("name[]", []))
            connection.send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
            return
        raise ResourceNotFoundException()

    def _is_management(self, segments: list[str]) -> bool:
        """Return whether a path belongs to the management interface, which has its own key even if all share one address."""
        head = segments[1]
        if head == "models":
            return not (len(segments) == 4 and segments[3] == "invoke")
        if head == "v1":
            return ":" not in segments[-1]
        return head in ("workflows", "token", "metrics", "-")

    # -- descriptions --

    def _describe_api(self, connection: Connection, request: Request, segments: list[str]) -> None:
        if len(segments) == 2 or request.method == "OPTIONS":
            connection.send(200, pretty(openapi.describe(self.offers)))
        elif request.method == "GET" and "management" in self.offers and "text/html" in request.lower.get("accept", ""):
            connection.send(200, page.html(), "text/html; charset=utf-8", page.HEADERS)
        else:
            raise MethodNotAllowedException()

    # -- inference --

    def _inference(self, connection: Connection, request: Request, segments: list[str]) -> bool:
        """Handle a request of the inference interface; return False if the path belongs to another."""
        head, count = segments[1], len(segments)
        if head == "predictions" or head == "explanations":
            if count < 3:
                raise ResourceNotFoundException()
            headers = {"url_path": "/".join(segments[4:]), "explain": "True" if head == "explanations" else "False"}
            self._predict(connection, request, segments[2], segments[3] if count > 3 else None, headers)
        elif head == "ping":
            healthy = self.registry.healthy()
            connection.send(200 if healthy else 500, pretty({"status": "Healthy" if healthy else "Unhealthy"}))
        elif head == "invocations" and count == 2 or head == "models" and count == 4 and segments[3] == "invoke":
            self._invocations(connection, request, None if head == "invocations" else segments[2])
        elif head == "v1" and count == 4 and segments[2] == "models" and segments[3].endswith((":predict", ":explain")):
            name, _, verb = segments[3].rpartition(":")
            self._predict(connection, request, name, None, {"explain": str(verb == "explain")})
        elif head == "v2":
            return self._open_inference(connection, request, segments)
        elif head == "wfpredict":
            if count < 3:
                raise ResourceNotFoundException()
            self._run_soon(connection, request, self.server.workflows.answer(connection, request, segments[2]))
        elif count == 3 and segments[2] == "predict":
            self._predict(connection, request, head, None, {}, query=True)
        elif count == 4 and segments[3] == "predict":
            self._predict(connection, request, head, segments[2], {}, query=True)
        else:
            return False
        return True

    def _open_inference(self, connection: Connection, request: Request, segments: list[str]) -> bool:
        """Handle a request of KServe's V2 protocol."""
        path = "/".join(segments[1:])
        if len(segments) == 5 and segments[2] == "models" and segments[4] in ("infer", "explain"):
            self._predict(connection, request, segments[3], None, {"explain": str(segments[4] == "explain")})
        elif not self.server.settings.flag("ts_open_inference_protocol", False):
            return False
        elif path == "v2":
            words = {"name": "Torchserve", "version": self.server.version, "extenstion": ["kserve", "kubeflow"]}
            connection.send(200, pretty(words))
        elif path in ("v2/health/live", "v2/health/ready"):
            connection.send(200, pretty({path.rpartition("/")[2]: True}))
        elif len(segments) > 5 and "versions" in segments:
            connection.send(501, pretty({"error": "Model versioning is not yet supported."}))
        else:
            return False
        return True

    def _invocations(self, connection: Connection, request: Request, name: str | None) -> None:
        """Handle SageMaker's request, in which the model may be omitted if there is only one."""
        name = name or one(request.parameters(), "model_name")
        if not name and len(self.registry.at_startup) == 1:
            name = next(iter(self.registry.at_startup))
        self._predict(connection, request, name, None, {}, query=True)

    def _predict(
        self, connection: Connection, request: Request, name: str | None, version: str | None, more: dict[str, str],
        query: bool = False,
    ) -> None:  # fmt: skip
        parameters = body_parameters(request)
        if query:
            pairs = request.parameters().items()
            parameters = [(key, "", value.encode()) for key, values in pairs for value in values] + parameters
        if not name:
            name = next((value.decode(errors="replace") for key, _, value in parameters if key == "model_name"), None)
            if not name:
                raise BadRequestException("Parameter model_name is required.")
        model = self.registry.get(name, version)
        if request.method == "OPTIONS":
            connection.send(200, pretty(openapi.describe_model(model)))
            return
        job = RestJob(self.server, connection, request, model, version, parameters, {**self._headers(request), **more})
        self.server.counted(name, version)
        if not model.submit(job):
            raise ServiceUnavailableException(no_worker(name, version))

    def _headers(self, request: Request) -> dict[str, str]:
        """Return the headers that handlers see: all except the client's key."""
        if not self.server.tokens.enabled:
            return request.headers
        return {name: value for name, value in request.headers.items() if name.lower() != "authorization"}

    # -- management --

    def _refuse_strange_pages(self, request: Request) -> None:
        """Raise for a request from a foreign web page, by its Origin header: any site can make a browser send requests to a server on the
        user's machine. Allowed are this server's own pages and, if it listens on the loopback only and needs no key, names that always mean
        this machine (another name could be rebound to it)."""
        origin = request.lower.get("origin")
        if origin is None or origin in (self.server.settings.text("cors_allowed_origin") or "").split(","):
            return
        host = request.lower.get("host", "")
        here_only = _LOOPBACK.fullmatch(self.server.addresses["management"].host) and not self.server.tokens.enabled
        rebound = here_only and not _LOCAL.fullmatch(host.rpartition(":")[0] or host)
        if origin.partition("://")[2] != host or rebound:
            raise BadRequestException(f"A page at {origin[:80]} may not manage this server (cors_allowed_origin).", 403)

    def _management(self, connection: Connection, request: Request, segments: list[str]) -> bool:
        """Handle a request of the management interface; return False if the path belongs to another."""
        head, count, method = segments[1], len(segments), request.method
        tokens = self.server.tokens
        if head != "metrics":
            self._refuse_strange_pages(request)
        if head == "token" and tokens.enabled:
            tokens.check(request.lower.get("authorization"), TOKEN_API)
            tokens.renew(one(request.parameters(), "type") or "")
            connection.send(200, b"\n")
            return True
        if head != "metrics":
            tokens.check(request.lower.get("authorization"), MANAGEMENT)
        if head == "models" and (count <= 4 or count == 5 and segments[4] == "set-default"):
            if count == 2:
                self._models(connection, request)
            else:
                self._model(connection, request, segments)
        elif head == "v1" and count == 4 and segments[2] == "models":
            if method != "GET":
                raise MethodNotAllowedException()
            model = self.registry.get(segments[3].split(":")[0])
            connection.send(200, pretty({"name": model.name, "ready": bool(model.workers)}))
        elif head == "workflows" and count <= 4:
            self._workflows(connection, request, segments)
        elif head == "-":
            self._page(connection, request, segments)
        else:
            return False
        return True

    def _models(self, connection: Connection, request: Request) -> None:
        parameters = request.parameters()
        if request.method == "GET":
            limit, token = integer(parameters, "limit", 100), integer(parameters, "next_page_token", 0)
            connection.send(200, pretty(self.registry.page(limit, token)))
        elif request.method == "POST" and self.server.model_api:
            self._run_soon(connection, request, self._status(connection, self.registry.register(registration(request))))
        else:
            raise MethodNotAllowedException()

    def _model(self, connection: Connection, request: Request, segments: list[str]) -> None:
        name, version = segments[2], segments[3] if len(segments) > 3 else None
        parameters, method = request.parameters(), request.method
        if method == "GET":
            self._describe(connection, request, name, version, truth(one(parameters, "customized"), False))
        elif method == "PUT" and len(segments) == 5:
            connection.send(200, pretty({"status": self.registry.set_default(name, segments[3])}))
        elif method == "PUT":
            minimum = workers(parameters, "min_worker", 1)
            maximum = workers(parameters, "max_worker", minimum)
            version = version or one(parameters, "model_version")
            synchronous = truth(one(parameters, "synchronous"), False)
            work = self.registry.scale(name, version, minimum, maximum, synchronous)
            self._run_soon(connection, request, self._status(connection, work))
        elif method == "DELETE" and self.server.model_api:
            self._run_soon(connection, request, self._unregister(connection, name, version))
        elif method == "OPTIONS":
            connection.send(200, pretty(openapi.describe_management(self.registry.get(name, version))))
        else:
            raise MethodNotAllowedException()

    def _describe(
        self, connection: Connection, request: Request, name: str, version: str | None, customized: bool
    ) -> None:
        found = self.registry.describe(name, version)
        if version == "all" or not customized:
            connection.send(200, pretty(found))
            return
        model = self.registry.get(name, version)
        job = DescribeJob(found, self.server, connection, request, model, version)
        if not model.submit(job):
            raise ServiceUnavailableException(
                f'Model "{name}" has no worker to serve describe request. Please use scale workers API to add workers.'
            )

    async def _unregister(self, connection: Connection, name: str, version: str | None) -> None:
        await self.registry.unregister(name, version)
        connection.send(200, pretty({"status": f'Model "{name}" unregistered'}))

    async def _status(self, connection: Connection, work: Coroutine[Any, Any, tuple[int, str]]) -> None:
        status, sentence = await work
        connection.send(status, pretty({"status": sentence}))

    def _run_soon(self, connection: Connection, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; an error in it becomes the answer."""

        async def guarded() -> None:
            try:
                await work
            except ServeError as e:
                if connection.current is request:
                    connection.fail(e)
            except Exception as e:
                logger.exception("request failed")
                if connection.current is request:
                    connection.send(500, error_body(500, type(e).__name__, str(e)))

        self.server.background(guarded())

    def _workflows(self, connection: Connection, request: Request, segments: list[str]) -> None:
        workflows, method = self.server.workflows, request.method
        parameters = request.parameters()
        if len(segments) == 2:
            if method == "GET":
                limit, token = integer(parameters, "limit", 100), integer(parameters, "next_page_token", 0)
                connection.send(200, pretty(workflows.page(limit, token)))
            elif method == "POST" and self.server.model_api:
                values = _body_or_query(request)
                work = workflows.register(values.get("url"), values.get("workflow_name"), values)
                self._run_soon(connection, request, self._status(connection, work))
            else:
                raise MethodNotAllowedException()
        elif method == "GET":
            connection.send(200, pretty(workflows.describe(segments[2])))
        elif method == "DELETE" and self.server.model_api:
            self._run_soon(connection, request, self._status(connection, workflows.unregister(segments[2])))
        else:
            raise MethodNotAllowedException()

    # -- the page's own paths --

    def _page(self, connection: Connection, request: Request, segments: list[str]) -> None:
        """Answer requests of the server's web page: statistics, the interface, and predictions without a second address."""
        if segments[2:] == ["stats"] and request.method == "GET":
            connection.send(
                200, pretty(page.stats(self.server.registry, self.server.started, self.server.addresses["inference"]))
            )
        elif segments[2:] == ["interface"] and request.method == "GET":
            connection.send(200, pretty(openapi.describe({"inference", "management", "metrics"})))
        elif len(segments) == 4 and segments[2] in ("predictions", "explanations") and request.method == "POST":
            self._predict(connection, request, segments[3], None, {"explain": str(segments[2] == "explanations")})
        else:
            raise ResourceNotFoundException()


def _body_or_query(request: Request) -> dict[str, Any]:
    if request.content_type == "application/json" and request.body:
        try:
            values = bounded_json.loads(request.body)
        except ValueError as e:
            raise BadRequestException(f"The body is no JSON: {e}") from e
        if not isinstance(values, dict):
            raise BadRequestException("The body is no JSON object.")
        return values
    return {key: values[0] for key, values in request.parameters().items()}


def _number(values: dict[str, Any], key: str) -> int | None:
    try:
        return int(values[key]) if values.get(key) is not None else None
    except (TypeError, ValueError, OverflowError):
        return None


def registration(request: Request) -> Registration:
    """Return the registration that a client requests by `POST /models`, in the query or as JSON."""
    values = _body_or_query(request)
    for key in ("url", "model_name", "handler", "runtime"):
        if values.get(key) is not None and not isinstance(values[key], str):
            raise BadRequestException(f"Parameter {key} is a string.")
    synchronous = values.get("synchronous", True)
    numbers = {
        key: _number(values, key)
        for key in ("batch_size", "max_batch_delay", "response_timeout", "startup_timeout", "initial_workers")
    }
    for key in ("response_timeout", "startup_timeout"):
        if numbers[key] == -1:
            numbers[key] = None
    return Registration(
        values.get("url"), values.get("model_name"), values.get("handler"), values.get("runtime"), **numbers,
        synchronous=synchronous if isinstance(synchronous, bool) else str(synchronous).lower() == "true",
    )  # fmt: skip


class RestJob(Job):
    """The job of an HTTP request, whose answers are sent over its connection."""

    __slots__ = ("server", "connection", "request", "model", "version")

    def __init__(
        self, server: Server, connection: Connection, request: Request, model: Model, version: str | None,
        parameters: Parameters, headers: dict[str, str], describe: bool = False,
    ):  # fmt: skip
        sequence = ""
        if model.settings.sequence_batching and not describe:
            id_key, start_key, _ = server.settings.sequence_keys
            sequence = headers.get(id_key, "")
            if not sequence:
                sequence = f"ts-seq-{uuid.uuid4()}"
                headers[start_key] = "true"
            headers[id_key] = sequence
        super().__init__(
            request.id, headers, parameters, describe=describe, sequence=sequence,
            client_timeout_ms=model.settings.client_timeout_ms,
        )  # fmt: skip
        self.server, self.connection, self.request = server, connection, request
        self.model, self.version = model, version

    def reply(self, status: int, phrase: str, kind: str, headers: dict[str, str], body: bytes, more: bool) -> None:
        connection = self.connection
        if connection.current is not self.request:
            return
        if "ts_stream_next" in headers:
            connection.send_part(status, body, kind, headers, phrase, more)
        else:
            connection.send(status, body, kind, headers, phrase)
        if not more:
            self.server.answered(self.model, self.version, self)

    def fail(self, status: int, message: str) -> None:
        if self.connection.current is self.request:
            error = BadRequestException if status == 400 else InternalServerException
            self.connection.fail(error(message, 507 if status == 413 else status))

    def is_open(self) -> bool:
        return self.connection.current is self.request and self.connection.is_open

    def may_wait(self) -> bool:
        return self.connection.has_ended


class DescribeJob(RestJob):
    """Request to a handler to describe itself; the answer becomes part of the model's description."""

    __slots__ = ("found",)

    def __init__(
        self, found: list[dict[str, Any]], server: Server, connection: Connection, request: Request, model: Model,
        version: str | None,
    ):  # fmt: skip
        headers = {k: v for k, v in request.headers.items() if k.lower() != "authorization"}
        super().__init__(server, connection, request, model, version, [], {**headers, "describe": "True"}, True)
        self.found = found

    def reply(self, status: int, phrase: str, kind: str, headers: dict[str, str], body: bytes, more: bool) -> None:
        self.found[0]["customizedMetadata"] = body.decode(errors="replace")
        if self.connection.current is self.request:
            self.connection.send(status, pretty(self.found), headers=headers, phrase=phrase)
