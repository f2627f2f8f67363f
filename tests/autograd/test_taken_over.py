"""Which gradients become a leaf's `.grad` without a copy."""

from __future__ import annotations

import flambeau
from flambeau.utils._python_dispatch import TorchDispatchMode


def copies(function, *leaves):
    """Return how many gradients are copied in a backward pass."""

    class Log(TorchDispatchMode):
        def __init__(self):
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    result = function(*leaves)
    with Log() as log:
        result.backward()
    return log.seen.count("aten.copy_.default")


def test_a_view_of_a_gradient_that_nothing_else_holds_is_not_copied():
    x = flambeau.ones(2, 3, requires_grad=True)
    assert copies(lambda x: (x.view(6) * flambeau.arange(6.0)).sum(), x) == 0
    assert x.grad.tolist() == [[0, 1, 2], [3, 4, 5]] and x.grad._base is None


def test_gradients_of_two_leaves_do_not_share_memory():
    x, y = flambeau.ones(2, 3, requires_grad=True), flambeau.ones(3, 2, requires_grad=True)
    ((x.view(6) + y.view(6)) * 2).sum().backward()
    assert x.grad.data_ptr() != y.grad.data_ptr()
    x.grad.add_(1)
    assert y.grad.unique().tolist() == [2] and x.grad.unique().tolist() == [3]


def test_a_gradient_of_the_caller_or_of_a_hook_stays_theirs():
    x, given, kept = flambeau.ones(2, 3, requires_grad=True), flambeau.ones(6), []
    x.view(6).backward(given)
    assert x.grad.data_ptr() != given.data_ptr()
    x.grad = None
    flat = x.view(6)
    flat.register_hook(kept.append)
    (flat * 2).sum().backward()
    x.grad.zero_()
    assert kept[0].tolist() == [2] * 6


def test_a_part_of_a_larger_gradient_is_copied():
    x = flambeau.ones(3, requires_grad=True)
    flambeau.cat([x, x.detach()]).mul(2).sum().backward()
    assert x.grad.untyped_storage().nbytes() == 12
