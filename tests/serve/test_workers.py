"""Workers: batches, queues, time limits, deaths, scaling; nothing is lost without an answer."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

from flambeau.serve.nursery import Nursery
from flambeau.serve.pool import AHEAD, LOADED, Worker

from .serving import HANDLERS, Client, make_model


def until(condition, seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def workers(client: Client, name: str):
    return client.manage("GET", f"/models/{name}").json()[0]["workers"]


def gather(count: int, ask):
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask, range(count)))


def test_requests_are_batched(client: Client, store):
    make_model(store, "batched", HANDLERS["facts"])
    assert client.register("batched.mar", batch_size=4, max_batch_delay=60_000).status == 200
    start = time.monotonic()
    answers = gather(4, lambda i: client.predict("batched", b"x").json())
    assert [a["batch"] for a in answers] == [4] * 4
    assert len({a["id"] for a in answers}) == 4
    assert time.monotonic() - start < 50
    client.manage("DELETE", "/models/batched")


def test_a_batch_leaves_after_its_delay(client: Client, store):
    make_model(store, "late", HANDLERS["facts"])
    client.register("late.mar", batch_size=8, max_batch_delay=150)
    start = time.monotonic()
    assert client.predict("late", b"x").json()["batch"] == 1
    assert time.monotonic() - start > 0.12
    client.manage("DELETE", "/models/late")


def test_large_values_go_through_shared_memory(client: Client):
    body = os.urandom(3 << 20)
    assert client.predict("echo", body).body == body
    answers = gather(4, lambda i: client.predict("echo", bytes([i]) * (1 << 20)).body)
    assert [a[:1] for a in answers] == [bytes([i]) for i in range(4)]
    assert [len(a) for a in answers] == [1 << 20] * 4


def test_a_full_queue_is_said(client: Client, store):
    make_model(store, "queue", HANDLERS["moody"], config={"jobQueueSize": 2, "minWorkers": 1, "maxWorkers": 1})
    assert client.register("queue.mar").status == 200
    statuses = sorted(gather(8, lambda i: client.predict("queue", "sleep 0.5").status))
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 3
    client.manage("DELETE", "/models/queue")


def test_refusals_keep_the_connection(client: Client):
    address = client.server.addresses["inference"]
    connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
    connection.connect()
    place = connection.sock.getsockname()
    for path, status in (("/predictions/none", 404), ("/predictions/wrong-type", 404), ("/ping", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert connection.sock.getsockname() == place
    connection.close()


def test_workers_get_batches_ahead_as_far_as_they_would_wait():
    model = SimpleNamespace(workers=[None, None])
    worker = Worker(model, 9000, None)  # type: ignore[arg-type]
    worker.state, worker.transport, worker.usual = LOADED, object(), 0.004
    assert not worker.takes_more  # it is free: it gets its next batch anyway
    worker.batches.append([])
    assert worker.takes_more
    worker.usual = 0.05
    assert not worker.takes_more  # another worker may be free sooner
    model.workers.pop()
    assert worker.takes_more
    worker.delay = 0.08  # the front end is busy
    worker.batches.extend([[], []])
    assert worker.takes_more
    worker.batches.append([])
    assert not worker.takes_more
    worker.usual = 1e-6
    worker.batches.extend([[]] * AHEAD)
    assert not worker.takes_more


def test_job_tickets_refuse_what_no_worker_waits_for(client: Client, store):
    make_model(store, "ticket", HANDLERS["moody"], config={"useJobTicket": True, "minWorkers": 1, "maxWorkers": 1})
    client.register("ticket.mar")
    statuses = sorted(gather(3, lambda i: client.predict("ticket", "sleep 0.5").status))
    assert statuses == [200, 503, 503]
    client.manage("DELETE", "/models/ticket")


def test_a_dead_worker_is_replaced(client: Client):
    before = workers(client, "moody")[0]["pid"]
    answer = client.predict("moody", "die")
    assert (answer.status, answer.json()["message"]) == (500, "Worker died.")
    assert client.predict("moody", b"").status == 200
    assert workers(client, "moody")[0]["pid"] != before


def test_a_killed_idle_worker_is_replaced(client: Client):
    pid = workers(client, "moody")[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: workers(client, "moody")[0]["pid"] != pid and workers(client, "moody")[0]["status"] == "READY")
    assert client.predict("moody", b"").status == 200


def test_a_worker_that_takes_too_long_is_ended(client: Client, store):
    make_model(store, "slow", HANDLERS["moody"], config={"responseTimeout": 1, "minWorkers": 1, "maxWorkers": 1})
    client.register("slow.mar")
    start = time.monotonic()
    answer = client.predict("slow", "sleep 30")
    assert (answer.status, answer.json()["message"]) == (500, "Worker died.")
    assert time.monotonic() - start < 15
    assert client.predict("slow", b"").status == 200
    client.manage("DELETE", "/models/slow")


def test_startup_has_a_limit(client: Client, store):
    make_model(store, "sleepy", "import time; time.sleep(60)", config={"startupTimeout": 1})
    start = time.monotonic()
    assert client.register("sleepy.mar").status == 500
    assert time.monotonic() - start < 15


def test_a_model_that_never_loads_can_be_removed(client: Client, store):
    make_model(store, "stuck", "import time; time.sleep(600)")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.register, "stuck.mar")
        until(lambda: "stuck" in client.server.registry.models)
        (worker,) = client.server.registry.get("stuck").workers
        until(lambda: worker.pid)
        assert client.manage("DELETE", "/models/stuck").status == 200
        assert asked.result(10).status == 500
    assert not os.path.exists(f"/proc/{worker.pid}")


def test_what_a_worker_has_started_ends_with_it(client: Client, store):
    """Children of a worker hold its connection open: its death would be noticed when they end."""
    make_model(
        store,
        "parent",
        """
        import os, time
        def handle(data, context):
            if data is None:
                return None
            wish = bytes(data[0]["body"])
            child = os.fork()
            if child == 0 and wish == b"die":
                time.sleep(600)
            if child and wish == b"die":
                os._exit(1)
            return [str(child)]  # in the fork, too, if it was forgotten there
        """,
    )
    client.register("parent.mar")
    start = time.monotonic()
    assert client.predict("parent", "die").status == 500
    assert [client.predict("parent", "fork").status for _ in range(3)] == [200] * 3
    assert time.monotonic() - start < 20
    client.manage("DELETE", "/models/parent")


def test_a_worker_without_descriptors_is_an_error(client: Client, store, monkeypatch):
    make_model(store, "poor", HANDLERS["echo"])

    def none() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", none)
        assert client.register("poor.mar").status == 500
    assert client.register("poor.mar").status == 200
    client.manage("DELETE", "/models/poor")


def test_orders_sent_in_pieces_do_not_mix(monkeypatch):
    class Narrow:
        sent = b""
        calls = 0

        def sendmsg(self, parts, rights=()):
            self.calls += 1
            if self.calls % 2:
                raise BlockingIOError
            self.sent += parts[0][:20]
            return len(parts[0][:20])

        def send(self, data):
            return self.sendmsg([data])

    async def both() -> None:
        nursery, nursery_socket = Nursery({}), Narrow()
        monkeypatch.setattr(nursery, "start", lambda: setattr(nursery, "_socket", nursery_socket))
        orders = [{"name": name, "words": name * 50} for name in "ab"]
        tasks = [asyncio.ensure_future(nursery.spawn(order, [])) for order in orders]
        while nursery_socket.sent.count(b"\n") < 2:
            await asyncio.sleep(0.001)
        for future in nursery._born.values():
            future.set_result(1)
        assert await asyncio.gather(*tasks) == [1, 1]
        assert [json.loads(line) for line in nursery_socket.sent.splitlines()] == orders

    asyncio.run(both())


def test_scaling_down_drops_no_request(client: Client, store):
    make_model(store, "scaled", HANDLERS["moody"])
    client.register("scaled.mar", initial_workers=2)
    results: list[int] = []

    def ask():
        for _ in range(10):
            results.append(client.predict("scaled", "sleep 0.02").status)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for count in (1, 3, 1, 2):
        answer = client.manage("PUT", f"/models/scaled?min_worker={count}&synchronous=true")
        assert answer.status == 200
        assert answer.json()["status"] == f"Workers scaled to {count} for model: scaled"
        assert len(workers(client, "scaled")) == count
    for t in threads:
        t.join()
    assert results == [200] * 40
    client.manage("DELETE", "/models/scaled")


def test_unregistering_finishes_what_runs(client: Client, store):
    make_model(store, "leaving", HANDLERS["moody"])
    client.register("leaving.mar")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.predict, "leaving", "sleep 0.6")
        time.sleep(0.3)
        assert client.manage("DELETE", "/models/leaving").status == 200
        assert asked.result().status == 200


def test_errors_of_scaling(client: Client):
    assert client.manage("PUT", "/models/echo?min_worker=2&max_worker=1").status == 400
    assert client.manage("PUT", "/models/echo?min_worker=-1").status == 500
    assert client.manage("PUT", "/models/nobody?min_worker=1").status == 404
    answer = client.manage("PUT", "/models/echo?min_worker=1")
    assert (answer.status, answer.json()) == (202, {"status": "Processing worker updates..."})


def test_workers_asked_for_before_a_model_is_removed_do_not_outlive_it(client: Client, store):
    make_model(store, "brief", HANDLERS["echo"])
    assert client.register("brief.mar").status == 200
    model = client.server.registry.get("brief")

    async def at_once() -> None:
        await asyncio.gather(client.server.registry.unregister("brief", None), model.scale(3, 3))

    loop = next(iter(client.server._tasks)).get_loop()
    asyncio.run_coroutine_threadsafe(at_once(), loop).result(30)
    assert model.workers == []


def test_clients_that_leave_cost_nothing(client: Client, store):
    make_model(store, "left", HANDLERS["moody"], config={"minWorkers": 1, "maxWorkers": 1})
    client.register("left.mar")
    address = client.server.addresses["inference"]
    for _ in range(5):
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(b"POST /predictions/left HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsleep 0.3")
            time.sleep(0.02)
    start = time.monotonic()
    assert client.predict("left", b"").status == 200
    assert time.monotonic() - start < 1.2  # those who left while they waited are not served
    client.manage("DELETE", "/models/left")


def test_settings_of_a_model_are_followed(client: Client, store):
    config = {"minWorkers": 2, "maxWorkers": 2, "batchSize": 3, "maxBatchDelay": 5, "handler": {"answer": 42}}
    source = """
        def handle(data, context):
            return data and [str(context.model_yaml_config["handler"]["answer"])] * len(data)
    """
    make_model(store, "own", source, config=config)
    assert client.register("own.mar").json()["status"] == 'Model "own" Version: 1.0 registered with 2 initial workers'
    (found,) = client.manage("GET", "/models/own").json()
    assert (found["batchSize"], found["maxBatchDelay"], len(found["workers"])) == (3, 5, 2)
    assert client.predict("own", b"").body == b"42"
    client.manage("DELETE", "/models/own")


def test_handlers_may_be_async(client: Client, store):
    source = """
        import asyncio

        class Waits:
            def initialize(self, context):
                self.turns = 0

            async def handle(self, data, context):
                await asyncio.sleep(0.01)
                self.turns += 1
                return [str(self.turns)] * len(data)
    """
    make_model(store, "waits", source, config={"asyncCommunication": True, "minWorkers": 1, "maxWorkers": 1})
    assert client.register("waits.mar").status == 200
    assert [client.predict("waits", b"").body for _ in range(3)] == [b"1", b"2", b"3"]
    client.manage("DELETE", "/models/waits")


def test_packages_of_a_model_do_not_go_to_the_store(start, store, tmp_path):
    """A package on disk stands for one from an index: nothing is fetched."""
    if not list(distributions(name="pip")):  # not imported: setuptools cannot be imported after it before Python 3.12
        pytest.skip("packages are installed with pip")
    package = tmp_path / "package"
    (package / "only_here").mkdir(parents=True)
    (package / "only_here" / "__init__.py").write_text("word = 'found'\n")
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "only-here"\nversion = "1"\n'
    )
    (package / "backend.py").write_text(BACKEND)
    (tmp_path / "needs.txt").write_text(f"{package}\n")
    source = "import only_here\n\ndef handle(data, context):\n    return data and [only_here.word] * len(data)\n"
    make_model(store, "needy", source, requirements_file=str(tmp_path / "needs.txt"), archive_format="no-archive")
    before = sorted(p.name for p in (store / "needy").rglob("*"))
    assert start().register("needy").status == 500
    client = start(install_py_dep_per_model="true")
    assert client.register("needy").status == 200
    assert client.predict("needy", b"").body == b"found"
    assert sorted(p.name for p in (store / "needy").rglob("*") if "__pycache__" not in str(p)) == before


BACKEND = """
import zipfile

def build_wheel(folder, config=None, metadata=None):
    name = "only_here-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("only_here/__init__.py")
        wheel.writestr("only_here-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: only-here\\nVersion: 1\\n")
        wheel.writestr("only_here-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("only_here-1.dist-info/RECORD", "")
    return name
"""


GROUP = """
import os
import torch
import torch.distributed as dist

def handle(data, context):
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    if data is None:
        return None
    if data[0]["body"].get("end") == dist.get_rank():
        os._exit(3)
    value = torch.tensor([float(len(data[0]["body"]["x"])), 1.0]) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    return [{"sum": value.tolist(), "rank": dist.get_rank(), "pid": os.getpid()}]
"""


def test_several_processes_hold_one_model(client: Client, store):
    config = {"parallelType": "tp", "deviceType": "cpu", "torchrun": {"nproc-per-node": 3}}
    make_model(store, "together", GROUP, config=config)
    assert client.register("together.mar").status == 200
    assert client.manage("GET", "/models/together").json()[0]["parallelLevel"] == 3
    answer = client.predict("together", {"x": "a" * 100_000}).json()  # large: through shared memory to the first only
    assert answer["sum"] == [600_000.0, 6.0]
    assert answer["rank"] == 0
    assert client.predict("together", {"x": "", "end": 1}).status >= 500  # the group ends with any of its processes
    until(lambda: client.predict("together", {"x": "ab"}).status == 200)
    again = client.predict("together", {"x": "ab"}).json()
    assert again["sum"] == [12.0, 6.0]
    assert again["pid"] != answer["pid"]
    client.manage("DELETE", "/models/together")
    until(lambda: not Path(f"/proc/{again['pid']}").exists())


def test_several_models_share_a_server_without_mixing(client: Client):
    with ThreadPoolExecutor(8) as pool:
        echoes = [pool.submit(client.predict, "echo", str(i).encode()) for i in range(20)]
        facts = [pool.submit(client.predict, "facts", b"x" * i) for i in range(1, 20)]
        assert [f.result().body for f in echoes] == [str(i).encode() for i in range(20)]
        assert [f.result().json()["sizes"]["body"] for f in facts] == list(range(1, 20))


SINGLE = """
import asyncio, os, sys
from flambeau.serve.registry import Registration
from flambeau.serve.server import Server
from flambeau.serve.settings import Settings

async def main():
    settings = Settings({"single_process": "true", "model_store": sys.argv[1], "disable_token_authorization": "true",
                         "grpc_inference_port": "-1", "inference_address": "http://127.0.0.1:0",
                         "management_address": "http://127.0.0.1:0", "metrics_address": "http://127.0.0.1:0"}, snapshots=False)
    async with Server(settings, console=False) as server:
        print(*await server.registry.register(Registration("facts.mar", initial_workers=2)))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.addresses["inference"].port)
        body = b"x" * 50_000
        writer.write(b"POST /predictions/facts HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 50000\\r\\n\\r\\n" + body)
        await reader.readuntil(b"pid")
        print((await reader.readuntil(b",")).strip(b'": ,').decode() == str(os.getpid()))
        writer.close()
        try:
            await server.registry.register(Registration("broken_one.mar", initial_workers=1))
        except Exception as e:
            print(e)
        await server.registry.unregister("facts", None)

asyncio.run(main())
"""


def test_single_process(store, tmp_path):
    make_model(store, "broken_one", "raise RuntimeError('no')")
    done = subprocess.run(
        [sys.executable, "-c", SINGLE, str(store)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "LOG_LOCATION": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        '200 Model "facts" Version: 1.0 registered with 2 initial workers', "True",
        "Failed to start workers for model broken_one version: 1.0: RuntimeError: no",
    ], done.stderr  # fmt: skip


SEVERAL = """
import sys
from flambeau.serve import server
from flambeau.serve.registry import Registration
from flambeau.serve.settings import Settings

async def ready(running):
    for name in ("echo", "stream", "moody"):
        await running.registry.register(Registration(f"{name}.mar", initial_workers=1))
    print("ready", flush=True)

settings = Settings({"model_store": sys.argv[1], "inference_address": f"http://127.0.0.1:{sys.argv[2]}", "number_of_front_ends": "3",
                     "management_address": "http://127.0.0.1:0", "metrics_address": "http://127.0.0.1:0",
                     "grpc_inference_port": "-1", "disable_token_authorization": "true"}, snapshots=False)
server.run(settings, ready, console=False)
"""


def test_several_front_ends(store, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SEVERAL, str(store), str(port)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LOG_LOCATION": str(tmp_path), "METRICS_LOCATION": str(tmp_path)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert any(line == "ready\n" for line in process.stdout)

        def ask(name, body):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", f"/predictions/{name}", body)
            answer = connection.getresponse()
            return answer.status, answer.read()

        bodies = [bytes([65 + i]) * 30_000 for i in range(24)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda body: ask("echo", body), bodies)) == [(200, body) for body in bodies]
            assert set(pool.map(lambda _: ask("stream", b"x"), range(8))) == {(200, b"part 0 part 1 part 2 end")}
            assert {s for s, _ in pool.map(lambda _: ask("nobody", b"x"), range(8))} == {404}
        listening = [
            line for line in Path("/proc/net/tcp").read_text().splitlines() if f"0100007F:{port:04X} 00000000" in line
        ]
        assert len(listening) == 3
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_nursery_is_replaced_too(start, store):
    client = start()
    assert client.register("facts.mar").status == 200
    process = client.server.nursery._process
    process.kill()
    process.wait()
    time.sleep(0.2)
    pid = client.predict("facts", b"").json()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: workers(client, "facts")[0]["status"] == "READY" and workers(client, "facts")[0]["pid"] != pid)
    assert client.predict("facts", b"").status == 200
