"""Backward hooks of modules, and the autograd nodes they are attached to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...autograd.function import Function
from ...core.graph import grad_mode
from ...core.tensor import Tensor


class BackwardHookFunction(Function):
    """Identity of several tensors in one autograd node, at which all their gradients are available together."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple:
        passed = tuple(t.view_as(t) for t in tensors)
        ctx.mark_non_differentiable(*(p for p, t in zip(passed, tensors) if not t.requires_grad))
        return passed

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return grads


def _through_identity(values: tuple) -> tuple[tuple, Any, list[int]]:
    """Send the tensors among `values` through one identity node: (new values, node, their positions)."""
    positions = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not grad_mode.enabled or not any(values[i].requires_grad for i in positions):
        return values, None, positions
    passed = BackwardHookFunction.apply(*(values[i] for i in positions))
    result = list(values)
    for i, t in zip(positions, passed):
        result[i] = t
    node = next(t.grad_fn for t in passed if t.grad_fn is not None)
    named = hasattr(values, "_fields")
    return type(values)(*result) if named else tuple(result), node, positions


def _scatter_gradients(grads: tuple, positions: list[int], count: int) -> tuple:
    full: list = [None] * count
    for i, g in zip(positions, grads):
        full[i] = g
    return tuple(full)


def _check_count(changed: Any, expected: tuple, hook: str, what: str) -> tuple:
    """Return what a hook returned in place of some gradients, as a tuple of as many; raise if the number differs."""
    if changed is None:
        return expected
    changed = changed if isinstance(changed, tuple) else (changed,)
    if len(changed) != len(expected):
        raise RuntimeError(
            f"{hook} returned an invalid number of {what}, got {len(changed)}, but expected {len(expected)}"
        )
    return changed


class BackwardHook:
    """Full backward hooks of one module call: gradients of its outputs arrive at one node, those of its inputs at another; when both are
    known the user's hooks run."""

    def __init__(self, module: Any, hooks: list[Callable], pre_hooks: list[Callable]):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: tuple | None = None
        self.input_count = 0
        self.input_positions: list[int] | None = None

    def setup_input(self, args: tuple) -> tuple:
        self.input_count = len(args)
        values, node, positions = _through_identity(args)
        if node is not None:
            self.input_positions = positions
            node.register_hook(self._on_input_grads)
        return values

    def _on_input_grads(self, grad_input: tuple, _: tuple) -> Any:
        if self.grad_outputs is None:
            return None  # gradients that did not come through the module's output: a second backward, for example
        assert self.input_positions is not None
        full = _scatter_gradients(grad_input, self.input_positions, self.input_count)
        for hook in self.hooks:
            full = _check_count(hook(self.module, full, self.grad_outputs), full, "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(full[i] for i in self.input_positions)

    def setup_output(self, result: Any) -> Any:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received"
                f" {type(result)}",
                stacklevel=4,
            )
            return result
        values = result if isinstance(result, tuple) else (result,)
        passed, node, positions = _through_identity(values)
        if node is None:
            return result

        def on_output_grads(grads: tuple) -> Any:
            full = _scatter_gradients(tuple(grads), positions, len(values))
            for hook in self.pre_hooks:
                full = _check_count(hook(self.module, full), full, "Backward pre hook", "grad_output")
            self.grad_outputs = full
            if self.input_positions is None and self.hooks:
                self._run_without_inputs()
            return tuple(full[i] for i in positions)

        node.register_prehook(on_output_grads)
        return passed if isinstance(result, tuple) else passed[0]

    def _run_without_inputs(self) -> None:
        """Run the hooks with the outputs' gradients if no gradient of an input will ever arrive."""
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs"
            " require gradients.",
            stacklevel=2,
        )
        for hook in self.hooks:
            changed = hook(self.module, (None,) * self.input_count, self.grad_outputs)
            if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None"
                    " for all gradients."
                )
        self.grad_outputs = None


def attach_to_last_node(module: Any, hooks: list[Callable], args: tuple, result: Any) -> None:
    """Attach the older backward hooks, which see the gradients of the node that made the (first) output only."""
    first = result
    while not isinstance(first, Tensor):
        first = next(v for v in first.values() if isinstance(v, Tensor)) if isinstance(first, dict) else first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:

        def run(grad_input: tuple, grad_output: tuple, hook: Callable = hook) -> Any:
            changed = hook(module, grad_input, grad_output)
            return None if changed is None else _check_count(changed, grad_input, "Backward hook", "grad_input")

        node.register_hook(run)
    problem = _why_gradients_are_partial(args, result, node)
    if problem:
        warnings.warn(
            f"Using a non-full backward hook when {problem} is deprecated and will be removed in future versions. This"
            " hook will be missing some grad_input or grad_output. Please use register_full_backward_hook to get the"
            " documented behavior.",
            FutureWarning,
            stacklevel=4,
        )


def _why_gradients_are_partial(args: tuple, result: Any, node: Any) -> str:
    """Explain why the gradients at the last node differ from those of the module's inputs and outputs."""

    def plain(value: Any) -> bool:
        return isinstance(value, Tensor) or (isinstance(value, tuple) and all(isinstance(v, Tensor) for v in value))

    if not plain(result):
        return "the forward does not return a single Tensor or a tuple of Tensors"
    if not plain(args):
        return "the forward does not take as input a single Tensor or a tuple of Tensors"
    outputs = result if isinstance(result, tuple) else (result,)
    if any(t.grad_fn is not node for t in outputs if t.grad_fn is not None):
        return "outputs are generated by different autograd Nodes"
    sources = {t.grad_fn for t in args if t.grad_fn is not None}
    leaves = {id(t) for t in args}
    for previous, _ in node.next_functions:
        if previous is not None and previous not in sources and id(getattr(previous, "variable", None)) not in leaves:
            return "the forward contains multiple autograd Nodes"
    return ""
