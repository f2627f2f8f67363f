"""A worker: a process that loads one model and answers batches of requests with its handler."""

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
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import flambeau

from . import alias, group
from .archive import read_yaml
from .channel import LARGE, Arena, BlockingChannel
from .ts.context import Context, RequestProcessor
from .ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from .ts.metrics.metric_type_enum import MetricTypes
from .ts.utils.util import PredictionException, list_classes_from_module
from .ts.version import __version__

logger = logging.getLogger(__name__)
Request = tuple[str, dict[str, str], list[tuple[str, str, Any]]]  # id, headers, parameters (name, type, value)
Answer = tuple[str, str, int, str, dict[str, str], Any]  # id, content type, status, phrase, headers, body


def prepare() -> None:
    """What every worker needs: Flambeau in PyTorch's place, and TorchServe's names for handlers."""
    flambeau.install_as_torch()
    alias.install(first=True)


# -- finding the handler -------------------------------------------------------------------------------------------------------


def load_handler(handler: str) -> tuple[Callable[[Any, Context], Any], Callable[[Context], Any]]:
    """The handler's `handle` and what initialises it: a module with a function or one class, in the archive or built in."""
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


def _wrap(envelope: str, handle: Callable) -> Callable:
    module = importlib.import_module(f"{__package__}.ts.torch_handler.request_envelope.{envelope}")
    return list_classes_from_module(module)[0](handle).handle


# -- answering -----------------------------------------------------------------------------------------------------------------


def decode(content_type: str, value: bytes, wanted: bool) -> Any:
    """A parameter's value as its type says: JSON values, text, or bytes. What cannot be decoded stays bytes."""
    if wanted and content_type == "application/json":
        try:
            return json.loads(value)
        except ValueError:
            logger.warning("Failed json decoding of input data. Forwarding encoded payload")
    elif wanted and content_type.startswith("text"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            logger.warning("Failed utf-8 decoding of input data. Forwarding encoded payload")
    return value if isinstance(value, bytearray) else bytearray(value)


def encode(value: Any) -> bytes | bytearray:
    """An answer as bytes: bytes and text as they are, tensors as torch.save writes them, the rest as JSON."""
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
    """A loaded model: turns a batch of requests into answers, whatever the handler does."""

    def __init__(self, order: dict[str, Any], send: Callable[[int, str, list[Answer], list[str], bool], None]):
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
            self.handle = _wrap(order["envelope"], self.handle)
        initialize(self.context)

    def predict(self, batch: list[Request]) -> tuple[int, str, list[Answer]]:
        """A code and message for the batch, and the answers; one answer per request, also after an error."""
        context = self.context
        inputs, processors, ids = [], [], {}
        for index, (request_id, headers, parameters) in enumerate(batch):
            ids[index] = request_id
            row, about = {}, {}
            for name, content_type, value in parameters:
                row[name] = decode(content_type, value, self.decode)
                about[name] = {"content-type": content_type}
            about.update(headers)  # type: ignore[arg-type]
            inputs.append(row)
            processors.append(RequestProcessor(about))
        context.request_ids = ids
        context.request_processor = processors
        context.stopping_criteria = None
        self.metrics.request_ids = ids
        start = time.perf_counter()
        try:
            answers = self.handle(inputs, context)
            if inspect.isawaitable(answers):
                answers = self._awaited(answers)
        except MemoryError:
            logger.error("System out of memory", exc_info=True)
            return self._failure(ids, 507, "Out of resources")
        except PredictionException as e:
            logger.error("Prediction error", exc_info=True)
            return self._failure(ids, e.error_code, e.message)
        except Exception as e:
            if "CUDA" in str(e):
                logger.error("CUDA out of memory", exc_info=True)
                return self._failure(ids, 507, "Out of resources")
            logger.warning("Invoking custom service failed.", exc_info=True)
            return self._failure(ids, 503, "Prediction failed")
        if not isinstance(answers, list):
            logger.warning("model: %s, Invalid return type: %s.", context.model_name, type(answers))
            return self._failure(ids, 503, "Invalid model predict output")
        if len(answers) != len(inputs):
            logger.warning(
                "model: %s, number of batch response mismatched, expect: %d, got: %d.",
                context.model_name, len(inputs), len(answers),
            )  # fmt: skip
            return self._failure(ids, 503, "number of batch response mismatched")
        spent = round((time.perf_counter() - start) * 1000, 2)
        self.prediction_time.add_or_update(spent, [context.model_name, "Model"], ",".join(ids.values()))
        return self._answers(answers, ids, 200, "Prediction success", last=True)

    def _awaited(self, answers: Any) -> Any:
        """What an `async def handle` gives, on an event loop that lives as long as the worker."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(answers)

    def _failure(self, ids: dict[int, str], code: int, message: str) -> tuple[int, str, list[Answer]]:
        return code, message, [(request_id, "", code, "", {}, b"error") for request_id in ids.values()]

    def _answers(
        self, values: list[Any], ids: dict[int, str], code: int, message: str, last: bool
    ) -> tuple[int, str, list[Answer]]:
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
            except TypeError:
                logger.warning("Unable to serialize model output.", exc_info=True)
                return self._failure(ids, 503, "Unsupported model output data type.")
            status = processor.get_response_status_code() or 200
            phrase = processor.get_response_status_phrase() or ""
            sent = {str(k): str(v) for k, v in headers.items()}
            answers.append((request_id, headers.get("content-type") or "", int(status), phrase, sent, body))
        return code, message, answers

    def _intermediate(self, values: list[Any], ids: dict[int, str], message: str, code: int) -> None:
        code, message, answers = self._answers(values, ids, code, message, last=False)
        self.send(code, message, answers, self.take_metrics(), True)

    def take_metrics(self) -> list[str]:
        lines, self.metric_lines[:] = list(self.metric_lines), []
        return lines


# -- the process ---------------------------------------------------------------------------------------------------------------


def _load(order: dict[str, Any], send: Callable) -> tuple[Service | None, int, str]:
    name = order["model"]
    try:
        return Service(order, send), 200, f"loaded model {name}"
    except MemoryError as e:
        logger.exception("Load model %s cpu OOM, exception %s", name, e)
        return None, 507, "System out of memory"
    except Exception as e:
        logger.exception("Failed to load model %s, exception %s", name, e)
        out_of_memory = isinstance(e, RuntimeError) and "CUDA" in str(e)
        return (
            None,
            507 if out_of_memory else 500,
            "System out of memory" if out_of_memory else f"{type(e).__name__}: {e}",
        )


def _serve(
    channel: BlockingChannel, service: Service, ours: Arena, theirs: Arena, send: Callable, others: group.Group | None
) -> None:
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
        code, message, answers = service.predict(batch)
        send(code, message, answers, service.take_metrics(), False)


def run(order: dict[str, Any], talk: int, ours_fd: int, theirs_fd: int, *, own_process: bool = True) -> int:
    """Loads the model, says how that went, and answers until the server closes the connection."""
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
    def send(code: int, message: str, answers: list[Answer], metrics: list[str], more: bool) -> None:
        if others is not None and others.leader is not None:
            return  # the first of the group answers
        sent = []
        for answer in answers:
            body = answer[5]
            if len(body) >= LARGE and theirs.room(len(body)):
                answer = (*answer[:5], theirs.put(body))
            elif not isinstance(body, bytes):
                answer = (*answer[:5], bytes(body))
            sent.append(answer)
        began = service.began if service else 0.0
        channel.send((code, message, sent, metrics, more, began, time.perf_counter()))

    service: Service | None = None
    service, code, message = _load(order, send)
    send(code, message, [], service.take_metrics() if service else [], False)
    if service is None:
        return 1
    _serve(channel, service, ours, theirs, send, others)
    return 0


def main() -> int:
    """Without the nursery: for models with a Python environment of their own."""
    order = json.loads(os.environ.pop("FLAMBEAU_WORKER"))
    return run(order, *map(int, sys.argv[1:4]))


if __name__ == "__main__":
    sys.exit(main())
