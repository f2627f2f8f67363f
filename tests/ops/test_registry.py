"""Every operator's declaration is complete and consistent: one walk over the whole registry."""

from __future__ import annotations

import inspect

import pytest
from all_operators import OWN

import flambeau
from flambeau.core.tensor import Tensor
from flambeau.expr import Expr, arg, as_expr, pullback
from flambeau.ops import OPS
from flambeau.ops.machinery.dtype_rules import compare
from flambeau.ops.machinery.formula import Pointwise
from flambeau.ops.machinery.primitive import _HEADER_FIELDS, Primitive

KINDS = {"pointwise", "reduction", "view", "primitive", "composite", "random", "creation"}
SPACES = {"torch", "nn.functional", "special", "linalg", "fft", "Tensor"}
OF_OPS = {"quantized", "_quantized", "onednn"}  # torch.ops.quantized, ...
PUBLIC = [op for op in OWN if op.namespaces or op.method is not None]
POINTWISE = [op for op in OWN if isinstance(op.impl, Pointwise)]
PRIMITIVE = [op for op in OWN if isinstance(op.impl, Primitive)]


def names(ops: list) -> list[str]:
    return [op.name for op in ops]


@pytest.mark.parametrize("op", OWN, ids=names(OWN))
def test_record_is_well_formed(op):
    assert op.kind in KINDS
    assert set(op.namespaces) <= SPACES | OF_OPS
    assert callable(op.function)
    assert op.function.op is op


@pytest.mark.parametrize("op", PUBLIC, ids=names(PUBLIC))
def test_faces_are_reachable(op):
    for space in op.namespaces:
        if space == "Tensor":
            continue
        owner = flambeau.ops if space in OF_OPS else flambeau
        for part in space.split(".") if space != "torch" else []:
            owner = getattr(owner, part)
        for name in (op.name, *op.aliases):
            place = flambeau if "." in name else owner  # an alias may name its own namespace: "special.expit"
            for part in name.split("."):
                assert hasattr(place, part), f"{space}.{name} is missing"
                place = getattr(place, part)
            assert callable(place)
    for name in (op.name, *op.aliases):
        if op.method is None or "." in name:
            continue
        assert hasattr(Tensor, name), f"Tensor.{name} is missing"
        if op.inplace is not None:
            assert hasattr(Tensor, name + "_"), f"Tensor.{name}_ is missing"


@pytest.mark.parametrize("op", [o for o in PUBLIC if not o.name.startswith("_")], ids=lambda o: o.name)
def test_public_operators_say_what_they_do(op):
    assert op.doc.strip(), f"{op.name} has no docstring"


def traced(impl: Pointwise) -> tuple[list[Expr], Expr]:
    """The operands' symbols and the formula over them, parameters at their defaults."""
    symbols = [arg(i) for i in range(impl.arity)]
    given = dict(zip(impl.operand_names, symbols)) | dict(impl.parameters)
    if impl.sees_dtype:
        given["compute"] = flambeau.float32
    positional = [p.name for p in inspect.signature(impl.formula).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    keywords = {k: v for k, v in given.items() if k not in positional}
    return symbols, as_expr(impl.formula(*(given[n] for n in positional), **keywords))


@pytest.mark.parametrize("op", POINTWISE, ids=names(POINTWISE))
def test_formula_traces(op):
    """The formula is an expression over its operands, and its derivative, unless given, can be derived."""
    symbols, root = traced(op.impl)
    assert isinstance(root, Expr)
    if op.impl.differentiable and op.impl.grad is None:
        for share in pullback(root, arg(9), tuple(symbols)):
            assert share is None or isinstance(share, Expr)


@pytest.mark.parametrize("op", PRIMITIVE, ids=names(PRIMITIVE))
def test_gradient_rules_name_real_arguments(op):
    """A rule may read forward arguments or their headers, the result, what forward saves, which gradients are needed."""
    impl = op.impl
    forward = set(impl.names)
    source = inspect.getsource(inspect.getmodule(op.source))
    for wanted, _, reads in impl.rules:
        for name in wanted:
            assert name in forward, f"{op.name}: gradient for '{name}', which forward does not take"
        for read in reads:
            known = read in forward or read in ("out", "needs", *impl.saves, *impl.keeps) or f"{read}=" in source
            argument, _, field = read.rpartition("_")
            known = known or (argument in forward and field in _HEADER_FIELDS)
            assert known, f"{op.name}: a rule reads '{read}', which nobody provides"


IN_PLACE = {op.inplace.op.name: op for op in OWN if op.inplace is not None}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_in_place_form_knows_what_it_is_the_form_of(name):
    """Also where the operator is no function of `torch`, so that its name alone does not find it."""
    form = IN_PLACE[name].inplace.op
    assert form.in_place and form.writes and form.plain is IN_PLACE[name]


def test_records_tell_which_operators_change_their_first_argument():
    assert OPS["copy_"].in_place and OPS["copy_"].plain is None
    assert OPS["nn.functional.relu_"].plain is OPS["nn.functional.relu"]
    assert not OPS["add"].in_place and not flambeau.Tensor.__add__.op.in_place


def test_user_can_declare_an_operator():
    @flambeau.ops.pointwise
    def swish(x, beta):
        return x * sigmoid(beta * x)  # noqa: F821  the formula's vocabulary needs no import

    x = flambeau.linspace(-3, 3, 7, dtype=flambeau.float64).requires_grad_()
    y = swish(x, 1.5)
    expected = x.detach() * (1.5 * x.detach()).sigmoid()
    assert flambeau.allclose(y.detach(), expected)
    assert flambeau.autograd.gradcheck(lambda t: swish(t, 1.5), (x,))
    assert flambeau.autograd.gradgradcheck(lambda t: swish(t, 1.5), (x,))
    beta = flambeau.ones(7, 1, dtype=flambeau.float64, requires_grad=True)
    assert swish(x, beta).shape == (7, 7)
    assert flambeau.autograd.gradcheck(swish, (x, beta))
    assert "swish" not in OPS


def test_comparisons_have_no_derivative():
    """Their results are bools, which none is recorded for: a record that says otherwise would be believed by those that read records."""
    compared = [op for op in POINTWISE if op.impl.rule is compare]
    assert len(compared) > 10
    assert [op.name for op in compared if op.differentiable or op.impl.differentiable] == []
