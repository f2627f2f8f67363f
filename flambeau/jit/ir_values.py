"""Values of a graph: their names, types and uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .types import NONE, Type

if TYPE_CHECKING:
    from .ir import Node


class Value:
    """A value that one node produces and others read."""

    __slots__ = ("_name", "node", "number", "type", "uses")

    def __init__(self, node: Node, type: Type, number: int):
        self.node, self.type, self.number = node, type, number
        self.uses = _Uses()
        self._name = ""

    @property
    def name(self) -> str:
        return self._name or str(self.number)

    def debugName(self) -> str:  # noqa: N802  PyTorch's name
        return self.name

    def has_name(self) -> bool:
        return bool(self._name)

    def set_name(self, name: str) -> Value:
        """Set the name; a value that had it is renamed."""
        names = self.node.graph.names
        if self._name:
            names.pop(self._name, None)
            self._name = ""
        if not name:
            return self
        owner = names.get(name)
        if owner is not None:
            owner.set_name(self.node.graph.free_name(name))
        names[name] = self
        self._name = name
        return self

    setDebugName = set_name  # noqa: N815  PyTorch's name

    def set_type(self, type: Type) -> Value:
        self.type = type
        return self

    def setType(self, type: Type) -> Value:  # noqa: N802  PyTorch's name
        return self.set_type(type)

    def copy_meta(self, other: Value) -> Value:
        self.type = other.type
        if other._name:
            self.set_name(other._name)
        return self

    def replace_by(self, other: Value) -> None:
        for node, index in self.uses:
            node.inputs_[index] = other
            other.uses.append((node, index))
        self.uses = _Uses()

    replaceAllUsesWith = replace_by  # noqa: N815  PyTorch's name

    def isCompleteTensor(self) -> bool:  # noqa: N802  PyTorch's name
        return hasattr(self.type, "shape")

    def requires_grad(self) -> bool:
        return "requires_grad=1" in str(self.type)

    def unique(self) -> int:
        return self.number

    def toIValue(self) -> Any:  # noqa: N802  PyTorch's name
        """Return the Python value of a constant; None for other values."""
        return constant_of(self)[1]

    def offset(self) -> int:
        return self.node.outputs_.index(self)

    def __repr__(self) -> str:
        return f"{self.name} defined in ({self.node})"


class Use(NamedTuple):
    """A place where a value is read."""

    user: Node
    offset: int

    def isAfter(self, other: Use) -> bool:  # noqa: N802  PyTorch's name
        return self.user.isAfter(other.user) or (self.user is other.user and self.offset > other.offset)


class _Uses(dict[tuple["Node", int], None]):
    """The uses of a value, (node, index), in order. Callable, because `value.uses()` is a method in PyTorch."""

    __slots__ = ()

    def append(self, use: tuple[Node, int]) -> None:
        self[use] = None

    def remove(self, use: tuple[Node, int]) -> None:
        del self[use]

    def __call__(self) -> list[Use]:
        return [Use(node, index) for node, index in self]


def constant_of(value: Value) -> tuple[bool, Any]:
    """Return whether the value is a compile-time constant, and the constant."""
    if value.node.kind_ != "prim::Constant" or (value.type is not NONE and "value" not in value.node.attributes):
        return False, None
    return True, value.node.attributes.get("value")
