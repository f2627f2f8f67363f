"""How a plan of cuDNN is run: the calls that reach the library, without a GPU."""

import ctypes
from types import SimpleNamespace

import pytest

from flambeau.backends import nvidia
from flambeau.backends.nvidia import cudnn_graph
from flambeau.core.device import device

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64


class _Library:
    """Functions as the library has them, which write down what they are called with."""

    def __init__(self, fail=""):
        self.calls = []
        kinds = {
            "CreateDescriptor": (_I, _P), "SetAttribute": (_P, _I, _I, _L, _P), "Finalize": (_P,), "Execute": (_P, _P, _P),
            "DestroyDescriptor": (_P,),
        }  # fmt: skip
        for name, arguments in kinds.items():
            made = ctypes.CFUNCTYPE(_I, *arguments)(self._function(name, fail))
            setattr(self, f"cudnnBackend{name}", made)
        self.cudnnGetErrorString = lambda status: b"CUDNN_STATUS_WRONG"
        self.cudnnGetLastErrorString = lambda text, size: None

    def _function(self, name, fail):
        def function(*given):
            if name == "CreateDescriptor":
                ctypes.c_void_p.from_address(given[1]).value = 99
            if name == "SetAttribute":
                given = (*given[:4], list((_L * given[3]).from_address(given[4])))
            self.calls.append((name, *given))
            return 5000 if name == fail else 0

        return function


def _plan(monkeypatch, library, native):
    monkeypatch.setattr(cudnn_graph, "library", lambda: library)
    monkeypatch.setattr(cudnn_graph, "handle", lambda where: ctypes.c_void_p(7))
    monkeypatch.setattr(nvidia, "workspace", lambda nbytes, where: SimpleNamespace(ptr=4096))
    if not native:
        monkeypatch.setattr(cudnn_graph, "_runner", lambda: cudnn_graph._through_ctypes)
    plan = object.__new__(cudnn_graph.ExecutionPlan)
    number = ctypes.c_float(2)
    plan.plan = SimpleNamespace(pointer=ctypes.c_void_p(55))
    plan.nbytes, plan.where, plan.graph = 64, device("cuda", 0), SimpleNamespace(values={1000: number})
    plan.order, plan.handle, plan.call = [], None, cudnn_graph._runner()
    return plan, ctypes.addressof(number)


@pytest.mark.parametrize("native", [True, False])
def test_addresses_reach_the_library(native, monkeypatch):
    library = _Library()
    plan, number = _plan(monkeypatch, library, native)
    for first in (11, 13):
        library.calls.clear()
        plan.run({1: first, 2: 12})
        uids = ("SetAttribute", 99, 1000, 3, 3, [1, 2, 1000])
        places = ("SetAttribute", 99, 1001, 6, 3, [first, 12, number])
        space = ("SetAttribute", 99, 1003, 6, 1, [4096])
        assert library.calls[1:4] == [uids, places, space]
        assert [c[0] for c in library.calls] == [
            "CreateDescriptor", *["SetAttribute"] * 3, "Finalize", "Execute", "DestroyDescriptor",
        ]  # fmt: skip
        assert library.calls[5] == ("Execute", 7, 55, 99)


@pytest.mark.parametrize("fail", ["CreateDescriptor", "Finalize", "Execute"])
def test_a_failure_is_told(fail, monkeypatch):
    library = _Library(fail)
    plan, _ = _plan(monkeypatch, library, True)
    with pytest.raises(nvidia.CudaError, match="CUDNN_STATUS_WRONG"):
        plan.run({1: 11})
    names = [c[0] for c in library.calls]
    assert ("Execute" in names) == (fail == "Execute")
    assert ("DestroyDescriptor" in names) == (fail != "CreateDescriptor")
