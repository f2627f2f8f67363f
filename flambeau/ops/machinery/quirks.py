"""Departures of an operator from the rule, made only because PyTorch's operator departs from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quirks:
    """Option `quirks=Quirks(...)` of a declaration, for everything that only PyTorch explains.

    `label` is the name of the autograd node (or makes it from the call; of a reduction two, the second for dim=), `inplace_label` that of the in-place form, and
    `saved_as_input` says that the node shows its first operand as `_saved_input` instead of `_saved_self`. `former` names the
    numbers that stood among the tensors in PyTorch's former signature.

    Kernels for 16-bit numbers read the operands in `unrounded` in full precision where they are numbers or tensors without
    dimensions; all others are rounded to the dtype of the computation first. `rounds_on_host`: the CPU rounds those as well, unless
    the call has parameters. `exact_with_number`: no step is rounded where the second
    operand is a number. `numbers_apart`: a number is not taken as a tensor without dimensions, which shows in the strides of
    dimensions of size 1 (see plan.result_strides); "first" if that holds for the first operand only. `wide_numbers` names numbers that need
    only fit float32 beside 16-bit tensors.

    `unasked`: a function about its argument being a tensor or not, or one that makes tensors: a `__torch_function__` is not asked.
    `asked_with(args)`: the positional arguments that a `__torch_function__` is given, where PyTorch brings them into one form first.
    `inplace_function`: whether the in-place form is a function too, `torch.relu_`. By default, if there is one tensor operand."""

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
    unasked: bool = False
    asked_with: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None


NO_QUIRKS = Quirks()
