"""Worker: a process that loads one model and answers batches of requests with its handler."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import json
import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import flambeau

from ..compat.as_torch import serving_names
from . import bounded_json, group
from .archive_reader import read_yaml
from .channel import LARGE, Arena, BlockingChannel
from .errors import BadRequestException, InternalServerException, error_body
from .ts.context import Context, RequestProcessor
from .ts.metrics import MetricsCacheYamlImpl, MetricTypes
from .ts.torch_handler.request_envelope import ENVELOPES
from .ts.utils.util import PredictionException, list_classes_from_module
from .ts.version import __version__

logger = logging.getLogger(__name__)
Request = tuple[str, dict[str, str], list[tuple[str, str, Any]]]  # id, headers, parameters (name, type, value)
Answer = tuple[str, str, int, str, dict[str, str], Any]  # id, content type, status, phrase, headers, body


class Outcome(NamedTuple):
    """The outcome of a batch: a status code, the message for clients if it is not 200, the answers, and the reason, for the log only."""

    code: int
    message: str
    answers: list[Answer]
    reason: str = ""


def prepare() -> None:
    """Prepare the process of a worker: install Flambeau as `torch`, and TorchServe's names for handlers."""
    flambeau.install_as_torch()
    serving_names.install(first=True)


# -- finding the handler -------------------------------------------------------------------------------------------------------


def load_handler(handler: str) -> tuple[Callable[[Any, Context], Any], Callable[[Context], Any]]:
    """Return the handler's `handle` and its initialiser: from a module with a function or one class, in the archive or built in."""
    name, _, function = handler.partition(":")
    module_name = (name[:-3] if name.endswith(".py") else name).split("/")[-1]
    module = _handler_module(module_name)
    function = function or "handle"
    if hasattr(module, function):
        entry = getattr(module, function)
        return entry, lambda context: entry(None, context)
    classes = list_classes_from_module(module)
    if len(classes) != 1:
        raise ValueError(f"Expected only one class in custom service code or a function entry point {classes}")
    service = classes[0]()
    if not hasattr(service, "handle"):
        raise ValueError(f"Expect handle method in class {classes[0]}")
    return service.handle, service.initialize


def _handler_module(name: str) -> ModuleType:
    built_in = f"{__package__}.ts.torch_handler.{name}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name or importlib.util.find_spec(built_in) is None:
            raise
    return importlib.import_module(built_in)


# -- answering -----------------------------------------------------------------------------------------------------------------


def decode(content_type: str, value: bytes, wanted: bool) -> Any:
    """Decode a parameter's value by its type: JSON values, text, or bytes. Undecodable values stay bytes; too deep nesting is an error."""
    if wanted and content_type == "application/json":
        try:
            return bounded_json.loads(value)
        except bounded_json.TooDeepError:
            raise
        except ValueError:
            logger.warning("Failed json decoding of input data. Forwarding encoded payload")
    elif wanted and content_type.startswith("text"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            logger.warning("Failed utf-8 decoding of input data. Forwarding encoded payload")
    return value if isinstance(value, bytearray) else bytearray(value)


def encode(value: Any) -> bytes | bytearray:
    """Encode an answer as bytes: bytes and text unchanged, tensors by torch.save, the rest as JSON."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, flambeau.Tensor):
        file = io.BytesIO()
        flambeau.save(value, file)
        return file.getvalue()
    return json.dumps(value, indent=2).encode()


class Service:
    """A loaded model: converts a batch of requests to answers, and errors of the handler to error responses."""

    def __init__(self, order: dict[str, Any], send: Callable[[Outcome, list[str], bool], None]):
        self.order = order
        self.send = send
        self.began = 0.0  # when the present batch was taken up
        self.metric_lines: list[str] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.decode = os.environ.get("TS_DECODE_INPUT_REQUEST", "true") == "true"
        self.metrics = MetricsCacheYamlImpl(order.get("metrics_config"), self.metric_lines.append)
        self.metrics.model_name = order["model"]
        self.metrics.initialize_cache()
        for name in ("HandlerTime", "PredictionTime"):
            if name not in self.metrics.cache.get(MetricTypes.GAUGE, {}):
                self.metrics.add_metric_to_cache(name, "ms", ["ModelName", "Level"], MetricTypes.GAUGE)
        self.prediction_time = self.metrics.get_metric("PredictionTime", MetricTypes.GAUGE)
        self._load()

    def _load(self) -> None:
        order, folder = self.order, self.order["folder"]
        manifest = order["manifest"]
        config_file = manifest["model"].get("configFile")
        config = read_yaml(Path(folder) / config_file, ValueError) if config_file else {}
        self.context = Context(
            order["model"], folder, manifest, order["batch_size"], order["gpu"], __version__,
            order["limit_max_image_pixels"], self.metrics, config,
        )  # fmt: skip
        self.context.send_intermediate = self._intermediate
        self.metrics.set_request_ids(order["name"])
        self.handle, initialize = load_handler(order["handler"])
        if order.get("envelope"):
            self.handle = ENVELOPES[order["envelope"]](self.handle).handle
        initialize(self.context)

    def predict(self, batch: list[Request]) -> Outcome:
        """Return the outcome for a batch: one answer per request. Requests that cannot be decoded are answered without the handler."""
        inputs: list[dict[str, Any]] = []
        processors: list[RequestProcessor] = []
        ids: dict[int, str] = {}
        refused: list[Answer] = []
        for request_id, headers, parameters in batch:
            row: dict[str, Any] = {}
            about: dict[str, Any] = {}
            try:
                for name, content_type, value in parameters:
                    row[name] = decode(content_type, value, self.decode)
                    about[name] = {"content-type": content_type}
            except bounded_json.TooDeepError as e:
                refused.append(_error(request_id, 400, BadRequestException.__name__, str(e)))
                continue
            about.update(headers)
            ids[len(inputs)] = request_id
            inputs.append(row)
            processors.append(RequestProcessor(about))
        if not refused:
            return self._run_handler(inputs, processors, ids)
        outcome = self._run_handler(inputs, processors, ids) if inputs else Outcome(200, "", [])
        if outcome.code != 200:  # requests that were refused keep their own error
            kind = InternalServerException.__name__
            failed = [_error(request_id, outcome.code, kind, outcome.message) for request_id in ids.values()]
            outcome = Outcome(200, "", failed)
        return outcome._replace(answers=[*outcome.answers, *refused])

    def _run_handler(
        self, inputs: list[dict[str, Any]], processors: list[RequestProcessor], ids: dict[int, str]
    ) -> Outcome:
        """Call the handler with a batch, and return its answers or errors with the time it took."""
        context = self.context
        context.request_ids = ids
        context.request_processor = processors
        context.stopping_criteria = None
        self.metrics.request_ids = ids
        start = time.perf_counter()
        try:
            answers = self.handle(inputs, context)
            if inspect.isawaitable(answers):
                answers = self._run_async(answers)
        except MemoryError:
            logger.error("System out of memory", exc_info=True)
            return Outcome(507, "Out of resources", [], "MemoryError")
        except PredictionException as e:
            if e.error_code < 500:
                logger.info("Request refused: %s", e)
            else:
                logger.error("Prediction error", exc_info=True)
            return Outcome(e.error_code, e.message, [], "" if e.error_code < 500 else _reason(e))
        except Exception as e:
            if "CUDA" in str(e):
                logger.error("CUDA out of memory", exc_info=True)
                return Outcome(507, "Out of resources", [], _reason(e))
            logger.warning("Invoking custom service failed.", exc_info=True)
            return Outcome(503, "Prediction failed", [], _reason(e))
        if not isinstance(answers, list):
            return self._reject("Invalid model predict output", f"handle returned {type(answers).__name__}, not a list")
        if len(answers) != len(inputs):
            reason = f"handle returned {len(answers)} answers to {len(inputs)} requests"
            return self._reject("number of batch response mismatched", reason)
        spent = round((time.perf_counter() - start) * 1000, 2)
        self.prediction_time.add_or_update(spent, [context.model_name, "Model"], ",".join(ids.values()))
        return self._answers(answers, ids, 200, "Prediction success", last=True)

    def _reject(self, message: str, reason: str) -> Outcome:
        logger.warning("model: %s, %s: %s.", self.context.model_name, message, reason)
        return Outcome(503, message, [], reason)

    def _run_async(self, answers: Any) -> Any:
        """Return the result of an `async def handle`, run on an event loop that lives as long as the worker."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(answers)

    def _answers(self, values: list[Any], ids: dict[int, str], code: int, message: str, last: bool) -> Outcome:
        context, answers = self.context, []
        for index, request_id in ids.items():
            processor = context.request_processor[index]
            headers = processor.get_response_headers()
            if not last:
                headers["ts_stream_next"] = "true"
            elif context.stopping_criteria:
                stop = context.stopping_criteria[index](values[index])
                if stop is not None:
                    headers["ts_stream_next"] = "false" if stop else "true"
            elif headers.get("ts_stream_next") == "true":
                headers["ts_stream_next"] = "false"
            try:
                body = encode(values[index])
            except (TypeError, ValueError, RecursionError) as e:
                logger.warning("Unable to serialize model output.", exc_info=True)
                return Outcome(503, "Unsupported model output data type.", [], _reason(e))
            status = processor.get_response_status_code() or 200
            phrase = processor.get_response_status_phrase() or ""
            sent = {str(k): str(v) for k, v in headers.items()}
            answers.append((request_id, headers.get("content-type") or "", int(status), phrase, sent, body))
        return Outcome(code, message, answers)

    def _intermediate(self, values: list[Any], ids: dict[int, str], message: str, code: int) -> None:
        self.send(self._answers(values, ids, code, message, last=False), self.take_metrics(), True)

    def example(self) -> str:
        """Return the handler's example, a content type and a body, as JSON; empty if it has none."""
        found = getattr(getattr(self.handle, "__self__", None), "example", lambda: None)()
        return json.dumps(found) if found else ""

    def take_metrics(self) -> list[str]:
        lines, self.metric_lines[:] = list(self.metric_lines), []
        return lines


def _error(request_id: str, status: int, kind: str, message: str) -> Answer:
    return (request_id, "application/json", status, "", {}, error_body(status, kind, message))


def _reason(error: Exception) -> str:
    """Return an error in one line, with its source location."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}".replace("\n", "\\n")


# -- the process ---------------------------------------------------------------------------------------------------------------


def _load(order: dict[str, Any], send: Callable) -> tuple[Service | None, Outcome]:
    name = order["model"]
    try:
        service = Service(order, send)
        return service, Outcome(200, f"loaded model {name}", [], service.example() if order["example"] else "")
    except MemoryError as e:
        logger.exception("Load model %s cpu OOM, exception %s", name, e)
        return None, Outcome(507, "System out of memory", [])
    except Exception as e:
        logger.exception("Failed to load model %s, exception %s", name, e)
        if isinstance(e, RuntimeError) and "CUDA" in str(e):
            return None, Outcome(507, "System out of memory", [])
        return None, Outcome(500, f"{type(e).__name__}: {e}", [])


def _serve(
    channel: BlockingChannel, service: Service, ours: Arena, theirs: Arena, send: Callable, others: group.Group | None
) -> None:
    own = os.getpid()
    while (message := channel.receive()) is not None:
        alone, batch = message
        service.began = time.perf_counter()
        if alone:
            theirs.reset()
        for _, _, parameters in batch:
            for i, (name, content_type, value) in enumerate(parameters):
                if isinstance(value, tuple):
                    parameters[i] = (name, content_type, ours.take(value))
        if others is not None:
            others.pass_on((False, batch))
        outcome = service.predict(batch)
        if os.getpid() != own:  # a fork that the handler made and forgot to end: the worker itself answers
            os._exit(1)
        send(outcome, service.take_metrics(), False)


def run(order: dict[str, Any], talk: int, ours_fd: int, theirs_fd: int, *, own_process: bool = True) -> int:
    """Load the model, report how that went, and answer until the server closes the connection."""
    prepare()
    if own_process:
        logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO, force=True)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        os.chdir(order["folder"])
    sys.path[:0] = [order["folder"], *order["packages"]]
    others: group.Group | None = None
    if order["processes"] > 1:
        if not own_process:
            raise RuntimeError("parallelType needs processes: single_process=true cannot be combined with it")
        others = group.form(order)
    with socket.socket(fileno=talk) as connection, Arena(ours_fd) as ours, Arena(theirs_fd) as theirs:
        channel = BlockingChannel(connection)
        if others is not None and others.leader is not None:
            connection.close()
            channel = others.leader
        return _work(order, channel, ours, theirs, others)


def _work(
    order: dict[str, Any], channel: BlockingChannel, ours: Arena, theirs: Arena, others: group.Group | None
) -> int:
    def send(outcome: Outcome, metrics: list[str], more: bool) -> None:
        if others is not None and others.leader is not None:
            return  # the first of the group answers
        sent = []
        for answer in outcome.answers:
            body = answer[5]
            if len(body) >= LARGE and theirs.room(len(body)):
                answer = (*answer[:5], theirs.put(body))
            elif not isinstance(body, bytes):
                answer = (*answer[:5], bytes(body))
            sent.append(answer)
        began = service.began if service else 0.0
        code, message, _, reason = outcome
        channel.send((code, message, sent, metrics, more, began, time.perf_counter(), reason))

    service: Service | None = None
    service, outcome = _load(order, send)
    send(outcome, service.take_metrics() if service else [], False)
    if service is None:
        return 1
    _serve(channel, service, ours, theirs, send, others)
    return 0


def main() -> int:
    """Run a worker without the nursery, for models with a separate Python environment."""
    order = json.loads(os.environ.pop("FLAMBEAU_WORKER"))
    return run(order, *map(int, sys.argv[1:4]))


if __name__ == "__main__":
    sys.exit(main())
