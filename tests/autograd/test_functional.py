"""autograd.functional, autograd.graph and Variable, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")


def arrays(*shapes):
    generator = np.random.RandomState(0)
    return [generator.rand(*shape) + 0.5 for shape in shapes]


def to_numpy(result):
    if isinstance(result, (tuple, list)):  # PyTorch's forward mode answers with lists
        return tuple(to_numpy(r) for r in result)
    return np.asarray(result.detach().numpy())


def check_equal(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            check_equal(a, b)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


FUNCTIONS = {
    "one to one": (lambda x: x.exp() * x[0], [(3,)], 1),
    "matrix": (lambda x: x.sin() @ x.T, [(2, 3)], 1),
    "two inputs": (lambda x, y: (x * y).sum(1), [(2, 3), (3,)], 1),
    "two outputs": (lambda x, y: (x * y, y.prod()), [(2,), (2,)], 2),
    "unused input": (lambda x, y: x * 2, [(2,), (3,)], 1),
}
SCALAR = {
    "cubic": (lambda x: (x**3).sum(), [(3,)]),
    "mixed": (lambda x, y: (x.exp() * y).sum() + (y**2).prod(), [(2,), (2,)]),
}


def call(lib, name, function, shapes, *vectors, **options):
    inputs = tuple(lib.tensor(a) for a in arrays(*shapes))
    given = inputs if len(inputs) > 1 else inputs[0]
    seeds = tuple(lib.tensor(v) for v in vectors)
    extra = (seeds if len(seeds) > 1 else seeds[0],) if seeds else ()
    return to_numpy(getattr(lib.autograd.functional, name)(function, given, *extra, **options))


@pytest.mark.parametrize("case", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, {"create_graph": True}, {"vectorize": True, "strategy": "forward-mode"}])
def test_jacobian(case, options):
    function, shapes, _ = FUNCTIONS[case]
    if "strategy" in options and case == "unused input":
        pytest.skip("PyTorch's forward mode has no answer for an unused input")
    check_equal(*(call(lib, "jacobian", function, shapes, **options) for lib in (flambeau, torch)))


@pytest.mark.parametrize("case", FUNCTIONS)
def test_products_with_the_jacobian(case):
    function, shapes, _ = FUNCTIONS[case]
    outputs = function(*(torch.tensor(a) for a in arrays(*shapes)))
    out_shapes = [tuple(o.shape) for o in (outputs if isinstance(outputs, tuple) else (outputs,))]
    for name, vector_shapes in (("vjp", out_shapes), ("jvp", shapes)):
        vectors = arrays(*vector_shapes)
        check_equal(*(call(lib, name, function, shapes, *vectors) for lib in (flambeau, torch)))


@pytest.mark.parametrize("case", SCALAR)
def test_second_derivatives(case):
    function, shapes = SCALAR[case]
    check_equal(*(call(lib, "hessian", function, shapes) for lib in (flambeau, torch)))
    for name in ("vhp", "hvp"):
        check_equal(*(call(lib, name, function, shapes, *arrays(*shapes)) for lib in (flambeau, torch)))


WRONG = {
    "no vector": lambda f, t: f.vjp(lambda x: x, t.ones(2)),
    "vector of another shape": lambda f, t: f.vjp(lambda x: x, t.ones(2), t.ones(3)),
    "vectors too many": lambda f, t: f.jvp(lambda x: x, t.ones(2), (t.ones(2), t.ones(2))),
    "a list": lambda f, t: f.jacobian(lambda x: x, [t.ones(2)]),
    "not a tensor": lambda f, t: f.jacobian(lambda x: 3.0, t.ones(2)),
    "hessian of a vector": lambda f, t: f.hessian(lambda x: x, t.ones(2)),
    "strict, no gradient": lambda f, t: f.jacobian(lambda x: t.ones(1), t.ones(2), strict=True),
    "strict, independent": lambda f, t: f.jacobian(lambda x, y: x * 2, (t.ones(1), t.ones(1)), strict=True),
    "forward without vectorize": lambda f, t: f.jacobian(lambda x: x, t.ones(2), strategy="forward-mode"),
    "unknown strategy": lambda f, t: f.jacobian(lambda x: x, t.ones(2), strategy="sideways"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_raises_as_pytorch(case):
    with pytest.raises(Exception) as theirs:
        WRONG[case](torch.autograd.functional, torch)
    with pytest.raises(theirs.type):
        WRONG[case](flambeau.autograd.functional, flambeau)


def saved_shapes(lib):
    seen = []
    x, w = lib.ones(2, 3, requires_grad=True), lib.ones(4, 3, requires_grad=True)

    def pack(t):
        seen.append(tuple(sorted(t.shape)))  # PyTorch keeps the weight transposed
        return t

    with lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = (lib.nn.functional.linear(x, w).tanh() * 2).sum()
    y.backward()
    return sorted(seen), x.grad.tolist()


def test_saved_tensors_pass_through_hooks():
    ours, theirs = saved_shapes(flambeau), saved_shapes(torch)
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


def test_saving_on_the_cpu_survives_changes_in_place():
    x = flambeau.ones(3, requires_grad=True)
    with flambeau.autograd.graph.save_on_cpu():
        y = x * 2
        z = (y * y).sum()
    z.backward()
    assert x.grad.tolist() == [8.0, 8.0, 8.0]


def test_hooks_can_be_forbidden():
    graph = flambeau.autograd.graph
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


def test_increment_version_is_noticed():
    x = flambeau.ones(2, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    flambeau.autograd.graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_variable_is_the_tensor():
    for lib in (flambeau, torch):
        data = lib.ones(2)
        v = lib.autograd.Variable(data, requires_grad=True)
        assert v.requires_grad and not data.requires_grad and v.data_ptr() == data.data_ptr()
        assert isinstance(data, lib.autograd.Variable)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobian_and_hessian(strategy):
    x, y = arrays((3, 2), (3,))

    def compute(t):
        a, b = t.tensor(x), t.tensor(y)
        jacobian = t.autograd.functional.jacobian(
            lambda u, v: (u.sin() * v.unsqueeze(1), v.sum() * u[0]), (a, b), vectorize=True, strategy=strategy
        )
        hessian = t.autograd.functional.hessian(
            lambda u: u.pow(3).sum() * u.sum(), a, vectorize=True, outer_jacobian_strategy=strategy
        )
        return to_numpy((*jacobian, hessian))

    for found, wanted in zip(compute(flambeau), compute(torch)):
        for f, w in zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]:
            np.testing.assert_allclose(f, w, rtol=1e-6)


def test_batched_gradients():
    (x,) = arrays((3, 2))

    def compute(t):
        a, unused = t.tensor(x, requires_grad=True), t.ones(2, requires_grad=True)
        vectors = t.arange(18.0, dtype=t.float64).reshape(3, 3, 2)
        found = t.autograd.grad(a.sin() * a.sum(), (a, unused), vectors, is_grads_batched=True, allow_unused=True)
        assert found[1] is None
        return found[0].numpy()

    np.testing.assert_allclose(compute(flambeau), compute(torch), rtol=1e-6)
    a = flambeau.ones(3, requires_grad=True)
    for wrong in (flambeau.ones(3), flambeau.ones(2, 2), None):
        with pytest.raises(RuntimeError):
            flambeau.autograd.grad(a * 2, a, wrong, is_grads_batched=True)
