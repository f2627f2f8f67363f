"""`custom_op`: a Python function becomes an operator, opaque to autograd until its derivative is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from ..core.dtype import dtype
from ..ops.machinery.inferred_schema import infer_schema
from ..ops.machinery.record import OPS
from ..ops.machinery.schema import Schema, parse_schema
from .operator import define_operator, forget_operator
from .registration import Function, register_autocast, register_torch_dispatch, register_vmap


# fmt: off
@overload
def custom_op(name: str, fn: None = None, /, *, mutates_args: str | Iterable[str], device_types: str | Sequence[str] | None = None, schema: str | None = None, tags: Iterable[Any] | None = None) -> Callable[[Function], CustomOpDef]: ...
@overload
def custom_op(name: str, fn: Function, /, *, mutates_args: str | Iterable[str], device_types: str | Sequence[str] | None = None, schema: str | None = None, tags: Iterable[Any] | None = None) -> CustomOpDef: ...
# fmt: on
def custom_op(
    name: str,
    fn: Function | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Iterable[Any] | None = None,
) -> Any:
    """Make an operator `namespace::name` of a function whose arguments and result are annotated (or described by `schema`).

    `mutates_args` names the arguments it changes in place. The operator is a black box: register its derivative with `register_autograd`, and
    its shape rule with `register_fake`.
    """

    def wrap(function: Function) -> CustomOpDef:
        described = parse_schema(infer_schema(function, mutates_args=mutates_args) if schema is None else schema)
        return CustomOpDef(described.renamed(name), function, device_types, () if tags is None else _as_list(tags))

    return wrap if fn is None else wrap(fn)


def triton_op(
    name: str, fn: Function | None = None, /, *, mutates_args: str | Iterable[str], schema: str | None = None
) -> Any:
    """Make an operator, as `custom_op` does, of a function whose steps are operators, which is also its shape rule."""

    def wrap(function: Function) -> CustomOpDef:
        made = custom_op(name, function, mutates_args=mutates_args, schema=schema)
        made.register_fake(function)
        return made

    return wrap if fn is None else wrap(fn)


class CustomOpDef:
    """Operator made by `custom_op`: can be called, and given kernels, gradients and other rules."""

    def __init__(
        self, schema: Schema, function: Function, device_types: str | Sequence[str] | None, tags: Iterable[Any] = ()
    ) -> None:
        if schema.name in OPS:  # defined again, as in a notebook's cell that is run twice
            forget_operator(schema.name)
        self.op = define_operator(schema, own_gradient=True, tags=tags)
        self._opoverload = self.op.function
        self._init_fn = function
        self._namespace, self._name = schema.name.split("::")
        self._disabled: dict[str, Callable] = {}
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.register_kernel(device_types, function)

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: str | Sequence[str] | None, fn: Function | None = None, /) -> Function:
        """Register a function as the kernel for tensors on these devices; None stands for every device."""

        def register(function: Function) -> Function:
            for device_type in ["default"] if device_types is None else _as_list(device_types):
                self.op.kernels[device_type] = function
            self.op.kernels.setdefault("meta", self._missing_fake)
            return function

        return register if fn is None else register(fn)

    def _missing_fake(self, *args: Any, **kwargs: Any) -> None:
        """Return nothing for an operator that returns nothing; raise an error for others."""
        if not self.op.schema.returns:
            return
        raise RuntimeError(
            f"There was no fake impl registered for {self}. This is necessary for torch.compile/export/fx tracing to work."
            f" Please use `{self._init_fn.__name__}.register_fake` to add an fake impl."
        )

    def register_fake(self, fn: Function, /) -> Function:
        """Register a function that returns a result of the right shape and dtype for tensors without values (device "meta")."""
        self.op.kernels["meta"] = fn
        return fn

    def register_autograd(self, backward: Function, /, *, setup_context: Function | None = None) -> None:
        """Register the derivative: `setup_context(ctx, inputs, output)` saves what `backward(ctx, *grads)` reads."""
        if self.op.schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema"
                f" {self.op.schema}. Please create a functional operator and register an autograd formula for that."
            )
        self.op.impl.backward, self.op.impl.setup_context = backward, setup_context

    def register_vmap(self, func: Function | None = None) -> Any:
        """Register the rule for batches: see `library.register_vmap`."""
        return register_vmap(self, func)

    def register_autocast(self, device_type: str, cast_inputs: dtype) -> None:
        """Register the precision for use under autocast: see `library.register_autocast`."""
        register_autocast(self, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Function | None = None, /) -> Any:
        """Register the rule under a mode or for a class: see `library.register_torch_dispatch`."""
        return register_torch_dispatch(self, torch_dispatch_class, fn)

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Any:
        """Switch the kernel of a device type off or on; as a context manager, restore it on exit."""
        return _KernelSwitch(self, device_type, enabled)

    def _switch(self, device_type: str, enabled: bool) -> bool:
        """Switch the kernel of a device type on or off; return whether it was on."""
        kernels = self.op.kernels
        if enabled and device_type in self._disabled:
            kernels[device_type] = self._disabled.pop(device_type)
            return False
        if not enabled and device_type in kernels:
            self._disabled[device_type] = kernels.pop(device_type)
            return True
        return device_type in kernels


class _KernelSwitch:
    def __init__(self, op: CustomOpDef, device_type: str, enabled: bool) -> None:
        self.op, self.device_type = op, device_type
        self.before = op._switch(device_type, enabled)

    def __enter__(self) -> CustomOpDef:
        return self.op

    def __exit__(self, *exc: Any) -> None:
        self.op._switch(self.device_type, self.before)


def _as_list(one_or_many: Any) -> list[Any]:
    return (
        list(one_or_many) if isinstance(one_or_many, Iterable) and not isinstance(one_or_many, str) else [one_or_many]
    )
