"""Random functions whose results are differentiated by the caller: compiled and as they are."""

from __future__ import annotations

import random
import warnings

import pytest

import flambeau
from flambeau import nn

from . import test_programs, test_splitting
from .helpers import same, visible

# Besides the lines of random programs: results that are arguments, views, or keep no values, and changes in place.
LINES = [
    *test_programs.LINES, "{new} = {a}", "{new} = {a} * 2", "{new} = {a}.t().t()", "{new} = {a}[:, :2].sum() + {b}", "{new} = {a} + 1",
    "{new} = {a}.detach() + {b}", "{new} = {a}.expand(2, *{a}.shape).sum(0)", "{new} = {a}.mul(2)\n    {new}.add_({b})",
    "{new} = {a}.clone()\n    {new}.mul_(2).sub_({b})",
]  # fmt: skip
RETURNS = ["return {0}", "return [{all}]", "return {0}, {{'k': [{all}]}}"]
KINDS = ["plain", "leaf", "history", "mixed", "view", "shared"]  # what the arguments are


def program(seed: int) -> tuple[str, str, bool]:
    """A function of x and y, what they are, and whether it is differentiated twice."""
    pick = random.Random(seed)
    variables, lines = ["x", "y"], []
    for k in range(pick.randint(1, 7)):
        names = {"a": pick.choice(variables), "b": pick.choice(variables), "new": f"v{k}"}
        names.update(d=pick.randint(0, 1), i=pick.randint(0, 2), j=pick.randint(0, 2))
        lines.append(pick.choice(LINES if pick.random() < 0.8 else test_splitting.LINES).format(**names))
        variables.append(f"v{k}")
    outs = pick.sample(variables, k=min(len(variables), pick.randint(1, 3)))
    lines.append(pick.choice(RETURNS).format(outs[0], all=", ".join(outs)))
    return "def function(x, y):\n    " + "\n    ".join(lines) + "\n", pick.choice(KINDS), pick.random() < 0.2


def arguments(kind: str, shape: tuple[int, int]):
    """Leaves, and the arguments that are made of them."""
    first, second = flambeau.randn(shape), flambeau.randn(shape)
    first.requires_grad_(kind != "plain")
    second.requires_grad_(kind not in ("plain", "mixed"))
    x, y = first, second
    if kind in ("history", "mixed"):
        x = first.sin()
    if kind == "history":
        y = second * x  # depends on the other argument
    if kind == "view":
        x, y = (first * 1).view(-1).view(shape), (second * 1).t().contiguous().t()
    if kind == "shared":
        x = y = first * second
    return (first, second), (x, y)


def tensors(value):
    if isinstance(value, flambeau.Tensor):
        return [value]
    value = list(value.values()) if isinstance(value, dict) else value
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def outcome(function, state, kind, twice, shape):
    """Everything that can be seen of one call and the backward pass behind it."""
    leaves, given = arguments(kind, shape)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tensors(function(*given))
            live = [t for t in found if t.requires_grad]
            if live:
                loss = sum((t * (k + 1)).sum() for k, t in enumerate(live))
                if kind in ("history", "view"):
                    loss = loss + (given[0] * 0.5).sum()
                loss.backward(retain_graph=twice)
                if twice:
                    loss.backward()
    except RuntimeError as error:
        return [str(error)[:40]]
    flags = [(t.requires_grad, t.is_leaf) for t in found]
    return [[t.detach() for t in found], flags, [t.grad for t in leaves], visible(state)]


@pytest.mark.parametrize("seed", range(40))
def test_random_functions(seed, capsys):
    text, kind, twice = program(seed)
    pairs = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        function, state = test_splitting.build(text)
        pairs.append((flambeau.compile(function) if compiled else function, state))
    for number in range(8):
        shape = (3, 4) if number == 5 else (4, 5)
        outcomes = []
        for function, state in pairs:
            flambeau.manual_seed(number)
            outcomes.append(outcome(function, state, kind, twice, shape))
        try:
            same(*outcomes, f"call {number}")
        except AssertionError as error:
            raise AssertionError(f"{kind}, twice: {twice}\n{text}\n{error}") from None


def test_results_that_need_no_values_lead_to_the_arguments_of_their_call():
    function = flambeau.compile(lambda x: (x * 2, x.sum()))
    for make in (lambda x: x, lambda x: x * 1):
        for _ in range(5):
            x = flambeau.ones(3, requires_grad=True)
            doubled, total = function(make(x))
            (doubled.sum() * total).backward()
            assert x.grad.tolist() == [12.0] * 3


def test_an_argument_with_a_history_that_is_changed_in_place():
    def change(x):
        x.mul_(3)
        return x.sum()

    results = []
    for function in (change, flambeau.compile(change)):
        for _ in range(5):
            leaf = flambeau.ones(3, requires_grad=True)
            x = leaf * 2
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                total = function(x)
            (total + x.sum()).backward()
            results.append((total.item(), leaf.grad.tolist(), x.tolist()))
    assert results == [(18.0, [12.0] * 3, [6.0] * 3)] * 10


def test_what_the_derivative_does_not_read_may_change():
    """As in an eager call: a result and an argument are changed in place before the backward pass; what is read must not be."""
    flambeau.manual_seed(0)
    model = flambeau.nn.Sequential(flambeau.nn.ReflectionPad2d(1), flambeau.nn.Conv2d(3, 4, 3))
    compiled, square = flambeau.compile(model), flambeau.compile(lambda x: (x * x).sum())
    for _ in range(7):
        found = []
        for function in (model, compiled):
            flambeau.manual_seed(1)
            x = flambeau.randn(2, 3, 6, 6)
            y = function(x)
            y.div_(3)
            x.div_(2)
            model.zero_grad()
            y.square().sum().backward()
            found.append(model[1].weight.grad.clone())
        flambeau.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
        x = flambeau.randn(3, requires_grad=True) * 1
        y = square(x)
        with flambeau.no_grad():
            x.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_derivatives_of_compiled_functions():
    """Transformed functions run as they are, also when they have been recorded before."""
    compiled = flambeau.compile(lambda x: (x * x * x).sum())
    for _ in range(6):
        x = flambeau.randn(3, requires_grad=True)
        compiled(x).backward()
    x, rows = flambeau.randn(3), flambeau.randn(4, 3)
    for _ in range(3):
        flambeau.testing.assert_close(flambeau.func.grad(compiled)(x), 3 * x * x)
        flambeau.testing.assert_close(flambeau.func.hessian(compiled)(x), flambeau.diag(6 * x))
        flambeau.testing.assert_close(flambeau.func.jacfwd(compiled)(x), 3 * x * x)
        flambeau.testing.assert_close(flambeau.func.vmap(flambeau.func.grad(compiled))(rows), 3 * rows * rows)


STATE = {"factor": 2.0, "list": [], "count": 0}


class Scaled(flambeau.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * STATE["factor"]


class Noting(Scaled):
    @staticmethod
    def backward(ctx, g):
        STATE["list"].append(len(STATE["list"]))
        return g


class Counting(Scaled):
    @staticmethod
    def backward(ctx, g):
        STATE["count"] += 1
        return g * STATE["count"]


class Printing(Scaled):
    @staticmethod
    def backward(ctx, g):
        print("back")
        return g


def of_function(function):
    return lambda x: function.apply(x).sum()


def of_a_module_with_a_hook():
    layer = flambeau.nn.Linear(3, 1)
    flambeau.nn.init.ones_(layer.weight)
    layer.register_full_backward_hook(lambda module, given, grads: (given[0] * STATE["factor"],))
    return lambda x: layer(x).sum()


BACKWARDS = {"reads": lambda: of_function(Scaled), "notes": lambda: of_function(Noting), "counts": lambda: of_function(Counting),
             "prints": lambda: of_function(Printing), "hook": of_a_module_with_a_hook}  # fmt: skip


@pytest.mark.parametrize("make", BACKWARDS.values(), ids=BACKWARDS)
def test_what_code_of_users_does_in_a_backward_pass(make, capsys):
    """It reads Python's state, which may change before each call, and may change it."""
    outcomes = []
    for compiled in (False, True):
        STATE.update(factor=2.0, list=[], count=0)
        function = flambeau.compile(make()) if compiled else make()
        found = []
        for k in range(14):
            STATE["factor"] += k == 7
            x = flambeau.arange(3.0, requires_grad=True)
            function(x).backward()
            found.append((x.grad, len(STATE["list"]), STATE["count"], capsys.readouterr().out))
        outcomes.append(found)
    same(*outcomes)


def test_state_that_changes_between_the_passes_is_refused_once():
    STATE["factor"] = 2.0
    function = flambeau.compile(of_function(Scaled))
    x = flambeau.ones(3, requires_grad=True)
    for _ in range(5):
        function(x).backward()
    loss = function(x)
    STATE["factor"] = 3.0
    with pytest.raises(RuntimeError, match=r"has changed since the forward pass \(STATE\['factor'\] was 2.0, is 3.0\)"):
        loss.backward()
    x.grad = None
    function(x).backward()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 3


HOOKS = {
    "hook": lambda x: x.register_hook(lambda g: g * 3),
    "after accumulation": lambda x: x.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * 2)),
}


@pytest.mark.parametrize("add", HOOKS.values(), ids=HOOKS)
def test_hooks_that_arguments_get_later(add):
    def step(x):
        loss = (x * x).sum()
        loss.backward()
        return loss.detach()

    compiled = flambeau.compile(step)
    for k in range(12):
        ours, theirs = (flambeau.arange(4.0, requires_grad=True) for _ in range(2))
        if k > 6 and k % 2:
            add(ours), add(theirs)
        same((compiled(ours), ours.grad), (step(theirs), theirs.grad), f"call {k}")


@pytest.mark.parametrize("since", range(1, 7))
def test_parameters_that_are_frozen_before_the_backward_pass(since):
    """The pass that was recorded or compared raised an error, in which the parameter did not require grad."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        layer = nn.Linear(3, 2)
        model = flambeau.compile(layer) if compiled else layer
        for k in range(8):
            layer.weight.grad = layer.bias.grad = None
            result = model(flambeau.ones(4, 3) * k)
            layer.weight.requires_grad_(k < since)
            result.square().sum().backward()
            outcomes.append((layer.weight.grad, layer.bias.grad))
            layer.weight.requires_grad_(True)
    same(outcomes[:8], outcomes[8:])


@pytest.mark.parametrize("since", range(1, 7))
def test_hooks_that_parameters_get_before_the_backward_pass(since):
    """While the derivative was recorded and compared such a hook was called twice, and its factor squared."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        layer, called = nn.Linear(3, 2), []
        model = flambeau.compile(layer) if compiled else layer
        for k in range(8):
            layer.weight.grad = layer.bias.grad = None
            result = model(flambeau.ones(4, 3) * k)
            hook = layer.weight.register_hook(lambda g: called.append(1) or g * 2) if k >= since else None
            result.square().sum().backward()
            if hook is not None:
                hook.remove()
            outcomes.append((layer.weight.grad, layer.bias.grad, len(called)))
    same(outcomes[:8], outcomes[8:])


def test_a_checkpoint_that_nobody_differentiates_runs_once():
    """The derivative is tried out with made-up gradients where nobody asks for it: not if that runs code of the model again."""
    counts = []
    for compiled in (False, True):
        norm = flambeau.nn.BatchNorm1d(3)
        function = lambda x, norm=norm: flambeau.utils.checkpoint.checkpoint(norm, x, use_reentrant=False)  # noqa: E731
        function = flambeau.compile(function) if compiled else function
        for k in range(10):
            function(flambeau.arange(6.0).reshape(2, 3).sin().mul(k).requires_grad_())
            counts.append((norm.num_batches_tracked.item(), norm.running_mean.tolist()))
    same(counts[:10], counts[10:])


@pytest.mark.parametrize("packed", ["hooks", "checkpoint", "save_on_cpu"])
def test_results_whose_saved_values_are_packed(packed):
    """Replays gave results the history of the recorded call, as if nothing were saved for it: gradients were those of an earlier batch."""

    def build():
        weight = nn.Parameter(flambeau.arange(4.0))

        def function(x):
            if packed == "checkpoint":
                return flambeau.utils.checkpoint.checkpoint(
                    lambda y: (y * weight).square().sum(), x, use_reentrant=False
                )
            graph = flambeau.autograd.graph
            hooks = graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)
            with hooks if packed == "hooks" else graph.save_on_cpu():
                return (x * weight).square().sum()

        return function, weight

    outcomes = []
    for compiled in (False, True):
        function, weight = build()
        function = flambeau.compile(function) if compiled else function
        for k in range(9):
            result, weight.grad = function(flambeau.ones(2, 4) * k), None
            if k > 4:
                result.backward()
            outcomes.append((result.detach(), weight.grad))
    same(outcomes[:9], outcomes[9:])


class Kept:
    """An object of a user's."""

    def __init__(self, value):
        self.value = value


# What a context may keep a value in, and how the backward pass gets it.
KEPT = {
    "an object": (Kept, lambda kept: kept.value),
    "a function": (lambda value: lambda: value, lambda kept: kept()),
    "a set": (lambda value: {value}, lambda kept: next(iter(kept))),
    "an object in a dict": (lambda value: {"a": [Kept(value)]}, lambda kept: kept["a"][0].value),
}


@pytest.mark.parametrize("kind", KEPT)
def test_values_that_a_context_keeps_in_objects(kind):
    """Replays gave results the history of the recorded call, with the values of its batch."""
    keep, get = KEPT[kind]

    class Scaled(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, weight, x):
            ctx.kept = keep(x.detach() * 1)
            return weight * x

        @staticmethod
        def backward(ctx, grad):
            return (grad * get(ctx.kept)).sum(0), None

    outcomes = []
    for compiled in (False, True):
        weight = nn.Parameter(flambeau.arange(4.0))
        function = lambda x, weight=weight: Scaled.apply(weight, x)  # noqa: E731
        function = flambeau.compile(function) if compiled else function
        for k in range(9):
            result, weight.grad = function(flambeau.ones(2, 4) * k), None
            if k > 4:
                result.sum().backward()
            outcomes.append((result.detach(), weight.grad))
    same(outcomes[:9], outcomes[9:])


def test_a_step_is_native_though_a_context_keeps_an_object():
    class Scaled(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = Kept(3)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.kept.value

    weight = nn.Parameter(flambeau.arange(4.0))

    def step(x):
        weight.grad = None
        loss = Scaled.apply(weight * x).square().sum()
        loss.backward()
        return loss

    compiled = flambeau.compile(step)
    for _ in range(6):
        compiled(flambeau.ones(2, 4))
    assert sum(r.calls for r in compiled._compiled.recordings()) == 3, compiled.explain()


@pytest.mark.parametrize("assign", ["weight", "x"])
def test_other_data_between_the_passes_is_an_error_unless_it_holds_the_same_values(assign):
    weight = nn.Parameter(flambeau.ones(2, 2))
    compiled = flambeau.compile(lambda x: (x @ weight).exp())
    for k in range(9):
        x = flambeau.full((2, 2), 0.1 * k, requires_grad=True)
        result = compiled(x).sum()
        changed = {"weight": weight, "x": x}[assign]
        before = changed.data
        if k > 6:
            changed.data = before * (k - 6)
        if k == 8:
            with pytest.raises(RuntimeError, match="was given other data since the forward pass"):
                result.backward()
        else:
            result.backward()
            same([x.grad], [(0.2 * k * flambeau.ones(2, 2)).exp() * 2])
        changed.data = before
    assert any(r.calls for r in compiled._compiled.recordings()), compiled.explain()


@pytest.mark.parametrize("trains", [False, True])
def test_parameters_of_a_compiled_function_can_be_swapped(trains):
    layer = nn.Linear(2, 2)
    compiled = flambeau.compile(layer)
    for k in range(8):
        if k > 4:
            layer.zero_grad()
            flambeau.utils.swap_tensors(layer.weight, nn.Parameter(flambeau.full((2, 2), float(k))))
        x = flambeau.ones(1, 2, requires_grad=trains)
        with flambeau.set_grad_enabled(trains):
            result = compiled(x)
        same([result.detach()], [(x @ layer.weight.t() + layer.bias).detach()])
        if trains:
            result.sum().backward()
            same([x.grad], [layer.weight.detach().sum(0, keepdim=True)])
        del result
