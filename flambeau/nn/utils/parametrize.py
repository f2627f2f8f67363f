"""Parameters computed from other parameters: a module computes the weight that a layer uses from the trained one.

>>> class Symmetric(nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).transpose(-1, -2)
>>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...autograd import no_grad
from ...core.graph import unusual
from ...core.tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip


class _Cache:
    """Values of parametrized tensors, kept while at least one `cached()` block is open."""

    depth = 0
    values: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Context manager: compute every parametrized tensor only once inside."""
    _Cache.depth += 1
    unusual[:0] = (None,)  # compiled functions inside run eagerly: what is in the cache was computed outside
    try:
        yield
    finally:
        del unusual[-1]
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values = {}


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _require_same(rule: str, name: str, old: Tensor, returned: str, new: Tensor) -> None:
    """Raise if dtype or shape differ; `rule` is a message with a placeholder for the attribute."""
    for attribute in ("dtype", "shape"):
        expected, got = getattr(old, attribute), getattr(new, attribute)
        if got != expected:
            raise ValueError(
                f"{rule.format(attribute)}, unless the `unsafe` flag is enabled.\n"
                f"{name}.{attribute}: {expected}\n{returned}{attribute}: {got}"
            )


def _require_tensor(what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(value).__name__}.")


class ParametrizationList(ModuleList):
    """The chain of parametrizations of one tensor, and the trained tensors at its start (`original`)."""

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        start = self._start_values(original)
        self.is_tensor = isinstance(start, Tensor)
        if self.is_tensor:
            for attribute in ("dtype", "device"):
                before, after = getattr(original, attribute), getattr(start, attribute)
                if before != after:
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {attribute}.\n"
                        f"original.{attribute}: {before}\nright_inverse(original).{attribute}: {after}"
                    )
            if start is not original:
                original.data = start.detach()  # the same Parameter object: optimizers hold it
            _register(self, "original", original)
        else:
            self._register_sequence(start, original)
        if not unsafe:
            self._check(shape, dtype)

    def _start_values(self, original: Tensor) -> Any:
        """Return the tensors to train so that the chain yields `original`; without a right inverse, `original` itself."""
        value: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    continue
                try:
                    value = module.right_inverse(value)
                except NotImplementedError:  # how a base class says that there is none
                    continue
        if not isinstance(value, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got"
                f" {type(value).__name__}"
            )
        return value

    def _register_sequence(self, values: Sequence[Tensor], original: Tensor) -> None:
        self.ntensors = len(values)
        for i, value in enumerate(values):
            if not isinstance(value, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element"
                    f" {i} of the sequence with type {type(value).__name__}."
                )
            if isinstance(original, Parameter):
                value = Parameter(value, original.requires_grad)
            value.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", value)

    def _check(self, shape: Any, dtype: Any) -> None:
        result = self()
        _require_tensor("A parametrization", result)
        for attribute, expected in (("dtype", dtype), ("shape", shape)):
            if getattr(result, attribute) != expected:
                raise ValueError(
                    f"Registering a parametrization may not change the {attribute} of the tensor, unless"
                    f" `unsafe` flag is enabled.\nunparametrized {attribute}: {expected}\nparametrized"
                    f" {attribute}: {getattr(result, attribute)}"
                )

    def originals(self) -> list[Tensor]:
        """Return the trained tensors."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Set the trained tensors so that the parametrized tensor becomes `value`."""
        start: Any = value
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
            start = module.right_inverse(start)
        if self.is_tensor:
            _require_tensor("`right_inverse`", start)
            if start.dtype != self.original.dtype:
                raise ValueError(
                    f"The tensor `value` has dtype {start.dtype} while `original` has dtype {self.original.dtype}"
                )
            self.original.data = start.detach()
            return
        if not isinstance(start, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(start).__name__}.")
        if len(start) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length"
                f" {self.ntensors}. Got a sequence of length {len(start)}."
            )
        for i, (piece, original) in enumerate(zip(start, self.originals())):
            _require_tensor(f"`right_inverse` element {i}", piece)
            if original.dtype != piece.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {piece.dtype} while `original{i}` has dtype {original.dtype}"
                )
            original.data = piece.detach()

    def forward(self) -> Tensor:
        first, *rest = self
        value = first(*self.originals())
        for module in rest:
            value = module(value)
        return value


def _deepcopy(self: Any, memo: dict) -> Any:
    """Copy a parametrized module without pickling, which it refuses and deepcopy would use otherwise."""
    if id(self) in memo:
        return memo[id(self)]
    replica = self.__new__(type(self))
    memo[id(self)] = replica
    replica.__dict__ = copy.deepcopy(self.__dict__, memo)
    return replica


def _refuse_pickle(self: Any) -> Any:
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")


def _give_own_class(module: Module) -> None:
    """Make a class for this module alone, because properties are attributes of classes."""
    cls = type(module)
    members: dict[str, Any] = {"__getstate__": _refuse_pickle}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _add_property(module: Module, tensor_name: str) -> None:
    def get(self: Any) -> Any:
        if not _Cache.depth:
            return self.parametrizations[tensor_name]()
        key = (id(self), tensor_name)
        if key not in _Cache.values:
            _Cache.values[key] = self.parametrizations[tensor_name]()
        return _Cache.values[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, put))


def _check_next(module: Module, tensor_name: str, parametrization: Module) -> None:
    """Raise unless a further parametrization keeps dtype and shape, forwards and by its right inverse."""
    before = getattr(module, tensor_name)
    after = parametrization(before)
    _require_tensor("A parametrization", after)
    name = f"module.{tensor_name}"
    rule = "Registering a parametrization may not change the {} of the tensor"
    _require_same(rule, name, before, f"parametrization({name}).", after)
    if hasattr(parametrization, "right_inverse"):
        back = parametrization.right_inverse(after)
        _require_tensor("parametrization.right_inverse", back)
        rule = f"The tensor returned by parametrization.right_inverse must have the same {{}} as {name}"
        _require_same(rule, name, before, "returned ", back)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a parameter or buffer of `module` with `parametrization` from now on."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_next(module, tensor_name, parametrization)
        chain = module.parametrizations[tensor_name]
        chain.append(parametrization)
        chain.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        chain = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_own_class(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = chain
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name"
            f" '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether the module has parametrizations (of this tensor)."""
    chains = getattr(module, "parametrizations", None)
    if not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor an ordinary one again: with its computed value, or with the value trained underneath."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    chain = module.parametrizations[tensor_name]
    if not chain.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a"
            " sequence of tensors."
        )
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            with no_grad():
                original.data = getattr(module, tensor_name).detach()
    else:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class of the module before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Copy the parametrizations of one module, with their tensors, to another."""
    if not is_parametrized(from_module):
        return to_module
    names = from_module.parametrizations if tensor_name is None else [tensor_name]
    for name in list(names):
        if name not in from_module.parametrizations:
            continue
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(source.originals()[0]))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization, unsafe=source.unsafe)
        target = to_module.parametrizations[name]
        names_of_tensors = ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]
        for each in names_of_tensors:
            setattr(target, each, getattr(source, each))
    return to_module


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("_cache", "_cache_enabled"):  # what PyTorch keeps in the module itself
            return _Cache.values if name == "_cache" else _Cache.depth
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
