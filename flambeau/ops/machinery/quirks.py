"""Exceptions from the general rules of operators, needed only to match PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quirks:
    """Option `quirks=Quirks(...)` of a declaration: exceptions needed only to match PyTorch.

    `label` is the name of the autograd node, or a function that returns it for a call, or for a reduction two names, the second for dim=;
    `inplace_label` is that of the in-place form. `saved_as_input`: the node's first operand is its attribute `_saved_input`, not `_saved_self`.
    `former` names the numbers that PyTorch's former signature had between the tensors.

    Kernels for 16-bit numbers read the operands in `unrounded` in full precision where they are numbers or tensors without
    dimensions; all others are rounded to the dtype of the computation first. `rounds_on_host`: the CPU rounds those as well, unless
    the call has parameters. `exact_with_number`: no step is rounded if the second operand is a number. `numbers_apart`: a number is not
    treated as a tensor without dimensions, which changes the strides of dimensions of size 1 (see plan.result_strides); "first" if that
    holds for the first operand only. `wide_numbers` names numbers that need only fit float32 if the tensors have 16 bits.

    `numbers_as_tensors`: a number counts as a tensor without dimensions, in every operand (`torch.add(1, 2)`) and where PyTorch's overloads
    are chosen, though there is one for numbers.

    `unasked`: `__torch_function__` is not called, as for functions that make tensors or test whether their argument is one.
    `asked_with(args)` returns the positional arguments for `__torch_function__`, where PyTorch normalizes them first.
    `inplace_function`: whether the in-place form is also a function, such as `torch.relu_`; by default, if there is one tensor operand."""

    label: str | tuple[str, ...] | Callable[..., Any] | None = None
    inplace_label: str | None = None
    saved_as_input: bool = False
    former: tuple[str, ...] = ()
    unrounded: tuple[int, ...] = ()
    rounds_on_host: bool = False
    exact_with_number: bool = False
    numbers_apart: bool | str = False
    wide_numbers: tuple[str, ...] = ()
    inplace_function: bool | None = None
    numbers_as_tensors: bool = False
    unasked: bool = False
    asked_with: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None


NO_QUIRKS = Quirks()
