"""First-class dimensions (`functorch.dim`): objects for dimensions of tensors, by which these are indexed, aligned and reduced.

>>> i, j, k = dims(3)
>>> a, b = flambeau.ones(2, 3), flambeau.ones(3, 4)
>>> (a[i, k] * b[k, j]).sum(k).order(i, j).shape
torch.Size([2, 4])

An operator on such tensors is mapped (`vmap`) over their common dimensions. `dims(n)` takes the number of dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ..core import overrides
from ..core.pytree import tree_flatten, tree_map, tree_unflatten
from ..core.tensor import Tensor as PlainTensor
from ..ops.creation.ranges import arange
from ..ops.shape.joining import stack as plain_stack
from .mapping import vmap


class DimensionBindError(Exception):
    """Raised if a dimension has another size than the one it is bound to, or does not belong to a tensor."""


class _FirstClassBase:
    """Base of dimensions and of tensors with them: operators, methods of tensors, and `order`."""

    # `_value` is the memory, whose leading dimensions are `_dims`.

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return _call_operator(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(PlainTensor, name)
        if callable(method):
            return functools.partial(_call_operator, method, (self,))
        return getattr(self._value, name)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Return the first-class dimensions."""
        return self._dims

    @property
    def shape(self) -> Any:
        """Return the sizes of the positional dimensions."""
        return self._value.shape[len(self._dims) :]

    @property
    def ndim(self) -> int:
        """Return the number of positional dimensions."""
        return len(self.shape)

    def order(self, *wanted: Any) -> Any:
        """Make dimensions positional, in this order and before the other positional ones; a tuple of them becomes one dimension."""
        flat = [d for w in wanted for d in (w if isinstance(w, tuple) else (w,))]
        for d in flat:
            if d not in self._dims or flat.count(d) > 1:
                raise DimensionBindError(
                    f"order: {d} is not a dimension of this tensor, or is named twice: it has {self._dims}"
                )
        left = tuple(d for d in self._dims if d not in flat)
        value = _arrange(self, (*left, *flat))
        size = dict(zip(self._dims, self._value.shape))
        sizes = [math.prod(size[d] for d in w) if isinstance(w, tuple) else size[w] for w in wanted]
        value = value.reshape([size[d] for d in left] + sizes + list(self.shape))
        return Tensor(value, left) if left else value

    def __getitem__(self, index: Any) -> Any:
        return _index_tensor(self, index)

    def __repr__(self) -> str:
        return f"{self._value!r}\nwith dims={self._dims} sizes={tuple(self.shape)}"


class Tensor(_FirstClassBase):
    """A tensor whose first dimensions are first-class ones."""

    def __init__(self, value: PlainTensor, dims: tuple[Dim, ...]) -> None:
        self._value, self._dims = value, dims


class Dim(_FirstClassBase):
    """A dimension; its size is that of the first tensor it indexes. As a tensor it is the range of its indices."""

    def __init__(self, name: str, size: int | None = None) -> None:
        self._name, self._size = name, size
        overrides.register(Dim)  # operators ask for these from the first dimension on
        overrides.register(Tensor)

    @property
    def is_bound(self) -> bool:
        """Return whether the dimension's size is known."""
        return self._size is not None

    @property
    def size(self) -> int:
        """Return the size of the dimension."""
        if self._size is None:
            raise ValueError(f"dimension {self._name} is unbound")
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        if self._size not in (None, value):
            raise DimensionBindError(f"Dim '{self._name}' previously bound to a dimension of size {self._size} cannot bind to a dimension of size {value}")  # fmt: skip
        self._size = value

    @property
    def _dims(self) -> tuple[Dim, ...]:
        return (self,)

    @property
    def _value(self) -> PlainTensor:
        return arange(self.size)

    def __repr__(self) -> str:
        return self._name


def dims(n: int = 1, lists: int = 0) -> Any:
    """Return new dimensions: a tuple of `n`, or a single one."""
    if lists:
        raise NotImplementedError("dims(lists=...): lists of dimensions are not in Flambeau")
    made = tuple(Dim(f"d{i}") for i in range(n))
    return made if n != 1 else made[0]


def stack(tensors: Any, new_dim: Dim, dim: int = 0) -> Tensor:
    """Join tensors along a new first-class dimension."""
    new_dim.size = len(tensors)
    return _index_tensor(plain_stack(list(tensors), 0), new_dim)


# -- calls ------------------------------------------------------------------------------------------------------------------


def _arrange(t: Any, wanted: tuple[Dim, ...]) -> PlainTensor:
    """Return the memory of a tensor with its first-class dimensions in another order."""
    count = len(t._dims)
    return t._value.permute(*(t._dims.index(d) for d in wanted), *range(count, t._value.dim()))


def _map_over(function: Callable[..., Any], operands: list[Any]) -> Any:
    """Call a function of the positional dimensions of operands for every index of the first-class ones."""
    every = tuple(dict.fromkeys(d for t in operands for d in t._dims))
    owned = [tuple(d for d in every if d in t._dims) for t in operands]
    for d in reversed(every):
        function = vmap(function, tuple(0 if d in own else None for own in owned), randomness="different")
    result = function(*(_arrange(t, own) for t, own in zip(operands, owned)))
    return tree_map(lambda value: Tensor(value, every) if every else value, result)


def _is_operand(value: Any) -> bool:
    return isinstance(value, _FirstClassBase)


def _call_operator(func: Any, args: tuple = (), *more: Any, **kwargs: Any) -> Any:
    """Call an operator: `dim` may be a first-class dimension; operands are aligned by the dimensions that they share."""
    args, kwargs = ((*args, *more), kwargs) if not (len(more) == 1 and isinstance(more[0], dict)) else (args, more[0])
    if func is PlainTensor.__getitem__:
        return _index_tensor(*args)
    over = _dim_argument(func, args, kwargs)
    if over is not None:
        return _call_along(func, args, kwargs, over)
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if _is_operand(leaf)]

    def call(*values: Any) -> Any:
        given, named = tree_unflatten(
            [values[places.index(i)] if i in places else leaf for i, leaf in enumerate(leaves)], spec
        )
        return func(*given, **named)

    return _map_over(call, [leaves[i] for i in places])


def _dim_argument(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Return the first-class dimensions along which an operator is asked to work, as they were given; None without such an argument."""
    names = list(getattr(getattr(func, "op", None), "arguments", ()))
    name = "dim" if "dim" in names else "args"  # `max(dim)`, `max(other)`: one argument with several meanings
    place = names.index(name) if name in names else len(args)
    given = kwargs.get("dim", args[place] if place < len(args) else None)
    group = given if isinstance(given, tuple) else (given,)
    return given if group and all(isinstance(d, Dim) for d in group) else None


def _call_along(func: Any, args: tuple, kwargs: dict[str, Any], given: Any) -> Any:
    """Call an operator along dimensions: they are positional for it, and first-class again in results that still have them."""
    over = given if isinstance(given, tuple) else (given,)
    inside = args[0].order(*over)
    there = tuple(range(len(over))) if isinstance(given, tuple) else 0
    args = (inside, *(there if a is given else a for a in args[1:]))
    kwargs = {name: there if value is given else value for name, value in kwargs.items()}
    result = _call_operator(func, args, kwargs) if _is_operand(inside) else func(*args, **kwargs)
    return tree_map(lambda t: _index_tensor(t, over) if len(t.shape) == len(inside.shape) else t, result)


def _index_tensor(source: Any, index: Any) -> Any:
    """Index a tensor: a dimension is bound to the positional one in its place, a tuple of them splits it, tensors with dimensions select
    elements."""
    source = source if _is_operand(source) else Tensor(source, ())
    index = index if isinstance(index, tuple) else (index,)
    missing = len(source.shape) - sum(i is not None and i is not Ellipsis for i in index)
    at = index.index(Ellipsis) if any(i is Ellipsis for i in index) else len(index)
    index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    taken, plain, place = list(source._dims), [], len(source._dims)
    value, bound = source._value, []
    for entry in index:
        group = entry if isinstance(entry, tuple) else (entry,)
        if all(isinstance(d, Dim) for d in group) and not any(d in taken for d in group):
            value = value.reshape(*value.shape[:place], *_split(value.shape[place], group), *value.shape[place + 1 :])
            bound += list(range(place, place + len(group)))
            taken += group
            place += len(group)
        else:
            plain.append(entry)
            place += entry is not None
    rest = [d for d in range(len(source._dims), value.dim()) if d not in bound]
    found = Tensor(value.permute(*range(len(source._dims)), *bound, *rest), tuple(taken))
    choosing = [i for i in plain if _is_operand(i)]
    if any(not (isinstance(i, slice) and i == slice(None)) for i in plain):
        chosen = iter(range(len(choosing)))
        numbers = [next(chosen) if _is_operand(i) else None for i in plain]
        return _map_over(
            lambda t, *by: t[tuple(i if n is None else by[n] for i, n in zip(plain, numbers))], [found, *choosing]
        )
    return found if taken else found._value


def _split(size: int, group: tuple[Dim, ...]) -> list[int]:
    """Return the sizes of the dimensions that one is split into; one of them may be unbound yet. A single one that is bound may have another
    size, as in PyTorch: the error is raised where two tensors are combined."""
    if len(group) == 1 and group[0].is_bound:
        return [size]
    known = math.prod(d.size for d in group if d.is_bound)
    for d in group:
        if not d.is_bound:
            d.size = size // known
            known *= d.size
    if math.prod(d.size for d in group) != size:
        raise DimensionBindError(
            f"a dimension of size {size} cannot be bound to {group} of sizes {tuple(d.size for d in group)}"
        )
    return [d.size for d in group]


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *others: _call_operator(getattr(PlainTensor, name), (self, *others))


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv pow rpow mod matmul rmatmul and or xor neg pos abs invert lt le gt ge".split():  # noqa: SIM905
    setattr(_FirstClassBase, f"__{_name}__", _operator(f"__{_name}__"))
