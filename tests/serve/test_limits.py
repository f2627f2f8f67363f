"""What a client can do before any key is asked for, and with one: bounded in memory and time, whatever it sends or does not read."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")

from flambeau.serve import bounded_json, http  # noqa: E402
from flambeau.serve.models import resident_bytes  # noqa: E402
from flambeau.serve.settings import ConfigurationError, Settings  # noqa: E402

from .serving import Client, make_model  # noqa: E402
from .test_security import alive, talk  # noqa: E402

PING = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
JSON = {"Content-Type": "application/json"}


def connected(client: Client) -> socket.socket:
    address = client.server.addresses["inference"]
    return socket.create_connection((address.host, address.port), timeout=10)


def send_until_refused(connection: socket.socket, block: bytes, most: int) -> int:
    sent = 0
    try:
        while sent < most:
            sent += connection.send(block)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    "start",
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\nX: ",
        b"POST /ping HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",  # after a body
        b"POST /ping HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
)
def test_a_header_without_end_is_refused(client: Client, start: bytes):
    before = resident_bytes(os.getpid())
    with connected(client) as connection:
        connection.sendall(start)
        sent = send_until_refused(connection, b"a" * 65536, 64 << 20)
    assert sent < 64 << 20
    assert resident_bytes(os.getpid()) - before < 32 << 20
    assert alive(client)


def test_many_small_chunks_are_a_body(client: Client):
    body = b"".join(b"1\r\nx\r\n" for _ in range(40_000))
    head = b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(client, head + body + b"0\r\n\r\n").endswith(b"x" * 40_000)


def test_requests_whose_answers_are_not_read_are_not_taken_up(client: Client):
    before = resident_bytes(os.getpid())
    with connected(client) as connection:
        connection.settimeout(2)
        sent = send_until_refused(connection, PING * 2000, 100 << 20)
        assert sent < 100 << 20
        assert resident_bytes(os.getpid()) - before < 32 << 20
        start = time.monotonic()
        assert alive(client)
        assert time.monotonic() - start < 2
        received = b""
        while len(received) < 1 << 20:  # whoever reads after all gets the answers
            received += connection.recv(1 << 16)
        assert received.count(b"HTTP/1.1 200 OK") > 1000


def test_a_client_that_never_reads_is_cut_off(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.3)
    with connected(client) as connection:
        connection.settimeout(1)
        send_until_refused(connection, PING * 2000, 100 << 20)
        deadline = time.monotonic() + 10
        while client.server._listeners[0].connections:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_requests_sent_ahead_are_answered_in_order(client: Client):
    bodies = [b"%d" % i for i in range(500)]
    asked = b"".join(
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies
    )
    received = talk(client, asked + PING.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), seconds=20)
    answers = [part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert answers[:-1] == bodies


def test_others_have_their_turn(client: Client):
    """While one connection sends thousands of requests, another is answered soon."""
    stop = threading.Event()

    def flood() -> None:
        with connected(client) as connection:
            threading.Thread(
                target=lambda: [connection.recv(1 << 20) for _ in iter(stop.is_set, True)], daemon=True
            ).start()
            while not stop.is_set():
                connection.sendall(PING * 1000)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    try:
        time.sleep(0.3)
        times = []
        for _ in range(10):
            start = time.monotonic()
            assert alive(client)
            times.append(time.monotonic() - start)
        assert sorted(times)[5] < 1
    finally:
        stop.set()
        thread.join(10)


def test_half_closed_clients_get_their_answers(client: Client):
    for body in (b"sleep 0.2", b""):
        with connected(client) as connection:
            head = b"POST /predictions/moody HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(PING + head + body)
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b""))  # noqa: B023
        assert received.count(b"HTTP/1.1 200 OK") == 2
    with connected(client) as connection:  # half a request is none
        connection.sendall(PING[:10])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(10) == b""


def test_a_large_request_that_is_refused_hears_why(start):
    client: Client = start(max_request_size="1000")
    with connected(client) as connection:
        connection.sendall(b"POST /ping HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n")
        connection.sendall(b"x" * 2_000_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_what_follows_a_body_is_no_header(client: Client):
    head = b"POST /predictions/facts HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = talk(client, head + b"1\r\na\r\n0\r\nexplain: True\r\nContent-Type: application/json\r\n\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["types"] == {"body": "bytearray"}


# -- JSON --


@pytest.mark.parametrize("form", [b"[%b]", b'{"a":%b}'])
def test_deep_json_is_refused_and_the_worker_lives(client: Client, form: bytes):
    pid = client.predict("moody", b"x").body
    for depth in (501, 1000, 100_000):
        opened, closed = form.split(b"%b")
        answer = client.predict("echo", opened * depth + b"1" + closed * depth, JSON)
        assert (answer.status, answer.json()["type"]) == (400, "BadRequestException")
        assert "nested more than 500 deep" in answer.json()["message"]
        assert client.manage("POST", "/models", opened * depth + b"1" + closed * depth, JSON).status == 400
    assert client.predict("echo", b"[" * 400 + b"]" * 400, JSON).status == 200
    assert client.predict("moody", b"x").body == pid


def test_deep_json_costs_the_batch_nothing(start, store: Path):
    make_model(store, "together", "def handle(data, context):\n    return data and [len(data) for row in data]\n")
    client: Client = start()
    assert client.register("together.mar", batch_size=2, max_batch_delay=2000).status == 200
    answers: list = []
    bodies = (b"[" * 5000 + b"]" * 5000, b"[]")
    threads = [
        threading.Thread(target=lambda b=b: answers.append(client.predict("together", b, JSON).status)) for b in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answers) == [200, 400]


def test_brackets_in_strings_do_not_count():
    assert bounded_json.loads(json.dumps(["[" * 5000, '"' * 999, "\\" * 999 + "]"])) == [
        "[" * 5000,
        '"' * 999,
        "\\" * 999 + "]",
    ]
    assert bounded_json.loads(json.dumps([[i] for i in range(5000)]))[4999] == [4999]
    assert bounded_json.depth(b'{"a": [1, {"b": "]]]"}]}') == 3
    with pytest.raises(bounded_json.TooDeepError):
        bounded_json.loads('["' + '", [' * 0 + "[" + '"]' + "[" * 501)


def test_a_deep_manifest_is_a_bad_request(client: Client, store: Path):
    with zipfile.ZipFile(store / "deep.mar", "w") as archive:
        archive.writestr(
            "MAR-INF/MANIFEST.json", '{"model": {"modelName": "deep", "x": ' + "[" * 50_000 + "]" * 50_000 + "}}"
        )
    answer = client.register("deep.mar")
    assert (answer.status, answer.json()["type"]) == (400, "InvalidModelException")
    with zipfile.ZipFile(store / "deepyaml.mar", "w") as archive:
        manifest = {"model": {"modelName": "deepyaml", "handler": "h.py", "configFile": "c.yaml"}}
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        archive.writestr("c.yaml", "a: " + "[" * 3000 + "]" * 3000)
        archive.writestr("h.py", "")
    assert client.register("deepyaml.mar").status == 400


# -- workers and names --


def test_the_number_of_workers_is_bounded(client: Client, store: Path):
    for path in (
        "min_worker=999999999",
        "min_worker=1&max_worker=999999999",
        "min_worker=abc",
        "max_worker=1e3",
        "min_worker=9" * 30,
    ):
        answer = client.manage("PUT", f"/models/echo?{path}")
        assert (answer.status, answer.json()["type"]) == (400, "BadRequestException"), path
    assert "max_workers_per_model" in client.manage("PUT", "/models/echo?min_worker=999999999").json()["message"]
    assert client.manage("PUT", "/models/echo?min_worker=nan&synchronous=nan").status == 202  # TorchServe's own test
    assert client.register("echo.mar", model_name="many", initial_workers=100_000).status == 400
    make_model(
        store,
        "greedy",
        "def handle(data, context):\n    return data\n",
        config={"minWorkers": 10_000, "maxWorkers": 10_000},
    )
    assert client.register("greedy.mar").status == 400
    assert alive(client)


@pytest.mark.parametrize(
    "name", ["a%0ab", "a%0d%0aX:%20y", "..%2f..%2fx", "..", "a%2fb", "%00", "a%7cb", "x" * 300, "%1b[2J", "a%22b"]
)
def test_names_that_mean_something_else_are_refused(client: Client, name: str):
    answer = client.register("echo.mar", model_name=name)
    assert (answer.status, answer.json()["type"]) == (400, "BadRequestException")


def test_names_in_manifests_are_looked_at_too(client: Client, store: Path):
    for i, model in enumerate(
        ({"modelName": "../../x"}, {"modelName": "a\nb"}, {"modelName": "fine", "modelVersion": "1\n2"})
    ):
        with zipfile.ZipFile(store / f"named{i}.mar", "w") as archive:
            archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"handler": "h.py", **model}}))
            archive.writestr("h.py", "def handle(d, c):\n    return d\n")
        answer = client.register(f"named{i}.mar")
        assert (answer.status, answer.json()["type"]) == (400, "InvalidModelException")


# -- settings --


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_request_size": "-1"}, "max_request_size is a whole number from 1"),
        ({"job_queue_size": "0"}, "job_queue_size"),
        ({"default_workers_per_model": "-3"}, "default_workers_per_model"),
        ({"default_workers_per_model": "100000"}, "max_workers_per_model"),
        ({"default_response_timeout": "-5"}, "default_response_timeout"),
        ({"number_of_gpu": "-1"}, "number_of_gpu"),
        ({"number_of_front_ends": "0"}, "number_of_front_ends"),
        ({"inference_address": "http://127.0.0.1:80808080"}, "port"),
        ({"grpc_inference_port": "80808080"}, "grpc_inference_port is a whole number from -1 to 65535"),
        ({"grpc_inference_port": "7071"}, "both at port 7071"),
        ({"grpc_inference_port": "8080"}, "inference_address and grpc_inference_port are both at port 8080"),
        ({"management_address": "https://127.0.0.1:8080"}, "both at port 8080"),
        ({"management_address": "http://0.0.0.0:8080"}, "both at port 8080"),
        ({"enable_model_api": "yes"}, "enable_model_api is true or false"),
        ({"metrics_mode": "some"}, "metrics_mode is one of"),
        ({"service_envelope": "../x"}, "service_envelope"),
        ({"token_expiration_min": "-1"}, "token_expiration_min"),
        ({"token_expiration_min": "soon"}, "token_expiration_min"),
        ({"blacklist_env_vars": "("}, "blacklist_env_vars"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(values: dict, words: str):
    with pytest.raises(ConfigurationError, match=words):
        Settings(values)


def test_services_may_share_one_address():
    everything = {f"{k}_address": "http://127.0.0.1:8080" for k in ("inference", "management", "metrics")}
    assert Settings(everything).inference().port == 8080


def test_a_model_that_is_not_there_does_not_start_the_server(start):
    with pytest.raises(ConfigurationError, match=r"load_models names nothere\.mar"):
        start(load_models="echo.mar,nothere.mar")
