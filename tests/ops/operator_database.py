"""Calls of every operator in PyTorch's database of operators, and what PyTorch answers, in a file that is small.

python -m tests.ops.operator_database               with PyTorch: writes operator_database.xz, and names the calls that differ here

A call is kept as data: numbers as a formula of their place wherever the operator does not ask for more (a symmetric matrix, an index),
so that only shapes and ranges are stored. An answer is kept as its dtype, its shape and three sums with different weights, which a change
of any element changes. Gradients are those of the same sums. Of calls that PyTorch refuses, the kind of error and its text are kept.
"""

from __future__ import annotations

import functools
import importlib
import json
import lzma
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".xz")
STRUCTURED = (
    "linalg", "cholesky", "lu", "ormqr", "orgqr", "triangular", "geqrf", "svd", "pca", "symeig", "qr", "inverse", "pinverse", "logdet", "det",
    "matrix_exp", "householder", "binary_cross_entropy", "multinomial", "bernoulli", "normal", "histc", "histogram", "searchsorted",
    "bucketize", "quantile", "nanquantile", "cross_entropy", "kl_div", "ctc", "sort", "msort", "unique", "mode", "kthvalue", "round", "sparse",
    "grid_sample", "fake_quantize", "allclose", "isclose", "equal", "heaviside", "nextafter", "floor_divide", "trunc",
)  # fmt: skip
LARGEST = 3000  # elements of an argument
SAMPLES = {
    "float32": 4,
    "complex64": 1,
    "int64": 1,
    "bool": 2,
    "bfloat16": 2,
}  # the last two where there is none of the others
ERRORS = 6  # calls of an operator that are refused
TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-7, "complex128": 1e-7}


def ramp(shape: tuple[int, ...], low: float, high: float, turn: float) -> np.ndarray:
    """Numbers from low to high, no two alike."""
    count = int(np.prod(shape))
    waves = np.sin(np.arange(1, count + 1) * (0.7 + turn)) * 0.5 + 0.5
    return np.round(low + (high - low) * waves, 4).reshape(shape)


# -- calls as data -------------------------------------------------------------------------------------------------------------------


def told(value: Any, structured: bool, turn: float = 0.0) -> Any:
    """An argument of PyTorch's as JSON. Raises LookupError for what has no such form."""
    torch = sys.modules["torch"]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"name": str(value).partition(".")[2]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if value is Ellipsis:
        return {"ellipsis": 1}
    if type(value) in (list, tuple, torch.Size):
        return {
            "list" if type(value) is list else "tuple": [
                told(v, structured, turn + 0.1 * i) for i, v in enumerate(value)
            ]
        }
    if type(value) is dict:
        return {"dict": {k: told(v, structured, turn + 0.1) for k, v in value.items()}}
    if (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout is torch.strided
        and value.is_cpu
        and value.numel() <= LARGEST
        and value.ndim < 32
    ):
        return {"tensor": _tensor_told(value, structured, turn)}
    raise LookupError(f"{type(value).__name__}")


def _tensor_told(tensor: Any, structured: bool, turn: float) -> list:
    kind = str(tensor.dtype).partition(".")[2]
    if kind not in (
        "float32",
        "float64",
        "complex64",
        "complex128",
        "int64",
        "int32",
        "uint8",
        "int8",
        "int16",
        "bool",
        "bfloat16",
        "float16",
    ):
        raise LookupError(kind)
    if 0 in tensor.stride() and tensor.numel() > 1:
        raise LookupError("expanded")
    data = tensor.detach().resolve_conj().resolve_neg()
    plain = data.float() if kind in ("bfloat16", "float16") else data
    array = plain.numpy()
    strides = None if tensor.is_contiguous() else list(tensor.stride())
    flat = np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array
    if flat.dtype.kind in "biu":
        content: Any = flat.astype(np.int64).ravel().tolist()
    elif structured or flat.size < 3 or not np.isfinite(flat).all():
        content = [repr(round(float(v), 4)) for v in flat.ravel()]
    else:
        content = {"low": round(float(flat.min()), 2), "high": round(float(flat.max()), 2), "turn": round(turn, 2)}
    return [kind, list(array.shape), strides, tensor.requires_grad, content]


def built(kept: Any, library: Any) -> Any:
    """An argument of a library's from JSON."""
    if not isinstance(kept, dict):
        return kept
    ((kind, content),) = kept.items()
    if kind == "tensor":
        return _tensor_built(content, library)
    if kind in ("list", "tuple"):
        return {"list": list, "tuple": tuple}[kind](built(v, library) for v in content)
    make: dict[str, Callable[[Any], Any]] = {
        "float": float, "complex": lambda v: complex(*v), "name": lambda v: getattr(library, v), "device": library.device,
        "slice": lambda v: slice(*v), "ellipsis": lambda v: Ellipsis, "dict": lambda v: {k: built(x, library) for k, x in v.items()},
    }  # fmt: skip
    return make[kind](content)


def _tensor_built(kept: list, library: Any) -> Any:
    kind, shape, strides, wants_grad, content = kept
    flat = (*shape, 2) if kind.startswith("complex") else tuple(shape)
    if isinstance(content, dict):
        array = ramp(flat, content["low"], content["high"], content["turn"])
    else:
        array = np.array([float(v) for v in content] if kind[0] in "fc" or kind[1] == "f" else content).reshape(flat)
    if kind.startswith("complex"):
        array = array[..., 0] + 1j * array[..., 1]
    made = library.tensor(array, dtype=getattr(library, kind))
    if strides is not None:
        made = library.empty_strided(tuple(shape), tuple(strides), dtype=made.dtype).copy_(made)
    return made.requires_grad_() if wants_grad else made


# -- answers -------------------------------------------------------------------------------------------------------------------------


def tensors(value: Any) -> list:
    """The tensors and numbers of a result, in order."""
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return [value] if hasattr(value, "detach") or isinstance(value, (bool, int, float, complex)) else []


def weights(count: int) -> np.ndarray:
    return np.cos(np.arange(1, count + 1)[None] * np.array([[0.9], [1.7], [0.31]]) + 0.4)


def summed(value: Any) -> list:
    """What is kept of one tensor or number: dtype, shape, how many are not finite, three sums and the norm."""
    if not hasattr(value, "detach"):
        return [type(value).__name__, *([value.real, value.imag] if isinstance(value, complex) else [value])]
    kind = str(value.dtype).partition(".")[2]
    data = value.detach()
    data = data.to_dense() if "strided" not in str(data.layout) else data
    data = data.float() if kind in ("bfloat16", "float16") else data.resolve_conj().resolve_neg()
    array = data.numpy()
    flat = np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array
    flat = flat.astype(np.float64).ravel()
    odd = ~np.isfinite(flat)
    signs = [int(np.isnan(flat).sum()), int(np.isposinf(flat).sum()), int(np.isneginf(flat).sum())] if odd.any() else 0
    flat = np.where(odd, 0, flat)
    sums = [float(f"{v:.7g}") for v in weights(flat.size) @ flat]
    return [kind, list(array.shape), signs, sums, float(f"{np.sqrt(flat @ flat):.7g}")]


def answer(function: Callable[..., Any], args: list, kwargs: dict, library: Any, leaves: list | None = None) -> list:
    """[results, gradients] of a call, as sums; or [kind of error, text]. `leaves` may hold tensors that the call makes itself."""
    library.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = tensors(function(*args, **kwargs))
            taught = [t for t in results if hasattr(t, "requires_grad") and t.requires_grad]
            given = [t for t in tensors([args, kwargs, leaves or []]) if getattr(t, "requires_grad", False)]
            grads: list = []
            if taught and given:
                outer = [library.tensor(_outer(t), dtype=t.dtype) for t in taught]
                grads = list(library.autograd.grad(taught, given, outer, allow_unused=True))
            return [[summed(t) for t in results], [g if g is None else summed(g) for g in grads]]
    except Exception as error:
        return [type(error).__name__.lstrip("_"), str(error).partition("\n")[0][:160]]


def _outer(tensor: Any) -> np.ndarray:
    shape = tuple(tensor.shape)
    first, second, _ = weights(int(np.prod(shape)))
    return (first + 1j * second if "complex" in str(tensor.dtype) else first).reshape(shape)


def differs(found: list, kept: list) -> str:
    """What is different between two answers, "" if they agree."""
    if isinstance(found[0], str) or isinstance(kept[0], str):
        return "" if found == kept else f"{found} instead of {kept}"
    for what, ours, theirs in zip(("result", "gradient"), found, kept):
        if len(ours) != len(theirs):
            return f"{len(ours)} {what}s instead of {len(theirs)}"
        for mine, wanted in zip(ours, theirs):
            if not _agree(mine, wanted):
                return f"{what} {mine} instead of {wanted}"
    return ""


def _agree(mine: Any, wanted: Any) -> bool:
    if mine is None or wanted is None or len(mine) != len(wanted) or len(mine) < 4:
        return mine == wanted or (mine is not None and wanted is not None and np.allclose(mine[-1], wanted[-1], 1e-5))
    tolerance = TOLERANCE.get(mine[0], 5e-5)
    room = tolerance * wanted[4] + 1e-6
    return (
        mine[:3] == wanted[:3]
        and bool(np.abs(np.subtract(mine[3:4], wanted[3:4])).max() <= room)
        and abs(mine[4] - wanted[4]) <= room
    )


# -- recording -----------------------------------------------------------------------------------------------------------------------


def function_of(name: str, library: Any) -> Callable[..., Any]:
    return functools.reduce(getattr, name.split("."), library)


def drawn(info: Any, dtype: Any) -> Iterator[Any]:
    """Samples of an operator for a dtype: some of its list, from the first to the last."""
    kind = str(dtype).partition(".")[2]
    wants_grad = info.supports_autograd and kind in ("float32", "complex64")
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=wants_grad))
    count = SAMPLES[kind]
    yield from samples[:: max(1, len(samples) // count)][:count]


def record() -> None:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    flambeau = importlib.import_module("flambeau")
    kept: dict[str, list] = {}
    different: list[str] = []
    for info in op_db:
        if "empty" in info.name:
            continue  # whatever was in the memory
        try:
            ours, theirs = function_of(info.name, flambeau), function_of(info.name, torch)
        except AttributeError:
            continue
        rows = []
        for args, kwargs in calls(info):
            call = [args, kwargs]
            given = [built(call[0], torch), built(call[1], torch)]
            wanted = answer(theirs, *given, torch)
            found = answer(ours, built(call[0], flambeau), built(call[1], flambeau), flambeau)
            again = answer(theirs, built(call[0], torch), built(call[1], torch), torch)
            if again != wanted and differs(again, wanted):
                continue  # it depends on more than its arguments
            difference = differs(found, wanted)
            if difference:
                different.append(
                    f"{info.name}{info.variant_test_name and '.' + info.variant_test_name}: {difference} {json.dumps(call)[:300]}"
                )
            elif json.dumps([call, wanted]) not in map(json.dumps, rows):
                rows.append([call, wanted])
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if rows:
            kept[name] = [info.name, rows]
    text = json.dumps({"torch": torch.__version__, "calls": kept}, separators=(",", ":"))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(*different, sep="\n")
    count = sum(len(rows) for _, rows in kept.values())
    print(f"{len(kept)} operators, {count} calls, {FILE.stat().st_size:,} bytes; {len(different)} differ")


def calls(info: Any) -> Iterator[tuple[list, dict]]:
    """The calls of an operator as data: those of its samples, and those of its errors."""
    import torch

    structured = info.name.removeprefix("nn.functional.").startswith(STRUCTURED)
    samples = []
    for kind in SAMPLES:
        dtype = getattr(torch, kind)
        if dtype in info.dtypes and not (samples and kind in ("bool", "bfloat16")):
            torch.manual_seed(0)
            samples += drawn(info, dtype)
    if info.error_inputs_func is not None:
        samples += [error.sample_input for error in info.error_inputs("cpu")][:ERRORS]
    for sample in samples:
        try:
            args = told([sample.input, *sample.args], structured)
            kwargs = told(dict(sample.kwargs), structured, 0.5)
        except (LookupError, AttributeError):
            continue
        yield args, kwargs


if __name__ == "__main__":
    record()
