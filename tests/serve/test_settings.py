"""config.properties, the environment, model-config.yaml and snapshots."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")
pytest.importorskip("yaml", reason="serving needs flambeau[serve]")

from flambeau.serve import snapshots  # noqa: E402
from flambeau.serve.archive_reader import ModelArchive  # noqa: E402
from flambeau.serve.errors import InvalidModelException  # noqa: E402
from flambeau.serve.settings import (  # noqa: E402
    Address,
    ConfigurationError,
    ModelSettings,
    Settings,
    read_properties,
    write_properties,
)


def test_properties_files():
    text = "# comment\n! too\na=1\nb : 2\nc 3\n  d = x = y \nlong=one,\\\n   two\nempty=\ntab=\\t\nletter=\\u00e9\nk\\=ey=v\npath=C:\\\\x\n"
    wanted = {"a": "1", "b": "2", "c": "3", "d": "x = y", "long": "one,two", "empty": "", "tab": "\t", "letter": "é", "k=ey": "v",
              "path": "C:\\x"}  # fmt: skip
    assert read_properties(text) == wanted
    assert read_properties(write_properties(wanted)) == wanted
    odd = {"json": json.dumps({"a": "é\n#!=: \\"}, indent=2), "url": "file://.*|http(s)?://.*"}
    assert read_properties(write_properties(odd)) == odd


def test_addresses():
    assert Address.parse("http://0.0.0.0:8080", 80) == Address("0.0.0.0", 8080)
    assert Address.parse("https://host", 80) == Address("host", 443, True)
    assert Address.parse("HTTP://[::1]:1", 80) == Address("::1", 1)
    assert Address.parse("unix:/tmp/x.sock", 80).path == "/tmp/x.sock"
    for bad in ("ftp://a:1", "a:1", "http://a:99999", ""):
        with pytest.raises(ConfigurationError):
            Address.parse(bad, 80)


def test_defaults_are_torchserves():
    settings = Settings({})
    assert str(settings.inference()) == "http://127.0.0.1:8080"
    assert str(settings.management()) == "http://127.0.0.1:8081"
    assert str(settings.metrics_address()) == "http://127.0.0.1:8082"
    assert (settings.grpc_inference().port, settings.grpc_management().port) == (7070, 7071)
    assert settings.allowed_urls == ["file://.*|http(s)?://.*"]
    assert settings.sequence_keys == ("ts_request_sequence_id", "ts_request_sequence_start", "ts_request_sequence_end")


def test_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TS_JOB_QUEUE_SIZE", "7")
    monkeypatch.setenv("PLACE", "models")
    assert Settings({"job_queue_size": "5"}).number("job_queue_size", 100) == 5
    assert Settings({"job_queue_size": "5", "enable_envvars_config": "true"}).number("job_queue_size", 100) == 7
    assert Settings({"model_store": "/x/$$PLACE$$/y"}).model_store == "/x/models/y"
    with pytest.raises(ConfigurationError, match="Invalid Environment Variable NOT_THERE"):
        Settings({"model_store": "$$NOT_THERE$$"})


def test_wrong_values_are_named():
    for values, words in (({"job_queue_size": "many"}, "job_queue_size"), ({"inference_address": "x"}, "Invalid binding"),
                          ({"allowed_urls": "("}, "allowed_urls")):  # fmt: skip
        with pytest.raises(ConfigurationError, match=words):
            Settings(values)


def archive(tmp_path: Path, config: str | None) -> ModelArchive:
    model = {"modelName": "m", "modelVersion": "1.0", "handler": "h"}
    if config is not None:
        (tmp_path / "c.yaml").write_text(config)
        model["configFile"] = "c.yaml"
    return ModelArchive("m.mar", tmp_path, {"model": model})


def test_settings_of_a_model(tmp_path: Path):
    server = Settings({"default_response_timeout": "33", "job_queue_size": "9",
                       "models": '{"m": {"1.0": {"batchSize": 6, "minWorkers": 2, "maxWorkers": 4}}}'})  # fmt: skip
    plain = ModelSettings.of(archive(tmp_path, None), server, {})
    assert (plain.batch_size, plain.max_batch_delay, plain.response_timeout, plain.startup_timeout) == (6, 100, 33, 120)
    assert (plain.min_workers, plain.max_workers, plain.job_queue_size) == (2, 4, 9)
    own = ModelSettings.of(
        archive(tmp_path, "batchSize: 3\nresponseTimeout: 5\njobQueueSize: 2\nuseJobTicket: true\n"),
        server,
        {"response_timeout": 70},
    )
    assert (own.batch_size, own.response_timeout, own.job_queue_size, own.use_job_ticket) == (3, 5, 2, True)
    asked = ModelSettings.of(archive(tmp_path, "batchSize: 3"), server, {"batch_size": 8, "max_batch_delay": 1})
    assert (asked.batch_size, asked.max_batch_delay) == (8, 1)
    gpu = ModelSettings.of(archive(tmp_path, "deviceType: gpu\ndeviceIds: [0, 3]\n"), server, {})
    assert (gpu.device_type, gpu.device_ids) == ("cpu", [])
    two = ModelSettings.of(archive(tmp_path, "deviceType: gpu\ndeviceIds: [1]\n"), Settings({"number_of_gpu": "2"}), {})
    assert (two.device_type, two.device_ids) == ("gpu", [1])
    huge = "responseTimeout: 0x" + "f" * 400
    for bad in ("batchSize: many", "[1, 2]", "a: [", "!!python/object/apply:os.system ['true']", "a: 2001-13-45", "a: !!int ''",
                "a: !!bool x", huge, "a: b\n" * 300_000):  # fmt: skip
        with pytest.raises(InvalidModelException):
            ModelSettings.of(archive(tmp_path, bad), server, {})


def test_a_server_resumes_from_its_snapshot(start, store: Path, tmp_path: Path):
    client = start(snapshots="true")
    assert client.register("echo.mar", batch_size=3, max_batch_delay=4, initial_workers=2).status == 200
    client.manage("PUT", "/models/echo?min_worker=1&max_worker=2&synchronous=true")
    last = snapshots.last(tmp_path / "logs" / "config")
    assert last is not None and last.name.endswith("-snapshot.cfg")
    values = snapshots.read(last)
    kept = json.loads(values["model_snapshot"])
    assert kept["name"] == last.name
    assert kept["modelCount"] == 1
    assert kept["models"]["echo"]["1.0"] == {
        "defaultVersion": True, "marName": "echo.mar", "minWorkers": 1, "maxWorkers": 2, "batchSize": 3, "maxBatchDelay": 4,
        "responseTimeout": 120, "startupTimeout": 120, "runtimeType": "python"}  # fmt: skip
    again = start(**values)
    deadline = time.monotonic() + 20
    while again.predict("echo", b"hello").status != 200:
        assert time.monotonic() < deadline
    (found,) = again.manage("GET", "/models/echo").json()
    assert (found["batchSize"], found["maxBatchDelay"], found["minWorkers"], found["maxWorkers"]) == (3, 4, 1, 2)


def test_damaged_snapshots_are_refused():
    for text in ("{", '{"models": {}}', '{"models": {"a": {"1": {}}}, "modelCount": 7}', "[]"):
        with pytest.raises(ConfigurationError, match="model_snapshot"):
            snapshots.models_of(Settings({"model_snapshot": text}))


def test_the_torchserve_command(store: Path, tmp_path: Path):
    """Starts in the background, says when it is ready, answers, and stops."""
    (tmp_path / "config.properties").write_text(
        f"inference_address=unix:{tmp_path}/inference.sock\nmanagement_address=unix:{tmp_path}/management.sock\n"
        f"metrics_address=unix:{tmp_path}/metrics.sock\ngrpc_inference_port=-1\ndefault_workers_per_model=1\n"
    )
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
    }
    environment.pop("LOG_LOCATION", None)
    environment.pop("METRICS_LOCATION", None)

    def command(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-m", "flambeau.serve.cli", *arguments], cwd=tmp_path, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip

    version = command("--version")
    assert version.communicate(timeout=60)[0] == "TorchServe Version is 0.12.0\n"
    server = command("--start", "--model-store", str(store), "--models", "e=echo.mar", "--disable-token-auth", "--ncs")
    assert server.stdout is not None
    for line in server.stdout:
        if "Model server started" in line:
            break
    else:
        pytest.fail("it did not start")
    try:
        import socket

        deadline = time.monotonic() + 30
        answer = b""
        while b"200 OK" not in answer:
            assert time.monotonic() < deadline
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(tmp_path / "inference.sock"))
                connection.sendall(
                    b"POST /predictions/e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
                )
                answer = b"".join(iter(lambda: connection.recv(4096), b""))  # noqa: B023
        assert answer.endswith(b"hi")
        assert sorted(p.name for p in (tmp_path / "logs").glob("*.log")) == [
            "access_log.log", "model_log.log", "model_metrics.log", "ts_log.log", "ts_metrics.log"]  # fmt: skip
    finally:
        (noted,) = (tmp_path / "flambeau" / "serve").glob("torchserve-*.pid")
        pid = int(noted.read_text().split()[0])
        stopped = command("--stop", "--foreground").communicate(timeout=60)[0]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert stopped == "TorchServe has stopped.\n"
