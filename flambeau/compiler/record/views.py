"""Views of memory that existed before a recorded call: a replay makes them again by the operators that made them, from the arguments
it gets. So they alias the argument, share its version counter and have the history that an eager call gives them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.grad_mode import set_grad_enabled
from ...core.graph import grad_mode
from ...core.tensor import Tensor
from .operator_call import parts_of


class ViewCall:
    """A call that makes views of one tensor. `of` is the id of a tensor that existed before, or (another such call, index of its result)."""

    def __init__(self, of: Any, function: Callable, settings: tuple, keywords: dict[str, Any]):
        self.of, self.function, self.settings, self.keywords = of, function, settings, keywords
        self.records = grad_mode.enabled
        self.takers = 0  # how often a replay asks for one of the results
        self.base: Callable[[Any, Any], Any] | None = None  # the tensor that it makes views of, in a replay
        # The replay's storages, the results, and how many of them are still to be taken.
        self._made: tuple[Any, list[Any], int] = (None, [], 0)

    @property
    def root(self) -> int:
        return self.of if type(self.of) is int else self.of[0].root

    def resolve(self, tensor_of: Callable[[int], Callable[[Any, Any], Any]]) -> None:
        """Count one more use of the call's results; `tensor_of` maps the id of a tensor that existed before to the function that finds it."""
        self.takers += 1
        if self.base is not None:
            return
        if type(self.of) is int:
            self.base = tensor_of(self.of)
            return
        call, index = self.of
        call.resolve(tensor_of)
        self.base = lambda arguments, made: call.take(index, arguments, made)

    def take(self, index: int, arguments: Any, made: list[Any]) -> Any:
        """Return one of the results in the replay that has these arguments and storages."""
        replay, results, left = self._made
        if replay is not made or not left:
            assert self.base is not None
            with set_grad_enabled(self.records):
                result = self.function(self.base(arguments, made), *self.settings, **self.keywords)
            results, left = parts_of(result), self.takers
        self._made = (made, results, left - 1) if left > 1 else (None, [], 0)
        return results[index]


class Views:
    """Calls, noted while a function is recorded, that made views of tensors which existed before."""

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        # Tensors that existed before, by id, with their versions then. None is kept alive.
        self.roots = {id(t): (weakref.ref(t), t._storage.version) for t in tensors}
        self._known: dict[int, tuple[weakref.ref, ViewCall, int, tuple]] = {}

    def note(self, function: Callable, args: tuple, keywords: dict[str, Any], result: Any) -> None:
        """Note a call if its results share memory with its first argument, which is known, and no other argument is a tensor. Calls made
        inside another one are noted before it, so that the outer call counts."""
        t = args[0] if args else None
        if not isinstance(t, Tensor):
            return
        of = id(t) if id(t) in self.roots else self._place(t)
        if of is None or any(isinstance(p, Tensor) for p in parts_of([args[1:], *keywords.values()])):
            return
        call = ViewCall(of, function, args[1:], keywords)
        for i, v in enumerate(parts_of(result)):
            if isinstance(v, Tensor) and v is not t and v._storage is t._storage:
                self._known[id(v)] = weakref.ref(v), call, i, _geometry(v)

    def forget(self) -> None:
        """Drop all weak references: a tensor that has some cannot be swapped for another."""
        self.roots.clear()
        self._known.clear()

    def _place(self, t: Tensor) -> tuple[ViewCall, int] | None:
        """Return the call that made a tensor and which of its results it is, if the tensor is still laid out as it was then."""
        known = self._known.get(id(t))
        return known[1:3] if known is not None and known[0]() is t and known[3] == _geometry(t) else None

    def call_of(self, t: Tensor) -> tuple[ViewCall, int] | None:
        """Return the call that makes this result again, and the result's index; None if that would differ: with a history of another kind, or
        after an in-place change of the tensor."""
        found = self._place(t)
        if found is None or not t.requires_grad:
            return found
        ref, version = self.roots[found[0].root]
        root = ref()
        return found if root is not None and root.is_leaf and root._storage.version == version else None


def _geometry(t: Tensor) -> tuple:
    return t.shape, t._strides, t._offset, t.dtype, t.requires_grad
