"""Kernels that a captured call needs are compiled by several threads: begun in a rehearsal, loaded when they are first launched."""

from __future__ import annotations

import threading

import pytest

from flambeau.backends.nvidia import compiler, modules
from flambeau.backends.nvidia.driver import CudaError
from flambeau.core.device import device


@pytest.fixture
def nvrtc(monkeypatch):
    """A compiler whose first two sources wait for each other; "wrong" does not compile."""
    both = threading.Barrier(2)

    def compiled(source: str, options: tuple) -> bytes:
        if source == "wrong":
            raise CudaError("NVRTC does not compile a kernel")
        if source in ("a", "b"):
            both.wait(20)
        return source.encode()

    monkeypatch.setattr(compiler, "_quickly_compiled", compiled)
    monkeypatch.setattr(compiler, "_version", lambda: "none")
    monkeypatch.setattr(compiler.cache, "read", lambda *given: None)
    monkeypatch.setattr(compiler.cache, "write", lambda *given: None)
    monkeypatch.setattr(compiler.os, "sched_getaffinity", lambda process: range(2))
    compiler._workers.cache_clear()
    yield
    compiler._workers().shutdown()
    compiler._workers.cache_clear()


def test_sources_that_were_begun_are_compiled_at_the_same_time(nvrtc):
    for source in ("a", "b", "wrong", "a"):
        compiler.begin(source, "sm_90")
    assert compiler.cubin("a", "sm_90") == b"a" and compiler.cubin("b", "sm_90") == b"b"
    for _ in range(2):  # whoever asks is told, also the second time
        with pytest.raises(CudaError, match="does not compile"):
            compiler.cubin("wrong", "sm_90")
    assert compiler.cubin("c", "sm_90") == b"c" and not compiler._under_way


def test_kernels_are_launched_behind_a_rehearsal_only(monkeypatch):
    begun, done = [], []

    class Loaded:
        def __init__(self, source: str):
            self.source = source

        def function(self, name: str, kinds: tuple, shared: int = 0):
            return lambda *values: done.append((self.source, name, values))

        fixed = function

        def variable(self, name: str) -> int:
            return 7

    monkeypatch.setattr(compiler, "begin", lambda source, architecture, options: begun.append(source))
    monkeypatch.setattr(modules, "architecture", lambda index: "sm_90")
    monkeypatch.setattr(modules, "_load", lambda source, index, options: Loaded(source))
    monkeypatch.setattr(modules, "_seen", set())
    where = device("cuda", 0)
    modules.load_source("known", where).function("f", ("q",))(1)
    with modules.rehearsing():
        known, new = (modules.load_source(s, where) for s in ("known", "new"))
        launch, fixed = new.function("g", ("q",)), new.fixed("h", ("q",))
        for run in (launch, fixed, known.function("f", ("q",))):
            run(2)
        assert begun == ["new"] and new.variable("v") == 7
    assert done == [("known", "f", (1,)), ("known", "f", (2,))]
    launch(3), fixed(4)
    assert done[2:] == [("new", "g", (3,)), ("new", "h", (4,))]
    with modules.rehearsing():
        launch(5)  # it is there: nothing to wait for
        modules.load_source("new", where)
    assert done[4:] == [("new", "g", (5,))] and begun == ["new"]
