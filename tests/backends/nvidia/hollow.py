"""A GPU that computes nothing: addresses without memory, and launches without effect. What a program asks of the allocator is what it
asks on a real one, however large its model is."""

from __future__ import annotations

import ctypes
from typing import Any

from flambeau.backends.nvidia import driver
from tests.backends.nvidia import fake_driver

_PAGE = 1 << 21


class HollowDriver(fake_driver.FakeDriver):
    """The driver. Everything that is read from it is zero."""

    def __init__(self) -> None:
        super().__init__(1, 1 << 38)
        self.place = 1 << 40

    def used(self) -> int:
        return sum(self.blocks.values())

    def _address(self, out: Any, size: int) -> int:
        out._obj.value = here = self.place
        self.place += -(-size // _PAGE) * _PAGE + _PAGE
        return here

    def _cuMemAlloc(self, out: Any, size: int) -> int:
        self.blocks[self._address(out, size)] = size
        return 0

    def _cuMemAllocManaged(self, out: Any, size: int, flags: int) -> None:
        self.managed[self._address(out, size)] = size

    def _do(self, stream: int, action: tuple) -> None:
        if stream in self.capturing:
            self.capturing[stream].append(action)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memset(to, 0, size)

    def _cuGraphLaunch(self, graph: int, stream: int) -> None:
        """Nothing happens."""


class _Module:
    def __init__(self, fake: HollowDriver):
        self.fake = fake

    def function(self, name: str, kinds: tuple, shared: int = 0) -> Any:
        from flambeau.backends.nvidia import threads

        return lambda grid, block, *values: self.fake._do(threads.activate(0), (None, grid, block, *values))

    def fixed(self, name: str, kinds: tuple, grid: Any, block: Any, first: tuple, shared: int = 0) -> Any:
        run = self.function(name, kinds, shared)
        return lambda _, *values: run(grid, block, *first, *values)


class _Product:
    """A plan of cuBLASLt; products with many terms and few results want a workspace."""

    def __init__(self, out: Any, a: Any, b: Any, *more: Any):
        self.where, self.stream = out.device, -1
        self.candidates = [self]
        self.words = [4 << 20 if a.shape[-1] >= 1024 and out.numel() < 1 << 21 else 0] * 16

    quickest = property(lambda self: self)

    def use(self, algorithm: Any) -> None:
        """There is one only."""

    def run(self, *given: Any) -> None:
        from flambeau.backends import nvidia

        stream = nvidia.current_stream(self.where)
        held = None if stream == self.stream else self._enter(stream)
        driver.functions()._do(stream, (None,))
        del held


def install() -> HollowDriver:
    """Make this process believe that it has such a GPU. Not to be undone: for processes of their own."""
    import flambeau.backends.nvidia as nvidia
    from flambeau.backends.nvidia import cublaslt, cudnn_attention, cudnn_conv, libraries, modules

    fake = HollowDriver()
    driver.use(fake)
    modules._load = lambda source, index, options=(): _Module(fake)
    libraries.library.cache_clear()
    nvidia.library = lambda name: None
    _Product._enter = cublaslt._Plan._enter
    cublaslt._Plan = _Product

    def convolve(kind: str, x: Any, *more: Any) -> None:
        nvidia.workspace(2 << 20, x.device)
        fake._do(nvidia.current_stream(x.device), (None,))

    class Attention:
        def __init__(self, where: Any):
            self.where = where

        def run(self, places: dict) -> None:
            fake._do(nvidia.current_stream(self.where), (None,))

    cudnn_attention._planned = lambda key, where, build: Attention(where)
    cudnn_conv.run_known = lambda *given: False
    cudnn_conv.keep = lambda *given: None
    cudnn_conv.convolve = convolve
    return fake
