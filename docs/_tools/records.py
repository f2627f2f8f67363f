"""What the record of an operator says, for its page in the reference."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from flambeau.onnx import registry
from flambeau.ops.machinery import schema_table
from flambeau.ops.machinery.record import Op

_KINDS = {
    "pointwise": "pointwise: a formula for each element, compiled for the device and fused with its neighbours",
    "reduction": "reduction: a formula and how its values are combined",
    "view": "view: the result shares the memory of its input",
    "primitive": "primitive: kernels of its own",
    "composite": "composite: made of other operators",
    "random": "random: draws numbers from a generator",
    "creation": "creation: makes a new tensor",
}
_PRECISIONS = {
    "lower": "computes in the lower precision (float16 or bfloat16)",
    "float32": "computes in float32",
    "widest": "computes in the widest precision of its arguments",
    "parts": "each operator that it is made of chooses",
    "": "keeps the dtypes of its arguments",
}
importlib.import_module("flambeau.onnx.forms")  # which puts ONNX forms into the records


def shapes(op: Op) -> str:
    """How the shape of the result follows from those of the arguments; empty where the kind does not tell."""
    operands = getattr(op.impl, "operand_names", ())
    if op.kind == "pointwise" and len(operands) == 1:
        return f"The result has the shape of `{operands[0]}`."
    if op.kind == "pointwise":
        return "The result has the shape to which " + listed([f"`{n}`" for n in operands]) + " broadcast."
    if op.kind == "reduction":
        return (
            "Without `dim` all elements are reduced to a tensor of shape `()`. With it, these dimensions are missing "
            "from the result, or have size 1 with `keepdim=True`."
        )
    if op.batching == "same":
        return "The result has the shape of `input`."
    return _products(op.sharding) if isinstance(op.sharding, str) and "->" in op.sharding else ""


def _products(subscripts: str) -> str:
    """The shapes of a product whose sharding rule is written in subscripts, "mk,kn->mn"."""
    given, _, result = subscripts.removeprefix("+").partition("->")
    told = [f"`({', '.join(dims)}{',' * (len(dims) == 1)})`" for dims in (*given.split(","), result)]
    return f"{listed(told[:-1])} give {told[-1]}."


def facts(op: Op) -> Iterator[tuple[str, str]]:
    """What the record says, as pairs of a title and a text."""
    yield "Kind", _KINDS[op.kind]
    yield "Forms", _forms(op)
    yield "Derivative", _derivative(op)
    if op.draws and op.kind != "random":
        yield "Random numbers", "draws them from the generator of the device"
    yield "Autocast", _autocast(op)
    yield "Kernels", _kernels(op)
    schemas = list(schema_table.lines().get(f"aten::{op.aten_name}", {}).values())
    if schemas:
        yield "PyTorch's schema", "\n".join(f"`{text}`" for text in schemas[:4])
    yield "ONNX", _onnx(op)
    if op.sparse is not None:
        yield "Sparse tensors", "has a form for them"
    if op.quantized is not None:
        yield "Quantized tensors", "has a form for them"
    if op.aliases:
        yield "Also called", ", ".join(f"`{name}`" for name in op.aliases)


def _forms(op: Op) -> str:
    forms = [f"function in `{'torch' if space == 'torch' else 'torch.' + space}`" for space in op.namespaces]
    if op.method is not None:
        forms.append(f"method `Tensor.{op.name}`")
    if op.inplace is not None:
        forms.append(f"in place: `Tensor.{op.name}_`")
    if op.has_out or "out" in op.arguments:
        forms.append("`out=`")
    return ", ".join(forms)


def _derivative(op: Op) -> str:
    if not op.differentiable:
        return "none: no gradient flows through it"
    if op.kind in ("composite", "random", "creation"):
        return (
            "by the operators that it is made of" if op.kind == "composite" else "with respect to its tensor arguments"
        )
    if getattr(op.impl, "grad", None) is not None:
        return "written by hand beside the formula"
    return {"pointwise": "found by differentiating the formula", "view": "the opposite view"}.get(op.kind, "yes")


def _autocast(op: Op) -> str:
    told = _precision(op.autocast)
    on_gpu = _precision(op.autocast_cuda) if op.autocast_cuda is not None else told
    return told if told == on_gpu else f"{told}; on CUDA {on_gpu}"


def _precision(chosen: Any) -> str:
    return "depends on the call" if callable(chosen) else _PRECISIONS.get(chosen or "", str(chosen))


def _kernels(op: Op) -> str:
    if op.kind in ("pointwise", "reduction"):
        return "generated for the CPU (LLVM) and CUDA (NVRTC)"
    if op.kind == "view":
        return "none: no element is touched"
    own = {"any": "generated for every device", "cpu": "CPU", "cuda": "CUDA", "meta": "meta"}
    return ", ".join(own.get(name, name) for name in op.kernels) or "those of the operators that it is made of"


def _onnx(op: Op) -> str:
    name = f"aten::{op.aten_name}"
    if registry.form_of(name) is not None or registry.in_torchlib(name):
        return "exported"
    return registry.reason(name) or ("through its parts" if op.kind == "composite" else "no form of its own")


def listed(names: list[str]) -> str:
    """Names in words: "a, b and c"."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
