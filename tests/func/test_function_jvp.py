"""Forward derivatives of custom Functions, by their own jvp, and of functions that change their inputs."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.autograd.forward_ad

torch = judge("torch")
BOTH = pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])


def functions(library):
    class Product(library.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x, y)
            ctx.factor = factor
            return x * y * factor

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * ctx.factor, g * x * ctx.factor, None

        @staticmethod
        def jvp(ctx, x_tangent, y_tangent, factor_tangent):
            assert factor_tangent is None
            x, y = ctx.saved_tensors
            return (x_tangent * y + x * y_tangent) * ctx.factor

    class Sine(library.autograd.Function):
        """Known in forward mode only. Two results, of which one has no derivative."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.sin(), x > 0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 2 * tangent * x.cos(), None  # the factor shows that this was asked

    class Doubled(library.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2)

    return Product, Sine, Doubled


def dual_results(library):
    forward_ad = library.autograd.forward_ad
    product, sine, doubled = functions(library)
    x, y = library.tensor([1.0, 2.0]), library.tensor([3.0, 4.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, library.tensor([1.0, 0.5]))
        other = forward_ad.make_dual(y, library.tensor([0.25, 1.0]))
        results = [product.apply(dual, y, 2.0), product.apply(x, other, 2.0), product.apply(dual, other, 3.0)]
        results += sine.apply(dual)
        results.append(doubled.apply(forward_ad.make_dual(x.clone(), library.ones(2))))
        return [part for result in results for part in forward_ad.unpack_dual(result)]


def test_tangents_come_from_the_functions_jvp():
    for ours, theirs in zip(dual_results(flambeau), dual_results(torch)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_transforms_ask_the_functions_jvp():
    def results(library):
        _, sine, _ = functions(library)
        x, v = library.tensor([1.0, 2.0]), library.tensor([1.0, 0.5])
        value, tangent = library.func.jvp(lambda a: sine.apply(a)[0] ** 2, (x,), (v,))
        return [value, tangent, library.func.jacfwd(lambda a: sine.apply(a)[0])(x)]

    for ours, theirs in zip(results(flambeau), results(torch)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


@BOTH
def test_bad_tangents_are_refused(library):
    class Bare(library.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class TooMany(Bare):
        @staticmethod
        def jvp(ctx, t):
            return t, t

    class Small(Bare):
        @staticmethod
        def jvp(ctx, t):
            return t.sum()

    forward_ad = library.autograd.forward_ad
    with forward_ad.dual_level():
        x = forward_ad.make_dual(library.ones(2), library.ones(2))
        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            Bare.apply(x)
        with pytest.raises(RuntimeError, match=r"invalid number of forward gradients \(expected 1 but got 2\)"):
            TooMany.apply(x)
        with pytest.raises(RuntimeError, match="different size than that of the original Tensor"):
            Small.apply(x)


@BOTH
def test_gradcheck_of_forward_mode(library):
    _, sine, _ = functions(library)
    x = library.linspace(0.1, 0.9, 3, dtype=library.float64).requires_grad_()
    check = library.autograd.gradcheck
    assert check(lambda a: a.exp() * a, (x,), check_forward_ad=True)
    assert check(lambda a: (a * (1 + 2j)).exp(), (x,), check_forward_ad=True)
    wrong = check(
        lambda a: sine.apply(a)[0], (x,), check_forward_ad=True, check_backward_ad=False, raise_exception=False
    )
    assert not wrong
    with pytest.raises(AssertionError, match="check_forward_ad or check_backward_ad"):
        check(library.exp, (x,), check_backward_ad=False)


@BOTH
def test_functions_that_change_their_input(library):
    def cube(x):
        return (x.mul_(3) ** 3).sum()

    x = library.ones(2)
    value, tangent = library.func.jvp(cube, (x,), (library.ones(2),))
    assert value.item() == 54 and tangent.item() == 162 and x.tolist() == [3, 3]
    assert library.func.jacfwd(lambda a: a.mul_(2))(library.ones(2)).tolist() == [[2, 0], [0, 2]]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        library.func.grad(cube)(library.ones(2))


@BOTH
def test_derivatives_inside_inference_mode(library):
    with library.inference_mode():
        x = library.ones(2)
        assert library.func.grad(lambda a: (a * a).sum())(x).tolist() == [2, 2]
        assert library.func.jvp(lambda a: (a * a).sum(), (x,), (x,))[1].item() == 4
        assert library.is_inference_mode_enabled()


@BOTH
def test_what_jvp_refuses(library):
    jvp, x = library.func.jvp, library.ones(1)
    for match, primals, tangents in (
        ("at least one Tensor", (), ()),
        ("only contain Tensors", (1.0,), (1.0,)),
        ("same python structure", (x,), ()),
    ):
        with pytest.raises(RuntimeError, match=match):
            jvp(library.sin, primals, tangents)
    with pytest.raises(RuntimeError, match="has non-empty output"):
        library.func.vjp(lambda a: None, x)
