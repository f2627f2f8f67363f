"""Dimensions with names: how they are given, propagated, looked up and refused."""

import gc
import io
import warnings

import pytest

import flambeau as torch
from flambeau.core import modes
from flambeau.ops import OPS

pytestmark = pytest.mark.filterwarnings("ignore:Named tensors")


def named(shape, *names):
    return torch.randn(shape, names=names)


NCHW = ("N", "C", "H", "W")


def test_the_programs_of_the_tutorial():
    images = torch.randn(32, 3, 5, 6, names=NCHW)
    assert images.sum("C").names == ("N", "H", "W")
    assert images.select("C", index=0).names == ("N", "H", "W")
    tensor = torch.rand(3, 4, 1, 2, names=("C", "N", "H", "W")).align_to("N", "C", "H", "W")
    assert tensor.names == NCHW and tensor.shape == (4, 3, 1, 2)
    assert repr(torch.zeros(2, 2, names=("N", "C"))) == "tensor([[0., 0.],\n        [0., 0.]], names=('N', 'C'))"


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda x: x + named((4,), "D"), ("N", "C", "D")),
        (lambda x: x * torch.ones(5, 2, 3, 4), (None, "N", "C", "D")),
        (lambda x: x.flatten(["C", "D"], "F"), ("N", "F")),
        (lambda x: x.unflatten("D", [("H", 2), ("W", 2)]), ("N", "C", "H", "W")),
        (lambda x: x.mean("D", keepdim=True), ("N", "C", "D")),
        (lambda x: x.max("C")[0], ("N", "D")),
        (lambda x: x.align_to("D", ...), ("D", "N", "C")),
        (lambda x: x.transpose("N", "D"), ("D", "C", "N")),
        (lambda x: x.softmax("C"), ("N", "C", "D")),
        (lambda x: x.logsumexp("C"), ("N", "D")),
        (lambda x: x @ named((4, 7), "D", "E"), ("N", "C", "E")),
        (lambda x: torch.nn.functional.linear(x, torch.ones(7, 4)), ("N", "C", None)),
        (lambda x: x[0], ("C", "D")),
        (lambda x: x[..., 1:3], ("N", "C", "D")),
        (lambda x: x.sort("D")[1], ("N", "C", "D")),
        (lambda x: x.double().relu().clone(), ("N", "C", "D")),
        (lambda x: x.rename(N="B"), ("B", "C", "D")),
        (lambda x: x.rename(None), (None, None, None)),
        (lambda x: x.unbind("C")[0], ("N", "D")),
        (lambda x: torch.cat([x, x], "C"), ("N", "C", "D")),
        (lambda x: x.clone().mul_(2), ("N", "C", "D")),
        (lambda x: torch.abs(x, out=torch.empty(0)), ("N", "C", "D")),
    ],
)
def test_names_are_propagated(call, names):
    x = named((2, 3, 4), "N", "C", "D")
    result = call(x)
    plain = x.rename(None)
    assert result.names == names
    assert x.names == ("N", "C", "D") and plain.names == (None, None, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: x + named((4,), "W"),
            "dim 'D' and dim 'W' are at the same position from the right but do not match",
        ),
        (lambda x: x + named((3, 4), "D", None), "Misaligned dims"),
        (lambda x: x.sum("H"), r"Name 'H' not found in Tensor\['N', 'C', 'D'\]"),
        (lambda x: x.rename("N", "C"), r"Number of names \(2\)"),
        (lambda x: x.rename("N", "N", "D"), "duplicate names"),
        (lambda x: x.align_to("N"), "Cannot find dim 'C'"),
        (lambda x: x.refine_names("N", None, "D"), "'C' is more specific than None"),
        (lambda x: torch.pdist(x[0]), "aten::pdist is not yet supported with named tensors"),
        (lambda x: x.view(24), "aten::view is not yet supported with named tensors"),
        (lambda x: x.masked_fill_(torch.ones(3, 4, dtype=torch.bool, names=("D", "C")), 0), "do not match"),
        (lambda x: torch.abs(x, out=named((2, 3, 4), "A", "C", "D")), "Name mismatch"),
        (lambda x: torch.ones(2, names=("1",)), "a valid identifier contains only"),
        (lambda x: torch.save(x, io.BytesIO()), "NYI"),
        (lambda x: torch.zeros(2, 2, device="meta").rename_("N", "C"), "NYI: named tensors only support"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(call, message):
    x = named((2, 3, 4), "N", "C", "D")
    before = x.rename(None).clone()
    with pytest.raises(RuntimeError, match=message):
        call(x)
    assert x.names == ("N", "C", "D")
    assert torch.equal(x.rename(None), before)


def test_gradients_ignore_names():
    x = torch.randn(3, 3, names=("N", "C"), requires_grad=True)
    x.sigmoid().sum("C").sum().backward()
    plain = x.detach().rename(None).requires_grad_()
    plain.sigmoid().sum(1).sum().backward()
    assert x.grad.names == (None, None)
    assert torch.equal(x.grad, plain.grad)


def test_a_tensor_gets_and_loses_names_in_place():
    x = torch.arange(6.0).reshape(2, 3)
    y = x.rename_("N", "C")
    assert y is x and x.has_names() and x.size("C") == 3 and x.stride("N") == 3
    x.names = None
    assert not x.has_names() and type(x) is torch.Tensor
    assert torch.equal(x + 1, torch.arange(1.0, 7).reshape(2, 3))
    unnamed = torch.zeros(2, 3)
    unnamed.add_(named((2, 3), "N", "C"))
    assert unnamed.names == ("N", "C")


def test_names_cost_nothing_once_the_last_named_tensor_is_gone():
    gc.collect()
    torch.ones(1) + 1
    before = len(modes.active)
    x = named((2,), "N")
    assert len(modes.active) == before + 1
    del x
    gc.collect()
    torch.ones(1) + 1
    assert len(modes.active) == before


def test_the_first_name_is_announced(monkeypatch):
    from flambeau.ops.names import propagation

    monkeypatch.setattr(propagation, "_warned", False)
    with pytest.warns(UserWarning, match="experimental feature") as caught:
        torch.zeros(2, names=("N",))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.zeros(2, names=("N",))


def test_rules_stand_in_the_records():
    named((2,), "N").exp()
    assert sum(op.names is not None for op in OPS.values()) > 60


def test_operators_are_left_alone_when_no_tensor_has_names_any_more():
    from flambeau.ops.names.propagation import mode

    x = named((2,), "N")
    assert mode in modes.own.stack
    del x
    gc.collect()
    torch.ones(1) + torch.ones(1)  # the first call after that notices
    assert mode not in modes.own.stack
    assert named((2,), "N").exp().names == ("N",)
