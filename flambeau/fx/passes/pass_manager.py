"""Sequential execution of passes (the older kind of PassManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from .infra import pass_manager as infra
from .infra.pass_manager import Constraint, this_before_that_pass_constraint

__all__ = [
    "PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]  # fmt: skip

logger = logging.getLogger(__name__)


def inplace_wrapper(fn: Callable) -> Callable:
    """Wrap a function that changes a module in place into one that returns the module."""

    @wraps(fn)
    def wrapped_fn(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped_fn


def log_hook(fn: Callable, level: int = logging.INFO) -> Callable:
    """Wrap a pass to log its result."""

    @wraps(fn)
    def wrapped_fn(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, value)
        return value

    return wrapped_fn


def loop_pass(base_pass: Callable, n_iter: int | None = None, predicate: Callable | None = None) -> Callable:
    """Return the pass repeated `n_iter` times, or while `predicate` holds."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def new_pass(source: Any) -> Any:
        output = source
        if predicate is not None:
            while predicate(output):
                output = base_pass(output)
            return output
        if not n_iter or n_iter < 0:
            raise RuntimeError(
                f"loop_pass must be given positive int n_iter (given {n_iter}) xor predicate (given {predicate})"
            )
        for _ in range(n_iter):
            output = base_pass(output)
        return output

    return new_pass


def these_before_those_pass_constraint(these: Callable, those: Callable) -> Constraint:
    """Return a constraint that `these` comes before `those`, also if the passes are wrapped."""

    def depends_on(a: Callable, b: Callable) -> bool:
        return unwrap(a) != those or unwrap(b) != these

    return depends_on


class PassManager(infra.PassManager):
    """Runs passes in the order given, which must satisfy the constraints."""

    def __init__(self, passes: list[Callable] | None = None, constraints: list[Constraint] | None = None) -> None:
        super().__init__(passes, constraints)

    @classmethod
    def build_from_passlist(cls, passes: list[Callable]) -> PassManager:
        return PassManager(passes)

    def remove_pass(self, _passes: list[str] | None) -> None:
        """Remove the passes with these names."""
        if _passes is not None:
            self.passes = [p for p in self.passes if p.__name__ not in _passes]
            self._validated = False

    def replace_pass(self, _target: Callable, _replacement: Callable) -> None:
        """Replace the passes with the name of `_target` by another."""
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]
        self._validated = False

    validate = infra.PassManager.validate_constraints

    def __call__(self, source: Any) -> Any:
        self.validate()
        for run in self.passes:
            source = run(source)
        return source
