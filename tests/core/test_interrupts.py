"""A Ctrl-C is never lost in a finalizer and never leaves a context's state behind, wherever it comes."""

from __future__ import annotations

import ctypes
import gc
import random
import signal
import sys

import numpy as np
import pytest

import flambeau
from flambeau.backends.cpu import onednn
from flambeau.core import modes, watching
from flambeau.core.allocator import allocator
from flambeau.core.graph import grad_mode
from flambeau.core.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, asks_arguments
from flambeau.core.uninterrupted import at_once, uninterrupted

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11) or sys.implementation.name != "cpython",
    reason="where else Python looks for signals cannot be chosen",
)

_raise = at_once(getattr(ctypes.CDLL(None), "raise"))


class Bomb:
    """Sends a signal when it goes: `del bomb` does, without an instruction at which Python would take it."""

    @uninterrupted
    def __del__(self):
        _raise[signal.SIGALRM]


@pytest.fixture(autouse=True)
def interrupting():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    gc.collect()  # what a handler raises in a finalizer, or a callback of the collector, that others have left behind is lost there
    before, callbacks, gc.callbacks[:] = signal.signal(signal.SIGALRM, interrupt), gc.callbacks[:], []
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks


@pytest.fixture
def lost(monkeypatch):
    """Exceptions that Python could only print."""
    found: list = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: found.append(problem.exc_type))
    return found


def end_interrupted(thing):
    """Drop the last reference to what a list holds while a signal is pending."""
    bomb = Bomb()
    try:
        del bomb
        del thing[0]
        for _ in range(3):
            pass
    except KeyboardInterrupt:
        return True
    return False


def from_foreign_library():
    return flambeau.from_dlpack(np.arange(6.0))


def one_of_a_plan():
    return onednn.plan.Descriptor.any_layout((2, 3), 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: flambeau.ones(3),
        lambda: flambeau.empty(1 << 20),
        lambda: flambeau.empty(5).share_memory_(),
        from_foreign_library,
        pytest.param(
            one_of_a_plan, marks=pytest.mark.skipif(not onednn.library.available(), reason="oneDNN is not installed")
        ),
    ],
    ids=["small", "large", "shared", "dlpack", "onednn"],
)
def test_an_interrupt_that_comes_with_a_finalizer_arrives(make, lost):
    for _ in range(30):  # the interpreter changes its code with the number of calls
        assert end_interrupted([make()])
    assert lost == []


def test_a_large_block_that_is_not_kept_goes_without_losing_an_interrupt(lost, monkeypatch):
    before = allocator.allocated()
    monkeypatch.setattr(allocator, "cache_limit", 0)
    assert end_interrupted([flambeau.empty(1 << 22)]) and lost == []
    assert allocator.allocated() == before


def test_an_interrupt_that_comes_with_a_garbage_collection_arrives(lost):
    watching.notice_collections()
    for _ in range(30):
        bomb = Bomb()
        with pytest.raises(KeyboardInterrupt):
            del bomb
            gc.collect()
        assert lost == [] and not watching.collecting.now


class PlainMode(flambeau.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


CONTEXTS = {
    "no_grad": flambeau.no_grad,
    "set_grad_enabled": lambda: flambeau.set_grad_enabled(False),
    "inference_mode": flambeau.inference_mode,
    "detect_anomaly": lambda: flambeau.autograd.set_detect_anomaly(True),
    "autocast": lambda: flambeau.autocast("cpu", flambeau.float16, cache_enabled=False),
    "device": lambda: flambeau.device("meta"),
    "saved_tensors_hooks": lambda: flambeau.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "mode": PlainMode,
    "no subclasses": DisableTorchFunctionSubclass,
    "no overrides": DisableTorchFunction,
    "dual_level": flambeau.autograd.forward_ad.dual_level,
    "invariants": flambeau.sparse.check_sparse_tensor_invariants,
    "sdpa_kernel": lambda: flambeau.nn.attention.sdpa_kernel(flambeau.nn.attention.SDPBackend.MATH),
}


def everything_set():
    flags = [getattr(grad_mode, name) for name in ("enabled", "inference", "anomaly", "saved_hooks")]
    autocast = flambeau.amp.state.current_setting("cpu"), flambeau.amp.state._contexts.nesting
    others = flambeau.get_default_device(), flambeau.sparse.check_sparse_tensor_invariants.is_enabled()
    kernels = dict(flambeau.core.settings.attention_kernels)
    return *flags, *autocast, *others, kernels, modes.own.stack[:], len(modes.active), asks_arguments()


def leave_interrupted(context):
    bomb = Bomb()
    with context:
        del bomb  # pending when __exit__ starts
    for _ in range(3):  # where it is taken
        pass


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_whose_end_is_interrupted_restores_its_state(name, lost):
    before = everything_set()
    for _ in range(30):
        with pytest.raises(KeyboardInterrupt):
            leave_interrupted(CONTEXTS[name]())
        assert everything_set() == before
    assert lost == []


def test_a_mode_is_not_lost_by_an_interrupt_while_it_handles_a_call():
    class Interrupted(flambeau.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            bomb = Bomb()
            del bomb

    mode, x = Interrupted(), flambeau.ones(2)
    with mode:
        for _ in range(30):
            with pytest.raises(KeyboardInterrupt):
                x.exp()
                for _ in range(3):  # where it is taken
                    pass
            assert modes.own.stack[-1] is mode
    assert mode not in modes.own.stack


def train_a_little():
    flambeau.manual_seed(0)
    model = flambeau.nn.Sequential(flambeau.nn.Linear(4, 8), flambeau.nn.ReLU(), flambeau.nn.Linear(8, 2))
    optimizer = flambeau.optim.AdamW(model.parameters(), 1e-2)
    x = flambeau.randn(3, 4)
    losses = []
    for i in range(3):
        with flambeau.autocast("cpu", flambeau.bfloat16, enabled=i % 2 == 1):
            loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with flambeau.no_grad():
            losses.append(model(x).sum().item())
    return losses


def test_training_interrupted_anywhere(lost):
    expected, before = train_a_little(), everything_set()
    numbers, raised, caught = random.Random(0), [], 0

    def interrupt(number, frame):
        if armed:
            raised.append(number)
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(300):
        signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-4, 4e-3))
        armed = True
        try:
            try:
                train_a_little()
            finally:
                armed = False
        except KeyboardInterrupt:
            caught += 1
        assert everything_set() == before
    assert lost == [] and len(raised) == caught > 50
    assert train_a_little() == expected
