"""Hooks of modules: handles, global hooks, and the node that full backward hooks sit on."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor


class RemovableHandle:
    """Removes a hook from its table (and from companion tables). Usable as a context manager."""

    next_id = 0

    def __init__(self, hooks_dict: dict, *, extra_dict: Any = None):
        self.hooks_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = (
            extra_dict if isinstance(extra_dict, (list, tuple)) else ([extra_dict] if extra_dict is not None else [])
        )
        self.extra_refs = [weakref.ref(d) for d in extras]

    def remove(self) -> None:
        for reference in (self.hooks_ref, *self.extra_refs):
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple:
        return (self.hooks_ref(), self.id, tuple(reference() for reference in self.extra_refs))

    def __setstate__(self, state: tuple) -> None:
        hooks, self.id, extras = state
        # A table that is gone is replaced by an empty one, so that remove() finds nothing to do.
        self.hooks_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_refs = [weakref.ref(OrderedDict() if d is None else d) for d in extras]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


class GlobalHooks:
    """Hooks that run for every module."""

    forward: OrderedDict = OrderedDict()
    forward_with_kwargs: OrderedDict = OrderedDict()
    forward_always: OrderedDict = OrderedDict()
    forward_pre: OrderedDict = OrderedDict()
    forward_pre_with_kwargs: OrderedDict = OrderedDict()
    backward: OrderedDict = OrderedDict()
    backward_pre: OrderedDict = OrderedDict()
    parameter_registration: OrderedDict = OrderedDict()
    buffer_registration: OrderedDict = OrderedDict()
    module_registration: OrderedDict = OrderedDict()

    @classmethod
    def any(cls) -> bool:
        return bool(cls.forward or cls.forward_pre or cls.backward or cls.backward_pre)


def _register(table: OrderedDict, hook: Callable, extra: Any = None) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    return handle


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    handle = _register(GlobalHooks.forward, hook, [GlobalHooks.forward_with_kwargs, GlobalHooks.forward_always])
    if with_kwargs:
        GlobalHooks.forward_with_kwargs[handle.id] = True
    if always_call:
        GlobalHooks.forward_always[handle.id] = True
    return handle


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.forward_pre, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.backward, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.backward_pre, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.parameter_registration, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.buffer_registration, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    return _register(GlobalHooks.module_registration, hook)


class BackwardHookFunction(Function):
    """Passes tensors through one graph node, so that all their gradients can be seen together."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple:
        passed = tuple(t._bare_alias() for t in tensors)
        ctx.mark_non_differentiable(*(p for p, t in zip(passed, tensors) if not t.requires_grad))
        return passed

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return grads


def _through_identity(values: tuple) -> tuple[tuple, Any, list[int]]:
    """Send the tensors among `values` through one identity node: (new values, node, their positions)."""
    positions = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not any(values[i].requires_grad for i in positions):
        return values, None, positions
    passed = BackwardHookFunction.apply(*(values[i] for i in positions))
    result = list(values)
    node = None
    for i, t in zip(positions, passed):
        result[i] = t
        node = node or t.grad_fn
    return tuple(result), node, positions


class BackwardHook:
    """Full backward hooks of one module call: gradients of its outputs meet at one node, those of its inputs at
    another; when both are known the user's hooks run."""

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

    def _spread(self, grads: tuple, positions: list[int], count: int) -> tuple:
        full: list = [None] * count
        for i, g in zip(positions, grads):
            full[i] = g
        return tuple(full)

    def _on_input_grads(self, grad_input: tuple, _: tuple) -> Any:
        if self.grad_outputs is None:
            return None  # gradients that did not come through the module's output: a second backward, for example
        assert self.input_positions is not None
        full = self._spread(grad_input, self.input_positions, self.input_count)
        full = self._run(full)
        self.grad_outputs = None
        return tuple(full[i] for i in self.input_positions)

    def _run(self, grad_input: tuple) -> tuple:
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_outputs)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(grad_input):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but expected"
                    f" {len(grad_input)}"
                )
            grad_input = changed
        return grad_input

    def setup_output(self, result: Any) -> Any:
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        if not all(isinstance(v, Tensor) or v is None for v in values) and not any(
            isinstance(v, Tensor) for v in values
        ):
            return result
        passed, node, positions = _through_identity(values)
        if node is None:
            return result

        def on_output_grads(grads: tuple) -> Any:
            full = self._spread(tuple(grads), positions, len(values))
            for hook in self.pre_hooks:
                changed = hook(self.module, full)
                if changed is not None:
                    full = changed if isinstance(changed, tuple) else (changed,)
            self.grad_outputs = full
            if self.input_positions is None and self.hooks:
                self._run(self._spread((), [], self.input_count))
                self.grad_outputs = None
            return tuple(full[i] for i in positions)

        node.register_prehook(on_output_grads)
        return passed[0] if single else passed
