"""Tracing by execution: a program is run on tensors, and the operators it calls become a graph of `torch.ops.aten`.

>>> print(make_fx(lambda x: x.sin() + 1)(flambeau.ones(2)).code.strip())
def forward(self, x_1):
    sin = torch.ops.aten.sin.default(x_1);  x_1 = None
    add = torch.ops.aten.add.Tensor(sin, 1);  sin = None
    return add
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..core import modes, pytree
from ..core.casts import casts
from ..core.tensor import Tensor
from ..fx.experimental.graph_reader import GraphReader, PythonKeyTracer
from ..fx.experimental.graph_recorder import GraphRecorder
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from ..nn import Module
from ..nn.unchanged import contents_kept
from ..symbolic import SymBool, SymFloat, SymInt
from .decompositions import composite_table, decomposed
from .symbolic_trace import symbolic

py_sym_types = (SymInt, SymFloat, SymBool)


def get_proxy_mode() -> GraphRecorder | None:
    """Return the active recorder of `make_fx` in this thread, or None."""
    return next((mode for mode in reversed(list(modes.own.stack)) if isinstance(mode, GraphRecorder)), None)


@contextlib.contextmanager
def disable_autocast_cache() -> Iterator[None]:
    """Context manager: autocast makes a new lower-precision copy of a parameter for every operator."""
    before, casts.cache_enabled = casts.cache_enabled, False
    try:
        yield
    finally:
        casts.cache_enabled = before


def make_fx(
    f: Callable,
    decomposition_table: dict[Any, Callable] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
    **more: Any,
) -> Callable[..., GraphModule]:
    """Return a function that runs `f` on its arguments and returns the operators called as a module. Composite operators are decomposed,
    unless `pre_dispatch`; `decomposition_table` decomposes further ones. With `tracing_mode="symbolic"` the graph computes with the sizes
    of its inputs (`f` is run with several); "fake" gives the same graph as "real". With "real" the call is an ordinary one; the other modes
    leave a module's buffers and the random generators unchanged."""
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"Unexpected tracing type: {tracing_mode}")
    buffers = list(f.buffers()) if isinstance(f, Module) else []
    if tracing_mode == "symbolic":
        options: dict[str, Any] = {"pre_dispatch": pre_dispatch, "record_stack_traces": record_stack_traces}
        real = functools.partial(make_fx, f, decomposition_table, **options)

        @functools.wraps(f)
        def traced_with_sizes(*args: Any) -> GraphModule:
            with contents_kept(buffers):
                return symbolic(f, real, *args)

        return traced_with_sizes

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        root = Module()
        graph = Graph(tracer_cls=PythonKeyTracer)
        recorder = GraphRecorder()
        reader = GraphReader(recorder, graph, root)
        if record_stack_traces:
            recorder.describe = lambda op: {"stack_trace": recorder.stack_trace()}
        leaves, shape = pytree.tree_flatten(args)
        inputs = [leaf.detach().requires_grad_(leaf.requires_grad) if _is_float(leaf) else leaf for leaf in leaves]
        apart = not pre_dispatch or bool(decomposition_table)
        again = [leaf.detach().clone() if apart and isinstance(leaf, Tensor) else leaf for leaf in leaves]
        for leaf, name in zip(inputs, _input_names(f, args)):
            node = graph.placeholder(name)
            if isinstance(leaf, Tensor):
                reader.track(recorder.know(leaf), node)
        with (
            recorder,
            disable_autocast_cache(),
            contents_kept(buffers) if tracing_mode == "fake" else contextlib.nullcontext(),
        ):
            result = f(*pytree.tree_unflatten(inputs, shape))
        out, out_shape = pytree.tree_flatten(result)
        values = reader.read(out)
        if all(isinstance(a, Tensor) or not pytree.tree_leaves(a) or pytree.tree_leaves(a)[0] is a for a in args):
            graph.output(pytree.tree_unflatten(values, out_shape))
        else:
            graph.output(values)
            names = list(dict.fromkeys(name.rpartition("_")[0] for name in _input_names(f, args)))
            graph._codegen = _PyTreeCodeGen(_PyTreeInfo(names, shape, out_shape))
        name = type(f).__name__ if isinstance(f, Module) else getattr(f, "__name__", "GraphModule")
        for piece, branch in reader.pieces.items():
            root.add_module(piece, branch)
        module = GraphModule(root, graph, name)
        if apart:
            decomposed(module, {**({} if pre_dispatch else composite_table()), **(decomposition_table or {})}, again)
        return module

    return traced


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def _input_names(f: Callable, args: tuple) -> list[str]:
    """Return names of inputs: `x_1` for a tensor `x`, numbered consecutively if an argument is nested."""
    function = f.forward if isinstance(f, Module) else f
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for position, argument in enumerate(args):
        variable = position >= len(parameters) or parameters[position].kind is inspect.Parameter.VAR_POSITIONAL
        base = f"arg_{position}" if variable else parameters[position].name
        names += [f"{base}_{number}" for number in range(1, len(pytree.tree_leaves(argument)) + 1)]
    return names


def get_isolated_graphmodule(func: Callable, args: tuple, kwargs: dict[str, Any], **options: Any) -> GraphModule:
    """Return a function's graph for given arguments, independent of any active tracing."""
    leaves, shape = pytree.tree_flatten((args, kwargs))

    def of_leaves(*values: Any) -> Any:
        given, named = pytree.tree_unflatten(list(values), shape)
        return func(*given, **named)

    return make_fx(of_leaves, **options)(*leaves)
