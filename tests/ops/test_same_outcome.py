"""Small cases in which a call must give what PyTorch gives: the same value, layout and number of warnings, or the same kind of error."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")


def put(t: Any, key: Any, value: Any) -> Any:
    t[key] = value
    return t


def bytes_mask(L: Any) -> Any:
    return L.tensor([1, 0, 1], dtype=L.uint8)


def strided_gradient(L: Any) -> Any:
    x = L.arange(6.0, requires_grad=True)
    x.as_strided([3, 3], [1, 1]).mul(L.arange(9.0).view(3, 3)).sum().backward()
    return x.grad


def flat_like_image(L: Any, memory_format: str) -> Any:
    image = L.zeros(2, 3, 4, 5).contiguous(memory_format=L.channels_last)
    return L.zeros(120).resize_as_(image, memory_format=getattr(L, memory_format))


def numbers(L, *shape, start=0.3):
    """Numbers of both signs that any library makes alike."""
    return L.tensor((np.arange(np.prod(shape)) * 37 % 19 / 8 - start).reshape(shape).tolist())


def random_leak(L, name, training):
    L.manual_seed(0)
    noise, x = L.ones(3, 4), numbers(L, 3, 4, start=1.0).requires_grad_(name == "rrelu_with_noise")
    result = getattr(L.ops.aten, name)(x, noise, 0.1, 0.3, training)
    parts = result if isinstance(result, tuple) else (result,)
    slopes = L.autograd.grad((parts[0] * parts[0]).sum(), x) if parts[0].requires_grad else ()
    return *(p.detach() for p in parts), noise, *slopes


def drawn_anew(L, name, *settings):
    L.manual_seed(3)
    x = L.zeros(20)
    return getattr(L.ops.aten, name)(x, *settings), x


_INDEX = ([0, 1, 0], [2, 0, 2])
OPERATORS = {
    "log_sigmoid_forward": lambda L, a: a.log_sigmoid_forward(numbers(L, 3, 4)),
    "log_sigmoid_backward": lambda L, a: a.log_sigmoid_backward(
        numbers(L, 3, 4), numbers(L, 3, 4, start=1), a.log_sigmoid_forward(numbers(L, 3, 4, start=1))[1]
    ),
    "_prelu_kernel": lambda L, a: a._prelu_kernel(numbers(L, 3, 4, start=1), numbers(L, 1, 4)),
    "_prelu_kernel_backward": lambda L, a: a._prelu_kernel_backward(
        numbers(L, 3, 4), numbers(L, 3, 4, start=1), numbers(L, 1, 4)
    ),
    "rrelu_with_noise_backward": lambda L, a: tuple(
        a.rrelu_with_noise_backward(numbers(L, 3, 4), numbers(L, 3, 4, start=1), numbers(L, 3, 4), 0.1, 0.3, t, False)
        for t in (True, False)
    ),
    "multi_margin_loss_backward": lambda L, a: tuple(
        a.multi_margin_loss_backward(
            numbers(L, 3) if kind == 0 else L.tensor(2.0), numbers(L, 3, 4), L.tensor([0, 2, 3]), p, 0.7, None, kind
        )
        for p in (1, 2)
        for kind in (0, 1, 2)
    ),
    "_trilinear": lambda L, a: (
        a._trilinear(numbers(L, 2, 3), numbers(L, 3, 4), numbers(L, 2, 4), [2], [0], [1], [1]),
        a._trilinear(numbers(L, 2, 3), numbers(L, 3, 4), numbers(L, 2, 4), [2], [0], [1], [1, 2], 2),
    ),
    "_unsafe_index": lambda L, a: a._unsafe_index(
        numbers(L, 2, 3, 4), [L.tensor(_INDEX[0]), None, L.tensor(_INDEX[1])]
    ),
    "_unsafe_index_put": lambda L, a: a._unsafe_index_put(
        numbers(L, 2, 3, 4), [L.tensor(_INDEX[0]), None, L.tensor(_INDEX[1])], numbers(L, 3, 3), True
    ),
    "index_put after a whole dimension": lambda L, a: (
        a.index_put(numbers(L, 2, 3, 4), [None, *map(L.tensor, _INDEX)], numbers(L, 2, 3), True),
        a.index_put(numbers(L, 2, 3, 4), [None, L.tensor(_INDEX[0])], numbers(L, 3, 4), True),
    ),
    "_unsafe_masked_index": lambda L, a: a._unsafe_masked_index(
        numbers(L, 3, 4), L.tensor([True, False, True]), list(map(L.tensor, _INDEX)), 5
    ),
    "_unsafe_masked_index_put_accumulate": lambda L, a: a._unsafe_masked_index_put_accumulate(
        numbers(L, 3, 4), L.tensor([True, False, True]), list(map(L.tensor, _INDEX)), numbers(L, 3)
    ),
    "_fused_rms_norm": lambda L, a: (
        *a._fused_rms_norm(numbers(L, 2, 3, 4), [3, 4], numbers(L, 3, 4), None),
        *a._fused_rms_norm(numbers(L, 2, 3, 4), [4], None, 1e-3),
    ),
    "uniform": lambda L, a: drawn_anew(L, "uniform", 1.0, 2.0),
    "geometric": lambda L, a: drawn_anew(L, "geometric", 0.3),
    "normal_functional": lambda L, a: drawn_anew(L, "normal_functional", 1.0, 2.0),
    **{
        f"{name} {'in training' if training else 'in evaluation'}": functools.partial(
            lambda L, a, name, training: random_leak(L, name, training), name=name, training=training
        )
        for name in ("rrelu_with_noise", "rrelu_with_noise_", "rrelu_with_noise_functional")
        for training in (True, False)
    },
}


def gradients_of_reduced_parts(L, how, values, included):
    """Gradients of scatter_reduce and index_reduce where values are equal, zero, infinite or nan."""
    index, found = L.tensor([0, 0, 1]), []
    for reduce in (L.scatter_reduce, L.index_reduce):
        x, source = (L.tensor(v, requires_grad=True) for v in ([2.0, 3.0, 1.0], list(values)))
        result = reduce(x, 0, index, source, how, include_self=included)
        found += [result.detach(), *L.autograd.grad((result * L.tensor([1.0, 2.0, 3.0])).sum(), (x, source))]
    return tuple(found)


def gradients_at(L, function, values):
    x = L.tensor(values, requires_grad=True)
    return L.autograd.grad(function(L, x), x)


def second_derivative_of_rows(L: Any, **options: Any) -> Any:
    """Of the gradient of a table by the gradient of the rows that were read."""
    table = L.arange(6.0).view(3, 2).requires_grad_()
    given = L.arange(8.0).view(4, 2).requires_grad_()
    rows = L.nn.functional.embedding(L.tensor([0, 1, 2, 1]), table, **options)
    (found,) = L.autograd.grad(rows, table, given, create_graph=True)
    return found.detach(), *L.autograd.grad((found * L.arange(1.0, 7.0).view(3, 2)).sum(), given)


def filled(L: Any, module: Any) -> Any:
    """A module whose parameters are small different numbers."""
    with L.no_grad():
        for number, p in enumerate(module.parameters(), 1):
            p.copy_((L.arange(float(p.numel())) * number * 0.37).sin().view(p.shape))
    return module


def sizes_of_blocks(L: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says once in a process that these are new
        made = [
            L.sparse_bsr_tensor([0, 1, 2], [1, 0], L.ones(2, 2, 3)),
            L.sparse_bsc_tensor([0, 1, 2], [1, 0], L.ones(2, 2, 3)),
            L.sparse_csr_tensor([0, 1, 2], [4, 0], L.ones(2)),
            L.sparse_csc_tensor([0, 1, 2], [4, 0], L.ones(2, 3)),
        ]
    return tuple(list(t.shape) for t in made)


def refused_state(L: Any, strict: bool, size: int = 1) -> Any:
    """What is said of a state dict of other names, and of another size."""
    try:
        found = L.nn.Linear(1, 1).load_state_dict({"weight": L.ones(1, size), "b": L.ones(1)}, strict=strict)
        return list(found.missing_keys), list(found.unexpected_keys)
    except RuntimeError as error:
        return str(error)


def lossy_network(L: Any, kind: str, layers: int, train: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dropout of one layer
        module = filled(L, getattr(L.nn, kind)(2, 2, num_layers=layers, dropout=1.0)).train(train)
    return module(L.arange(6.0).view(3, 1, 2))[0].detach()


def other_widths(L: Any, bias: bool, past: bool, zeros: bool) -> Any:
    """Attention whose keys and values have widths of their own."""
    module = L.nn.MultiheadAttention(4, 2, bias=bias, kdim=3, vdim=2, add_bias_kv=past, add_zero_attn=zeros)
    given = [L.arange(float(n * 2)).view(n, 1, 2).repeat(1, 1, 2)[..., :w] * 0.3 for n, w in ((2, 4), (3, 3), (3, 2))]
    with L.no_grad():
        return filled(L, module)(*given)


def ranges_between(L: Any) -> Any:
    x = L.zeros(2, 3)
    L.linspace(0, 3, 4, out=x.narrow(1, 1, 2))
    return x


def bits(L: Any, before: str, after: str) -> Any:
    """The history of a tensor read as another dtype, before and behind a change in place."""
    x = L.zeros(2, 2, dtype=getattr(L, before), requires_grad=True)
    y = x.view(getattr(L, after))
    y.add_(1)
    return y.requires_grad, y._is_view(), x._version


def list_of_itself() -> list:
    values: list = [0]
    values.append(values)
    return values


def sparse(L: Any, values: list, shape: tuple[int, ...]) -> Any:
    return L.sparse_coo_tensor(L.tensor([[0, 2], [0, 1]]), L.tensor(values), shape, check_invariants=False)


def capsule(L: Any) -> Any:
    return L.utils.dlpack.to_dlpack(L.arange(3))


def asarray_history(L: Any, **options: Any) -> Any:
    result = L.asarray(L.ones(2, requires_grad=True) * 2, **options)
    return result.requires_grad, result.grad_fn is None


def under_default(L: Any, dtype: str, call: Callable[[], Any]) -> Any:
    before = L.get_default_dtype()
    L.set_default_dtype(getattr(L, dtype))
    try:
        return call()
    finally:
        L.set_default_dtype(before)


def segments(L: Any, reduce: str, values: list[float], **options: Any) -> Any:
    data = L.tensor(values, requires_grad=True)
    result = L.segment_reduce(data, reduce, **{"lengths": L.tensor([0, 2, 3, 1, 0]), **options})
    return result, *L.autograd.grad(result.sum(), data)


class Foreign:
    def __radd__(self, other: Any) -> str:
        return "added"


def warnings_always(L: Any, call: Callable[[], Any]) -> Any:
    L.set_warn_always(True)
    try:
        return call()
    finally:
        L.set_warn_always(False)


def augmented(x: Any, other: Any) -> Any:
    x += other
    return x


def refusal(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


# Operators whose kernels for 16-bit numbers round between their steps, and those that round less often than they could.
STEPS: dict[str, Callable[..., Any]] = {
    "trunc": lambda L, x, y, z: L.div(x, y, rounding_mode="trunc"),
    "trunc by a number": lambda L, x, y, z: L.div(x, 0.3, rounding_mode="trunc"),
    "floor": lambda L, x, y, z: L.div(x, y, rounding_mode="floor"),
    "floor_divide": lambda L, x, y, z: (x // y).add(x // 0.3),
    "ldexp": lambda L, x, y, z: L.ldexp(x, y.round()),
    "add": lambda L, x, y, z: L.add(x, y, alpha=0.3),
    "add a number": lambda L, x, y, z: L.add(x, 0.7, alpha=0.3),
    "sub": lambda L, x, y, z: L.sub(x, y, alpha=0.3),
    "rsub": lambda L, x, y, z: L.rsub(x, y, alpha=0.3),
    "number over tensor": lambda L, x, y, z: 0.1 / x,
    "addcmul": lambda L, x, y, z: L.addcmul(x, y, z, value=0.3),
    "addcdiv": lambda L, x, y, z: L.addcdiv(x, y, z, value=0.3),
    "lerp": lambda L, x, y, z: L.lerp(x, y, 0.3) + L.lerp(x, y, 0.7),
    "lerp with weights": lambda L, x, y, z: L.lerp(x, y, z),
    "hardshrink": lambda L, x, y, z: L.nn.functional.hardshrink(x, 0.3),
    "threshold": lambda L, x, y, z: L.nn.functional.threshold(x, 0.3, 0.1),
    "cube": lambda L, x, y, z: x**3,
    "square of the reciprocal": lambda L, x, y, z: x**-2,
}
LOGARITHMS: dict[str, Callable[..., Any]] = {  # whose last bits differ where they are not rounded away
    "xlogy": lambda L, x, y, z: L.xlogy(x, y.abs()),
    "xlog1py": lambda L, x, y, z: L.special.xlog1py(x, y.abs()),
    "entr": lambda L, x, y, z: L.special.entr(x.abs()),
    "logit": lambda L, x, y, z: L.logit(x / 9, 0.01),
}


def steps(L: Any, name: str, kind: str) -> Any:
    draws = (
        np.random.default_rng(0).uniform(-9, 9, (3, 1024)).round(2)
    )  # whole vectors: the rest takes other steps there
    x, y, z = L.tensor(draws).to(getattr(L, kind))
    return {**STEPS, **LOGARITHMS}[name](L, x, y, z).tolist()


GRID = np.arange(6.0).reshape(2, 3)
COMPLEX = -0.0316 + 0.8888888888j
LARGE = 2**63 - 1

CASES: dict[str, Callable[[Any], Any]] = {
    "lp_pool, the smallest": lambda L: L.nn.functional.lp_pool1d(L.arange(24.0).reshape(1, 2, 12) - 9, -math.inf, 3),
    "lp_pool, the largest": lambda L: L.nn.functional.lp_pool1d(L.arange(24.0).reshape(1, 2, 12) - 9, math.inf, 3),
    "attention of no samples": lambda L: L.nn.MultiheadAttention(8, 2)(*[L.zeros(3, 0, 8)] * 3)[0].shape,
    "transformer of no samples": lambda L: (
        L.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(L.zeros(0, 3, 8)).shape
    ),
    "instance_norm, eps 0": lambda L: L.nn.functional.instance_norm(L.arange(8.0).reshape(1, 2, 4), eps=0.0),
    "batch_norm, eps 0": lambda L: L.nn.functional.batch_norm(L.ones(4, 2), None, None, training=True, eps=0.0),
    # indexing
    "leading ones of an assigned value": lambda L: put(L.zeros(4, 4), (range(4), range(4)), L.ones(1, 4)),
    "more leading ones than dimensions": lambda L: put(L.zeros(4), [0, 1], L.ones(1, 1, 2)),
    "True before slices": lambda L: put(L.zeros(2, 3), L.tensor(True), L.ones(1, 1, 2, 3)),
    "shapes are looked at before dtypes": lambda L: put(L.arange(4), L.arange(4) > -1, L.tensor([1.0, 2.0])),
    "dtypes differ": lambda L: put(L.arange(4), [0, 1], L.tensor([1.0, 2.0])),
    "byte mask": lambda L: L.arange(3.0)[bytes_mask(L)],
    "byte mask, assigned": lambda L: put(L.zeros(3, 2), bytes_mask(L), L.ones(2)),
    "byte mask, added": lambda L: L.zeros(3).index_put_((bytes_mask(L),), L.ones(2), accumulate=True),
    "dimension without elements": lambda L: L.empty(10, 0)[:, [0, 1]],
    "second index out of bounds": lambda L: L.zeros(2, 5, 10)[0, 5],
    "third index out of bounds": lambda L: L.zeros(2, 5, 10)[:, 1, 15],
    "number indexed": lambda L: L.tensor(10)[0],
    "put nowhere": lambda L: L.tensor(1.0).index_put([], L.tensor([1.0])),
    "complex number into real elements": lambda L: L.zeros(2, 2).index_fill(1, L.tensor([0]), 1 + 1j),
    "complex number into truth values": lambda L: L.zeros(2, 2, dtype=L.bool).index_fill(1, L.tensor([0]), 1j),
    "unravel with a tensor": lambda L: L.unravel_index(L.tensor([1]), L.tensor([1, 2, 3])),
    "unravel with floats": lambda L: L.unravel_index(L.tensor([1]), (2, 2.0)),
    "nonzero into floats": lambda L: L.nonzero(L.ones(2), out=L.empty(0)),
    "nonzero as tuple into a tensor": lambda L: L.nonzero(L.ones(2), as_tuple=True, out=L.empty(0, dtype=L.long)),
    # shapes and memory
    "negative shape": lambda L: L.broadcast_shapes((-3,), (2, 2)),
    "shape of floats": lambda L: L.broadcast_shapes(1.5, 3),
    "shapes that do not fit": lambda L: L.broadcast_shapes((2, 3), (3, 4)),
    "derivative of as_strided with lists": strided_gradient,
    "one column as complex": lambda L: L.view_as_complex(L.arange(6.0).as_strided((3, 1, 2), (2, 1, 1))),
    "resize_as_, kept layout": lambda L: flat_like_image(L, "preserve_format"),
    "resize_as_, given layout": lambda L: flat_like_image(L, "contiguous_format"),
    "more bytes than addresses": lambda L: L.empty(LARGE),
    "sparse pairs as complex": lambda L: L.view_as_complex(sparse(L, [[2.0, 3.0], [4.0, 5.0]], (3, 3, 2))).to_dense(),
    "sparse complex as pairs": lambda L: L.view_as_real(sparse(L, [2 + 3j, 4.0], (3, 3))).to_dense(),
    "sparse numbers as complex": lambda L: L.view_as_complex(sparse(L, [2.0, 3.0], (3, 2))),
    # new tensors
    "range into a matrix": lambda L: L.arange(4, out=L.zeros(2, 2)),
    "line into a part of a matrix": ranges_between,
    "powers into a matrix": lambda L: L.logspace(0, 3, 4, base=2, out=L.zeros(2, 2)),
    "line into one cell": lambda L: L.linspace(0, 3, 4, out=L.zeros(1).expand(4)),
    "empty vectors joined along any dimension": lambda L: L.cat([L.empty(0), L.empty(0)], dim=3),
    "asarray of a capsule": lambda L: L.asarray(capsule(L), copy=False),
    "asarray of a capsule, converted": lambda L: L.asarray(capsule(L), dtype=L.float64),
    "asarray keeps history": asarray_history,
    "asarray forgets history": lambda L: asarray_history(L, requires_grad=False),
    "asarray of a NumPy number, shared": lambda L: L.asarray(np.float32(3), copy=False),
    "storage of the default dtype": lambda L: under_default(L, "float64", lambda: L.Storage.__name__),
    **{
        f"complex numbers where {d} is the default, {n}": lambda L, d=d, call=call: under_default(
            L, d, lambda: str(call(L).dtype)
        )
        for d in ("float16", "bfloat16", "float64")
        for n, call in {
            "full": lambda L: L.full((2,), 1j),
            "fft of integers": lambda L: L.fft.fft(L.ones(4, dtype=L.int64)),
            "rfft of truth": lambda L: L.fft.rfft(L.ones(4, dtype=L.bool)),
            "linspace": lambda L: L.linspace(0, 1j, 3),
            "logspace": lambda L: L.logspace(0, 1j, 3),
        }.items()
    },
    "storage without a file": lambda L: L.zeros(3).untyped_storage().filename,
    "range into too few elements": lambda L: L.arange(5, out=L.zeros(2, 2)),
    "window of a sparse layout": lambda L: L.hann_window(3, layout=L.sparse_coo),
    "old constructor for another device": lambda L: L.FloatTensor(3, device="cuda"),
    "dtype as the default tensor type": lambda L: L.set_default_tensor_type(L.float32),
    "default tensor type of whole numbers": lambda L: L.set_default_tensor_type("torch.LongTensor"),
    "a list in itself": lambda L: L.tensor(list_of_itself()),
    "complex128 numbers are not rounded": lambda L: L.full((1,), COMPLEX, dtype=L.complex128).item() == COMPLEX,
    "complex128 numbers assigned": lambda L: put(L.zeros(1, dtype=L.complex128), 0, COMPLEX).item() == COMPLEX,
    "complex line of one point": lambda L: L.linspace(COMPLEX, 2, 1, dtype=L.complex128).item() == COMPLEX,
    "NumPy numbers are not rounded": lambda L: L.full((1,), np.float64(1 / 3), dtype=L.float64).item() == 1 / 3,
    "float bits as ints": lambda L: bits(L, "float32", "int32"),
    "float bits as complex": lambda L: bits(L, "float32", "complex64"),
    "float bits as themselves": lambda L: bits(L, "float32", "float32"),
    "float8 samples": lambda L: (L.manual_seed(3), L.testing.make_tensor(9, dtype=L.float8_e5m2, device="cpu").float())[
        1
    ],
    # NumPy and other libraries
    "equal to an array": lambda L: L.arange(6.0).view(2, 3) == GRID,
    "equal to a broadcast array": lambda L: L.arange(6).view(2, 3) == GRID[0],
    "equal to an array of another shape": lambda L: L.arange(6).view(2, 3) == GRID[:, :2],
    "equal to an array of words": lambda L: L.arange(2) == np.array(["a", "b"]),
    "storage of a NumPy size": lambda L: L.FloatStorage(np.int16(3)).size(),
    "stream of another kind": lambda L: L.zeros(3).__dlpack__(stream="first"),
    "stream on the CPU": lambda L: L.zeros(3).__dlpack__(stream=1),
    "plus an array without dimensions": lambda L: L.ones(2) + np.array(3.0),
    "smaller than an array without dimensions": lambda L: L.ones(2) < np.array(3.0),
    "an array without dimensions as an argument": lambda L: L.add(L.ones(2), np.array(3.0)),
    "an array over a tensor": lambda L: np.arange(2.0) / L.tensor([2.0, 4.0]),
    "in place, plus an array": lambda L: augmented(L.ones(2), np.arange(2.0)),
    # numbers and steps of formulas
    "in place, a foreign operand": lambda L: augmented(L.ones(2), Foreign()),
    "in place, an operand that nobody takes": lambda L: augmented(L.ones(2), "text"),
    "in place, the method refuses": lambda L: L.ones(2).__iadd__("text"),
    "equal to the largest number": lambda L: L.tensor([2**64 - 1, 3], dtype=L.uint64) == 2**64 - 1,
    "int64 and a number beyond it": lambda L: L.tensor([1, LARGE]) != 2**63,
    "a number beyond uint64": lambda L: L.tensor([1]) == 2**64,
    "tensor as a number": lambda L: L.addcmul(L.ones(2), L.ones(2), L.ones(2), value=L.tensor(2.0)),
    "tensor with a dimension as a number": lambda L: L.addcmul(L.ones(2), L.ones(2), L.ones(2), value=L.tensor([2.0])),
    "differentiable tensor as a number": lambda L: L.add(L.ones(2), L.ones(2), alpha=L.tensor(2.0, requires_grad=True)),
    "differentiable tensor to fill with": lambda L: L.full((2,), L.tensor(2.0, requires_grad=True)),
    "weight beyond float16": lambda L: L.lerp(L.ones(2, dtype=L.half), L.zeros(2, dtype=L.half), 70000),
    "weight of another dtype": lambda L: L.lerp(L.ones(2).double(), L.zeros(2).double(), L.tensor(0.25)),
    "weights of another dtype": lambda L: L.lerp(L.ones(2).double(), L.zeros(2).double(), L.tensor([0.25])),
    "a truth value inverted": lambda L: ~L.tensor([True, False]),
    "a float inverted": lambda L: ~L.ones(2),
    "a float's bits": lambda L: L.bitwise_not(L.ones(2)),
    "mantissas into another dtype": lambda L: L.frexp(L.ones(2), out=(L.ones(2).double(), L.ones(2).int())),
    "normal samples of a tensor's mean": lambda L: (L.manual_seed(3), L.normal(L.tensor(2.0), 1, (3,)))[1],
    "normal samples of negative width": lambda L: L.normal(L.tensor(2.0), -1, (3,)),
    "complex numbers made real": lambda L: warnings_always(L, lambda: L.tensor([1 + 2j]).int()),
    "complex numbers copied into real ones": lambda L: warnings_always(L, lambda: L.ones(1).copy_(L.tensor([2j]))),
    "complex numbers made truth values": lambda L: warnings_always(L, lambda: L.tensor([2j]).bool()),
    "trapezoids of two kinds": lambda L: L.trapezoid(L.ones(3), L.ones(3), dx=2),
    "trapezoids of complex width": lambda L: L.cumulative_trapezoid(L.ones(3), dx=1j),
    "no trapezoids": lambda L: L.trapezoid(L.ones(2, 0), L.ones(3)),
    "too many dimensions to reduce": lambda L: L.ones([1] * 65).sum(3),
    "mode into another dtype": lambda L: L.mode(L.ones(2), out=(L.ones(()).double(), L.ones(()).long())),
    "histogram of ints, its ends exchanged": lambda L: str(refusal(lambda: L.histc(L.arange(3), 2, 5, 1))),
}
for _name in (*STEPS, *LOGARITHMS):
    for _kind in ("bfloat16", "float16", "float32", "float64")[: 4 if _name in STEPS else 2]:
        CASES[f"{_name} of {_kind}"] = functools.partial(steps, name=_name, kind=_kind)
for kind in ("sum", "mean", "max", "min", "prod"):
    for start in (None, 2.0):
        for values in ([1.0, math.nan, 3.0, 5.0, 5.0, 6.0], [0.0, 1.0, 0.0, 0.0, 2.0, 3.0]):
            CASES[f"{kind} of segments of {values} from {start}"] = functools.partial(
                segments, reduce=kind, values=values, initial=start
            )
CASES["segments that leave out both ends"] = lambda L: segments(
    L, "sum", [1.0, 2.0, 3.0, 4.0], lengths=None, offsets=L.tensor([1, 2, 3])
)
CASES["segments of whole numbers"] = lambda L: L.segment_reduce(L.arange(4), "sum", lengths=L.tensor([1, 3]))
CASES["a part as long as a tensor says"] = lambda L: L.arange(6.0).narrow(0, L.tensor(1), L.tensor(3))
CASES["multivariate gamma of many dimensions"] = lambda L: L.mvlgamma(L.tensor([6.0, 7.5], dtype=L.float64), 9)
CASES["sparse gradient of rows without columns"] = lambda L: empty_rows_gradient(L)
for _wrong, (_h, _c, _w, _b) in {
    "cell state of another batch": ((3, 2), (1, 2), 8, 8),
    "cell state too short": ((3, 2), (3, 1), 8, 8),
    "hidden state too long": ((3, 3), (3, 2), 8, 8),
    "weights for three gates": ((3, 2), (3, 2), 6, 8),
    "bias too short": ((3, 2), (3, 2), 8, 4),
}.items():
    CASES[f"LSTM cell: {_wrong}"] = lambda L, h=_h, c=_c, w=_w, b=_b: L.lstm_cell(
        L.ones(3, 5), (L.ones(h), L.ones(c)), L.ones(w, 5), L.ones(w, 2), L.ones(b), L.ones(b)
    )


def empty_rows_gradient(L: Any) -> Any:
    table = L.zeros(10, 0, requires_grad=True)
    L.nn.functional.embedding(L.tensor([[0, 2], [4, 3]]), table, sparse=True).sum().backward()
    return table.grad.coalesce().to_dense()


def second_derivative_of_products(L: Any, zeros: int, include_self: bool = True) -> Any:
    """index_reduce with none, one or two zeros that meet in one product."""
    x, source = L.arange(1.0, 7.0).view(3, 2), L.arange(2.0, 10.0).view(4, 2)
    source[:zeros, 1] = 0
    x.requires_grad_(), source.requires_grad_()
    with warnings.catch_warnings():  # PyTorch calls it a beta
        warnings.simplefilter("ignore")
        out = x.index_reduce(0, L.tensor([0, 0, 1, 2]), source, "prod", include_self=include_self)
    first = L.autograd.grad(out.sum(), (x, source), create_graph=True)
    return L.autograd.grad(sum((t**2).sum() for t in first), (x, source))


POLYNOMIALS = [f"chebyshev_polynomial_{kind}" for kind in "tuvw"] + ["legendre_polynomial_p", "laguerre_polynomial_l"]
CASES |= {
    "prod twice": lambda L: second_derivative_of_products(L, 0),
    "prod twice, a zero": lambda L: second_derivative_of_products(L, 1),
    "prod twice, a zero, without self": lambda L: second_derivative_of_products(L, 1, False),
    "prod twice, two zeros": lambda L: second_derivative_of_products(L, 2),
    "polynomials of no degree": lambda L: tuple(
        getattr(L.special, f)(L.tensor([0.5, 1, 2]), L.tensor(n)) for f in POLYNOMIALS for n in (math.inf, -math.inf, math.nan, -3)
    ),
    "polynomials of a great degree": lambda L: tuple(  # at the ends, where counting up to it would not end
        getattr(L.special, f)(L.tensor([1.0, -1.0]), L.tensor(n)) for f in POLYNOMIALS[:-1] for n in (1e9, 1e9 + 1)
    ),
    "Laguerre at 0": lambda L: L.special.laguerre_polynomial_l(L.zeros(1), L.tensor(1e9)),
    "bins with gaps": lambda L: L.histogram(L.tensor([1.0, 2.5]), L.arange(6.0)[::2])[0],
    "as_strided_scatter before the view": lambda L: L.as_strided_scatter(L.arange(6.0)[1:4], L.tensor([8.0, 9]), (2,), (1,), 0),
    "as_strided_scatter, transposed": lambda L: L.as_strided_scatter(L.arange(6.0).view(2, 3).t(), L.tensor([8.0, 9]), (2,), (1,)),
    "arange of narrow integers": lambda L: tuple(L.arange(0, 5, s, dtype=d) for s in (0.5, 1.5, 2) for d in (L.int32, L.uint8)),
    "arange to a fraction": lambda L: tuple(L.arange(0, 2.5, dtype=d) for d in (L.int32, L.int64, L.int8)),
    "arange by less than 1": lambda L: L.arange(0, 2, 0.5, dtype=L.int64),
    "einsum that only sums": lambda L: L.einsum("ij->j", L.full((3, 2), 200, dtype=L.uint8)),
    "einsum of sums": lambda L: L.einsum("ij,kl->ik", *[L.full((3, 2), 200, dtype=L.uint8)] * 2),
    "einsum, one summed first": lambda L: L.einsum("ij,jk->i", *[L.full((2, 2), 200, dtype=L.uint8)] * 2),
    "unravel_index of bytes": lambda L: L.unravel_index(L.tensor([1, 3], dtype=L.uint8), (2, 2)),
    "tensordot of bytes, one broadcast": lambda L: L.tensordot(L.ones(1, 1, 1, dtype=L.uint8), L.full((2, 1, 2), 200, dtype=L.uint8), ((0, 1), (2, 0))),
    "masked cumsum of bytes": lambda L: L.masked.cumsum(L.tensor([1, 2, 3], dtype=L.uint8), 0, mask=L.tensor([True, False, True])),
    "masked cumprod of bools": lambda L: L.masked.cumprod(L.tensor([True]), 0),
    "masked var, half": lambda L: L.masked.var(L.arange(4.0).half(), correction=0.5),
    "masked std, a true correction": lambda L: L.masked.std(L.arange(4.0), correction=True),
    "masked logsumexp of integers": lambda L: L.masked.logsumexp(L.tensor([1, 2]), 0),
    "masked var of complex numbers": lambda L: L.masked.var(L.tensor([1j, 2.0, 3.0])).is_complex(),
    "masked logsumexp of everything": lambda L: L.masked.logsumexp(L.ones(2, 3), mask=L.tensor([True, False, True])),
}  # fmt: skip


def of_another_dtype(L: Any) -> Any:
    """A gradient of another dtype than the result, as seen by a hook."""
    x = L.ones(2, 2, dtype=L.bfloat16, requires_grad=True)
    y, seen = x @ x, []
    y.register_hook(lambda g: seen.append(g.dtype))
    y.backward(L.ones(2, 2))
    return x.grad, repr(seen)


def sparse_columns_times_vector(L: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says once that the layout is new
        weight = (L.arange(12.0).reshape(3, 4) - 5).to_sparse_csc().requires_grad_()
    x = L.arange(4.0, requires_grad=True)
    out = L.nn.functional.linear(x, weight)
    return (out.detach(), *L.autograd.grad(out, [weight, x], L.arange(3.0)))


def resized(L: Any, dtype: str, part: Callable, **options: Any) -> Any:
    """Images with channels last, or a part of them, in another size: values and strides."""
    images = (L.arange(2 * 3 * 8 * 8) % 251).reshape(2, 3, 8, 8).to(getattr(L, dtype))
    images = part(images.contiguous(memory_format=L.channels_last))
    return L.nn.functional.interpolate(images, size=(5, 11), align_corners=False, **options)


def buffer_over_attribute(L: Any) -> Any:
    m = L.nn.Module()
    m.number = 5
    m.number = L.nn.Buffer(L.ones(1))


class TensorLike:
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def tensor_like_buffer(L: Any) -> Any:
    m = L.nn.Module()
    m.register_buffer("b", TensorLike())
    m.b = TensorLike()
    return type(m.get_buffer("b")).__name__


def buffer_before_persistent(L: Any) -> Any:
    class Old(L.nn.Module):
        def register_buffer(self, name: str, value: Any) -> None:
            super().register_buffer(name, value, True)

    m = Old()
    m.b = L.nn.Buffer(L.ones(1))
    return list(m.state_dict())


def module_over_attribute(L: Any) -> Any:
    m = L.nn.Module()
    m.word = "a"
    m.set_submodule("word", L.nn.ReLU())


def same_start_in_any_format(L: Any) -> Any:
    m = L.nn.Conv3d(3, 4, 2)
    L.manual_seed(3)
    m.reset_parameters()
    first = m.weight.detach().clone()
    m.to(memory_format=L.channels_last_3d)
    L.manual_seed(3)
    m.reset_parameters()
    return bool((first == m.weight).all()), m.weight.stride()


def grad_by_its_other_name(L: Any) -> Any:
    p = L.nn.Parameter(L.ones(2))
    p._grad = L.ones(2)
    return p.grad, p._grad


CASES |= {
    "gradient of another dtype": of_another_dtype,
    "sparse columns times a vector": sparse_columns_times_vector,
    "threshold that bfloat16 cannot hold": lambda L: L.nn.functional.threshold(
        L.tensor([0.1, 0.2], dtype=L.bfloat16), 0.1, 20
    ),
    "buffer over an attribute": buffer_over_attribute,
    "buffer that is like a tensor": tensor_like_buffer,
    "buffer in a module that knows no persistent": buffer_before_persistent,
    "submodule over an attribute": module_over_attribute,
    "start of a convolution in any memory format": same_start_in_any_format,
    "grad by its other name": grad_by_its_other_name,
    "module to a copy": lambda L: L.nn.Linear(1, 1).to("cpu", copy=True),
    "module to a device and a flag": lambda L: L.nn.Linear(1, 1).to("cpu", True),
    "tensor to a device and a flag": lambda L: L.ones(1).to("cpu", True),
    "module to complex": lambda L: L.nn.Linear(1, 1).to(L.complex64).weight.dtype,
    "Lanczos with corners": lambda L: resized(L, "float32", lambda x: x, mode="lanczos", antialias=True).stride(),
}
for _dtype in ("uint8", "float64"):
    for _mode, _smooth in (("bilinear", False), ("bicubic", True), ("lanczos", True)):
        for _part, _take in {"whole": lambda x: x, "every other row": lambda x: x[:, :, ::2]}.items():
            CASES[f"{_mode} of {_dtype}, channels last, {_part}"] = functools.partial(
                resized, dtype=_dtype, part=_take, mode=_mode, antialias=_smooth
            )


def steep_in_place(L: Any, name: str) -> Any:
    """The gradient of an activation in place whose negative side points upwards."""
    x = L.tensor([-1.0, 1.0], requires_grad=True)
    getattr(L.nn.functional, name)(x.clone(), -2.0).sum().backward()
    return x.grad


def mixed_instance_norm(L: Any, data: str, statistics: str) -> Any:
    mean, var = (f(2, dtype=getattr(L, statistics)) for f in (L.zeros, L.ones))
    x = L.arange(16.0, dtype=getattr(L, data)).reshape(2, 2, 4)
    return L.nn.functional.instance_norm(x, mean, var, use_input_stats=True), mean, var


def channels_of_none(L: Any, dtype: str) -> Any:
    """A convolution of images without channels, and the gradient of its bias."""
    bias = L.ones(3, dtype=getattr(L, dtype), requires_grad=True)
    x, weight = (L.ones(s, dtype=bias.dtype, requires_grad=True) for s in ((2, 0, 5), (3, 0, 2)))
    out = L.nn.functional.conv1d(x, weight, bias)
    return out.shape, *L.autograd.grad(out.sum(), [bias, weight])


def channels_last_weight(L: Any) -> Any:
    x = L.ones(1, 2, 5, 5, requires_grad=True)
    out = L.nn.functional.conv2d(x, L.ones(3, 2, 3, 3).contiguous(memory_format=L.channels_last))
    return out.detach(), L.autograd.grad(out.sum(), x)[0]


def shuffled(L: Any, name: str, channels: int) -> Any:
    x = L.arange(16.0 * channels).reshape(1, channels, 4, 4).contiguous(memory_format=L.channels_last)
    return getattr(L.nn.functional, name)(x, 2)


CASES |= {
    **{
        f"{f} with a negative slope": functools.partial(steep_in_place, name=f)
        for f in ("elu_", "celu_", "leaky_relu_")
    },
    **{f"{f} with a negative slope": functools.partial(steep_in_place, name=f) for f in ("elu", "leaky_relu")},
    "instance_norm, float64 and float32": lambda L: mixed_instance_norm(L, "float64", "float32"),
    "instance_norm, float32 and float64": lambda L: mixed_instance_norm(L, "float32", "float64"),
    "batch_norm of nothing in another dtype": lambda L: L.nn.BatchNorm1d(2)(L.ones(0, 2, dtype=L.float64)).detach(),
    "convolution of no channels": lambda L: channels_of_none(L, "float32"),
    "convolution of no channels, complex": lambda L: channels_of_none(L, "complex64"),
    "convolution with a channels-last weight": channels_last_weight,
    "pixel_shuffle, channels last": lambda L: shuffled(L, "pixel_shuffle", 8),
    "pixel_unshuffle, channels last": lambda L: shuffled(L, "pixel_unshuffle", 2),
    "channel_shuffle, channels last": lambda L: shuffled(L, "channel_shuffle", 4),
    "pixel_shuffle by too much": lambda L: L.nn.functional.pixel_shuffle(L.ones(1, 4, 1, 1), 1 << 32),
    "one class index too many": lambda L: L.nn.functional.nll_loss(L.ones(4), L.tensor([1, 2])),
    "class indices in two dimensions": lambda L: L.nn.functional.nll_loss(L.ones(4, 3), L.zeros(4, 2, dtype=L.long)),
    "too much smoothing": lambda L: L.nn.functional.cross_entropy(
        L.ones(3, 4), L.zeros(4, dtype=L.long), label_smoothing=1.2
    ),
    "ctc_loss of nothing": lambda L: L.nn.functional.ctc_loss(L.ones(0, 0, 4), *[L.zeros(0, dtype=L.long)] * 3),
    "rrelu without end": lambda L: L.nn.functional.rrelu(L.ones(2), 0.0, math.inf),
    "linear of a number": lambda L: L.nn.functional.linear(L.tensor(1.0), L.ones(1, 1)),
    "pooling by more than an int": lambda L: L.nn.functional.avg_pool2d(L.ones(1, 1, 4, 4), 2, 1 << 31),
    "fractional pooling to nothing": lambda L: L.nn.functional.fractional_max_pool2d(L.ones(1, 2, 7, 7), 2, (0, 3)),
    "fractional pooling by a list of one": lambda L: L.nn.functional.fractional_max_pool2d(L.ones(1, 2, 7, 7), (1,), 3),
    "fractional pooling by nothing": lambda L: L.nn.FractionalMaxPool3d(0, output_size=1),
    "resizing beyond all numbers": lambda L: L.nn.functional.interpolate(L.ones(1, 1, 2), scale_factor=1e20),
    "resizing without values": lambda L: (
        L.nn.functional.interpolate(L.ones(1, 1, 2, 2, device="meta"), size=(1 << 30, 1 << 30), mode="bicubic").shape
    ),
    "a gradient of convolution by its other name": lambda L: L.nn.functional.grad.conv1d_input(
        (1, 1, 4), L.ones(1, 1, 2), L.ones(1, 1, 3)
    ),
    # What one-token changes of the library once showed to be untested.
    "resizing just beyond all numbers": lambda L: L.nn.functional.interpolate(L.ones(1, 1, 2), scale_factor=2.0**62),
    **{
        f"hardtanh of bytes from {low} to {high}": functools.partial(
            lambda L, low, high: L.nn.functional.hardtanh(L.arange(4, dtype=L.uint8), low, high), low=low, high=high
        )
        for low, high in ((0, 2), (-1, 2), (1, 2), (0, 0), (-2, -1))
    },
    **{
        f"closeness by {options}": functools.partial(
            lambda L, **options: L.isclose(L.ones(3), L.ones(3), **options), **options
        )
        for options in ({"rtol": 0.5}, {"rtol": -1.0}, {"atol": 0.5}, {"atol": -0.5}, {"rtol": 0, "atol": 0})
    },
    "keys that are missing and too many": lambda L: refused_state(L, strict=True),
    "keys that are missing and too many, and one of another size": lambda L: refused_state(L, strict=True, size=2),
    "keys that are missing and too many, told only": lambda L: refused_state(L, strict=False),
    "second derivative of an embedding with padding": lambda L: second_derivative_of_rows(L, padding_idx=1),
    "second derivative of an embedding with the first row as padding": lambda L: second_derivative_of_rows(
        L, padding_idx=0
    ),
    "second derivative of an embedding": lambda L: second_derivative_of_rows(L),
    "second derivative of an embedding by frequency": lambda L: second_derivative_of_rows(L, scale_grad_by_freq=True),
    **{
        f"gradients of {how} at {values}, the input {'included' if included else 'left out'}": functools.partial(
            gradients_of_reduced_parts, how=how, values=values, included=included
        )
        for how in ("prod", "mean", "amax", "amin")
        for values in ((2.0, 1.0, 3.0), (2.0, 2.0, 2.0), (0.0, 1.0, 0.0), (math.nan, 1.0, 2.0), (math.inf, 0.0, 1.0))
        for included in (True, False)
    },
    **{
        f"gradient of {name} of {values}": functools.partial(
            lambda L, function, values: gradients_at(L, function, values), function=function, values=values
        )
        for name, function in {
            "amax": lambda L, x: L.amax(x, 0),
            "max": lambda L, x: L.max(x),
            "the both ends": lambda L, x: sum(L.aminmax(x, dim=0)),
            "nanmean": lambda L, x: L.nanmean(x),
            "nansum by infinity": lambda L, x: L.nansum(x) * math.inf,
            "acosh": lambda L, x: L.acosh(x).sum(),
            "a variance of too few": lambda L, x: sum(L.var_mean(x, 0, correction=5)),
            "a variance of all, too few": lambda L, x: sum(L.var_mean(x, correction=5)),
            "a quotient by a large number": lambda L, x: (1e-30 / x).sum() + (x / 1e25).sum(),
            "a quotient by small numbers": lambda L, x: (1e-30 / (x * 1e-25)).sum(),
            "a truncated quotient": lambda L, x: L.div(3.0, x, rounding_mode="trunc").sum(),
            "a smooth absolute error": lambda L, x: L.nn.functional.smooth_l1_loss(x, L.ones(3), reduction="sum"),
            "a Huber loss": lambda L, x: L.nn.functional.huber_loss(x, L.ones(3), reduction="sum"),
            "an absolute error": lambda L, x: L.nn.functional.l1_loss(x, L.ones(3), reduction="sum"),
            "a remainder": lambda L, x: L.remainder(3.0, x).sum(),
        }.items()
        for values in ((2.0, 1.0, 2.0), (math.nan, 1.0, 2.0), (-2.0, -math.inf, 0.5))
    },
    **{
        f"quotient of {dtype} by one number of shape {shape}, {mode}": functools.partial(
            lambda L, dtype, shape, mode: L.div(
                L.tensor([4.0, 3.0, -1.0, -3.0], dtype=getattr(L, dtype)),
                L.full(shape, -0.6001, dtype=getattr(L, dtype)),
                rounding_mode=mode,
            ),
            dtype=dtype,
            shape=shape,
            mode=mode,
        )
        for dtype in ("float16", "bfloat16")
        for shape in ((), (1,), (1, 1), (4,))
        for mode in ("trunc", "floor")
    },
    **{
        f"operator {name}": functools.partial(lambda L, run: run(L, L.ops.aten), run=run)
        for name, run in OPERATORS.items()
    },
    "unfold of five dimensions": lambda L: L.nn.functional.unfold(L.ones(1, 1, 1, 3, 3), 2),
    "unfold of no channel": lambda L: L.nn.functional.unfold(L.ones(1, 0, 3, 3), 2),
    "unfold of no image": lambda L: L.nn.functional.unfold(L.ones(0, 1, 3, 3), 2),
    "size of blocks that is not given": lambda L: sizes_of_blocks(L),
    **{
        f"{kind} of {layers} layers that loses all between them, {'training' if train else 'evaluated'}": functools.partial(
            lossy_network, kind=kind, layers=layers, train=train
        )
        for kind in ("RNN", "GRU", "LSTM")
        for layers in (1, 2)
        for train in (True, False)
    },
    **{
        f"attention of other widths, bias {bias}, of the past {past}, zeros {zeros}": functools.partial(
            other_widths, bias=bias, past=past, zeros=zeros
        )
        for bias in (True, False)
        for past in (True, False)
        for zeros in (True, False)
    },
    **{
        f"{name} of {value!r}": functools.partial(
            lambda L, name, value: getattr(L.nn.modules.utils, name)(value), name=name, value=value
        )
        for name in ("_single", "_pair", "_triple", "_quadruple")
        for value in (3, (1, 2), [4])
    },
    "repeated and reversed sizes": lambda L: (
        L.nn.modules.utils._reverse_repeat_tuple((1, 2, 3), 2),
        L.nn.modules.utils._list_with_default([None, 4, 0], [7, 8, 9]),
    ),
    "sizes of too short a default": lambda L: L.nn.modules.utils._list_with_default([None, 4], [7]),
}


def frozen_after_forward(L: Any, freeze: Callable[[Any], Any]) -> Any:
    """The gradient of a leaf that stopped to require one between forward and backward."""
    x = L.ones(2, requires_grad=True)
    y = (x * 2).sum()
    freeze(x)
    y.backward()
    return x.grad, x.requires_grad


def certain_and_wrong(L: Any) -> Any:
    """How far the slope of a binary cross entropy goes in double precision."""
    x = L.zeros(1, dtype=L.float64, requires_grad=True)
    L.nn.functional.binary_cross_entropy(x, L.ones_like(x).detach()).backward()
    return round(x.grad.item() / -1e12, 11)


def taken_from_padding(L: Any) -> Any:
    """Sequences of a padded batch after the batch was changed."""
    batch, lengths = L.ones(2, 3), L.tensor([3, 1])
    parts = L.nn.utils.rnn.unpad_sequence(batch, lengths, batch_first=True)
    batch.zero_()
    again = L.nn.utils.rnn.unpad_sequence(batch.requires_grad_(), lengths, batch_first=True)
    return (*parts, again[0].grad_fn.name())


def quietly(call: Callable[[], Any]) -> Any:
    """The result of a call that warns once in a process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


# What the fuzzer found: python -m tests.fuzz
CASES |= {
    "leaf frozen before backward": lambda L: frozen_after_forward(L, lambda x: x.requires_grad_(False)),
    "leaf detached before backward": lambda L: frozen_after_forward(L, lambda x: x.detach_()),
    "steepest binary cross entropy": certain_and_wrong,
    "normal distribution function of another dtype": lambda L: (
        L.distributions.Normal(0.0, 3.0).cdf(L.tensor([0.25], dtype=L.float64)).mul(1e12).round().tolist()
    ),
    "weights of no numbers": lambda L: (
        L.bincount(L.zeros(0, dtype=L.int32), L.ones(0)),
        L.bincount(L.zeros(0, dtype=L.int32), L.ones(0), 3),
    ),
    "powers of no numbers": lambda L: tuple(
        (L.vander(L.ones(2, dtype=d), 0).dtype, L.vander(L.ones(0, dtype=d)).dtype)
        for d in (L.int32, L.uint8, L.bool, L.float16)
    ),
    "sequences taken from padding": taken_from_padding,
    **{
        f"forward derivative of {name} at zero": functools.partial(
            lambda L, run: quietly(lambda: L.func.jvp(lambda x: run(L, x), (L.zeros(3),), (L.arange(3.0),))), run=run
        )
        for name, run in {
            "a norm": lambda L, x: x.norm(),
            "a norm of order 3": lambda L, x: L.linalg.vector_norm(x, 3),
            "a distance": lambda L, x: L.dist(x, x * 2),
            "a deviation": lambda L, x: (x * 0).std(unbiased=False),
        }.items()
    },
    "sparse integers times fractions": lambda L: (
        L.addmm(L.ones(2, 2).long(), L.eye(2).long().to_sparse(), L.ones(2, 2).long(), beta=0.5),
        L.addmm(L.ones(2, 2).long(), L.eye(2).long().to_sparse(), L.ones(2, 2).long(), alpha=1.5),
    ),
    **{
        f"compressed elements of {dtype}": functools.partial(
            lambda L, dtype: quietly(
                lambda: L.tensor([0.0, 2.0, -0.0]).to(getattr(L, dtype))[None].to_sparse_csr().values().float()
            ),
            dtype=dtype,
        )
        for dtype in ("complex32", "float8_e4m3fn", "float8_e5m2fnuz", "bfloat16")
    },
    "sparse rows masked by sparse elements": lambda L: L.eye(2).to_sparse(1).sparse_mask(L.eye(2).to_sparse()),
}


def outcome(call: Callable[[Any], Any], library: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(library)
        except Exception as error:
            return type(error)
    told = sum(not any(word in str(w.message) for word in ("TypedStorage", "__array_wrap__")) for w in caught)
    parts = result if isinstance(result, tuple) else (result,)
    return told, [(repr(p), p.stride() if isinstance(p, library.Tensor) else None) for p in parts]


@pytest.mark.parametrize("name", CASES)
def test_outcome_is_pytorchs(name):
    assert outcome(CASES[name], flambeau) == outcome(CASES[name], torch)
