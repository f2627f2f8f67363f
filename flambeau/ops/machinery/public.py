"""What the public functions of all operators share: their dress, and what becomes of a call that failed.

A face tests the mode stack and computes; what it raises is put before `recourse`, so that the common case pays nothing for
sparse operands and for classes that override operators:

    def face(*args, **kwargs):
        if _stack:
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

from ...core.overrides import FACE_CODES, discovers
from ...core.sparse import SparseOperand
from .registry import Op
from .sparse_dispatch import sparse_call


def dress(face: Any, op: Op, source: Callable) -> None:
    """Make a function the public one of its operator."""
    face.__name__ = face.__qualname__ = op.name
    face.__doc__ = source.__doc__
    face.__module__ = "flambeau"
    face.op = op
    FACE_CODES.add(face.__code__)


def recourse(face: Any, problem: Exception, args: tuple, kwargs: dict[str, Any]) -> Callable | None:
    """The call to make instead of one that failed: the operator's sparse form where it met a sparse tensor, the same call
    again where the arguments turn out to override operators. None: it has failed."""
    if isinstance(problem, SparseOperand):
        return functools.partial(sparse_call, face.op.name, args, kwargs, problem.reason)
    return functools.partial(face, *args, **kwargs) if discovers(args, kwargs) else None
