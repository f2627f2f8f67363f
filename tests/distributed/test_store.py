"""Stores: what they keep, how long they wait, and whom they do not let in."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from datetime import timedelta

import pytest

import flambeau.distributed as dist
from flambeau.distributed import secret, tcp_store

SHORT = timedelta(milliseconds=200)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "hash":
        return dist.HashStore()
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"), 1)
    tcp = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=timedelta(seconds=5))
    return tcp if request.param == "tcp" else dist.PrefixStore("before", tcp)


def test_keys_and_values(store):
    store.set("a", "1")
    store.set("bytes", b"\x00\xff")
    assert store.get("a") == b"1"
    assert store.get("bytes") == b"\x00\xff"
    assert store.add("count", 3) == 3
    assert store.add("count", 4) == 7
    assert store.get("count") == b"7"
    assert store.check(["a", "count"])
    assert not store.check(["a", "nothing"])
    assert store.compare_set("k", "", "v") == b"v"
    assert store.compare_set("k", "x", "y") == b"v"
    assert store.compare_set("k", "v", "y") == b"y"
    assert store.compare_set("none", "x", "y") == b"x"
    store.append("long", "1")
    store.append("long", "2")
    assert store.get("long") == b"12"
    store.multi_set(["q", "r"], ["1", "2"])
    assert store.multi_get(["q", "r"]) == [b"1", b"2"]
    assert store.delete_key("a")
    assert not store.check(["a"])


def test_types_of_arguments(store):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        store.set("b", 3)


def test_waiting(store):
    store.set_timeout(SHORT)
    with pytest.raises(RuntimeError, match="(?i)timeout"):
        store.get("nothing")
    with pytest.raises(RuntimeError, match="(?i)timeout"):
        store.wait(["nothing", "more"], SHORT)
    store.set_timeout(timedelta(seconds=20))
    threading.Timer(0.1, lambda: store.set("late", "x")).start()
    assert store.get("late") == b"x"


def test_message_of_a_late_tcp_store():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    with pytest.raises(dist.DistStoreError, match="wait timeout after 200ms, keys: /one, /two"):
        store.wait(["one", "two"], SHORT)


def test_a_store_that_hangs_is_said(monkeypatch):
    store, goes_on = dist.TCPStore("127.0.0.1", 0, 1, True), threading.Event()
    monkeypatch.setattr(tcp_store, "_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(store._server, "_do_set", lambda *pair: [b"ok"] if goes_on.wait(10) else [], raising=False)
    with pytest.raises(dist.DistNetworkError, match="timed out: the store"):
        store.set("key", "value")
    goes_on.set()


def test_queues():
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=SHORT)
    store.queue_push("q", "1")
    assert store.queue_len("q") == 1
    assert store.queue_pop("q") == b"1"
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", False)


def test_two_processes_of_a_file_store(tmp_path):
    one, other = (dist.FileStore(str(tmp_path / "f"), 2) for _ in range(2))
    one.set("a", "1")
    assert other.get("a") == b"1"
    assert other.add("n", 1) + one.add("n", 1) == 3
    path = one.path
    del one, other
    assert not os.path.exists(path)


def test_half_a_record_is_written_over(tmp_path):
    store = dist.FileStore(str(tmp_path / "f"))
    store.set("a", "1")
    with open(store.path, "ab") as file:
        file.write(b"\x05\x00\x00\x00\x05\x00")
    store.set("b", "2")
    assert dist.FileStore(store.path).multi_get(["a", "b"]) == [b"1", b"2"]


def test_strangers_get_nowhere(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(48), os.urandom(4096), b"\xff" * 100):
        with socket.create_connection(("127.0.0.1", store.port)) as stranger:
            stranger.sendall(garbage)
            stranger.settimeout(5)
            data = b""
            if len(garbage) >= 48:
                with contextlib.suppress(ConnectionResetError):
                    while part := stranger.recv(1000):
                        data += part
                assert data.startswith(secret.GREETING)
                assert len(data) <= len(secret.GREETING) + 16  # the question, and never an answer
    monkeypatch.setenv(secret.VARIABLE, "another")
    with pytest.raises(dist.DistNetworkError, match="another secret"):
        dist.TCPStore("127.0.0.1", store.port, 1, False, timeout=timedelta(seconds=3))
    store.set("still", "there")
    assert store.get("still") == b"there"


def test_nonsense_after_the_secret():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    for nonsense in (
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\xff\xff\xff\xff",
        b"\x01\0\0\0\x04\0\0\0what",
        b"\x02\0\0\0\x03\0\0\0\x01\0\0\0addx",
    ):
        with socket.create_connection(("127.0.0.1", store.port)) as known:
            secret.introduce(known, secret.shared_secret())
            known.sendall(nonsense)
    assert store.add("n", 1) == 1


def test_key_file_is_private(monkeypatch, tmp_path):
    monkeypatch.delenv(secret.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert secret.shared_secret() == secret.shared_secret()
    path = tmp_path / "flambeau" / "distributed.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(RuntimeError, match="can be read by others"):
        secret.shared_secret()


def test_a_port_that_is_taken():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    with pytest.raises(dist.DistNetworkError, match="EADDRINUSE"):
        dist.TCPStore("127.0.0.1", store.port, 1, True, timeout=timedelta(seconds=1))
