"""In-place changes under autograd: views, saved tensors, leaves; errors that name the culprit."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_changed_saved_tensor_is_reported_with_op_and_line():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = y.exp().mul(y)
    y.add_(1)  # the culprit
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
        z.sum().backward()
    text = str(error.value)
    assert "version 1; expected version 0" in text
    assert "add_" in text and "test_inplace.py" in text


def test_leaf_that_requires_grad_cannot_be_changed():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        x[0].mul_(2)
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0, 2.0, 2.0] and x.is_leaf


def test_write_through_a_view_rewrites_the_base():
    x = torch.ones(2, 3, requires_grad=True)
    y = x * 1
    y[0].mul_(10)
    assert y.grad_fn.name() == "CopySlices"
    y.sum().backward()
    assert x.grad.tolist() == [[10.0] * 3, [1.0] * 3]


def test_view_taken_before_the_write_follows_its_base():
    x = torch.ones(4, requires_grad=True)
    base = x * 1
    view = base[:2]
    base.mul_(3)
    view.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 0.0, 0.0]


def test_assignment_into_a_plain_tensor_starts_a_graph():
    w = torch.tensor([5.0], requires_grad=True)
    buffer = torch.zeros(3)
    buffer[1:2] = w * 2
    assert buffer.requires_grad
    buffer.sum().backward()
    assert w.grad.item() == 2.0


def test_relu_in_place_keeps_its_gradient():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    y = (x * 2).relu_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0]


def test_sin_in_place_saves_what_it_needs():
    x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    y = (x * 1).sin_()
    y.backward()
    assert x.grad.item() == pytest.approx(0.8775825618903728)


def test_outputs_of_split_refuse_in_place():
    x = torch.ones(4, requires_grad=True)
    a, b = (x * 1).split(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        a.mul_(2)


def test_overlapping_destination_is_refused():
    x = torch.zeros(1).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)


def test_shape_and_dtype_must_fit():
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3).add_(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int64).add_(1.5)


def test_data_escapes_version_counting():
    x = torch.ones(3, requires_grad=True)
    y = x * 1
    z = y * y
    y.data.mul_(2)  # invisible to autograd, as in PyTorch
    z.sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
