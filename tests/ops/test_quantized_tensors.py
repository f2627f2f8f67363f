"""Quantized tensors by themselves: codes, scales, views, files, refusals."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import flambeau as torch


def example() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([[0.0, 0.26, -1.0], [1.0, 99.0, 0.35]]), 0.1, 10, torch.quint8)


def by_channel() -> torch.Tensor:
    scales, zero_points = torch.tensor([0.1, 0.5]), torch.tensor([0, 3])
    return torch.quantize_per_channel(torch.tensor([[0.3, 1.0], [0.3, 1.0]]), scales, zero_points, 1, torch.qint8)


def test_codes_are_rounded_and_kept_in_range():
    q = example()
    assert q.int_repr().tolist() == [[10, 13, 0], [20, 255, 14]]
    assert torch.allclose(q.dequantize(), torch.tensor([[0.0, 0.3, -1.0], [1.0, 24.5, 0.4]]))
    assert (q.q_scale(), q.q_zero_point(), q.qscheme(), q.dtype) == (0.1, 10, torch.per_tensor_affine, torch.quint8)
    assert q.is_quantized and not torch.ones(1).is_quantized


def test_half_goes_to_the_even_code():
    values = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])
    assert torch.quantize_per_tensor(values, 1.0, 0, torch.qint8).int_repr().tolist() == [0, 2, 2, 0, -2]


def test_each_channel_has_its_own_scale():
    q = by_channel()
    assert q.int_repr().tolist() == [[3, 5], [3, 5]]
    assert q.q_per_channel_axis() == 1 and q.q_per_channel_zero_points().tolist() == [0, 3]
    assert q.q_per_channel_scales().dtype is torch.float64
    assert q[:, 1].qscheme() is torch.per_tensor_affine and q[:, 1].q_zero_point() == 3
    assert q.unsqueeze(0).q_per_channel_axis() == 2
    with pytest.raises(RuntimeError, match="uniformly quantized"):
        q.t()


def test_dynamic_scales_cover_the_values():
    q = torch.quantize_per_tensor_dynamic(torch.tensor([-1.0, 0.0, 3.0]), torch.quint8, False)
    assert q.q_zero_point() == 64 and q.int_repr().tolist() == [0, 64, 255]
    assert q.dequantize()[1] == 0


def test_views_share_codes():
    q = example()
    part = q[1:, :2]
    part.fill_(0.0)
    assert q.int_repr()[1].tolist() == [10, 10, 14]
    assert q.view(-1).shape == (6,) and q.t().stride() == (1, 3) and q.flip(0).int_repr()[0, 2] == 14
    assert torch.cat([q, q]).shape == (4, 3) and torch.stack([q, q]).shape == (2, 2, 3)
    q[0, 0] = 1.0
    assert q.int_repr()[0, 0] == 20


def test_comparisons_are_of_values():
    a = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.quint8)
    b = torch.quantize_per_tensor(torch.tensor([1.0, 3.0]), 0.25, 7, torch.quint8)
    assert (
        (a == b).tolist() == [True, False]
        and (a < b).tolist() == [False, True]
        and (a >= 1.5).tolist() == [False, True]
    )
    assert torch.equal(a, a.clone()) and not torch.equal(a, b)
    assert a.max().item() == 2.0 and a.sort(descending=True)[1].tolist() == [1, 0]


def test_copies_keep_or_take_the_scale():
    q = example()
    q.copy_(torch.zeros(2, 3))
    assert q.int_repr().unique().tolist() == [10]
    other = torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 1, torch.quint8)
    q.copy_(other)
    assert q.q_scale() == 0.5
    with pytest.raises(RuntimeError, match="use dequantize"):
        torch.zeros(2, 3).copy_(q)


def test_printed():
    assert repr(example()[0]) == (
        "tensor([ 0.0000,  0.3000, -1.0000], size=(3,), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=10)"
    )
    assert "axis=1" in repr(by_channel())


@pytest.mark.parametrize("make", [example, by_channel])
def test_files_and_copies(make):
    q = make()
    file = io.BytesIO()
    torch.save({"q": q, "part": q[:1], "kind": torch.qint8, "scheme": torch.per_channel_affine}, file)
    file.seek(0)
    found = torch.load(file, weights_only=True)
    assert torch.equal(found["q"], q) and torch.equal(found["part"], q[:1])
    assert found["q"].untyped_storage() is found["part"].untyped_storage()
    assert found["kind"] is torch.qint8 and found["scheme"] is torch.per_channel_affine
    assert torch.equal(copy.deepcopy(q), q) and torch.equal(pickle.loads(pickle.dumps(q)), q)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q: q + q,
        lambda q: q.exp(),
        lambda q: q.numpy(),
        lambda q: q.float(),
        lambda q: q.requires_grad_(),
        lambda q: torch.ones(2, dtype=torch.qint8),
        lambda q: torch.ones(2).to(torch.qint8),
        lambda q: torch.ones(2).int_repr(),
        lambda q: torch.quantize_per_tensor(q, 0.1, 0, torch.quint8),
        lambda q: torch.quantize_per_tensor(torch.ones(2), 0.1, 256, torch.quint8),
        lambda q: torch.quantize_per_tensor(torch.ones(2, dtype=torch.float64), 0.1, 0, torch.quint8),
        lambda q: torch.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3).long(), 0, torch.qint8),
        lambda q: torch.quantize_per_channel(torch.ones(2, 3), torch.ones(2), torch.zeros(2).long(), 5, torch.qint8),
        lambda q: q.q_per_channel_scales(),
        lambda q: torch.ops.quantized.add(q, q._codes, 1.0, 0),
        lambda q: torch.ops.quantized.linear(q, None, 1.0, 0),
        lambda q: torch.ops.quantized.linear_prepack(q, None),
        lambda q: torch.ops.quantized.linear_prepack(torch.ones(2, 3), None),
        lambda q: torch.ops.quantized.linear(q, packed_linear(4, 5), 1.0, 0),
        lambda q: torch.ops.quantized.linear(q[0, 0], packed_linear(4, 3), 1.0, 0),
        lambda q: torch.ops.quantized.linear(q.dequantize(), packed_linear(4, 3), 1.0, 0),
        lambda q: torch.ops.quantized.linear_dynamic(torch.tensor([[float("nan")] * 3]), packed_linear(4, 3)),
        lambda q: torch.ops.quantized.conv2d(q, packed_linear(4, 3), 1.0, 0),
        lambda q: torch.ops.quantized.conv2d(q.view(1, 1, 2, 3), packed_conv(2, 3), 1.0, 0),
        lambda q: torch.ops.quantized.conv2d(q.view(1, 1, 2, 3), packed_conv(2, 1), 1.0, 0),
    ],
)
def test_what_has_no_meaning_is_refused(wrong):
    with pytest.raises((RuntimeError, TypeError)):
        wrong(example())


def packed_linear(outputs: int, inputs: int):
    w = torch.quantize_per_tensor(torch.ones(outputs, inputs), 0.1, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(w, None)


def packed_conv(outputs: int, inputs: int):
    w = torch.quantize_per_tensor(torch.ones(outputs, inputs, 3, 3), 0.1, 0, torch.qint8)
    return torch.ops.quantized.conv2d_prepack(w, None, [1, 1], [0, 0], [1, 1], 1)


def test_products_without_rows():
    empty = torch.quantize_per_tensor(torch.ones(0, 3), 0.1, 0, torch.quint8)
    assert torch.ops.quantized.linear(empty, packed_linear(4, 3), 1.0, 0).shape == (0, 4)


def test_a_linear_layer_is_what_its_values_say():
    torch.manual_seed(0)
    x, w, b = torch.randn(5, 7), torch.randn(6, 7), torch.randn(6)
    qx = torch.quantize_per_tensor(x, 0.03, 100, torch.quint8)
    qw = torch.quantize_per_channel(w, torch.full((6,), 0.02), torch.arange(-3, 3), 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(qw, b)
    want = torch.nn.functional.linear(qx.dequantize(), qw.dequantize(), b)
    got = torch.ops.quantized.linear(qx, packed, 0.15, 120)
    assert (got.dequantize() - want).abs().max() <= 0.0751
    assert (torch.ops.quantized.linear_relu(qx, packed, 0.15, 120).dequantize() >= 0).all()


def test_kernels_run_without_onednn(monkeypatch):
    from flambeau.backends.cpu.onednn import library

    torch.manual_seed(0)
    qx = torch.quantize_per_tensor(torch.randn(1, 4, 6, 6), 0.03, 100, torch.quint8)
    qw = torch.quantize_per_tensor(torch.randn(8, 4, 3, 3), 0.02, 0, torch.qint8)
    flat = torch.quantize_per_tensor(torch.randn(3, 36), 0.03, 100, torch.quint8)

    def results() -> list:
        conv = torch.ops.quantized.conv2d_prepack(qw, torch.ones(8), [1, 1], [1, 1], [1, 1], 1)
        linear = torch.ops.quantized.linear_prepack(qw.view(8, 36), torch.ones(8))
        made = torch.ops.quantized.conv2d_relu(qx, conv, 0.1, 5), torch.ops.quantized.linear(flat, linear, 0.1, 99)
        return [t.int_repr().int() for t in made]

    fast = results()
    monkeypatch.setattr(library, "available", lambda: False)
    slow = results()
    assert (fast[0] - slow[0]).abs().max() <= 1 and torch.equal(fast[1], slow[1])


def test_engines_are_names():
    before = torch.backends.quantized.engine
    assert before in torch.backends.quantized.supported_engines
    try:
        torch.backends.quantized.engine = "fbgemm"
        assert torch.backends.quantized.engine == "fbgemm"
        with pytest.raises(RuntimeError, match="not a valid value"):
            torch.backends.quantized.engine = "abacus"
    finally:
        torch.backends.quantized.engine = before


def test_files_that_lie_are_refused():
    from flambeau.core.typed_storage import TypedStorage
    from flambeau.serialization import rebuild

    held = TypedStorage(4, torch.quint8)
    good = (torch.per_tensor_affine, 0.1, 3)
    assert rebuild.quantized_tensor(held, 0, (2, 2), (2, 1), good, False, None).shape == (2, 2)
    scales = torch.ones(2, dtype=torch.float64)
    for size, stride, parameters in [
        ((2, 3), (3, 1), good),
        ((2, 2), (2, -1), good),
        ((2, 2), (2, 1), ()),
        ((2, 2), (2, 1), (torch.per_tensor_affine, "0.1", 3)),
        ((2, 2), (2, 1), (torch.per_channel_affine, 0.1, 3)),
        ((2, 2), (2, 1), (torch.per_channel_affine, scales, scales, 0)),
        ((2, 2), (2, 1), (torch.per_channel_affine, scales, torch.zeros(2, dtype=torch.int64), 7)),
    ]:
        with pytest.raises(RuntimeError, match="corrupt checkpoint"):
            rebuild.quantized_tensor(held, 0, size, stride, parameters, False, None)
    with pytest.raises(RuntimeError, match="without a scale"):
        rebuild.tensor_v2(held, 0, (2, 2), (2, 1), False, None)
    with pytest.raises(RuntimeError, match="does not hold codes"):
        rebuild.quantized_tensor(TypedStorage(1, torch.quint4x2), 0, (2, 2), (2, 1), good, False, None)
