"""How arguments reach the driver."""

from __future__ import annotations

import ctypes
import threading
import types

import pytest

from flambeau.backends.cpu import jit, native_call
from flambeau.backends.nvidia import driver, launch, threads

_POINTER = ctypes.c_void_p
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, *[ctypes.c_uint] * 7, ctypes.c_uint64, _POINTER, _POINTER)
_SET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER)


def test_arguments_are_packed_by_kind():
    pointers, held = launch.pack(("q", "d", "f", "i", 8), (1 << 63, 2.5, 1.5, -3, b"abcdefgh"))
    assert ctypes.c_uint64.from_address(pointers[0]).value == 1 << 63
    assert ctypes.c_double.from_address(pointers[1]).value == 2.5
    assert ctypes.c_float.from_address(pointers[2]).value == 1.5
    assert ctypes.c_int32.from_address(pointers[3]).value == -3
    assert ctypes.string_at(pointers[4], 8) == b"abcdefgh"
    assert len(held) == 5


@pytest.mark.parametrize(("kinds", "values"), [(("q",), ()), ((4,), (b"abc",))])
def test_wrong_arguments_are_refused(kinds, values):
    with pytest.raises(TypeError):
        launch.pack(kinds, values)


def test_sizes_have_three_parts():
    assert [launch.three(s) for s in (5, (5, 6), (5, 6, 7))] == [(5, 1, 1), (5, 6, 1), (5, 6, 7)]


class _Machine:
    """Machine code that launches, with functions of Python in place of the driver's."""

    def __init__(self, monkeypatch, kinds: tuple = ("q", "d", 5), device: int = 3):
        self.seen: list[tuple] = []
        self.contexts: list[int] = []
        self.status = 0
        self.functions = _LAUNCH(self.launched), _SET_CONTEXT(self.chosen)
        monkeypatch.setattr(
            driver,
            "functions",
            lambda: types.SimpleNamespace(cuLaunchKernel=self.functions[0], cuCtxSetCurrent=self.functions[1]),
        )
        monkeypatch.setattr(driver, "context", lambda index: 99)
        monkeypatch.setattr(launch, "_is_native", lambda: True)
        self.call = launch.launcher(77, kinds, device, 1234)

    def launched(self, function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
        places = ctypes.cast(pointers, ctypes.POINTER(_POINTER))
        first = ctypes.c_uint64.from_address(places[0]).value
        self.bytes = ctypes.string_at(places[2], 5)
        self.seen.append((function, (gx, gy, gz), (bx, by, bz), shared, stream, first))
        return self.status

    def chosen(self, context):
        self.contexts.append(context)
        return 0


@pytest.fixture
def machine(monkeypatch):
    if not (native_call.supported() and jit.available()):
        pytest.skip("no machine code is made here")
    yield _Machine(monkeypatch)
    threads.mine.words.context = 0


def test_machine_code_launches(machine):
    machine.call(5, 256, -1, 2.5, b"bytes")
    machine.call((5, 6, 7), (32, 2), None, 1, b"bytes")
    assert machine.seen == [
        (77, (5, 1, 1), (256, 1, 1), 1234, 0, 2**64 - 1),
        (77, (5, 6, 7), (32, 2, 1), 1234, 0, 0),
    ]
    assert machine.contexts == [99]  # made current once


def test_machine_code_uses_the_threads_stream(machine):
    before = threads.set_stream(3, 0xABC)
    try:
        machine.call(1, 1, 0, 0.0, b"")
    finally:
        threads.set_stream(3, before)
    other = threading.Thread(target=lambda: machine.call(1, 1, 0, 0.0, b""))
    other.start()
    other.join()
    assert [s[4] for s in machine.seen] == [0xABC, 0]
    assert machine.contexts == [99, 99]  # each thread has its own


def test_plans_fix_sizes_and_first_arguments(machine):
    call = launch.fixed_launcher(78, ("q", 5, 5, "d"), 3, 0, (4, 2), 128, (6, b"fixed"))
    call(None, b"given", 1.5)
    assert machine.seen == [(78, (4, 2, 1), (128, 1, 1), 0, 0, 6)]
    assert machine.bytes == b"given"
    call = launch.fixed_launcher(78, ("q", "q", 5), 3, 0, 1, 1, (6, 7, b"fixed"))
    call(123)
    assert machine.bytes == b"fixed"
    with pytest.raises(TypeError):
        call(1, 2)


def test_errors_of_the_driver_are_raised(machine):
    machine.status = 2
    with pytest.raises(driver.CudaError) as error:
        machine.call(1, 1, 0, 0.0, b"")
    assert error.value.error_code == 2


@pytest.mark.parametrize("arguments", [(1,), (1, 2, "x", 1.0, b""), (1, 2, 3, "x", b""), (1, 2, 3, 1.0, 5)])
def test_wrong_arguments_are_errors_of_python(machine, arguments):
    with pytest.raises((TypeError, SystemError)):
        machine.call(*arguments)
    assert not machine.seen
