"""Formulas as functions of their own: one node in an expression, with a derivative given by hand.

Differentiating the polynomials inside a special function is less exact than naming its derivative, and a branch that is
not taken may have none at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtype import FROM_NUMPY, dtype
from ..expr.node import Expr, arg, as_expr, call
from . import emit_numpy, ir
from .elementwise import formula_text


class FormulaFunction:
    """Function of formulas: a call with expressions is a `call` node that kernels expand. `derivative(*args, y)` returns the derivatives by
    each argument, as expressions (None if there is none). `aten`: PyTorch's operator of the same meaning, and its arguments before these."""

    def __init__(
        self, name: str, formula: Callable[..., Expr], derivative: Callable[..., tuple[Any, ...]], *aten: Any, arity: int = 1
    ):  # fmt: skip
        self.__name__ = name
        self.formula, self.derivative, self.arity, self.aten = formula, derivative, arity, aten
        self._name: str | None = None

    @property
    def name(self) -> str:
        """Return a name that identifies what the function computes: kernels that call it are cached under it."""
        if self._name is None:
            text = formula_text((self.formula(*map(arg, range(self.arity))),))
            self._name = f"{self.__name__}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return self._name

    def __call__(self, *args: Any) -> Expr:
        return call(self, *args)

    def pullback(self, g: Expr, y: Expr, *args: Expr) -> tuple[Any, ...]:
        slopes = self.derivative(*args, y)
        return tuple(None if slope is None else g * as_expr(slope) for slope in slopes)

    def inline(self, dtypes: tuple[dtype, ...]) -> tuple[list[str], list[ir.Statement], Expr]:
        names = [f"x{i}" for i in range(self.arity)]
        return names, [], self.formula(*(ir.var(n, d) for n, d in zip(names, dtypes, strict=True)))

    def numpy(self, *arrays: Any) -> np.ndarray[Any, Any]:
        """Evaluate the formula on arrays: the reference implementation of a `call` node."""
        operands = np.broadcast_arrays(*arrays)
        dtypes = [FROM_NUMPY[a.dtype] for a in operands]
        root = self.formula(*map(arg, range(self.arity)))
        return emit_numpy.evaluate((root,), operands, dtypes, (dtypes[0],))[0]

    def __repr__(self) -> str:
        return f"<formula {self.__name__}>"
