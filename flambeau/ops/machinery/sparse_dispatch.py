"""Forms of operators for sparse tensors, and how a call finds them.

Faces of operators that catch a `SparseOperand` (core.sparse) call `sparse_call` with their arguments (see `public`). An operator without such
a form in its record refuses, as in PyTorch: a strided kernel never sees a sparse tensor."""

from __future__ import annotations

from typing import Any

from ...core.aliases import AnyFunction
from ...core.sparse import SparseCsr, SparseRefusal, SparseTensor
from .out import check_out, write_out
from .primitive import Primitive
from .quirks import NO_QUIRKS, Quirks
from .record import Op, register
from .watched import PrivateCall


def sparse_form(*operators: Any, grads: dict[Any, Any] | None = None, quirks: Quirks = NO_QUIRKS) -> AnyFunction:
    """Decorator: declare the form that operators have for sparse arguments, in their records. With `grads` it is a primitive with derivative
    rules of its own (see `primitive`), without it is made of differentiable operators."""

    def declare(fn: AnyFunction) -> AnyFunction:
        form: AnyFunction = fn
        if grads is not None:
            form = sparse_primitive(fn, grads, quirks, name=f"sparse_{operators[0].op.name}")
        for operator in operators:
            if operator.op.sparse is not None:
                raise ValueError(f"the sparse form of '{operator.op.name}' is declared twice")
            operator.op.sparse = form
        return form

    return declare


def sparse_primitive(fn: AnyFunction, grads: dict[Any, Any], quirks: Quirks, name: str | None = None) -> AnyFunction:
    """Declare a part of sparse operators with derivative rules of its own, seen by modes. Sparse tensors are on the CPU and are made by the
    function itself: their number of entries depends on values."""
    impl = Primitive(fn, grads, quirks)
    op = Op(
        name or fn.__name__, "primitive", impl, (), impl=impl, doc=fn.__doc__ or "", source=fn, reads_values=True,
        batching="each", quirks=quirks,
    )  # fmt: skip
    op.function = PrivateCall(op, impl)
    return register(op).function


def sparse_call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str | None = None) -> Any:
    """Call the sparse form of an operator, or refuse: because an operator it is made of refused (`reason`), or because it has none."""
    form, name = op.sparse, op.name
    if form is None:
        raise SparseRefusal(reason or _refusal(name, args, kwargs), final=reason is not None)
    out = kwargs.pop("out", None) if "out" in kwargs else None
    result = form(*args, **kwargs)
    if out is None:
        return result
    if not isinstance(result, SparseTensor) and not isinstance(out, SparseTensor):
        return write_out(name, out, result)
    if type(out) is not type(result):
        raise RuntimeError(f"{name}(): the result has layout {result.layout!r}, but out= has layout {out.layout!r}")
    check_out(name, out, result.dtype, result.device, False)
    out._adopt(result if result.dtype is out.dtype else result.to(out.dtype))
    return out


def _refusal(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = next((a for a in (*args, *kwargs.values()) if isinstance(a, SparseTensor)), None)
    backend = "SparseCsrCPU" if isinstance(given, SparseCsr) else "SparseCPU"
    return (
        f"Could not run 'aten::{name}' with arguments from the '{backend}' backend. This operator does not exist for"
        f" sparse tensors; call to_dense() on them first if a strided result is what you want."
    )
