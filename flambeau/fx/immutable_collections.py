"""Immutable lists and dicts for arguments of nodes: those are changed by assigning new ones, so that users are kept up to date.

>>> immutable_list([1, 2])[0]
1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]

_ADVICE = """\
If you are attempting to modify the kwargs or args of a torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:
    new_args = ...  # copy and mutate args
    node.args = new_args
"""


def _refuse_change(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_ADVICE}")


def _make_immutable(base: type, methods: str) -> Callable[[type], type]:
    def change(cls: type) -> type:
        for name in methods.split():
            if hasattr(base, name):
                setattr(cls, name, _refuse_change)
        return cls

    return change


@_make_immutable(list, "__delitem__ __iadd__ __imul__ __setitem__ append clear extend insert pop remove reverse sort")
class immutable_list(list):  # noqa: N801
    """A list that raises on changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple:
        return type(self), (tuple(self),)


@_make_immutable(dict, "__delitem__ __ior__ __setitem__ clear pop popitem setdefault update")
class immutable_dict(dict):  # noqa: N801
    """A dict that raises on changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple:
        return type(self), (list(self.items()),)


def _list_of(values: Iterable, context: Any) -> immutable_list:
    return immutable_list(values)


def _dict_of(values: Iterable, context: Any) -> immutable_dict:
    return immutable_dict(zip(context, values))


_pytree.register_pytree_node(
    immutable_list,
    lambda values: (list(values), None),
    _list_of,
    serialized_type_name="torch.fx.immutable_collections.immutable_list",
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda values: (list(values.values()), list(values)),
    _dict_of,
    serialized_type_name="torch.fx.immutable_collections.immutable_dict",
)
