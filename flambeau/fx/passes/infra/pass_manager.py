"""A pass manager: passes in an order that satisfies given constraints."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

from ....nn import Module
from ...graph_module import GraphModule
from .pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Constraint = Callable[[Callable, Callable], bool]


def pass_result_wrapper(fn: Any) -> Any:
    """Wrap a pass that returns a module or None into one that returns a PassResult."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped_fn(gm: Module) -> PassResult | None:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        if isinstance(result, PassResult):
            return result
        return PassResult(result, True) if isinstance(result, Module) else None

    if not inspect.isfunction(fn):
        wrapped_fn.__name__ = type(fn).__name__
    return wrapped_fn


def validate_constraint(constraint: Constraint, passes: list[Callable]) -> None:
    """Raise an error unless the order of the passes satisfies the constraint."""
    for i, first in enumerate(passes):
        for j, second in enumerate(passes[i + 1 :]):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {first} before {second} but found {first} at index {i}"
                    f" and {second} at index {j} in pass list."
                )


_validate_pass_schedule_constraint = validate_constraint


def _topological_sort_passes(passes: list[Callable], constraints: list[Constraint]) -> list[Callable]:
    """Return an order of the passes that satisfies all constraints and is close to the given one."""
    if not constraints:
        return passes
    later: dict[Callable, list[Callable]] = {p: [] for p in passes}
    waiting = dict.fromkeys(passes, 0)
    for first in passes:
        for second in passes:
            for constraint in constraints if first != second else ():
                if not constraint(first, second):  # so `second` comes before `first`
                    later[second].append(first)
                    waiting[first] += 1
    ready = deque(p for p in passes if waiting[p] == 0)
    done: list[Callable] = []
    while ready:
        current = ready.popleft()
        done.append(current)
        for follower in later[current]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    cycle = [p for p in passes if waiting[p]]
    if cycle:
        raise RuntimeError(f"Circular dependency detected within the following passes: {cycle}")
    return done


def this_before_that_pass_constraint(this: Callable, that: Callable) -> Constraint:
    """Return a constraint that `this` pass comes before `that`."""

    def depends_on(a: Callable, b: Callable) -> bool:
        return a != that or b != this

    return depends_on


def _name(fn: Any) -> str:
    return fn.__name__ if inspect.isfunction(fn) else type(fn).__name__


class PassManager:
    """Runs passes in an order that satisfies the constraints, up to `steps` times, until no pass changes the module."""

    def __init__(
        self,
        passes: list[Callable] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes, self.constraints = passes or [], constraints or []
        self.steps = steps or 1
        self._validated = False
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Callable) -> None:
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Raise RuntimeError unless the passes satisfy the constraints."""
        if not self._validated:
            for constraint in self.constraints:
                validate_constraint(constraint, self.passes)
            self._validated = True

    def solve_constraints(self) -> None:
        """Sort the passes by the constraints."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """Set the check, a function that raises an error for an invalid module."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[method-assign, assignment]

    def check(self, module: Module) -> None:
        """Check the module: called before the passes and, with `run_checks_after_each_pass`, after each."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        ever_modified = False
        for _ in range(self.steps):
            modified = False
            for position, run in enumerate(self.passes):
                result = self._run(run, module, position)
                module, modified = result.graph_module, modified or result.modified
            ever_modified = ever_modified or modified
            if not modified:
                break
        return PassResult(module, ever_modified)

    def _run(self, run: Callable, module: Module, position: int) -> PassResult:
        try:
            result = run(module)
            if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                raise TypeError(
                    f"The result of the pass {_name(run)} should be type PassResult."
                    "Please wrap it with pass_result_wrapper()"
                )
            if isinstance(result.graph_module, GraphModule):
                result.graph_module.recompile()
            if self.run_checks_after_each_pass:
                self.check(result.graph_module)
            return result
        except Exception as problem:
            before = [_name(p) for p in self.passes[:position]]
            message = f"An error occurred when running the '{_name(run)}' pass after the following passes: {before}"
            raise Exception(message) from problem
