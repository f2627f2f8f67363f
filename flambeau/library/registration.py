"""Operators by name: `define` a schema, `impl` a kernel for it, `register_autograd` its derivative; `Library` groups a namespace."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..autograd.function import by_vmap_rule
from ..core.casts import DEFAULT_DTYPES
from ..core.device import device
from ..core.dtype import dtype, float64
from ..core.pytree import tree_map
from ..core.tensor import Tensor
from ..ops.machinery.schema import parse_schema
from .operator import ANY_DEVICE, define_operator, find_operator, forget_operator, kernels_of

Function = Callable[..., Any]
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "meta": "meta", "autograd": "autograd", "autogradcpu": "autograd"}
# PyTorch's other dispatch keys: a kernel for one of them is kept, and never chosen, because no tensor here has it.
_BACKENDS = ("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "Meta", "FPGA", "Vulkan", "Metal",
             "PrivateUse1", "PrivateUse2", "PrivateUse3", "MkldnnCPU", "Other", "Functionality", "NestedTensor")  # fmt: skip
_KINDS = ("", "Autograd", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "Autocast")
_UNAVAILABLE_KEYS = frozenset(f"{kind}{backend}".lower() for kind in _KINDS for backend in _BACKENDS) | {
    "backendselect", "python", "pythondispatcher", "functionalize", "named", "conjugate", "negative", "zerotensor", "adinplaceorview",
    "autocastcpu", "tracer", "batched", "functorchbatched", "compositeexplicitautogradnonfunctional", "compositeimplicitautogradnestedtensor",
}  # fmt: skip


def fallthrough_kernel() -> None:
    """Raise an error: a marker for "no kernel of its own" in `Library.impl`, which is never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """A namespace of operators: "DEF" makes a new one, "FRAGMENT" adds to one, "IMPL" adds kernels. Its registrations are removed when the
    object is freed: keep it."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._undo: list[Callable[[], Any]] = []  # what takes back each registration made through this object
        weakref.finalize(self, _undo_all, self._undo).atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Add an operator by its schema, such as `add_one(Tensor x) -> Tensor`; return its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        read = parse_schema(schema)
        name = f"{self.ns}::{read.name}"
        define_operator(read.renamed(name), own_gradient=False, tags=tags)
        self._undo.append(lambda: forget_operator(name))
        return read.name

    def impl(self, op_name: Any, fn: Function, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register a kernel of an operator of this namespace; the dispatch key names the device ("CPU", "Autograd", ...)."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise NotImplementedError(
                "kernels are not told dispatch keys, of which Flambeau has none: with_keyset=True"
            )
        op = f"{self.ns}::{op_name}" if isinstance(op_name, str) and "::" not in op_name else op_name
        key = _device_key(dispatch_key or self.dispatch_key or "CompositeImplicitAutograd")
        if fn is fallthrough_kernel:
            kernels_of(op).pop(key, None)
        else:
            _set_kernel(kernels_of(op), key, fn, self)

    def _destroy(self) -> None:
        """Remove the operators and kernels registered here."""
        _undo_all(self._undo)

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._destroy()


def _undo_all(registrations: list[Callable[[], Any]]) -> None:
    while registrations:
        registrations.pop()()


@contextmanager
def _scoped_library(ns: str, kind: str, dispatch_key: str = "") -> Iterator[Library]:
    """Context manager: a library whose operators and kernels are removed on exit."""
    with Library(ns, kind, dispatch_key) as made:
        yield made


def _set_kernel(kernels: dict[str, Function], key: str, function: Function, lib: Library | None) -> None:
    kernels[key] = function
    if lib is not None:
        lib._undo.append(lambda: kernels.pop(key, None))


def _device_key(key: str) -> str:
    lower = key.lower()
    if lower in ANY_DEVICE:
        return lower
    if lower not in _DEVICES and lower not in _UNAVAILABLE_KEYS:
        raise RuntimeError(
            f"could not parse dispatch key: {key}; expected a device ('cpu', 'cuda', 'meta') or a dispatch key"
        )
    return _DEVICES.get(lower, lower)


def _register_function(lib: Library, name: Any, function: Function, key: str) -> Function:
    lib.impl(name, function, key)
    return function


def define(qualname: Any, schema: str, *args: Any, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define an operator: `define("shop::twice", "(Tensor x) -> Tensor")`. The older form `define(library, schema)` is a decorator that
    makes the function the operator's kernel."""
    if isinstance(qualname, Library):
        name = qualname.define(schema, *args, tags=tags)
        return lambda function: _register_function(qualname, name, function, "")
    if qualname.count("::") != 1:
        raise ValueError(
            f"define(qualname, schema): expected qualname of the form '<namespace>::<name>', but got {qualname!r}"
        )
    read = parse_schema(schema)
    define_operator(read.renamed(qualname), own_gradient=False, tags=tags)
    if lib is not None:
        lib._undo.append(lambda: forget_operator(qualname))


def impl(qualname: Any, types: str | Sequence[str], func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a function as the kernel of an operator for these devices ("default" stands for all); also as a decorator. The older form
    `impl(library, name, dispatch_key)` is a decorator, too."""
    if isinstance(qualname, Library):
        return lambda function: _register_function(qualname, types, function, func or "")

    def register(function: Function) -> Function:
        for key in [types] if isinstance(types, str) else types:
            _set_kernel(kernels_of(qualname), _device_key(key), function, lib)
        return function

    if func is None:
        return register
    register(func)
    return None


def register_kernel(
    op: Any, device_types: str | Sequence[str] | None, func: Function | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register a kernel, as `impl` does, for an operator given as an object or by name; None stands for every device."""
    target = find_operator(op).schema.name
    register = impl(target, "default" if device_types is None else device_types, lib=lib)
    return register if func is None else register(func)


def register_fake(
    op: Any,
    func: Function | None = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = True,
) -> Any:
    """Register a function that returns an operator's result for tensors without values (device "meta"), replacing an earlier one."""

    def register(function: Function) -> Function:
        kernels = find_operator(op).kernels
        if "meta" in kernels and not allow_override:
            raise RuntimeError(f"register_fake(...): the operator {op} already has a fake impl registered")
        _set_kernel(kernels, "meta", function, lib)
        return function

    return register if func is None else register(func)


def register_autograd(
    op: Any, backward: Function, /, *, setup_context: Function | None = None, lib: Library | None = None
) -> None:
    """Register an operator's derivative: `setup_context(ctx, inputs, output)` saves what `backward(ctx, *grads)` reads."""
    target = find_operator(op)
    if target.schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {op} with schema {target.schema}. Please create"
            " a functional operator and register an autograd formula for that."
        )
    _set_rules(op, lib, backward=backward, setup_context=setup_context)


def register_vmap(op: Any, func: Function | None = None, /, *, lib: Library | None = None) -> Any:
    """Register an operator's batching rule: `func(info, in_dims, *args)` gets values with another dimension, at `in_dims` (None for an
    argument without), and returns the result and the position of its batch dimension. Also as a decorator."""

    def register(function: Function) -> Function:
        _set_field(
            op, lib, "batching", lambda level, face, *args, **kwargs: by_vmap_rule(function, level, args, kwargs)
        )
        return function

    return register if func is None else register(func)


def register_autocast(op: Any, device_type: str, cast_inputs: dtype, /, *, lib: Library | None = None) -> None:
    """Register that an operator computes in `cast_inputs` under autocast on this type of device."""
    if device(device_type).type not in DEFAULT_DTYPES:
        raise ValueError(f"Device type '{device_type}' does not support autocast.")

    def policy(run: Function, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[str, Function]:
        return "", lambda *args, **kwargs: run(
            *tree_map(cast, list(args)), **{name: tree_map(cast, value) for name, value in kwargs.items()}
        )

    def cast(value: Any) -> Any:
        floats = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not float64
        return value.to(cast_inputs) if floats and value.device.type == device_type else value

    _set_field(op, lib, "autocast_cuda" if device_type == "cuda" else "autocast", policy)


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Function | None = None, /, *, lib: Library | None = None
) -> Any:
    """Register an operator's rule under a mode (or for a class of tensors) with `__torch_dispatch__`,
    called in its place as `func(mode, operator, types, args, kwargs)`. Also as a decorator."""

    def register(function: Function) -> Function:
        rules = find_operator(op).impl.dispatch
        if torch_dispatch_class in rules:
            raise RuntimeError(f"{torch_dispatch_class} already has a `__torch_dispatch__` rule for {op}")
        rules[torch_dispatch_class] = function
        if lib is not None:
            lib._undo.append(lambda: rules.pop(torch_dispatch_class, None))
        return function

    return register if func is None else register(func)


def _set_field(op: Any, lib: Library | None, name: str, rule: Function) -> None:
    target = find_operator(op)
    before = getattr(target, name)
    setattr(target, name, rule)
    if lib is not None:
        lib._undo.append(lambda: setattr(target, name, before))


def _set_rules(op: Any, lib: Library | None, **rules: Any) -> None:
    target = find_operator(op).impl
    vars(target).update(rules)
    if lib is not None:
        lib._undo.append(lambda: vars(target).update(dict.fromkeys(rules)))
