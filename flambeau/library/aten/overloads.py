"""`torch.ops.aten`: operators under their names and overloads in PyTorch's graphs.

>>> flambeau.ops.aten.add.Tensor(flambeau.ones(2), 1)
tensor([2., 2.])
"""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any

from ...core import naming, overrides
from ...ops.machinery.matching import bound, shortened
from ...ops.machinery.schema import Schema
from ...ops.machinery.schema_table import aten_names, is_composite, overloads_of, schema_of
from .choice import choose, refused


class _Recording(threading.local):
    recorder: Any = None  # told of every call, instead of it being made


recording = _Recording()


def resolver_module() -> Any:
    """Import the module `resolver`, which finds the function for each overload and needs all operators: at the first call."""
    return naming.above("library.aten.resolver")


class OpOverload:
    """Overload of an operator, such as `torch.ops.aten.add.Tensor`."""

    def __init__(self, packet: OpOverloadPacket, schema: Schema) -> None:
        self._overloadpacket, self._schema = packet, schema
        self._overloadname = schema.overload_name or "default"
        self._name = schema.key
        self.__name__ = f"{packet.__name__}.{self._overloadname}"
        self.__qualname__ = schema.name
        self.__module__ = packet.__module__
        self.tags: list[Any] = []

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        return self._overloadpacket

    @property
    def namespace(self) -> str:
        return self._schema.name.split("::")[0]

    @property
    def is_view(self) -> bool:
        first = self._schema.arguments[0].alias_info if self._schema.arguments else None
        returned = self._schema.returns[0].alias_info if self._schema.returns else None
        return first is not None and returned is not None and not first.is_write

    @functools.cached_property
    def derivative(self) -> Any:
        """Return the derivative as calls of PyTorch's operators, or None if it is not declared."""
        return resolver_module().derivative_of(self)

    @functools.cached_property
    def is_composite(self) -> bool:
        """Return whether PyTorch decomposes the operator into others before it differentiates."""
        return is_composite(self._overloadpacket.__name__, self._schema.overload_name)

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """Make the calls of the operator's decomposition: the declared ones, or those of the operator's own body; NotImplemented if it has
        none."""
        found = resolver_module().body_of(self._overloadpacket.__name__, self._overloadname)
        return NotImplemented if found is None else found(*args, **kwargs)

    def name(self) -> str:
        return self._name

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._overloadpacket.__name__}.{self._overloadname}"

    def __hash__(self) -> int:
        return hash(self._name)

    def __deepcopy__(self, memo: Any = None) -> OpOverload:
        return self

    def __reduce__(self) -> tuple:
        return _find_overload, (self._overloadpacket.__name__, self._schema.overload_name)

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """Return the value of every argument of a call."""
        return bound(self._schema, args, kwargs, numbers=True)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        overriding = overrides.overriding_arguments(args, kwargs)
        if any(type(x).__torch_function__ is not overrides.disabled_torch_function for x in overriding):
            return overrides.call_override(self, args, kwargs, overriding)
        if recording.recorder is not None:
            return recording.recorder.record(self, *shortened(self._schema, self.bind(args, kwargs)))
        return overrides.below(self, args, kwargs, self.run)

    def run(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Make the call."""
        return resolver_module().run(self, *shortened(self._schema, self.bind(args, kwargs)))


class OpOverloadPacket:
    """An operator with all its overloads: `torch.ops.aten.add`."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self._qualified_op_name = f"aten::{name}"
        self.__module__ = "torch._ops.aten"
        self._overload_names = overloads_of(name)

    onnx: Any = None  # the ONNX form of what has no record (`_softmax`); operators that have one keep it there

    @functools.cached_property
    def op(self) -> Any:
        """Return the record of the operator; None for names of PyTorch that are no operator here."""
        return resolver_module().record_of(self.__name__)

    @property
    def is_view(self) -> bool:
        """Return whether the result shares the memory of the first argument."""
        return any(getattr(self, overload).is_view for overload in self.overloads())

    def overloads(self) -> list[str]:
        return [name or "default" for name in self._overload_names]

    def __iter__(self) -> Any:
        return iter(self.overloads())

    def __getattr__(self, key: str) -> OpOverload:
        wanted = "" if key == "default" else key
        if key.startswith("__") or wanted not in self.__dict__.get("_overload_names", ()):
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{key}'")
        found = OpOverload(self, schema_of(self.__name__, wanted))
        setattr(self, key, found)
        return found

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __deepcopy__(self, memo: Any = None) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> tuple:
        return _find_overload, (self.__name__, None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        overriding = overrides.overriding_arguments(args, kwargs)
        if overriding:
            return overrides.call_override(self, args, kwargs, overriding)
        found = choose(self.__name__, args, kwargs)
        if found is None:
            raise RuntimeError(refused(self.__name__, args, kwargs))
        schema, values = found
        positional, named = schema.as_call(values)
        return getattr(self, schema.overload_name or "default")(*positional, **named)


class _Namespace(ModuleType):
    """The namespace `torch.ops.aten`."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if not overloads_of(name):
            raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}'")
        packet = OpOverloadPacket(name)
        setattr(self, name, packet)
        return packet

    def __dir__(self) -> list[str]:
        return aten_names()


aten: Any = _Namespace("torch.ops.aten")


def _find_overload(name: str, overload: str | None) -> Any:
    packet = getattr(aten, name)
    return packet if overload is None else getattr(packet, overload or "default")
