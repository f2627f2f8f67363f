"""Device memory between processes: what is said to the driver, and how long the sender keeps what it sent."""

from __future__ import annotations

import ctypes
import pickle
import types
from multiprocessing.reduction import ForkingPickler

import pytest

from flambeau.backends.nvidia import sharing
from flambeau.core.device import device


class _Block:
    def __init__(self, address, before=None):
        self.address, self.before = address, before


def test_a_storage_in_its_own_process_is_itself_and_let_go_of(fake, monkeypatch):
    where = device("cuda", 0)
    segment = _Block(1 << 20)
    memory = type("Memory", (), {"blocks": {(1 << 20) + 4096: _Block((1 << 20) + 4096, segment)}})()
    monkeypatch.setattr(sharing, "memories", lambda: [memory])
    held = types.SimpleNamespace(ptr=(1 << 20) + 4096, size_bytes=64, device=where, owner=None)
    function, given = sharing.share(held)
    sender, key, handle, offset, nbytes, index, _ = given
    assert (function, len(handle), offset, nbytes, index) == (sharing.received, 64, 4096, 64, 0)
    assert sharing.received(*pickle.loads(ForkingPickler.dumps(given[:-1])), given[-1]) is held
    assert sharing._sent and not ctypes.c_int64.from_address(key).value
    sharing.collect()
    assert not sharing._sent
    held.owner = object.__new__(sharing.Mapped)
    with pytest.raises(RuntimeError, match="received from another process"):
        sharing.share(held)
