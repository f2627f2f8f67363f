"""Capture of work in CUDA graphs, and modules that run as graphs."""

from __future__ import annotations

import gc
from typing import Any

from .. import autograd
from ..backends.nvidia import streams
from ..backends.nvidia.graphs import CUDAGraph as _CUDAGraph
from ..backends.nvidia.graphs import graph_pool_handle as graph_pool_handle
from ..core.backend import backend_of
from ..core.device import device as Device
from ..core.pytree import tree_flatten, tree_unflatten
from ..core.tensor import Tensor
from ..nn import Module
from . import Stream, _require_backend, empty_cache, is_current_stream_capturing, synchronize

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


class CUDAGraph(_CUDAGraph):
    """Captured work. Use `flambeau.cuda.graph` to capture, and `replay` to run it."""

    def __init__(self, keep_graph: bool = False):
        _require_backend("CUDAGraph", RuntimeError)
        super().__init__(keep_graph)


class graph:
    """Context manager: capture work into a CUDAGraph instead of running it.

    >>> g = flambeau.cuda.CUDAGraph()                  # doctest: +SKIP
    >>> with flambeau.cuda.graph(g):                   # doctest: +SKIP
    ...     out = model(static_input)
    >>> g.replay()                                     # doctest: +SKIP
    """

    default_capture_stream: Any = None

    def __init__(
        self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global", **_: Any
    ):
        _require_backend("graph", RuntimeError)
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = stream
        self.stream_ctx = streams.StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        backend = backend_of(Device("cuda"))
        index = self.capture_stream.device_index
        backend.generator(Device("cuda", index)).prepare_capture()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, *exc: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if exc[0] is None:  # the error that ended the block is more informative
                raise
        finally:
            self.stream_ctx.__exit__(*exc)


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Return the functions or modules with their forward and backward passes captured as graphs, for arguments like the samples.

    They take and return tensors; the graph's own memory holds arguments and results, so that a result is only good until the next
    call."""
    _require_backend("make_graphed_callables", RuntimeError)
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    shared = graph_pool_handle() if pool is None else pool
    made = tuple(
        _graphed(f, tuple(s), num_warmup_iters, allow_unused_input, shared)
        for f, s in zip(functions, samples, strict=True)
    )
    return made[0] if single else made


def _graphed(function: Any, sample: tuple, warmup: int, allow_unused: bool, pool: Any) -> Any:
    module = function if isinstance(function, Module) else None
    parameters = tuple(p for p in module.parameters() if p.requires_grad) if module is not None else ()
    flat, structure = tree_flatten(sample)
    inputs = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in flat)
    wanted = tuple(x for x in (*inputs, *parameters) if x.requires_grad)

    def forward() -> tuple[tuple[Tensor, ...], Any]:
        results = function(*tree_unflatten(list(inputs), structure))
        leaves, shape = tree_flatten(results)
        return tuple(leaves), shape

    side = Stream()
    side.wait_stream(streams.current_stream())
    with streams.StreamContext(side):
        for _ in range(warmup):
            outputs, _ = forward()
            kept = tuple(o for o in outputs if o.requires_grad)
            if kept and wanted:
                autograd.grad(kept, wanted, tuple(o.new_ones(o.shape) for o in kept), allow_unused=allow_unused)
    streams.current_stream().wait_stream(side)
    first, second = CUDAGraph(), CUDAGraph()
    with graph(first, pool=pool):
        outputs, shape = forward()
    kept = tuple(o for o in outputs if o.requires_grad)
    incoming = tuple(o.new_empty(o.shape) for o in kept)
    found: tuple = ()
    if kept and wanted:
        with graph(second, pool=pool):
            found = autograd.grad(kept, wanted, incoming, allow_unused=allow_unused)
    gradients = iter(found)
    by_input = tuple(next(gradients) if x.requires_grad and found else None for x in (*inputs, *parameters))

    class Graphed(autograd.Function):
        """Autograd function of the forward and backward graphs."""

        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            for mine, theirs in zip(inputs, given):
                if mine.data_ptr() != theirs.data_ptr():
                    mine.data.copy_(theirs)
            first.replay()
            return tuple(o.detach() for o in outputs)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            arriving = [g for g, o in zip(given, outputs) if o.requires_grad]
            for mine, theirs in zip(incoming, arriving):
                if theirs is not None:
                    mine.copy_(theirs)
            second.replay()
            return tuple(None if g is None else g.detach() for g in by_input)

    def run(*given: Any) -> Any:
        leaves, _ = tree_flatten(given)
        results = Graphed.apply(*leaves, *parameters)
        return tree_unflatten(list(results if isinstance(results, tuple) else (results,)), shape)

    if module is None:
        return run
    original, training = module.forward, module.training

    def replaced(*given: Any) -> Any:
        return run(*given) if module.training == training else original(*given)

    module.forward = replaced
    return module
