"""Python code generated for one update formula: the arithmetic on its scalars, and the loop over the parameters.

Most of the cost of a step over small tensors is this loop, so it is written out for the tensors that belong to a parameter instead of
looping over them. All names in the generated code are those of our own formulas.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, Protocol

from ..core import dtype as dt
from ..core.caching import remember
from ..core.device import cpu
from ..core.tensor import Tensor
from ..core.user_frames import user_frame
from ..expr import Expr
from ..expr.node import walk
from . import formula as words

_PYTHON = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "pow": "{} ** {}", "neg": "-{}",
    "abs": "abs({})", "sqrt": "sqrt({})", "maximum": "maximum({}, {})", "minimum": "minimum({}, {})",
    "where": "({1} if {0} else {2})", "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "le": "{} <= {}",
    "gt": "{} > {}", "ge": "{} >= {}",
}  # fmt: skip


class Compiled(Protocol):
    """Properties of an update that the loop needs (see `variant.Variant`)."""

    name: str
    states: tuple[str, ...]  # tensors of the parameter's shape
    scalars: tuple[str, ...]  # numbers in the state
    positions: tuple[int, ...]  # which of (param, grad, *states) are written
    prologue: Callable[..., tuple]  # (scalars, options) -> (new scalars, numbers for the kernel)
    plans: dict[tuple, tuple]

    def make_plan(self, key: tuple, tensors: tuple[Tensor, ...]) -> tuple[Any, Any]: ...


def scalar_function(results: list[Expr], inputs: dict[int, str], parameters: list[str]) -> Callable[..., tuple]:
    """Return a Python function that evaluates expressions on numbers; `inputs` names their symbols."""
    lines: list[str] = []
    text = dict(inputs)
    for x in walk(tuple(results)):
        if id(x) in text:
            continue
        if x.op == "const":
            value = x.args[0]
            text[id(x)] = repr(value) if math.isfinite(value) else f"float('{value}')"
            continue
        text[id(x)] = f"v{len(lines)}"
        lines.append(f"v{len(lines)} = {_PYTHON[x.op].format(*(text[id(c)] for c in x.operands))}")
    lines.append(f"return ({''.join(text[id(r)] + ', ' for r in results)})")
    space: dict[str, Any] = {"sqrt": words.sqrt, "maximum": words.maximum, "minimum": words.minimum}
    _define("\n ".join([f"def evaluate({', '.join(parameters)}):", *lines]), space)
    return space["evaluate"]


def loop_over_parameters(update: Compiled, options: list[str], hoisted: int) -> Callable[..., None]:
    """Return run(params, states, begin, slow, *options), which updates every parameter that has a gradient.

    `options` names the numbers among the options, and `hoisted` counts the numbers that the kernel takes.
    `begin(state, param, grad)` fills the state of a new parameter and returns whether it has updated it, too; `slow(param)` updates one
    that the kernel cannot."""
    given = [f"option_{n}" for n in options]
    kernel_numbers = "".join(f"k{i}, " for i in range(hoisted))
    new_scalars = "".join(f"n{i}, " for i in range(len(update.scalars)))
    old_scalars = [f"o{i}" for i in range(len(update.scalars))]
    evaluate = "pass"
    if new_scalars or kernel_numbers:
        evaluate = f"{new_scalars}{kernel_numbers} = prologue({', '.join([*old_scalars, *given])})"
    before = ["place = None", *(f"l{i} = None" for i in range(len(update.scalars)))]
    lines = [
        f"def run(params, states, begin, slow, {', '.join(given)}):",
        *(f" {line}" for line in (before if update.scalars else [*before, evaluate])),
        " for t0 in params:",
        *(f"  {line}" for line in _find_tensors(update)),
        *(f"  {line}" for line in (_find_scalars(update, evaluate) if update.scalars else [])),
        *(f"  {line}" for line in _call_kernel(update, kernel_numbers)),
    ]
    space: dict[str, Any] = {
        "cell": _cell, "cells": _cells, "cpu": cpu, "float32": dt.float32, "make_plan": update.make_plan,
        "__name__": __name__, "name": update.name, "plans": update.plans, "prologue": update.prologue, "user_frame": user_frame,
    }  # fmt: skip
    _define("\n".join(lines), space)
    return space["run"]


def _define(text: str, space: dict[str, Any]) -> None:
    """Execute a definition, with a file name inside this package, so that tools that watch programs treat it as the library's code."""
    exec(compile(text, f"{__file__}<update>", "exec"), space)


def _find_tensors(update: Compiled) -> list[str]:
    """Return code that finds the tensors of a parameter (t0, its gradient t1, its state t2...) and the plan for their layouts."""
    tensors = [f"t{i}" for i in range(2 + len(update.states))]
    kept = (*update.scalars, *update.states)
    elsewhere = " or ".join(f"{t}.device is not cpu" for t in tensors[2:])
    return [
        "meta = t0._autograd",
        "if meta is None: continue",
        "t1 = meta.grad",
        "if t1 is None: continue",
        "if t0.device is not cpu or t1.is_sparse: slow(t0); continue",
        *(["state = states[t0]", f"if {kept[0]!r} not in state and begin(state, t0, t1): continue"] if kept else []),
        *(f"t{i} = state[{name!r}]" for i, name in enumerate(update.states, 2)),
        *([f"if {elsewhere}: slow(t0); continue"] if elsewhere else []),
        f"key = ({''.join(f'{t}.shape, {t}._strides, {t}.dtype, ' for t in tensors)})",
        "plan = plans.get(key)",
        f"if plan is None: plan = make_plan(key, ({', '.join(tensors)}))",
        "kernel, first = plan",
    ]


def _find_scalars(update: Compiled, evaluate: str) -> list[str]:
    """Return code that reads the numbers in the state; parameters mostly share them, so they are recomputed only if they differ."""
    lines = []
    every = range(len(update.scalars))
    for i in every:
        lines += [
            f"c{i} = state[{update.scalars[i]!r}]",
            f"a{i} = cells.get(c{i}._storage.ptr)",
            f"if a{i} is None or c{i}.shape or c{i}._offset or c{i}.dtype is not float32 or c{i}.device is not cpu:",
            f" a{i} = cell(c{i})",
            f"o{i} = a{i}.value",
        ]
    lines += [f"if {' or '.join(f'o{i} != l{i}' for i in every)}:", f" {evaluate}"]
    lines += [f" l{i} = o{i}" for i in every]
    return [*lines, *(f"a{i}.value = n{i}" for i in every)]


def _call_kernel(update: Compiled, kernel_numbers: str) -> list[str]:
    lines = ["if kernel is None: continue"]
    tensors = range(2 + len(update.states))
    for i in tensors:
        lines += [f"s{i} = t{i}._storage", f"p{i} = s{i}.ptr", f"if t{i}._offset: p{i} = t{i}.data_ptr()"]
    addresses = "".join(f"p{i}, " for i in (*update.positions, *tensors))
    lines.append(f"kernel(first, {addresses}{kernel_numbers})")
    for i in update.positions:  # what Tensor._bump does, with one look for the user's line
        lines += [
            f"s{i}.version += 1",
            f"if s{i}.watched:",
            " if place is None: place = user_frame()",
            f" s{i}.last_write = (name, place)",
        ]
    return lines


# -------------------------------------------------------------------------------------------- numbers in the state

_cells: dict[int, ctypes.c_float] = {}  # float32 numbers by address: looking through one costs next to nothing


class _SlowCell:
    """A number in a tensor that is not plain float32 memory on the CPU."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    @property
    def value(self) -> float:
        return self.tensor.item()

    @value.setter
    def value(self, x: float) -> None:
        self.tensor.fill_(x)


def _cell(t: Tensor) -> Any:
    """Return an object whose `value` reads and writes the tensor's one element."""
    if t.numel() != 1:
        raise RuntimeError(f"a number in an optimizer's state has shape {list(t.shape)}; expected one element")
    if t.device is not cpu or t.dtype is not dt.float32 or t._offset:
        return _SlowCell(t)
    address = t._storage.ptr
    return remember(_cells, address, ctypes.c_float.from_address(address), 10000)
