"""What hostile clients try, one by one: refused with a clean answer, and the server goes on."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import time
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")

from flambeau.serve import http  # noqa: E402
from flambeau.serve.settings import ConfigurationError, Settings  # noqa: E402

from .serving import Client, make_model  # noqa: E402


def talk(client: Client, data: bytes, kind: str = "inference", seconds: float = 5.0) -> bytes:
    """Sends bytes and reads until the server closes, or falls silent."""
    address = client.server.addresses[kind]
    with socket.create_connection((address.host, address.port)) as connection:
        connection.settimeout(seconds)
        received = b""
        try:
            connection.sendall(data)
            while block := connection.recv(65536):
                received += block
        except (TimeoutError, ConnectionError):
            pass
        return received


def alive(client: Client) -> bool:
    return client.ask("GET", "/ping").status == 200


def test_a_body_too_large_is_refused_before_it_is_read(client: Client):
    answer = talk(client, b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "RequestTooLargeException"
    assert alive(client)


def test_a_chunked_body_too_large_is_stopped(start):
    client = start(max_request_size="1000")
    chunk = b"190\r\n" + b"x" * 400 + b"\r\n"
    answer = talk(
        client,
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 5 + b"0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_answer_too_large_is_refused(start):
    client = start(max_response_size="1000")
    assert client.register("echo.mar").status == 200
    assert client.predict("echo", b"x" * 1000).status == 200
    answer = client.predict("echo", b"x" * 1001)
    assert (answer.status, answer.json()["message"]) == (
        500,
        "The answer is larger than 1000 bytes (max_response_size).",
    )
    assert client.predict("echo", b"x").status == 200


def test_headers_too_large_are_refused(client: Client):
    answer = talk(client, b"GET /ping HTTP/1.1\r\nHost: a\r\n" + b"X-A: " + b"a" * 100_000 + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
    many = b"".join(b"X-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % i for i in range(3000))
    assert talk(client, b"GET /ping HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_slow_clients_are_cut_off(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.3)
    address = client.server.addresses["inference"]
    with socket.create_connection((address.host, address.port)) as connection:
        connection.settimeout(5)
        start = time.monotonic()
        closed = False
        for byte in b"GET /ping HTTP/1.1\r\n" * 100:
            try:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
                connection.setblocking(False)
                try:
                    closed = connection.recv(1) == b""
                except BlockingIOError:
                    connection.setblocking(True)
                    continue
                break
            except ConnectionError:
                closed = True
                break
        assert closed
        assert time.monotonic() - start < 5
    assert alive(client)


def test_two_lengths_are_refused(client: Client):
    for headers in (
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    ):
        answer = talk(client, b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n0\r\n\r\n", seconds=1)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1
    assert alive(client)


def test_only_chunks_are_taken_as_a_coding(client: Client):
    for coding in (b"gzip, chunked", b"identity", b"xchunked"):
        head = b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + coding
        assert talk(client, head + b"\r\n\r\n0\r\n\r\n", seconds=1).startswith(b"HTTP/1.1 400 "), coding


def test_idle_connections_make_room_for_new_ones(client: Client):
    listener = client.server._listeners[0]
    address = client.server.addresses["inference"]
    most, listener.most = listener.most, 20
    idle = [socket.create_connection((address.host, address.port)) for _ in range(50)]
    try:
        assert alive(client)
        assert len(listener.connections) <= 21
    finally:
        listener.most = most
        for connection in idle:
            connection.close()


def test_pages_of_other_sites_cannot_manage(client: Client):
    """A page that somebody reads can make the browser send such requests to a server on the reader's own machine."""
    port = client.server.addresses["management"].port
    path = "/models?url=echo.mar&model_name=drive-by&initial_workers=0"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Origin": f"http://evil.example:{port}", "Host": f"evil.example:{port}"}):  # fmt: skip
        assert client.manage("POST", path, headers=headers).status == 403
        assert client.manage("GET", "/models", headers=headers).status == 403
    assert client.manage("POST", path, headers={"Origin": f"http://127.0.0.1:{port}"}).status == 200
    assert client.manage("DELETE", "/models/drive-by").status == 200


def test_negative_and_odd_lengths_are_refused(client: Client):
    for length in (b"-1", b"1e3", b"0x10", b"+5", b"99999999999999999999"):
        answer = talk(
            client, b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + length + b"\r\n\r\n", seconds=1
        )
        assert answer[9:12] in (b"400", b"413"), length
    assert alive(client)


def test_a_handler_cannot_break_the_answers_headers(client: Client):
    answer = client.predict("moody", "inject")
    assert answer.headers["x-a"] == "1  x-b: 2"
    assert "x-b" not in answer.headers


def test_malformed_multipart_is_refused(client: Client):
    for kind, body in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=B", b"--B\r\n\r\nx"),
        ("multipart/form-data; boundary=B", b"--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B--\r\n"),
        ("multipart/form-data; boundary=B", b""),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 1001 + b"--B--",
        ),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="a"' + b";a=b" * 20_000 + b"\r\n\r\n\r\n--B--",
        ),
        ("application/x-www-form-urlencoded", b"a&" * 1000),  # millions of them would stop the server for many seconds
    ):
        answer = client.predict("echo", body, {"Content-Type": kind})
        assert (answer.status, answer.json()["type"]) == (400, "BadRequestException")


def test_bad_json_in_management_is_refused(client: Client):
    huge = b"1" + b"0" * 400
    odd = [
        b'{"url": "echo.mar", "model_name": "odd", "%b": %b}' % (key, huge)
        for key in (b"response_timeout", b"startup_timeout", b"max_batch_delay", b"batch_size", b"initial_workers")
    ]
    for body in (
        b"{",
        b"[]",
        b'"x"',
        b'{"url": 5}',
        b"\xff",
        *odd,
        b'{"url": "echo.mar", "model_name": "/", "batch_size": 1e999}',
    ):
        assert client.manage("POST", "/models", body, {"Content-Type": "application/json"}).status == 400


def test_no_file_outside_of_the_store_is_registered(client: Client, tmp_path: Path):
    (tmp_path / "out.mar").write_bytes(b"x")
    for url in ("../out.mar", "..%2Fout.mar", "a/../../out.mar", "%2e%2e/out.mar"):
        assert client.register(url).status == 404
    assert client.register(str(tmp_path / "out.mar")).status == 404  # only its name counts, and the store has none such


def test_only_allowed_urls_are_fetched(start, tmp_path: Path):
    client = start(allowed_urls="http://127.0.0.1:9/.*")
    secret = tmp_path / "secret.mar"
    secret.write_bytes(b"x")
    for url in (f"file://{secret}", "http://169.254.169.254/latest/m.mar"):
        answer = client.register(url)
        assert answer.status == 404
        assert "does not match any allowed URL(s)" in answer.json()["message"]
    assert client.register("http://127.0.0.1:9/m.mar").json()["type"] == "DownloadArchiveException"


def test_a_redirection_must_be_allowed_too(start, tmp_path: Path):
    import http.server
    import threading

    secret = tmp_path / "secret.mar"
    secret.write_bytes(b"x")

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.2:1/secret.mar")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Redirect) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        client = start(allowed_urls=f"http://127.0.0.1:{web.server_port}/.*")
        answer = client.register(f"http://127.0.0.1:{web.server_port}/m.mar")
        web.shutdown()
    assert answer.status == 404
    assert "127.0.0.2" in answer.json()["message"]


def test_the_model_api_is_off_unless_it_is_on(start):
    client = start(enable_model_api="false")
    for method, path in (
        ("POST", "/models?url=echo.mar"),
        ("DELETE", "/models/echo"),
        ("POST", "/workflows?url=x.war"),
    ):
        answer = client.manage(method, path)
        assert (answer.status, answer.json()["type"]) == (405, "MethodNotAllowedException")


# -- keys --


def keys(folder: Path) -> dict[str, str]:
    content = json.loads((folder / "key_file.json").read_text())
    return {name: entry["key"] for name, entry in content.items()}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys(start, tmp_path: Path):
    client = start(disable_token_authorization="false")
    file = tmp_path / "key_file.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = keys(tmp_path)
    refused = {"code": 400, "type": "InvalidKeyException",
               "message": "Token Authorization failed. Token either incorrect, expired, or not provided correctly"}  # fmt: skip
    for headers in (
        {},
        bearer("wrong"),
        bearer(key["management"]),
        {"Authorization": key["inference"]},
        {"Authorization": "Bearer "},
    ):
        answer = client.ask("GET", "/ping", headers=headers)
        assert (answer.status, answer.json()) == (400, refused)
    assert client.ask("GET", "/ping", headers=bearer(key["inference"])).status == 200
    for headers in ({}, bearer(key["inference"]), bearer(key["API"])):
        assert client.manage("GET", "/models", headers=headers).status == 400
    assert client.manage("GET", "/models", headers=bearer(key["management"])).status == 200
    assert client.ask("GET", "/metrics", kind="metrics").status == 200
    assert client.manage("GET", "/-/stats").status == 400


def test_keys_with_everything_on_one_address(start, tmp_path: Path):
    where = f"unix:{tmp_path / 'all.sock'}"
    client = start(
        disable_token_authorization="false", inference_address=where, management_address=where, metrics_address=where
    )
    key = keys(tmp_path)

    def status(path: str, token: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "all.sock"))
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
            )
            return connection.recv(100)[9:12]

    assert client.server.addresses["management"].path
    assert [status("/ping", key[k]) for k in ("inference", "management")] == [b"200", b"400"]
    assert [status("/models", key[k]) for k in ("inference", "management")] == [b"400", b"200"]
    assert status("/metrics", "x") == b"200"


def test_handlers_do_not_see_the_key(start, store: Path, tmp_path: Path):
    make_model(store, "curious", """
        def handle(data, context):
            return data and [str(sorted(context.get_all_request_header(0))) for row in data]
    """)  # fmt: skip
    client = start(disable_token_authorization="false")
    key = keys(tmp_path)
    registered = client.manage("POST", "/models?url=curious.mar&initial_workers=1", headers=bearer(key["management"]))
    assert registered.status == 200, registered.body
    for path, kind in (("/predictions/curious", "inference"), ("/-/predictions/curious", "management")):
        answer = client.ask("POST", path, b"x", {**bearer(key[kind]), "X-Mine": "1"}, kind)
        assert "X-Mine" in answer.body.decode() and "uthorization" not in answer.body.decode()


def test_new_keys(start, tmp_path: Path):
    client = start(disable_token_authorization="false")
    key = keys(tmp_path)
    assert client.manage("GET", "/token?type=inference", headers=bearer(key["management"])).status == 400
    assert client.manage("GET", "/token?type=wrong", headers=bearer(key["API"])).status == 400
    assert client.manage("GET", "/token?type=inference", headers=bearer(key["API"])).status == 200
    assert client.ask("GET", "/ping", headers=bearer(key["inference"])).status == 400
    assert client.ask("GET", "/ping", headers=bearer(keys(tmp_path)["inference"])).status == 200
    assert keys(tmp_path)["management"] == key["management"]


def test_keys_expire(start, tmp_path: Path):
    client = start(disable_token_authorization="false", token_expiration_min="0.02")
    headers = bearer(keys(tmp_path)["inference"])
    assert client.ask("GET", "/ping", headers=headers).status == 200
    time.sleep(1.4)
    assert client.ask("GET", "/ping", headers=headers).status == 400


def test_tls(start, tmp_path: Path):
    import ssl
    import subprocess
    import urllib.request

    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=localhost", "-keyout",
               str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("the openssl command makes the certificate")
    client = start(inference_address="https://127.0.0.1:0", private_key_file=str(tmp_path / "key.pem"),
                   certificate_file=str(tmp_path / "cert.pem"))  # fmt: skip
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    context.check_hostname = False
    address = client.server.addresses["inference"]
    with urllib.request.urlopen(f"https://127.0.0.1:{address.port}/ping", context=context) as answer:
        assert answer.status == 200
    assert talk(client, b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n", seconds=1) == b""
    with pytest.raises(ConfigurationError, match="private_key_file"):
        Settings({"inference_address": "https://127.0.0.1:0"}).tls_context()


def test_environment_of_workers_can_be_kept_from_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("OTHER", "y")
    environment = Settings({"blacklist_env_vars": ".*SECRET.*"}).worker_environment()
    assert "SECRET_KEY" not in environment
    assert environment["OTHER"] == "y"


# -- fuzz --


def test_malformed_requests_get_clean_answers(client: Client):
    dice = random.Random(int(os.environ.get("FUZZ_SEED", "0")))
    rounds = int(os.environ.get("FUZZ_ROUNDS", "300"))
    good = [
        b"POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PUT /models/echo?min_worker=1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /models?url=x.mar&batch_size=2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]
    pieces = [
        b"\r\n",
        b"\0",
        b"%00",
        b"%zz",
        b"../",
        b"\xff" * 9,
        b":",
        b" ",
        b"HTTP/9.9",
        b"Content-Length: 5\r\n",
        b"?a[]=",
        b"//",
    ]
    for i in range(rounds):
        data = bytearray(dice.choice(good))
        for _ in range(dice.randint(1, 5)):
            at = dice.randrange(len(data) + 1)
            move = dice.random()
            if move < 0.4 and at < len(data):
                data[at] = dice.randrange(256)
            elif move < 0.7:
                data[at:at] = dice.choice(pieces)
            else:
                del data[at : at + dice.randint(1, 10)]
        answer = talk(client, bytes(data), dice.choice(["inference", "management"]), seconds=0.03)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (i, data, answer)
        assert b"Traceback" not in answer
    assert alive(client)
    assert client.predict("echo", b"still here").body == b"still here"
