"""The REST interface: paths, parameters, answers and errors are TorchServe's."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from .serving import Client, make_model
from .test_security import talk


def error(answer):
    content = answer.json()
    assert set(content) == {"code", "type", "message"}
    assert content["code"] == answer.status
    return answer.status, content["type"], content["message"]


def test_ping(client: Client):
    answer = client.ask("GET", "/ping")
    assert answer.status == 200
    assert answer.body == b'{\n  "status": "Healthy"\n}\n'


def test_answers_carry_torchserves_headers(client: Client):
    answer = client.predict("echo", b"hello")
    assert answer.body == b"hello"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", answer.headers["x-request-id"])
    assert answer.headers["connection"] == "keep-alive"
    assert answer.headers["cache-control"] == "no-cache; no-store, must-revalidate, private"
    assert answer.headers["pragma"] == "no-cache"
    assert answer.headers["expires"] == "Thu, 01 Jan 1970 00:00:00 UTC"


def test_json_comes_decoded_and_goes_pretty(client: Client):
    answer = client.predict("echo", {"a": [1, 2]})
    assert answer.body == b'{\n  "a": [\n    1,\n    2\n  ]\n}'


def test_text_and_bytes_have_their_types(client: Client):
    assert client.predict("facts", b"x", {"Content-Type": "text/plain"}).json()["types"] == {"body": "str"}
    assert client.predict("facts", b"x", {"Content-Type": "image/png"}).json()["types"] == {"body": "bytearray"}
    assert client.predict("facts", b"{bad", {"Content-Type": "application/json"}).json()["types"] == {
        "body": "bytearray"
    }


def test_multipart_fields_are_the_handlers_names(client: Client):
    body = (
        b'--B\r\nContent-Disposition: form-data; name="data"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n\x00\r\n\x01\r\n'
        b'--B\r\nContent-Disposition: form-data; name="target"\r\n\r\n7\r\n--B--\r\n'
    )
    answer = client.predict("facts", body, {"Content-Type": "multipart/form-data; boundary=B"}).json()
    assert answer["names"] == ["data", "target"]
    assert answer["sizes"] == {"data": 4, "target": 1}


def test_form_fields_too(client: Client):
    answer = client.predict("facts", b"data=a%20b&k=", {"Content-Type": "application/x-www-form-urlencoded"}).json()
    assert answer["sizes"] == {"data": 3, "k": 0}


@pytest.mark.parametrize(
    "path",
    ["/predictions/facts", "/predictions/facts/1.0", "/models/facts/invoke", "/invocations?model_name=facts", "/facts/predict",
     "/facts/1.0/predict", "/v1/models/facts:predict", "/v2/models/facts/infer"],
)  # fmt: skip
def test_all_ways_to_ask(client: Client, path: str):
    answer = client.ask("POST", path, {"x": 1})
    assert answer.status == 200
    assert answer.json()["explain"] in (None, "False")


@pytest.mark.parametrize("path", ["/explanations/facts", "/v1/models/facts:explain", "/v2/models/facts/explain"])
def test_all_ways_to_ask_why(client: Client, path: str):
    assert client.ask("POST", path, b"x").json()["explain"] == "True"


def test_more_of_the_path_is_a_header(client: Client):
    assert client.ask("POST", "/predictions/facts/1.0/v1/chat", b"x").json()["url_path"] == "v1/chat"


def test_query_is_data_in_the_older_forms(client: Client):
    assert client.ask("POST", "/facts/predict?a=1&b=22", b"x").json()["sizes"] == {"a": 1, "b": 2, "body": 1}
    invoked = client.ask("POST", "/invocations?model_name=facts&a=1", b"x").json()
    assert invoked["sizes"] == {"model_name": 5, "a": 1, "body": 1}
    assert client.ask("POST", "/predictions/facts?a=1", b"x").json()["sizes"] == {"body": 1}


def test_errors_of_inference(client: Client):
    assert error(client.predict("nobody")) == (404, "ModelNotFoundException", "Model not found: nobody")
    assert error(client.ask("POST", "/predictions/echo/9.9", b"x")) == (
        404, "ModelVersionNotFoundException", "Model version: 9.9 does not exist for model: echo")  # fmt: skip
    missing = (404, "ResourceNotFoundException", "Requested resource is not found, please refer to API document.")
    assert error(client.ask("GET", "/predictions")) == missing
    assert error(client.ask("GET", "/nothing/here")) == missing
    not_allowed = (405, "MethodNotAllowedException", "Requested method is not allowed, please refer to API document.")
    assert error(client.ask("GET", "/")) == not_allowed
    assert error(client.ask("POST", "/invocations", b"x"))[:2] == (400, "BadRequestException")


def test_what_a_handler_does_wrong(client: Client):
    assert error(client.predict("moody", "raise")) == (503, "InternalServerException", "Prediction failed")
    assert error(client.predict("moody", "refuse")) == (418, "InternalServerException", "not today")
    assert error(client.predict("moody", "many")) == (
        503,
        "InternalServerException",
        "number of batch response mismatched",
    )
    assert error(client.predict("moody", "none")) == (503, "InternalServerException", "Invalid model predict output")
    assert error(client.predict("moody", "object")) == (
        503,
        "InternalServerException",
        "Unsupported model output data type.",
    )


def test_a_handlers_status_and_type(client: Client):
    answer = client.predict("moody", "status")
    assert (answer.status, answer.reason, answer.headers["content-type"]) == (201, "Made", "text/plain")


def test_streamed_answers_come_in_chunks(client: Client):
    answer = client.predict("stream", b"x")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body == b"part 0 part 1 part 2 end"


@pytest.mark.parametrize(
    "first, body",
    [
        (b"HEAD /predictions/stream HTTP/1.1", b""),
        (b"HEAD /ping HTTP/1.1", b""),
        (b"POST /predictions/stream HTTP/1.0", b"part 0 part 1 part 2 end"),
        (b"POST /predictions/echo HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade", b"abc"),  # as Java's clients ask
        (b"GET /predictions/echo HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade", b"abc"),
    ],
)
def test_answers_have_the_form_that_was_asked_for(client: Client, first: bytes, body: bytes):
    data = b"" if first.startswith(b"HEAD") else b"abc"
    both = first + b"\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data + b"GET /predictions HTTP/1.1\r\n"
    answers = talk(client, both + b"Host: a\r\nConnection: close\r\n\r\n").split(b"HTTP/1.1 ")
    assert answers[1].partition(b"\r\n\r\n")[2] == body
    if b"/1.0" in first:
        assert b"chunked" not in answers[1] and len(answers) == 2
    else:  # nothing of the first answer or request is taken for a second one
        assert [a[:3] for a in answers[1:]] == [b"200", b"404"]


def test_description_of_a_model(client: Client):
    (found,) = client.manage("GET", "/models/facts").json()
    assert found["modelName"] == "facts"
    assert found["modelUrl"] == "facts.mar"
    assert found["workers"][0]["status"] == "READY"
    assert found["workers"][0]["memoryUsage"] > 1 << 20
    assert found["jobQueueStatus"] == {"remainingCapacity": 100, "pendingRequests": 0}
    assert list(found)[:4] == ["modelName", "modelVersion", "modelUrl", "runtime"]
    (described,) = client.manage("GET", "/models/facts?customized=true").json()
    assert json.loads(described["customizedMetadata"]) == {"made": "for tests"}


def test_list_has_pages(client: Client):
    first = client.manage("GET", "/models?limit=1").json()
    assert first["models"] == [{"modelName": "echo", "modelUrl": "echo.mar"}]
    second = client.manage("GET", f"/models?limit=1&next_page_token={first['nextPageToken']}").json()
    assert second["models"][0]["modelName"] == "facts"
    assert "nextPageToken" not in client.manage("GET", "/models").json()


def test_versions(client: Client, store):
    for version in ("1.0", "2.0"):
        make_model(
            store, "both", f'def handle(data, context):\n    return data and ["{version}"] * len(data)', version=version
        )
        assert client.register("both.mar").status == 200
    assert client.predict("both").body == b"1.0"
    assert client.ask("POST", "/predictions/both/2.0", b"").body == b"2.0"
    assert len(client.manage("GET", "/models/both/all").json()) == 2
    assert error(client.register("both.mar")) == (
        409, "ConflictStatusException", "Model version 2.0 is already registered for model both")  # fmt: skip
    assert error(client.manage("DELETE", "/models/both")) == (
        500, "InvalidModelVersionException", "Cannot remove default version for model both")  # fmt: skip
    assert client.manage("PUT", "/models/both/2.0/set-default").json() == {
        "status": 'Default version successfully updated for model "both" to "2.0"'}  # fmt: skip
    assert client.predict("both").body == b"2.0"
    assert client.manage("DELETE", "/models/both/1.0").json() == {"status": 'Model "both" unregistered'}
    assert client.manage("DELETE", "/models/both").status == 200
    assert client.predict("both").status == 404


def test_registering(client: Client):
    assert error(client.manage("POST", "/models")) == (400, "BadRequestException", "Parameter url is required.")
    assert error(client.register("none.mar")) == (404, "ModelNotFoundException", "Model not found at: none.mar")
    assert error(client.register("echo.mar", runtime="ruby", model_name="x"))[:2] == (400, "BadRequestException")
    answer = client.manage(
        "POST", "/models", {"url": "echo.mar", "model_name": "again", "batch_size": 4, "max_batch_delay": 7}
    )
    assert answer.json() == {
        "status": 'Model "again" Version: 1.0 registered with 0 initial workers. Use scale workers API to add workers for the model.'}  # fmt: skip
    (found,) = client.manage("GET", "/models/again").json()
    assert (found["batchSize"], found["maxBatchDelay"], found["workers"]) == (4, 7, [])
    status, kind, message = error(client.predict("again"))
    assert (status, kind) == (503, "ServiceUnavailableException")
    assert message.startswith('Model "again" has no worker to serve inference request.')
    assert client.manage("DELETE", "/models/again").status == 200


def test_a_model_that_cannot_be_loaded_is_not_registered(client: Client, store):
    make_model(store, "broken", "import nothing_of_that_name")
    assert error(client.register("broken.mar")) == (
        500, "InternalServerException", "Failed to start workers for model broken version: 1.0: ModuleNotFoundError: No module named 'nothing_of_that_name'")  # fmt: skip
    assert client.manage("GET", "/models/broken").status == 404


def test_kserve_says_whether_a_model_is_ready(client: Client):
    assert client.manage("GET", "/v1/models/echo").json() == {"name": "echo", "ready": True}
    assert client.manage("POST", "/v1/models/echo").status == 405


def test_metrics_are_prometheus_text(client: Client):
    client.predict("facts", b"x")
    answer = client.ask("GET", "/metrics", kind="metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert re.search(r'^Requests2XX\{Level="Host",Hostname="[^"]+",\} \d+\.0$', text, re.M)
    assert re.search(
        r'^ts_inference_requests_total\{model_name="facts",model_version="default",hostname="[^"]+",\} ', text, re.M
    )
    assert re.search(r'^Asked\{ModelName="facts",Level="Model",Hostname=', text, re.M)
    assert "# TYPE HandlerTime gauge" in text  # declared metrics are named before they have values
    only = client.ask("GET", "/metrics?name[]=Requests2XX", kind="metrics").body.decode()
    assert {line.split("{")[0] for line in only.splitlines() if not line.startswith("#")} == {"Requests2XX"}


def test_descriptions_of_the_interface(client: Client):
    for method, path in (("OPTIONS", "/"), ("GET", "/api-description")):
        document = client.ask(method, path).json()
        assert document["openapi"].startswith("3.")
        assert "/predictions/{model_name}" in document["paths"]
    assert "/models" in client.manage("GET", "/api-description").json()["paths"]
    assert "/predictions/echo" in client.ask("OPTIONS", "/predictions/echo").json()["paths"]


def test_requests_sent_ahead_are_answered_in_order(client: Client):
    import socket

    address = client.server.addresses["inference"]
    with socket.create_connection((address.host, address.port)) as connection:
        one = "POST /predictions/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}"
        connection.sendall("".join(one.format(len(t), t) for t in ("a", "bb", "ccc")).encode())
        data = b""
        deadline = time.monotonic() + 10
        while data.count(b"HTTP/1.1 200") < 3 or not data.endswith(b"ccc"):
            data += connection.recv(4096)
            assert time.monotonic() < deadline
    assert data.index(b"\r\n\r\na") < data.index(b"\r\n\r\nbb") < data.index(b"\r\n\r\nccc")


def test_several_clients_at_once(client: Client):
    bodies = [str(i).encode() * 100 for i in range(40)]
    answers = [b""] * len(bodies)

    def ask(i):
        answers[i] = client.predict("echo", bodies[i]).body

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == bodies


def test_cors_headers_where_configured(start):
    client = start(cors_allowed_origin="*", cors_allowed_methods="GET, POST", cors_allowed_headers="X-Custom")
    headers = client.ask("GET", "/ping").headers
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-methods"] == "GET, POST"
    assert headers["access-control-allow-headers"] == "X-Custom"


def test_open_inference_where_configured(start):
    client = start(ts_open_inference_protocol="true")
    assert client.ask("GET", "/v2/health/live").json() == {"live": True}
    assert client.ask("GET", "/v2/health/ready").json() == {"ready": True}
    assert client.ask("GET", "/v2").json()["name"] == "Torchserve"
    assert client.ask("GET", "/v2/models/x/versions/1/infer").status == 501
