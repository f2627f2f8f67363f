"""Tensors that answer operators themselves (`__torch_dispatch__`): what they are asked, their gradients, printing, copies and files."""

from __future__ import annotations

import copy
import io
from importlib import import_module

import pytest
from answers import judge

import flambeau


def classes(t):
    """The calls that were seen, a class that wraps a tensor, one that has memory, and a mode."""
    tree_map = import_module(f"{t.__name__}.utils._pytree").tree_map
    log = []

    class Wrapper(t.Tensor):
        @staticmethod
        def __new__(cls, elem, requires_grad=False):
            made = t.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(), dtype=elem.dtype,
                layout=elem.layout, device=elem.device, requires_grad=requires_grad,
            )  # fmt: skip
            made.elem = elem.detach() if requires_grad else elem
            return made

        def __repr__(self):
            return super().__repr__(tensor_contents=f"{self.elem}")

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            log.append(str(func))
            inner, named = tree_map(lambda e: e.elem if isinstance(e, Wrapper) else e, (args, kwargs or {}))
            return tree_map(lambda e: Wrapper(e) if isinstance(e, t.Tensor) else e, func(*inner, **named))

    class Own(t.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            log.append(f"own {func}")
            return super().__torch_dispatch__(func, types, args, kwargs or {})

    class Mode(import_module(f"{t.__name__}.utils._python_dispatch").TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(f"mode {func}")
            return func(*args, **(kwargs or {}))

    return log, Wrapper, Own, Mode


def gradient_of_product(t, W, S, M):
    x = W(t.tensor([3.0]), True)
    y = x * x
    (g,) = t.autograd.grad((y,), (x,), (W(t.tensor([1.0])),))
    return type(y.grad_fn).__name__, type(g).__name__, repr(g)


def facts(t, W, S, M):
    w = W(t.ones(3, 2).t())
    return (
        tuple(w.shape), w.stride(), w.storage_offset(), str(w.dtype), w.is_contiguous(), w.dim(), w.numel(), w.requires_grad
    )  # fmt: skip


def in_a_module(t, W, S, M):
    layer = t.nn.Linear(3, 2)
    layer.weight = t.nn.Parameter(W(layer.weight.detach()))
    y = layer(t.ones(1, 3))
    return type(y).__name__, y.requires_grad, type(layer.weight).__name__


def own_gradient(t, W, S, M):
    s = t.ones(2).as_subclass(S).requires_grad_()
    (s * s).sum().backward()
    return type(s.grad).__name__, s.grad.tolist()


def with_mode(t, W, S, M):
    with M():
        return repr(W(t.ones(2)) + 1)


def versions(t, W, S, M):
    w = W(t.ones(2))
    return w._version, w.add_(1)._version


CASES = {
    "the gradient of a product": gradient_of_product,
    "facts": facts,
    "text": lambda t, W, S, M: repr(W(t.ones(2), True)),
    "deep copy": lambda t, W, S, M: repr(copy.deepcopy(W(t.ones(2)))),
    "linear": lambda t, W, S, M: repr(t.nn.functional.linear(W(t.ones(2, 3)), W(t.ones(4, 3)), W(t.ones(4)))),
    "a parameter": in_a_module,
    "views": lambda t, W, S, M: repr(W(t.arange(6.0)).view(2, 3)[0]),
    "in place": lambda t, W, S, M: repr(W(t.ones(2)).add_(1)),
    "lists": lambda t, W, S, M: repr(t.cat([W(t.ones(1)), t.zeros(1)])),
    "parts": lambda t, W, S, M: [repr(v) for v in W(t.ones(4)).split(2)],
    "another dtype": lambda t, W, S, M: repr(W(t.ones(2)).to(t.float64)),
    "a number": lambda t, W, S, M: W(t.ones(1)).item(),
    "truth": lambda t, W, S, M: bool(W(t.ones(1)) > 0),
    "under a mode": with_mode,
    "a class with memory": lambda t, W, S, M: (type(S([1.0, 2.0]) + 1).__name__, (S([1.0, 2.0]) + 1).tolist()),
    "its gradient": own_gradient,
    "versions": versions,
    "new ones": lambda t, W, S, M: (repr(W(t.ones(2)).new_zeros(3)), repr(t.zeros_like(W(t.ones(2))))),
    "functions": lambda t, W, S, M: (
        repr(t.nn.functional.softmax(W(t.ones(2)), 0)), repr(W(t.ones(2, 2)) @ W(t.ones(2, 2))), repr(W(t.ones(2, 2)).sum(0))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calls_and_results_are_pytorchs(name):
    torch = judge("torch")
    found = []
    for t in (flambeau, torch):
        log, *kinds = classes(t)
        found.append((CASES[name](t, *kinds), list(log)))
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["tolist", "numpy"])
def test_there_are_no_lists_of_what_has_no_memory(method):
    _, Wrapper, _, _ = classes(flambeau)
    with pytest.raises(RuntimeError, match=f"{method}\\(\\) is not supported for tensor subclasses"):
        getattr(Wrapper(flambeau.ones(2)), method)()


def test_a_network_of_wrappers_trains_as_one_of_tensors():
    def losses(wrap):
        flambeau.manual_seed(0)
        model = flambeau.nn.Sequential(
            flambeau.nn.Linear(4, 8), flambeau.nn.GELU(), flambeau.nn.LayerNorm(8), flambeau.nn.Linear(8, 3)
        )
        x, y = flambeau.randn(6, 4), flambeau.arange(6) % 3
        if wrap is not None:
            for layer in (model[0], model[3]):
                layer.weight = flambeau.nn.Parameter(wrap(layer.weight.detach()))
        optimizer = flambeau.optim.Adam(model.parameters(), lr=0.05)
        found = []
        for _ in range(4):
            loss = flambeau.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    _, Wrapper, _, _ = classes(flambeau)
    assert losses(Wrapper) == pytest.approx(losses(None), rel=1e-5)


class Boxed(flambeau.Tensor):
    @staticmethod
    def __new__(cls, elem):
        made = flambeau.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)
        made.elem = elem
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_they_are_saved_with_what_they_hold():
    file = io.BytesIO()
    flambeau.save(Boxed(flambeau.arange(3.0)), file)
    file.seek(0)
    found = flambeau.load(file, weights_only=False)
    assert type(found) is Boxed and found.elem.tolist() == [0, 1, 2] and tuple(found.shape) == (3,)


def test_a_second_derivative():
    _, Wrapper, _, _ = classes(flambeau)
    x = Wrapper(flambeau.tensor([0.5, 2.0]), True)
    (first,) = flambeau.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    (second,) = flambeau.autograd.grad(first.sum(), x)
    plain = flambeau.tensor([0.5, 2.0])
    flambeau.testing.assert_close(second.elem, 2 * plain.cos() - plain * plain.sin())


def test_a_class_that_declines_is_named():
    class Declines(flambeau.Tensor):
        @staticmethod
        def __new__(cls):
            return flambeau.Tensor._make_wrapper_subclass(cls, (2,))

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="Multiple dispatch failed for 'torch.ops.aten.exp'"):
        Declines().exp()


def test_a_gradient_that_needs_what_was_changed_says_so():
    _, Wrapper, _, _ = classes(flambeau)
    x, y = Wrapper(flambeau.tensor([2.0]), True), Wrapper(flambeau.tensor([3.0]), True)
    with pytest.raises(RuntimeError, match="changed in place"):
        (x * 1).mul_(y).sum().backward()
    z = x * 1
    z.add_(y)
    z.sum().backward()
    assert y.grad.elem.tolist() == [1.0]


def test_a_wrapper_may_have_a_property_in_the_place_of_its_dtype():
    def packed(t):
        class Packed(t.Tensor):
            @staticmethod
            def __new__(cls, data):
                return t.Tensor._make_wrapper_subclass(cls, (2, 4), dtype=t.uint8, device="cpu")

            def __init__(self, data):
                self.data_of = data

            @property
            def dtype(self):
                return t.int16

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return args[0].data_of

        made = Packed(t.ones(2, 2))
        return [str(made.dtype), tuple(made.shape), str(made.device), made.detach().tolist()]

    assert packed(flambeau) == ["torch.int16", (2, 4), "cpu", [[1.0, 1.0], [1.0, 1.0]]]
