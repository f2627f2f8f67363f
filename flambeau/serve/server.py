"""The server: creates listeners, models, workers, logs and metrics, and starts and stops them."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import os
import resource
import signal
import socket
import ssl
import stat
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ..core.caching import remember
from ..core.private_folders import Scratch
from . import snapshots
from .acceptors import Acceptors, Link
from .errors import ModelNotFoundException, ServeError
from .http import Connection, Listener, Request
from .job import Job
from .logs import Handler, Logs
from .metrics import Metrics, system
from .models import Model
from .nursery import Nursery
from .pool import Worker
from .registry import Registration, Registry
from .rest import Rest
from .settings import Address, ConfigurationError, Settings
from .tokens import Tokens
from .ts.version import __version__ as TORCHSERVE_VERSION
from .workflows import Workflows

logger = logging.getLogger("flambeau.serve.server")
_KEPT_LATENCIES = 2048  # latencies of a model, for the page


def _print_line(line: str) -> None:
    print(line, flush=True)


class Server:
    """A running server. `async with Server(settings)` starts and stops it; `run` runs it until a signal comes."""

    version = TORCHSERVE_VERSION

    def __init__(
        self, settings: Settings, *, console: bool = True, say: Callable[[str], None] = _print_line,
        nursery: Nursery | None = None, acceptors: Acceptors | None = None,
    ):  # fmt: skip
        self.settings, self.say = settings, say
        self.logs = Logs(settings.log_folder, settings.metrics_folder, console, self._flush_soon)
        self.metrics = Metrics(
            settings.text("metrics_mode", "log") or "log", settings.text("metrics_config"),
            settings.flag("model_metrics_auto_detect", False), self.logs.server_metrics, self.logs.model_metrics,
        )  # fmt: skip
        self.acceptors = acceptors
        self.nursery = nursery or Nursery(settings.worker_environment())
        self.registry = Registry(self)
        self.workflows = Workflows(self.registry, settings, self)
        minutes = settings.text("token_expiration_min", "60") or "60"
        self.tokens = Tokens(not settings.flag("disable_token_authorization", False), float(minutes))
        self.model_api = settings.flag("enable_model_api", False)
        self.single_process = settings.flag("single_process", False)
        self.started = time.time()
        self._host = ("Host", self.metrics.host)
        self._labels: dict[tuple[str, str | None], tuple[str, str, str]] = {}
        self._listeners: list[Listener] = []
        self._servers: list[Any] = []
        self._grpc: Any = None
        self._tasks: set[asyncio.Task] = set()
        self._worker_number = settings.number("initial_worker_port", 9000) - 1
        self._gpu = -1
        self._flushed = self._model_flushed = 0.0
        self._stopping = asyncio.Event()
        self._handler = Handler(self.logs)
        self.addresses: dict[str, Address] = {}
        self._scratch: Scratch | None = None
        self._has_started = False

    @property
    def work_folder(self) -> Path:
        """The folder in which archives are unpacked: private to this server."""
        if self._scratch is None:
            self._scratch = Scratch("serve")
        return self._scratch.path

    def _flush_soon(self) -> None:
        """Flush the logs at once if the last flush is some time ago; otherwise collect more lines first."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.logs.flush()
            return
        now = loop.time()
        if now - self._flushed > 0.05:
            loop.call_soon(self.logs.flush)
        else:
            loop.call_later(0.01, self.logs.flush)
        self._flushed = now

    # -- what models tell and ask (models.Owner) --

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background; log an exception that it raises."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, ServeError):
            logger.error("%s", error.message)
        else:
            logger.error("%s", error, exc_info=error)

    def model_output(self, worker: Worker, line: str, is_error: bool) -> None:
        _, marker, metric = line.partition("[METRICS]")
        if marker and not is_error:
            self.metrics.add_line(metric)
        else:
            self.logs.model(worker.name, line, is_error)

    def model_metrics(self, lines: list[str]) -> None:
        """Record a worker's metrics; on an idle server they are logged before the client gets its answer."""
        for line in lines:
            self.metrics.add_line(line)
        now = asyncio.get_running_loop().time()
        if now - self._model_flushed > 0.05:
            self._model_flushed = now
            self.logs.flush()

    def worker_time(self, milliseconds: float) -> None:
        self.metrics.add("WorkerThreadTime", self._host, round(milliseconds, 3))

    def worker_loaded(self, worker: Worker, milliseconds: float) -> None:
        logger.info("%s loaded the model in %.0f ms, process %d", worker.name, milliseconds, worker.pid)
        self.metrics.add("WorkerLoadTime", (worker.name, *self._host), round(milliseconds, 1))

    def changed(self) -> None:
        """Save a snapshot if snapshots are enabled and the server has started completely."""
        if self.settings.snapshots and self._has_started and not self._stopping.is_set():
            self._snapshot("snapshot")

    def _snapshot(self, kind: str) -> None:
        try:
            snapshots.save(self.settings, self.registry, kind)
        except OSError as e:
            logger.error("the snapshot was not written: %s", e)

    def next_worker(self) -> int:
        self._worker_number += 1
        return self._worker_number

    def next_gpu(self, model: Model) -> int | None:
        """Return the next GPU in rotation: of those the model names, or of all."""
        gpus = self.settings.number_of_gpu
        if not gpus or model.settings.device_type == "cpu":
            return None
        if model.settings.device_ids:
            chosen = model.settings.device_ids[model.gpu_turn % len(model.settings.device_ids)]
            model.gpu_turn += 1
            return chosen
        self._gpu = (self._gpu + 1) % gpus
        return self._gpu

    # -- requests --

    def _model_labels(self, name: str, version: str | None) -> tuple[str, str, str]:
        key = (name, version)
        labels = self._labels.get(key)
        if labels is None:
            labels = remember(self._labels, key, (name, version or "default", self.metrics.host), 10_000)
        return labels

    def counted(self, name: str, version: str | None) -> None:
        self.metrics.add("ts_inference_requests_total", self._model_labels(name, version), 1.0)

    def answered(self, model: Model, version: str | None, job: Job) -> None:
        """Record the latencies of a request that a model has answered."""
        total = time.perf_counter() - job.created
        queued = job.scheduled - job.created
        labels = self._model_labels(model.name, version)
        self.metrics.add("ts_inference_latency_microseconds", labels, round(total * 1e6, 3))
        self.metrics.add("ts_queue_latency_microseconds", labels, round(queued * 1e6, 3))
        self.metrics.add("QueueTime", self._host, round(queued * 1e3, 1))
        model.latencies.append(total * 1e3)
        if len(model.latencies) > 2 * _KEPT_LATENCIES:
            del model.latencies[:_KEPT_LATENCIES]

    def finished(self, connection: Connection, request: Request, status: int) -> None:
        if status < 300:
            self.metrics.add("Requests2XX", self._host, 1.0)
        elif 400 <= status < 500:
            self.metrics.add("Requests4XX", self._host, 1.0)
        elif status >= 500:
            self.metrics.add("Requests5XX", self._host, 1.0)
        spent = int((time.perf_counter() - request.started) * 1000) if request.started else 0
        target = request.target.decode("latin-1")
        self.logs.access(
            f'{connection.peer} "{request.method or "GET"} {target} HTTP/{request.version}" {status} {spent}'
        )

    def unexpected(self, error: Exception) -> None:
        logger.error("a request failed", exc_info=error)

    # -- life --

    async def __aenter__(self) -> Server:
        self.logs.open()
        root = logging.getLogger("flambeau.serve")
        root.addHandler(self._handler)
        root.setLevel(logging.INFO)
        root.propagate = False
        try:
            if not self.single_process:
                self.nursery.start()
            await self._listen()
            await self._load_models()
            await self._listen_grpc()
            self._has_started = True
            if self.settings.snapshots:
                self._snapshot("startup")
        except BaseException:
            await self.stop()
            raise
        self.background(self._tick())
        if not self.settings.flag("disable_system_metrics", False):
            self.background(self._system_metrics())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _listen(self) -> None:
        settings = self.settings
        offers: dict[tuple[Address, str], set[str]] = {}
        for kind, address in (
            ("inference", settings.inference()),
            ("management", settings.management()),
            ("metrics", settings.metrics_address()),
        ):
            if kind != "metrics" or settings.flag("enable_metrics_api", True):
                apart = kind if not address.port and not address.path else ""  # port 0 is another one each time
                offers.setdefault((address, apart), set()).add(kind)
                self.addresses[kind] = address
        cors = settings.cors_headers()
        size = settings.number("max_request_size", 6_553_500)
        shared = settings.number("number_of_front_ends", 1) > 1
        for (address, _), kinds in offers.items():
            listener = Listener(Rest(self, kinds), self.finished, self.unexpected, size, cors)
            self._listeners.append(listener)
            bound = await self._bind(address, listener, shared and "inference" in kinds)
            if "inference" in kinds and self.acceptors is not None:
                await self.acceptors.connect(functools.partial(Link, listener.handle, self.finished, self.unexpected))
            for kind in kinds:
                self.addresses[kind] = bound

    async def _bind(self, address: Address, listener: Listener, shared: bool) -> Address:
        loop = asyncio.get_running_loop()
        if address.path:
            _make_room(address.path)
            self._servers.append(await loop.create_unix_server(listener, address.path))
            return address
        tls: ssl.SSLContext | None = self.settings.tls_context() if address.tls else None
        server = await loop.create_server(
            listener, address.host, address.port, ssl=tls, backlog=2048, reuse_port=shared or None
        )
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        return Address(address.host, port, address.tls)

    async def _listen_grpc(self) -> None:
        if self.settings.grpc_inference().port < 0:
            return
        try:  # an optional package, and slow to import: requests over HTTP are answered meanwhile
            grpc_server = await asyncio.to_thread(importlib.import_module, f"{__package__}.grpc_server")
        except ImportError:
            logger.warning("gRPC is off: pip install grpcio protobuf")
            return
        self._grpc = await grpc_server.start(self)

    async def _load_models(self) -> None:
        kept = snapshots.models_of(self.settings)
        if kept is not None:
            for name, versions in kept.items():
                for state in versions.values():
                    try:
                        await self._restore(name, state)
                    except ServeError as e:
                        raise ConfigurationError(
                            f"the snapshot has the model {name}, but: {e.message}. Put its archive back, or say with --models or"
                            " --ts-config what to start with"
                        ) from e
            return
        wanted = self.settings.text("load_models")
        if not wanted:
            return
        for model_name, url in self._startup_models(wanted):
            asked = Registration(url, model_name, initial_workers=self.settings.default_workers, synchronous=False)
            try:
                await self._load_at_startup(asked)
            except ModelNotFoundException as e:
                raise ConfigurationError(f"load_models names {url}, but: {e.message}") from e
            except ServeError as e:
                logger.error("Failed to load model: %s: %s", url, e.message)

    async def _load_at_startup(self, asked: Registration) -> None:
        archive = await self.registry.open_archive(asked)
        model = await self.registry.add(archive, asked)
        minimum, maximum = self.registry.workers_wanted(model, asked)
        listed = self.settings.of_model(model.name, model.version)
        minimum = listed.get("minWorkers", minimum)
        maximum = max(listed.get("maxWorkers", maximum), minimum)
        self.registry.at_startup.add(model.name)
        logger.info("Model %s loaded from %s.", model.name, model.archive.url)
        self.background(model.scale(minimum, maximum))
        await asyncio.sleep(0)

    async def _restore(self, name: str, state: dict[str, Any]) -> None:
        keys = {"batch_size": "batchSize", "max_batch_delay": "maxBatchDelay", "response_timeout": "responseTimeout",
                "startup_timeout": "startupTimeout"}  # fmt: skip
        asked = Registration(state["marName"], name, **{k: state.get(v) for k, v in keys.items()})  # type: ignore[arg-type]
        archive = await self.registry.open_archive(asked)
        model = await self.registry.add(archive, asked)
        for k, v in keys.items():
            if state.get(v) is not None:
                setattr(model.settings, k, state[v])
        if state.get("defaultVersion"):
            self.registry.models[name].default = model.version
        self.registry.at_startup.add(name)
        self.background(model.scale(state.get("minWorkers", 1), state.get("maxWorkers", 1)))
        await asyncio.sleep(0)

    def _startup_models(self, wanted: str) -> list[tuple[str | None, str]]:
        if wanted.strip().upper() != "ALL":
            pairs = [part.strip().rpartition("=") for part in wanted.split(",") if part.strip()]
            return [(name or None, url) for name, _, url in pairs]
        store = self.settings.model_store
        if store is None or not Path(store).is_dir():
            logger.warning("Model store is not configured.")
            return []
        files = sorted(p for p in Path(store).iterdir() if not p.name.startswith("."))
        return [(None, p.name) for p in files if p.is_dir() or p.name.endswith((".mar", ".model", ".tar.gz"))]

    async def _tick(self) -> None:
        """Check the time limits of workers and connections, several times a second."""
        while not self._stopping.is_set():
            now = time.monotonic()
            for model in self.registry.all():
                model.check(now)
            for listener in self._listeners:
                listener.check(now)
            await asyncio.sleep(0.1)

    async def _system_metrics(self) -> None:
        while not self._stopping.is_set():
            for name, labels, value in await asyncio.to_thread(system, self.settings.number_of_gpu):
                self.metrics.add(name, (*labels, self.metrics.host), value)
            await asyncio.sleep(max(self.settings.number("metric_time_interval", 60), 1))

    async def stop(self) -> None:
        """Stop accepting requests, let workers finish, and flush logs."""
        if self._stopping.is_set():
            return
        if self.settings.snapshots and self._has_started:
            self._snapshot("shutdown")
        self._stopping.set()
        for server in self._servers:
            server.close()
        if self._grpc is not None:
            await self._grpc.stop()
        await self.registry.close()
        for listener in self._listeners:
            for connection in list(listener.connections):
                if connection.transport is not None:
                    connection.transport.close()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self.nursery.stop()
        if self.acceptors is not None:
            self.acceptors.stop()
        self.tokens.close()
        if self._scratch is not None:
            self._scratch.close()
        logging.getLogger("flambeau.serve").removeHandler(self._handler)
        self.logs.close()

    def announce(self) -> None:
        """Log the addresses that the server listens on."""
        for kind, address in self.addresses.items():
            self.say(f"{kind.capitalize()} API bind to: {address}")
        for address in self._grpc.addresses if self._grpc is not None else ():
            self.say(f"gRPC bind to: {address}")


def _make_room(path: str) -> None:
    """Remove a Unix socket that nobody listens on; raise if the path is in use."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigurationError(f"unix:{path} is in use: there is a file that is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise ConfigurationError(f"unix:{path} is in use: another server listens there")


async def serve(settings: Settings, ready: Callable[[Server], Any] | None = None, **options: Any) -> None:
    """Run a server until SIGTERM, SIGINT or, unless `nohup` has it ignored, SIGHUP; `ready` is called when it has started."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    ends = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ends.append(signal.SIGHUP)
    for number in ends:
        loop.add_signal_handler(number, done.set)
    async with Server(settings, **options) as server:
        server.announce()
        server.say("Model server started.")
        if ready is not None:
            await ready(server)
        await done.wait()


def run(settings: Settings, ready: Callable[[Server], Any] | None = None, **options: Any) -> None:
    """Run a server in this process, on uvloop where it is installed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each client and each worker takes some
    gc.freeze()  # what is loaded now stays: the collector need not look at it again
    gc.set_threshold(20_000, 20, 50)
    options["nursery"] = nursery = Nursery(settings.worker_environment())
    if not settings.flag("single_process", False):
        nursery.fork()
    more = settings.number("number_of_front_ends", 1) - 1
    options["acceptors"] = Acceptors(settings, more) if more > 0 else None
    try:
        import uvloop  # noqa: PLC0415  an optional package
    except ImportError:
        asyncio.run(serve(settings, ready, **options))
    else:
        uvloop.run(serve(settings, ready, **options))
