"""Tensors in oneDNN's layout (`torch._mkldnn`): the operators that PyTorch has for them, and their restrictions."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core import printing
from ...core.device import default_device
from ...core.held import HeldOperand, MkldnnTensor, new_mkldnn
from ...core.promotion import get_default_dtype
from ...core.tensor import Tensor
from ..machinery.memory import values_on_host
from ..machinery.quirks import Quirks
from ..machinery.record import Op
from ..machinery.sparse_dispatch import sparse_primitive
from . import base_record, held_as, mkldnn_takes, on_values, relabelled, value_of

_DTYPES = (dt.float32, dt.bfloat16, dt.float16, dt.uint8, dt.int8)


# -- conversion ------------------------------------------------------------------------------------------------------------------------

_to_mkldnn = sparse_primitive(
    lambda input, d: new_mkldnn(input.to(d).clone()),
    {"input": lambda g, input_dtype: g.to_dense(input_dtype)},
    Quirks(label="ToMkldnnBackward0"),
    name="dense_to_mkldnn",
)


def to_mkldnn(self: Tensor, dtype: Any) -> Tensor:
    """A copy of a dense tensor in oneDNN's layout."""
    if not self.is_cpu or type(self).layout is not Tensor.layout:
        kind = "MkldnnCPU" if isinstance(self, MkldnnTensor) else f"{self.device.type}, {self.layout!r}"
        raise NotImplementedError(f"Could not run 'aten::to_mkldnn' with arguments from the '{kind}' backend.")
    if self.dtype not in _DTYPES:
        raise RuntimeError("dense_to_mkldnn expects float, bfloat16, half, uint8, int8 tensor input")
    if dtype is not None and dtype not in _DTYPES:
        raise RuntimeError("cpu tensor only can be converted to be a float, bfloat16, half, uint8, int8 mkldnn tensor")
    if not self.shape:
        raise RuntimeError(
            "could not create a primitive descriptor for the reorder primitive: oneDNN has no 0-dim tensors"
        )
    return _to_mkldnn(self, dtype or self.dtype)


def to_dense(self: MkldnnTensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """A copy as a strided tensor."""
    value = value_of(self)
    return relabelled(value.clone() if dtype is None else value.to(dtype, copy=True), "ToDenseBackward0")


# -- operators -------------------------------------------------------------------------------------------------------------------------


def call(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any], problem: HeldOperand) -> Any:
    """Run an operator on the plain tensors, if its record declares that oneDNN computes it (`mkldnn_takes`)."""
    op = base_record(face.op)
    check = op.forms.get("mkldnn")
    if check is None:
        raise HeldOperand(problem.tensor, problem.reason or _refusal(op))
    bound = op.bind(args, kwargs)
    check(bound)
    _mkldnn(next(iter(bound.values())))
    return on_values(face, args, kwargs, lambda value: held_as(value, new_mkldnn))


def _mkldnn(t: Any, message: str = "itensor_from_mkldnn expects MKL-DNN tensor input") -> MkldnnTensor:
    if not isinstance(t, MkldnnTensor):
        raise RuntimeError(message)
    return t


def _refusal(op: Op) -> str:
    if op.kind == "pointwise":
        return "unsupported tensor layout: Mkldnn"
    if op.name == "view_shape":
        return "Currently Mkldnn tensor does not support view. Change to use reshape instead"
    return (
        f"Could not run 'aten::{op.name}' with arguments from the 'MkldnnCPU' backend. This operator does not exist for tensors"
        " in oneDNN's layout; call to_dense() on them first if a strided result is what you want."
    )


def _check_add(bound: dict[str, Any]) -> None:
    shapes = [_mkldnn(bound[name]).shape for name in ("input", "other")]
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"mkldnn tensors are not broadcast, got shapes {list(shapes[0])} and {list(shapes[1])}")


def _check_mul(bound: dict[str, Any]) -> None:
    b = bound["other"]
    if not isinstance(bound["input"], MkldnnTensor) or (isinstance(b, Tensor) and b.dim() > 0):
        _check_add(bound)


def _check_gelu(bound: dict[str, Any]) -> None:
    if bound["approximate"] != "none":
        raise RuntimeError("mkldnn_gelu: fast, approximate gelu is not supported")


def _check_max_pool(bound: dict[str, Any]) -> None:
    dilation = bound["dilation"]
    if any(d != 1 for d in ((dilation,) if isinstance(dilation, int) else dilation)):
        raise RuntimeError("mkldnn_max_pool2d does not support dilation case")
    if bound["return_indices"]:
        raise RuntimeError("'memory_format' argument is incompatible with mkldnn tensor")


def _check_adaptive(bound: dict[str, Any]) -> None:
    wanted = bound["output_size"]
    wanted = (wanted, wanted) if isinstance(wanted, int) else wanted
    if any(w and n % w for n, w in zip(_mkldnn(bound["input"]).shape[-2:], wanted)):
        raise RuntimeError("input size is not divisible by the output size is not supported yet")


def _check_conv(bound: dict[str, Any]) -> None:
    _mkldnn(
        bound["input"],
        "Input type (torch.FloatTensor) and weight type (Mkldnntorch.FloatTensor) should be the same or input should be a"
        " MKLDNN tensor and weight is a dense tensor",
    )


def _check_copy(bound: dict[str, Any]) -> None:
    message = "copy_mkldnn_: between mkldnn layout and dense Tensors is not implemented!"
    first, second = (_mkldnn(t, message) for t in list(bound.values())[:2])
    if first.shape != second.shape:
        raise RuntimeError("copy_mkldnn_: only support same size tensor.")


mkldnn_takes("relu", "nn.functional.relu", "prelu", "softmax", "nn.functional.softmax")
mkldnn_takes("clone", "zero_", "reshape", "flatten", "transpose", "t")
mkldnn_takes("nn.functional.linear", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d")
mkldnn_takes("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", check=_check_conv)
mkldnn_takes("nn.functional.max_pool2d", "nn.functional.max_pool3d", check=_check_max_pool)
mkldnn_takes("nn.functional.adaptive_avg_pool2d", check=_check_adaptive)
mkldnn_takes("nn.functional.gelu", check=_check_gelu)
mkldnn_takes("add", check=_check_add)
mkldnn_takes("mul", check=_check_mul)
mkldnn_takes("copy_", check=_check_copy)


def text(self: Any, *, tensor_contents: str | None = None) -> str:
    """Return the printed form: the elements of the plain tensor, and the layout."""
    return printing.tensor_repr(
        values_on_host(self._value),
        self.dtype,
        default_float_dtype=get_default_dtype(),
        requires_grad=self.requires_grad,
        grad_fn_name=None if self.grad_fn is None else self.grad_fn.name(),
        device=None if self.device is default_device() else str(self.device),
        layout=repr(self.layout),
        contents=tensor_contents,
        prefix="Parameter containing:\ntensor(" if getattr(self, "_is_param", False) else "tensor(",
    )


for _name, _method in {"to_dense": to_dense, "__repr__": text}.items():
    setattr(MkldnnTensor, _name, _method)
