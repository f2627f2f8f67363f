"""A meta tensor beside tensors with values: an error or a meta result, never a read of memory that is not there."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau.nn import functional as F

INDICES = fl.zeros(3, dtype=fl.int64)
CALLS = {
    "linear": (F.linear, [fl.ones(2, 3), fl.ones(4, 3), fl.ones(4)]),
    "convolution": (F.conv2d, [fl.ones(1, 2, 5, 5), fl.ones(3, 2, 3, 3), fl.ones(3)]),
    "transposed convolution": (F.conv_transpose1d, [fl.ones(1, 2, 5), fl.ones(2, 3, 3), fl.ones(3)]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), [fl.ones(2, 3), fl.ones(3), fl.ones(3)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 1, w, b), [fl.ones(2, 3, 4), fl.ones(3), fl.ones(3)]),
    "batch norm": (
        lambda x, *rest: F.batch_norm(x, *rest, True),
        [fl.ones(2, 3, 4), fl.zeros(3), fl.ones(3), fl.ones(3), fl.ones(3)],
    ),
    "cross entropy": (F.cross_entropy, [fl.ones(3, 4), INDICES, fl.ones(4)]),
    "mean squares": (F.mse_loss, [fl.ones(3), fl.ones(3)]),
    "attention": (F.scaled_dot_product_attention, [fl.ones(1, 2, 3, 4)] * 3),
    "gru": (fl.gru_cell, [fl.ones(2, 3), fl.ones(2, 4), fl.ones(12, 3), fl.ones(12, 4), fl.ones(12), fl.ones(12)]),
    "search": (fl.searchsorted, [fl.arange(4.0), fl.ones(2)]),
    "grid": (F.grid_sample, [fl.ones(1, 2, 3, 3), fl.zeros(1, 2, 2, 2)]),
    "unpooling": (lambda x, i: F.max_unpool2d(x, i, 2), [fl.ones(1, 1, 2, 2), fl.zeros(1, 1, 2, 2, dtype=fl.int64)]),
    "complex": (fl.complex, [fl.ones(2), fl.ones(2)]),
    "in place": (lambda a, b: a.clone().add_(b), [fl.ones(2), fl.ones(2)]),
    "product": (fl.bmm, [fl.ones(1, 2, 3), fl.ones(1, 3, 2)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_meta_operand_raises_or_gives_a_meta_result(name):
    function, operands = CALLS[name]
    function(*operands)  # so that a kernel for these shapes is known
    for i, operand in enumerate(operands):
        mixed = [*operands[:i], operand.to("meta"), *operands[i + 1 :]]
        try:
            result = function(*mixed)
        except RuntimeError as error:
            assert "meta" in str(error)
        else:
            assert result.device.type == "meta", (name, i)


def test_a_gradient_on_another_device_is_refused():
    x = fl.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="meta"):
        x.exp().backward(fl.ones(2, device="meta"))


def test_meta_tensors_have_the_address_zero():
    t = fl.ones(2, device="meta")
    assert t.data_ptr() == t.untyped_storage().data_ptr() == 0
    assert t.untyped_storage() == t.untyped_storage()


@pytest.mark.parametrize("kind", ["cpu", "meta"])
def test_there_is_one_cpu_and_one_meta_device_whatever_its_number(kind):
    made = [
        fl.zeros(2, device=f"{kind}:1"),
        fl.zeros(2).to(fl.device(kind, 3)),
        fl.nn.Linear(2, 2).to(f"{kind}:0").weight,
    ]
    with fl.device(f"{kind}:1"):
        made.append(fl.zeros(2))
    assert [str(t.device) for t in made] == [kind] * 4
    assert str(fl.device(f"{kind}:1")) == f"{kind}:1"
