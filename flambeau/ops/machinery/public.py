"""Common part of all operators' public functions: names and documentation, and how a failed call is handled.

A face tests the mode stack and computes; an exception goes to `recourse`, so that the common case pays nothing for sparse operands and for
classes that override operators:

    def face(*args, **kwargs):
        if active:
            return _intercept(face.op, face, args, kwargs)
        try:
            return run(*args, **kwargs)
        except Exception as problem:
            instead = recourse(face, problem, args, kwargs)
            if instead is None:
                raise
        return instead()  # out here, where `problem` is no longer the context of what this raises
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.errors import LinAlgError
from ...core.overrides import FACE_CODES, discovers
from ...core.quantized import QuantizedOperand, QuantizedTensor
from ...core.sharded import ShardedOperand
from ...core.sparse import SparseOperand, SparseTensor
from ..names.propagation import name_recourse
from .argument_types import plain_numbers, public_name, refusal
from .quantized_dispatch import quantized_call
from .record import Op
from .sparse_dispatch import sparse_call


def dress(face: Any, op: Op, source: Callable[..., Any], unwatched: Callable[[], Callable[..., Any]]) -> None:
    """Make a function the public one of its operator. `unwatched()` makes the same function without its test of the modes."""
    face.__name__ = face.__qualname__ = op.name
    face.__doc__ = source.__doc__
    face.__module__ = "flambeau"
    face.op = op
    face._make_unwatched = functools.partial(_make_unwatched, face, unwatched)
    op.source = source if op.source is None else op.source
    FACE_CODES.add(face.__code__)


def _make_unwatched(face: Any, make: Callable[[], Any]) -> Any:
    twin = make()
    twin.op, twin.watched = face.op, face
    return twin


def recourse(face: Any, problem: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return the call to make instead of one that failed: the operator's sparse or quantized form if it met such a tensor, the same call
    again if the arguments turn out to override operators, the parts of all ranks if it met a spread tensor, numbers for tensors that were
    given for ints. None: the call has failed."""
    if isinstance(problem, ShardedOperand):
        return problem.instead(getattr(face, "watched", face), args, kwargs)
    if isinstance(problem, QuantizedOperand):
        return functools.partial(quantized_call, face.op, args, kwargs, problem.reason)
    if isinstance(problem, SparseOperand):
        return functools.partial(sparse_call, face.op, args, kwargs, problem.reason)
    values = () if isinstance(problem, TypeError) else (*args, *kwargs.values())
    if face.op.sparse is not None and any(isinstance(v, SparseTensor) for v in values):
        return functools.partial(sparse_call, face.op, args, kwargs)  # a check of strided operands came first
    if face.op.quantized is not None and any(isinstance(v, QuantizedTensor) for v in values):
        return functools.partial(quantized_call, face.op, args, kwargs)
    if "names" in kwargs or any(isinstance(value, str) for value in (*args[1:], *kwargs.values())):
        named = name_recourse(face, args, kwargs)
        if named is not None:
            return named
    if discovers(args, kwargs):
        return functools.partial(getattr(face, "watched", face), *args, **kwargs)
    if isinstance(problem, MemoryError) or str(problem).startswith(_TOO_LARGE):
        raise RuntimeError(f"Storage size calculation overflowed or memory cannot be allocated: {problem}") from None
    if isinstance(problem, np.linalg.LinAlgError):
        raise LinAlgError(f"{public_name(face.op)}: The algorithm failed to converge: {problem}") from None
    try:
        message = refusal(face.op, args, kwargs)
    except MemoryError:  # none is left to read the schemas with: the problem there was is raised
        return None
    if message is not None:
        raise TypeError(message) from None
    numbers = plain_numbers(face.op, args, kwargs)
    if numbers is None:
        _explain(face.op, problem, args, kwargs)
    return None if numbers is None else functools.partial(getattr(face, "watched", face), *numbers[0], **numbers[1])


def _explain(op: Op, problem: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise an error about the arguments of a call, where `problem` is about those of a function inside, which does not take them."""
    whose, found, rest = str(problem).partition("() ")
    public = public_name(op)
    if isinstance(problem, TypeError) and found and whose != public and rest.startswith(_NOT_TAKEN):
        try:
            op.bind(args, kwargs)
        except TypeError:
            raise TypeError(f"{public}() {rest}") from None


# How NumPy's errors about arrays that no memory can hold begin.
_TOO_LARGE = ("array is too big; ", "Maximum allowed dimension exceeded", "broadcast dimensions too large")
# How Python's own errors about the arguments of a call begin, after the function's name.
_NOT_TAKEN = ("missing ", "takes ", "got an unexpected keyword argument ", "got multiple values for argument ")
