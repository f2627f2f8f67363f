"""Functions that the C++ headers (`include/flambeau/*.h`) call in Python: operators by name, dtypes by number, and small helpers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import (  # noqa: F401  C++ asks for these by name
    Generator,
    dtype,
    get_num_threads,
    is_grad_enabled,
    manual_seed,
    promote_types,
    set_grad_enabled,
    set_num_threads,
)

from ..autograd.function import Function, FunctionNode
from ..core import layout as layouts
from ..core import watching
from ..core.device import cpu, device
from ..core.dtype import ALL_DTYPES
from ..core.layout import strided
from ..core.size import make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, is_contiguous_layout, new_tensor
from ..library.aten.resolver import function_of
from ..library.native import add_class
from ..library.registration import Library, fallthrough_kernel

DTYPES = {d.number: d for d in ALL_DTYPES}  # those that tensors of C++ programs may have
LAYOUTS = {kind.name: kind for kind in layouts.LAYOUTS[:3]}
FORMATS = {kind.name: kind for kind in layouts.MEMORY_FORMATS}

watchers = watching.active  # C++ asks whether there are any


def operator(name: str, overload: str) -> Callable:
    """Return the function that runs for an overload of one of PyTorch's operators."""
    return function_of(name, overload)


def address(t: Tensor) -> int:
    """Return the address of a tensor's first element. Notifies recordings that the memory is read from outside."""
    if t.layout is not strided or t.is_nested:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    if watching.active:
        watching.tell_looked()
    return t.data_ptr()


def from_blob(
    start: int, size: Sequence[int], strides: Sequence[int] | None, kind: Any, where: Any, owner: Any
) -> Tensor:
    """Return a tensor over memory that belongs to C++; `owner` is released when the tensor is no longer used."""
    shape = make_size(tuple(size))
    steps = contiguous_strides(shape) if strides is None else tuple(strides)
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, steps)) if 0 not in shape else 0
    found = cpu if where is None else device(where)
    storage = UntypedStorage.borrow(start, extent * kind.itemsize, owner, found)
    return new_tensor(storage, shape, steps, 0, kind, found, is_contiguous_layout(shape, steps))


def to(t: Tensor, kind: Any, where: Any, non_blocking: bool, copy: bool, memory_format: Any) -> Tensor:
    options = {} if memory_format is None else {"memory_format": memory_format}
    return t.to(where or t.device, kind or t.dtype, non_blocking, copy, **options)


def backward(t: Tensor, gradient: Any, retain_graph: Any, create_graph: bool, inputs: Any) -> None:
    t.backward(gradient, retain_graph, create_graph, inputs)


class CppFunction(Function):
    """A torch::autograd::Function: forward and backward are C++ functions that get the context and the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Callable, back: Callable, *tensors: Any) -> Any:
        ctx.back = back
        found = run(ctx, *tensors)
        return found if isinstance(found, Tensor) else tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return (None, None, *ctx.back(ctx, *grads))


@functools.cache
def _named_function(name: str) -> type[CppFunction]:
    """Return a subclass of CppFunction whose graph nodes have PyTorch's name for them, `CppNode<name>`."""
    made: Any = type(f"CppNode<{name}>", (CppFunction,), {})
    made._backward_cls = type(made.__name__, (FunctionNode,), {"label": made.__name__})
    return made


def apply(name: str, run: Callable, back: Callable, tensors: list) -> Any:
    """Run a C++ autograd function."""
    return _named_function(name).apply(run, back, *tensors)


_libraries: list[Library] = []  # what C++ libraries have registered stays


def library(namespace: str, kind: str, key: str) -> Library:
    found = Library(namespace, kind, key)
    _libraries.append(found)
    return found


def new_class(namespace: str, name: str) -> type:
    return add_class(namespace, name)


def add_method(cls: Any, name: str, function: Callable, schema: str, result: Any) -> None:
    """Add a method of a C++ class; `result` is the C++ class of the object that it returns, if any."""
    setattr(cls, name, lambda self, *args: function(self, *args))
    cls.schemas[name] = (schema, result)


def bare(cls: Any) -> Any:
    """Return a new object whose fields C++ fills in."""
    return cls.__new__(cls)


def define(lib: Library, schema: str) -> None:
    lib.define(schema)


def implement(lib: Library, name: str, function: Callable, key: str) -> None:
    lib.impl(name, function, key)


def fallthrough() -> Callable:
    return fallthrough_kernel


def is_contiguous(t: Tensor, memory_format: Any) -> bool:
    return t.is_contiguous(memory_format=memory_format)


def einsum(equation: str, operands: list[Tensor]) -> Tensor:
    return flambeau.einsum(equation, *operands)


def enter_inference(enabled: bool) -> Any:
    mode = flambeau.inference_mode(enabled)
    mode.__enter__()
    return mode


def leave_inference(mode: Any) -> None:
    mode.__exit__(None, None, None)


def backward_all(tensors: list, gradients: list, retain_graph: Any, create_graph: bool, inputs: list) -> None:
    flambeau.autograd.backward(tensors, gradients or None, retain_graph, create_graph, inputs=inputs or None)


def grad(outputs: list, inputs: list, gradients: list, retain_graph: Any, create_graph: bool, unused: bool) -> tuple:
    return flambeau.autograd.grad(outputs, inputs, gradients or None, retain_graph, create_graph, allow_unused=unused)


def save_for_backward(ctx: Any, tensors: list) -> None:
    ctx.save_for_backward(*tensors)


def mark(ctx: Any, how: str, tensors: list) -> None:
    getattr(ctx, f"mark_{how}")(*tensors)


def set_materialize_grads(ctx: Any, value: bool) -> None:
    ctx.set_materialize_grads(value)


def call(path: str, *args: Any) -> Any:
    """Call a function of this library by its full name: "cuda.is_available"."""
    found: Any = flambeau
    for part in path.split("."):
        found = getattr(found, part)
    return found(*args)


def cuda_stream(index: int) -> int:
    """Return the address of the stream that Flambeau currently launches on."""
    return flambeau.cuda.current_stream(index).cuda_stream


def invoke(function: Callable, args: list, kwargs: dict) -> Any:
    return function(*args, **kwargs)


def listed(values: Any) -> list:
    return list(values)


def load(path: str, where: Any) -> Any:
    """Load a TorchScript module from its file; `where` is the device that C++ asks for."""
    return flambeau.jit.load(path, map_location=where)


def freeze(module: Any) -> Any:
    return flambeau.jit.freeze(module.eval())


def compile_source(source: str) -> Any:
    return flambeau.jit.CompilationUnit(source)


# -- modules and optimizers of C++ (torch/nn.h) -----------------------------------------------------------------------------


def layer(name: str, args: tuple) -> Any:
    return getattr(flambeau.nn, name)(*args)


def named_tensors(module: Any, which: str) -> list[tuple[str, Tensor]]:
    return list(getattr(module, f"named_{which}")())


def forget_grad(t: Tensor) -> None:
    t.grad = None


def move_data(t: Tensor, where: Any, kind: Any) -> None:
    """Move a parameter to another device or dtype; it stays the same object."""
    t.data = t.data.to(where or t.device, kind or t.dtype)


def optimizer(name: str, parameters: list[Tensor], options: dict[str, float]) -> Any:
    return getattr(flambeau.optim, name)(parameters, **options)


def attribute(owner: Any, name: str) -> Any:
    return getattr(owner, name)
