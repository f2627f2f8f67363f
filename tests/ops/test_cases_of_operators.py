"""Small cases of operators that no other test asks for: results are PyTorch's, or the kind of error is."""

from __future__ import annotations

from typing import Any

import pytest


def ramp(L: Any, *shape: int) -> Any:
    total = 1
    for n in shape:
        total *= n
    return ((L.arange(float(total)) * 37 % 101 - 50) / 64).reshape(shape)  # exact in any float


def per_tensor(L: Any, *shape: int, kind: str = "quint8") -> Any:
    return L.quantize_per_tensor(ramp(L, *shape), 0.02, 3, getattr(L, kind))


def per_channel(L: Any, *shape: int, axis: int = 1) -> Any:
    n = shape[axis]
    return L.quantize_per_channel(ramp(L, *shape), L.arange(1.0, n + 1) / 50, L.arange(n), axis, L.qint8)


def told(q: Any) -> Any:
    """All that a quantized tensor says of itself."""
    if "per_tensor" in str(q.qscheme()):
        return q.int_repr().tolist(), q.q_scale(), q.q_zero_point(), tuple(q.shape), q.stride()
    return (
        q.int_repr().tolist(),
        q.q_per_channel_scales().tolist(),
        q.q_per_channel_zero_points().tolist(),
        q.q_per_channel_axis(),
    )


def bits(L: Any, count: int, optimized: bool, *shape: int) -> Any:
    """Rows packed in a few bits each, and unpacked."""
    pack, unpack = (getattr(L.ops.quantized, f"embedding_bag_{count}bit_{what}") for what in ("prepack", "unpack"))
    packed = pack(ramp(L, *shape) * 3, optimized)
    return packed.tolist(), unpack(packed)


def rows_in_bytes(L: Any, *shape: int) -> Any:
    packed = L.ops.quantized.embedding_bag_byte_prepack(ramp(L, *shape) * 3)
    return packed.tolist(), L.ops.quantized.embedding_bag_byte_unpack(packed)


def best_range(L: Any, bins: int, ratio: float, count: int, width: int) -> Any:
    x = ramp(L, width) ** 3
    high, low = L.choose_qparams_optimized(x, width, bins, ratio, count)
    return float(high), float(low)


def resized(L: Any, size: tuple, to: tuple) -> Any:
    x = ramp(L, *size).relu().to_sparse_csr()
    x.resize_(to)
    return x.crow_indices().tolist(), x.col_indices().tolist(), x.values().tolist(), tuple(x.shape)


def resized_as(L: Any, one: tuple, other: tuple) -> Any:
    x, like = (ramp(L, *s).relu().to_sparse_csr() for s in (one, other))
    x.resize_as_sparse_(like)
    return tuple(x.shape), x._nnz(), x.crow_indices().tolist()


def packed_conv(L: Any, dims: int, transposed: bool = False) -> Any:
    w = per_tensor(L, 4, 2, *(3,) * dims, kind="qint8")
    w = L.quantize_per_tensor(w.dequantize(), 0.02, 0, L.qint8)
    ones = [1] * dims
    if transposed:
        return getattr(L.ops.quantized, f"conv_transpose{dims}d_prepack")(w, L.ones(2), ones, ones, [0] * dims, ones, 1)
    return getattr(L.ops.quantized, f"conv{dims}d_prepack")(w, L.arange(4.0), [2] * dims, ones, ones, 1)


def facts_of_conv(L: Any, dims: int, transposed: bool = False) -> Any:
    packed = packed_conv(L, dims, transposed)
    space = L.ops.quantized
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    parts = ("stride", "padding", "dilation", "groups", "transpose") + (("output_padding",) if transposed else ())
    return [getattr(space, f"{name}_{part}")(packed) for part in parts]


def uniform(L: Any, low: float, high: float, kind: str) -> Any:
    L.manual_seed(3)
    return L.empty(5, dtype=getattr(L, kind)).uniform_(low, high)


def tied_pool(L: Any, last: bool, kind: str) -> Any:
    x = (L.arange(96.0).reshape(2, 3, 4, 4) // 7 % 3).to(getattr(L, kind))
    x = x.contiguous(memory_format=L.channels_last) if last else x
    return L.nn.functional.max_pool2d(x, (2, 3), stride=1, padding=1, return_indices=True)


def unfolded(L: Any, kernel: Any, dilation: int, padding: int, stride: int, kind: str) -> Any:
    x = ramp(L, 2, 3, 5, 4).to(getattr(L, kind)).requires_grad_()
    y = L.nn.functional.unfold(x, kernel, dilation, padding, stride)
    y.backward(ramp(L, *y.shape).to(y.dtype))
    return y.detach(), x.grad


def small_conv(L: Any, padding: Any, stride: int, dilation: int, kind: str, groups: int = 1) -> Any:
    x, w = ramp(L, 2, 4, 6, 5).to(getattr(L, kind)), ramp(L, 4, 4 // groups, 3, 2).to(getattr(L, kind))
    y = L.nn.functional.conv2d((x * 4).round(), (w * 4).round(), None, stride, padding, dilation, groups)
    return y.to(L.float64)


def mean_of(L: Any, dims: Any, last: bool = False, **named: Any) -> Any:
    q = per_tensor(L, 2, 3, 5, 4)
    q = q.contiguous(memory_format=L.channels_last) if last else q
    return told(L.mean(q, dims, **named))


CASES: dict[str, Any] = {
    **{f"{n} bits of {s}, {o}": lambda L, n=n, o=o, s=s: bits(L, n, o, *s) for n in (2, 4) for o in (False, True) for s in ((3, 8), (2, 16))},
    **{f"bytes of {s}": lambda L, s=s: rows_in_bytes(L, *s) for s in ((3, 8), (2, 5), (1, 4))},
    **{f"range {g}": lambda L, g=g: best_range(L, *g) for g in ((200, 0.16, 4, 32), (100, 0.5, 2, 16), (50, 0.16, 8, 20))},
    **{f"csr {s} to {t}": lambda L, s=s, t=t: resized(L, s, t) for s, t in (((4, 5), (4, 5)), ((4, 5), (6, 5)),
       ((4, 5), (2, 5)), ((4, 5), (5, 7)), ((4, 5), (4, 3)))},
    **{f"{s} like {t}": lambda L, s=s, t=t: resized_as(L, s, t) for s, t in (((4, 5), (4, 5)), ((4, 5), (6, 3)), ((2, 2), (4, 5)))},
    **{f"conv {n}, {t}": lambda L, n=n, t=t: facts_of_conv(L, n, t) for n in (1, 2, 3) for t in (False, True)},
    **{f"uniform {g}": lambda L, g=g: uniform(L, *g) for g in ((1, 1, "float32"), (0, 1, "float32"), (0, 2, "float32"), (-1, 1, "float64"), (1, 3, "float64"))},
    **{f"pool {g}": lambda L, g=g: tied_pool(L, *g) for g in ((True, "float32"), (False, "float32"), (True, "float64"), (False, "float64"))},
    **{f"unfold {g}": lambda L, g=g: unfolded(L, *g) for g in (((2, 3), 1, 0, 1, "float32"), ((3, 2), 2, 2, 1, "float32"), (2, 1, 1, 2, "float64"), ((5, 4), 1, 1, 1, "float32"))},
    **{f"conv {g}": lambda L, g=g: small_conv(L, *g) for g in ((1, 1, 1, "float32"), ((2, 1), 2, 1, "float64"), (0, 1, 2, "float32"), (2, 1, 2, "int64"), (1, 2, 1, "int32", 2), (1, 1, 1, "float16", 2))},
    "mean of all": lambda L: mean_of(L, None), "mean 23": lambda L: mean_of(L, (2, 3)), "mean 23 kept": lambda L: mean_of(L, (2, 3), keepdim=True),
    "mean 23 last": lambda L: mean_of(L, (2, 3), True), "mean 1": lambda L: mean_of(L, 1), "mean -1": lambda L: mean_of(L, -1), "mean 13": lambda L: mean_of(L, [1, 3]),
    "select": lambda L: told(per_channel(L, 2, 3, 4).select(0, 1)),
    "select axis": lambda L: told(per_channel(L, 2, 3, 4).select(1, 1)), "slice": lambda L: told(per_channel(L, 2, 3, 4)[:, :, 1:3]),
    "squeeze": lambda L: told(per_channel(L, 1, 3, 4).squeeze(0)), "squeeze all": lambda L: told(per_channel(L, 1, 3, 1, 4).squeeze()),
    "squeeze axis": lambda L: told(per_channel(L, 2, 1, 4).squeeze(1)), "unsqueeze": lambda L: told(per_channel(L, 2, 3).unsqueeze(0)),
    "view": lambda L: told(per_tensor(L, 2, 6).view(3, 4)), "view of channels": lambda L: told(per_channel(L, 2, 3, 4).view(2, 3, 2, 2)),
    "transpose": lambda L: told(per_tensor(L, 2, 3).transpose(0, 1)),
    "equal": lambda L: (L.equal(per_tensor(L, 2, 3), per_tensor(L, 2, 3)), L.equal(per_tensor(L, 2, 3), per_tensor(L, 3, 2)),
                        L.equal(per_tensor(L, 2, 3), per_tensor(L, 2, 3, kind="qint8"))),
    "equal channels": lambda L: (L.equal(per_channel(L, 2, 3), per_channel(L, 2, 3)), L.equal(per_channel(L, 3, 3), per_channel(L, 3, 3, axis=0))),
    "empty_like": lambda L: (lambda e: (tuple(e.shape), e.stride(), e.q_scale(), str(e.dtype)))(L.empty_like(per_tensor(L, 2, 3, 4, 5), memory_format=L.channels_last)),
    "clone": lambda L: told(per_channel(L, 2, 3, 4).clone()), "full_like": lambda L: told(L.full_like(per_tensor(L, 2, 3), 0.1)),
    "cat out": lambda L: told(L.ops.quantized.cat([per_tensor(L, 2, 3), per_tensor(L, 2, 3)], 1, 0.05, 2)),
    "cat relu": lambda L: told(L.ops.quantized.cat_relu([per_tensor(L, 2, 3), per_tensor(L, 2, 3)], 0, 0.05, 2)),
    "cat_out": lambda L: told(L.ops.quantized.cat_out([per_tensor(L, 2, 3), per_tensor(L, 2, 3)], 1, L._empty_affine_quantized([2, 6], scale=0.03, zero_point=4, dtype=L.quint8))),
    "cat_relu_out": lambda L: told(L.ops.quantized.cat_relu_out([per_tensor(L, 2, 3), per_tensor(L, 2, 3)], 0, L._empty_affine_quantized([4, 3], scale=0.03, zero_point=4, dtype=L.quint8))),
    "mul_scalar 0": lambda L: told(L.ops.quantized.mul_scalar(per_tensor(L, 2, 3), 0.0)), "mul_scalar": lambda L: told(L.ops.quantized.mul_scalar(per_tensor(L, 2, 3), 2.5)),
    "mul_scalar -": lambda L: told(L.ops.quantized.mul_scalar(per_tensor(L, 2, 3), -2.5)), "add_scalar": lambda L: told(L.ops.quantized.add_scalar(per_tensor(L, 2, 3), 0.3)),
    "gelu": lambda L: told(L.nn.functional.gelu(per_tensor(L, 4, 5))), "gelu tanh": lambda L: told(L.nn.functional.gelu(per_tensor(L, 4, 5), approximate="tanh")),
    "tanh": lambda L: told(per_tensor(L, 4, 5).tanh()), "sigmoid": lambda L: told(per_tensor(L, 4, 5).sigmoid()), "sigmoid qint8": lambda L: told(per_tensor(L, 4, 5, kind="qint8").sigmoid()),
    "sigmoid qint32": lambda L: told(per_tensor(L, 4, 5, kind="qint32").sigmoid()),
    "quint4x2 of one number": lambda L: L.quantize_per_channel(L.tensor([[0.3]]), L.tensor([0.1]), L.tensor([1.0]), 0, L.quint4x2).dequantize().tolist(),
    "frombuffer to its end": lambda L: L.frombuffer(bytearray(range(8)), dtype=L.int16, count=3, offset=2).tolist(),
    "frombuffer beyond": lambda L: L.frombuffer(bytearray(range(8)), dtype=L.int16, count=4, offset=2).tolist(),
    "storage to its end": lambda L: list(L.FloatStorage.from_buffer(bytearray(8), "little", 2, 0)), "storage beyond": lambda L: list(L.FloatStorage.from_buffer(bytearray(8), "little", 2, 1)),
    "storage by offset": lambda L: list(L.ShortStorage.from_buffer(bytearray(range(8)), "big", 3, 2)), "storage of all": lambda L: list(L.ShortStorage.from_buffer(bytearray(range(8)), "little")),
    "nuc": lambda L: L.linalg.matrix_norm(ramp(L, 2, 3, 4), "nuc", keepdim=True), "norm dims": lambda L: L.norm(ramp(L, 2, 3, 4), "fro", dim=(0, 2), keepdim=True),
    "norm nuc dims": lambda L: L.norm(ramp(L, 2, 3, 4), "nuc", dim=(0, 2)), "norm of no element": lambda L: L.linalg.vector_norm(L.zeros(0, 3), float("inf")),
    "norm along no element": lambda L: L.linalg.vector_norm(L.zeros(0, 3), float("inf"), dim=0), "norm along others": lambda L: L.linalg.vector_norm(L.zeros(0, 3), float("-inf"), dim=1),
    "empty dims": lambda L: L.linalg.vector_norm(ramp(L, 2, 3), 2, dim=()), "expand by name": lambda L: L.ones(1, 3).expand(size=(2, 3)), "expand scalar": lambda L: L.tensor(2.0).expand(()),
    "squeeze twice": lambda L: L.ones(1, 2).squeeze((0, 0)), "empty buffer": lambda L: L.frombuffer(b"", dtype=L.float32),
    "new_tensor": lambda L: L.ones(2, dtype=L.float64).new_tensor(L.arange(2)), "as_tensor": lambda L: L.as_tensor(L.arange(3), dtype=L.float32),
    "asarray": lambda L: (lambda t: (t.requires_grad, t.is_leaf))(L.asarray(L.ones(2), requires_grad=True)), "tensor of tensor": lambda L: L.tensor(L.arange(3), dtype=L.float64),
    "even sizes": lambda L: [tuple(t.shape) for t in L.zeros(0, 2).chunk(3)], "split 0": lambda L: [tuple(t.shape) for t in L.zeros(0, 2).split(0)],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, same_outcome) -> None:
    same_outcome(CASES[name])
