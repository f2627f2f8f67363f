"""Values, objects and classes that compare equal, hide each other or take each other's place: a recording of one is none of the other."""

from __future__ import annotations

import functools
import sys
import time
import types
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau import nn

from .helpers import SETTLED, Twins

X = flambeau.linspace(-1, 1, 6)
COUNTS = flambeau.arange(6)


def signs(result: Any) -> Any:
    """Zeros with their signs, beside a result."""
    return result, flambeau.signbit(result) if isinstance(result, flambeau.Tensor) else result


def by_turns(function: Any, *given: tuple) -> None:
    """Each of these argument lists, so often that recordings would be used, twice."""
    twins = Twins(lambda: (function, None))
    for _ in range(2):
        for args in given:
            twins.call(lambda args=args: args, SETTLED)


def in_states(build: Any, *changes: Any) -> None:
    """Change the state (which `build` makes beside the function) in these ways, one after the other."""
    twins = Twins(build)
    for change in (lambda state: None, *changes):
        for state in (twins.plain_state, twins.state):
            change(state)
        twins.call(lambda: (X,), SETTLED)


@pytest.mark.parametrize(
    "values", [(0.0, -0.0), (1, 1.0, True), (complex(1, 0.0), complex(1, -0.0)), (flambeau.nan, 2.0)]
)
def test_numbers(values: tuple) -> None:
    by_turns(lambda x, s: signs((x.abs() * s).real), *((X, v) for v in values))
    by_turns(lambda x, s: signs(flambeau.full_like(x, s)), *((X, v) for v in values if not isinstance(v, complex)))
    by_turns(lambda x, d: [x * k for k in d], *((COUNTS, {v: 0}) for v in values))

    def build() -> Any:
        held = SimpleNamespace(a=values[0], b=[values[0]], c={values[0]: 1})
        return (lambda x: [signs((x.abs() * s).real) for s in (held.a, held.b[0], *held.c)]), held

    for value in values[1:]:
        in_states(
            build,
            lambda h, v=value: setattr(h, "a", v),
            lambda h, v=value: h.b.__setitem__(0, v),
            lambda h, v=value: setattr(h, "c", {v: 1}),
        )


def test_one_tensor_given_twice_and_two_that_share_memory() -> None:
    by_turns(lambda x, y: x if x is y else x + y, (X, X), (X, X.view(6)), (X, X.clone()))
    one, none = [X], flambeau.ones(0)
    by_turns(lambda a, b: a[0] if a is b else a[0] + 1, (one, one), (one, [X]))
    by_turns(lambda x, a, b: x if a is b else x + 1, (X, none, flambeau.ones(0)), (X, none, none))


class Named(str):
    """Texts that are equal whatever their weights are."""

    weight: float

    def __new__(cls, weight: float) -> Named:
        made = super().__new__(cls, "name")
        made.weight = weight
        return made


def test_keys_that_are_equal() -> None:
    for keys in ([(1, 2), (1.0, 2), (True, 2)], [frozenset([1]), frozenset([1.0])], [np.int64(1), np.float32(1)]):
        by_turns(
            lambda x, d: [x * max(k) if type(k) in (tuple, frozenset) else x * k for k in d],
            *((COUNTS, {k: 0}) for k in keys),
        )
    by_turns(lambda x, d: [x * k.weight for k in d], *((X, {Named(w): 0}) for w in (2.0, 5.0)))


def test_numbers_of_numpy_with_the_same_bytes() -> None:
    hour = np.timedelta64(1, "h")
    by_turns(lambda x, t: x * float(t / hour), *((X, np.timedelta64(1, unit)) for unit in ("h", "D")))
    records = [np.zeros(1, [("a", kind)])[0] for kind in ("<f4", "<i4")]
    by_turns(lambda x, r: x * (2 if r.dtype["a"] == np.float32 else 5), *((X, r) for r in records))


def test_the_exception_that_is_handled() -> None:
    compiled = flambeau.compile(lambda x: x * (2 if sys.exc_info()[0] is None else 5))
    for _ in range(SETTLED):
        assert flambeau.equal(compiled(X), X * 2)
    try:
        raise ValueError
    except ValueError:
        assert flambeau.equal(compiled(X), X * 5)


def test_functions_run_while_no_exception_of_this_library_is_handled() -> None:
    """Not even while it is found out that a function cannot be recorded."""
    compiled = flambeau.compile(lambda x: (x * 2, time.time() > 0, sys.exc_info()[1]))
    for _ in range(SETTLED):
        assert compiled(X)[2] is None


def test_attributes_of_tensors() -> None:
    def make(factor: int) -> Any:
        t = X.clone()
        if factor:
            t.factor = factor
        return t

    by_turns(lambda x: x * x.factor if hasattr(x, "factor") else x, (make(0),), (make(2),), (make(3),))

    def mark(x: Any) -> Any:
        x.seen = True
        return x * 2

    compiled = flambeau.compile(mark)
    for _ in range(2 * SETTLED):
        for t in (X.clone(), X.clone().requires_grad_() * 1):
            compiled(t)
            assert t.seen


def test_what_is_another_thing_in_each_call() -> None:
    base = flambeau.randn(40)
    by_turns(lambda x: x + x.storage_offset(), *((base[i : i + 6],) for i in range(3)))
    by_turns(lambda x: x + x._version, (X.clone(),), (X.clone().add_(1),))
    with flambeau.inference_mode():
        inside = flambeau.ones(6)
    by_turns(lambda x: x + 1 if x.is_inference() else x - 1, (X,), (inside,))
    memo = {id(X): 3}
    by_turns(lambda x: x * memo.get(id(x), 1), (X,), (X.clone(),))
    compiled = flambeau.compile(lambda x: x + flambeau.initial_seed() % 7)
    for seed in (3, 5):
        for _ in range(SETTLED):
            flambeau.manual_seed(seed)
            assert flambeau.equal(compiled(X), X + seed)


class Plain:
    pass


class Callable:
    factor = 2

    def __call__(self) -> None:
        pass

    def scaled(self, x: Any) -> Any:
        return x * self.factor


class Derived(Callable):
    pass


def test_an_object_in_the_place_of_another() -> None:
    """Its class counts, though it has the same number and no attributes."""
    compiled = flambeau.compile(lambda x, o: x * 2 if callable(o) else x)
    for kind in (Plain, Callable) * 3:
        for _ in range(SETTLED):
            held = kind()
            for _ in range(SETTLED):
                assert flambeau.equal(compiled(X, held), X * 2 if kind is Callable else X)
            del held
    held = Plain()
    for _ in range(SETTLED):
        compiled(X, held)
    held.__class__ = Callable
    assert flambeau.equal(compiled(X, held), X * 2)


def test_attributes_that_hide_others() -> None:
    def build() -> Any:
        kind = type("Kind", (Derived,), {})
        held = kind()
        return (lambda x: held.scaled(x)), held

    in_states(build, lambda o: setattr(o, "factor", 7), lambda o: delattr(o, "factor"))
    in_states(build, lambda o: setattr(type(o), "factor", 9), lambda o: delattr(type(o), "factor"))
    in_states(build, lambda o: setattr(o, "scaled", lambda x: x * 100), lambda o: delattr(o, "scaled"))
    in_states(build, lambda o: setattr(type(o), "scaled", lambda self, x: x * 11))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize("inner", [False, True])
def test_a_forward_of_a_modules_own(inner: bool) -> None:
    def build() -> Any:
        model = Model()
        return (lambda x: model(x)), model

    def patch(model: Any) -> None:
        chosen = model.layer if inner else model
        chosen.forward = types.MethodType(lambda self, x: x * 3, chosen)

    in_states(build, patch, lambda model: delattr(model.layer if inner else model, "forward"))


def test_a_global_that_hides_a_builtin() -> None:
    space: dict[str, Any] = {}
    exec("def function(x):\n    return sum([x, x])", space)
    compiled = flambeau.compile(space["function"])
    for _ in range(SETTLED):
        assert flambeau.equal(compiled(X), X * 2)
    space["sum"] = lambda values: values[0] * 10
    assert flambeau.equal(compiled(X), X * 10)


def test_what_lies_behind_a_read_only_view_of_a_dict() -> None:
    def build() -> Any:
        held = {"factor": 2}
        view = types.MappingProxyType(held)
        return (lambda x: x * view["factor"]), held

    in_states(build, lambda held: held.update(factor=3))


def test_hooks_of_a_model_that_is_split() -> None:
    """Spectral norm computes the weight in a hook, and changes its buffers: as often as the model is called."""

    def build() -> Any:
        model = nn.utils.spectral_norm(nn.Linear(6, 6))
        return (lambda x: model(x)), model

    in_states(build, lambda model: None, lambda model: None)
    flambeau.manual_seed(0)
    models = [nn.utils.spectral_norm(nn.Linear(6, 6)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    compiled = flambeau.compile(models[1])
    for _ in range(3 * SETTLED):
        flambeau.testing.assert_close(compiled(X), models[0](X))


FACTORS = {"scale": 2}


def test_what_an_operator_of_a_users_reads() -> None:
    with flambeau.library._scoped_library("telling_apart", "DEF") as library:
        library.define("scale(Tensor x) -> Tensor")
        library.impl("scale", lambda x: x * FACTORS["scale"], "CPU")
        compiled = flambeau.compile(lambda x: flambeau.ops.telling_apart.scale(x))
        for factor in (2, 3):
            FACTORS["scale"] = factor
            for _ in range(SETTLED):
                assert flambeau.equal(compiled(X), X * factor)


class Twice(flambeau.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_tensors[0]


def test_results_of_a_users_function_are_differentiated() -> None:
    compiled = flambeau.compile(lambda x: Twice.apply(x).sum())
    for _ in range(2 * SETTLED):
        x = flambeau.randn(6, requires_grad=True)
        compiled(x).backward()
        flambeau.testing.assert_close(x.grad, 2 * x.detach())
    assert compiled._compiled.recordings()[0].calls


class Whole(int):
    """A number that compares by its own rules."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = int.__hash__


def test_numbers_of_classes_of_their_own() -> None:
    """New ones may lie where old ones lay."""
    compiled = flambeau.compile(lambda x, n: x + n)
    for value in (5, 10, 5, 7):
        for kind in (Whole, np.float32, np.float64):
            for _ in range(SETTLED):
                assert flambeau.equal(compiled(X, kind(value)).float(), X + value)


def test_arguments_are_let_go() -> None:
    compiled = flambeau.compile(lambda x: x + x)
    for _ in range(SETTLED + 2):
        x = flambeau.rand(4)
        known = weakref.ref(x)
        compiled(x)
        del x
        assert known() is None


def test_results_are_what_they_are() -> None:
    """One tensor in two places, a list that was given, a Parameter, attributes, a leaf of the function's own."""
    compiled = flambeau.compile(lambda x: (lambda y: (y, [y]))(x * 2))
    for _ in range(2 * SETTLED):
        x = flambeau.randn(3, requires_grad=True)
        one, (other,) = compiled(x)
        assert one is other
        (one.sum() + other.sum()).backward()
        assert flambeau.equal(x.grad, flambeau.full((3,), 4.0))

    def appended(layer: Any, x: Any, values: list) -> Any:
        values.append(layer(x))
        values.append(layer(values[-1]))
        return flambeau.cat(values), values

    def leaf(x: Any) -> Any:
        made = flambeau.ones(2, requires_grad=True)
        return made, made * 2

    def marked(x: Any) -> Any:
        y = x + 1
        y.mark = 4
        return y

    layer = nn.Linear(3, 3)
    appending, leaving, marking = (flambeau.compile(f) for f in (functools.partial(appended, layer), leaf, marked))
    making = flambeau.compile(lambda x: nn.Parameter(x + 1))
    for _ in range(4 * SETTLED):
        values = [flambeau.randn(2, 3)]
        assert appending(values[0], values)[1] is values and len(values) == 3
        made, result = leaving(X)
        result.sum().backward()
        assert flambeau.equal(made.grad, flambeau.full((2,), 2.0))
        assert marking(X).mark == 4 and type(making(X)) is nn.Parameter


def test_gradients_of_what_lies_between_parts(capsys: pytest.CaptureFixture) -> None:
    """Parts give their results one history: functions that look at gradients in between are not split."""

    def asking(x: Any) -> Any:
        y = x * 2
        z = (y**2).sum()
        print()
        return flambeau.autograd.grad(z, y)[0]

    def hooking(x: Any) -> Any:
        y = x * 2
        z = y + 1
        y.register_hook(lambda g: g * 2)
        return (z + y * 3).sum()

    compiled, hooked = flambeau.compile(asking), flambeau.compile(hooking)
    for _ in range(3 * SETTLED):
        x = flambeau.randn(3, requires_grad=True)
        flambeau.testing.assert_close(compiled(x), 4 * x.detach())
        hooked(x).backward()
        flambeau.testing.assert_close(x.grad, flambeau.full((3,), 16.0))


def test_functions_inside_a_function_that_is_split(capsys: pytest.CaptureFixture) -> None:
    """Their own variables are not its variables, and they see what is set after them."""

    def own(x: Any) -> Any:
        def inner(t: Any) -> Any:
            twice = t * 2
            return twice + 1

        print()
        return inner(x)

    def later(x: Any) -> Any:
        def inner() -> Any:
            return x * factor

        print()
        factor = 3
        return inner()

    for function, expected in ((own, X * 2 + 1), (later, X * 3)):
        compiled = flambeau.compile(function)
        for _ in range(3 * SETTLED):
            assert flambeau.equal(compiled(X), expected)
