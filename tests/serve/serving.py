"""A server in a thread, models for it, and a client that says what it got."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")
pytest.importorskip("yaml", reason="serving needs flambeau[serve]")

from flambeau.serve import archiver
from flambeau.serve.server import Server
from flambeau.serve.settings import Settings

HANDLERS = {
    "echo": """
        def handle(data, context):
            return None if data is None else [row.get("body") or row.get("data") for row in data]
    """,
    "facts": """
        import json, os
        from ts.torch_handler.base_handler import BaseHandler

        class Facts(BaseHandler):
            def initialize(self, context):
                self.context, self.initialized = context, True

            def handle(self, data, context):
                self.context = context
                if self._is_describe():
                    return [self.describe_handle()]
                context.metrics.add_counter("Asked", len(data))
                answers = []
                for i, row in enumerate(data):
                    context.set_response_header(i, "batch", str(len(data)))
                    answers.append({
                        "pid": os.getpid(), "batch": len(data), "names": sorted(row), "id": context.get_request_id(i),
                        "explain": context.get_request_header(i, "explain"), "url_path": context.get_request_header(i, "url_path"),
                        "sizes": {k: len(v) for k, v in row.items()}, "types": {k: type(v).__name__ for k, v in row.items()},
                    })
                return answers

            def describe_handle(self):
                return {"made": "for tests"}
    """,
    "moody": """
        import os, time
        from ts.utils.util import PredictionException

        def handle(data, context):
            if data is None:
                return None
            wish = (data[0].get("body") or b"").decode()
            if wish == "die":
                os._exit(3)
            if wish == "raise":
                raise ValueError("no")
            if wish == "refuse":
                raise PredictionException("not today", 418)
            if wish == "status":
                context.set_response_status(201, "Made", 0)
                context.set_response_content_type(0, "text/plain")
            if wish.startswith("sleep"):
                time.sleep(float(wish.split()[1]))
            if wish == "many":
                return ["a", "b"]
            if wish == "none":
                return "no list"
            if wish == "object":
                return [object()]
            if wish == "inject":
                context.set_response_header(0, "x-a", "1\\r\\nx-b: 2")
            return [str(os.getpid()) for _ in data]
    """,
    "stream": """
        from ts.handler_utils.utils import send_intermediate_predict_response

        def handle(data, context):
            if data is None:
                return None
            for i in range(3):
                send_intermediate_predict_response([f"part {i} "] * len(data), context.request_ids, "ok", 200, context)
            return ["end"] * len(data)
    """,
}


def dedent(text: str) -> str:
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines).rstrip() + "\n"


def make_model(store: Path, name: str, source: str, **options: Any) -> str:
    """An archive in the store whose handler has this source."""
    file = store / f"{name.replace('-', '_')}_handler.py"
    file.write_text(dedent(source))
    config = options.pop("config", None)
    if config is not None:
        options["config_file"] = str(store / f"{name}-config.yaml")
        Path(options["config_file"]).write_text(json.dumps(config))
    archive = archiver.package_model(
        name, version=options.pop("version", "1.0"), handler=str(file), export_path=str(store), force=True, **options
    )
    return archive.name


class Answer:
    def __init__(self, response: http.client.HTTPResponse):
        self.status, self.reason = response.status, response.reason
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a server of this test."""

    def __init__(self, server: Server):
        self.server = server

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, kind: str = "inference"
    ) -> Answer:
        address = self.server.addresses[kind]
        connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def predict(self, model: str, body: Any = b"", headers: dict[str, str] | None = None) -> Answer:
        return self.ask("POST", f"/predictions/{model}", body, headers)

    def manage(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        return self.ask(method, path, body, headers, "management")

    def register(self, archive: str, **options: Any) -> Answer:
        words = {"initial_workers": 1, **options}
        return self.manage("POST", f"/models?url={archive}&" + "&".join(f"{k}={v}" for k, v in words.items()))


@contextlib.contextmanager
def running(store: Path, **values: str) -> Iterator[Client]:
    """A server with these settings, on ports that are free."""
    settings = {
        "inference_address": "http://127.0.0.1:0", "management_address": "http://127.0.0.1:0",
        "metrics_address": "http://127.0.0.1:0", "model_store": str(store), "disable_token_authorization": "true",
        "enable_model_api": "true", "grpc_inference_port": "-1", "disable_system_metrics": "true", **values,
    }  # fmt: skip
    snapshots = settings.pop("snapshots", "") == "true"
    ready, stop = threading.Event(), threading.Event()
    found: list[Any] = []

    async def main() -> None:
        try:
            async with Server(Settings(settings, snapshots=snapshots), console=False, say=lambda line: None) as server:
                found.append(server)
                ready.set()
                while not stop.is_set():
                    await asyncio.sleep(0.02)
        except BaseException as e:
            found.append(e)
            ready.set()
            raise

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(60), "the server did not start"
    if isinstance(found[0], BaseException):
        raise found[0]
    try:
        yield Client(found[0])
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    for name, source in HANDLERS.items():
        make_model(folder, name, source)
    return folder


@pytest.fixture(scope="session")
def client(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that all tests share, with the handlers above as models."""
    logs = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOG_LOCATION", str(logs))
        patch.setenv("METRICS_LOCATION", str(logs))
        with running(store, metrics_mode="prometheus", model_metrics_auto_detect="true") as client:
            for name in HANDLERS:
                answer = client.register(f"{name}.mar")
                assert answer.status == 200, answer.body
            yield client


@pytest.fixture()
def start(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Starts servers of a test's own."""
    monkeypatch.setenv("LOG_LOCATION", str(tmp_path / "logs"))
    monkeypatch.setenv("METRICS_LOCATION", str(tmp_path / "logs"))
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        yield lambda **values: stack.enter_context(running(store, **values))
