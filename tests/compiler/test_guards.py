"""Whatever a compiled function depends on may change at any time: the answer is that of the function as it is."""

from __future__ import annotations

import gc
import types

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler.state import code_names, frames

from .helpers import SETTLED, Twins, same

F = nn.functional
SCALE = 2.0
SETTINGS = {"power": 2, "names": ["a", "b"]}
NUMBER = int | float


def vector(n: int = 6):
    return lambda: (flambeau.randn(n),)


SIX = vector()


def settled(build, make=SIX):
    """Twins that have come to native calls."""
    twins = Twins(build)
    twins.call(make, SETTLED)
    assert twins.native >= 1, twins.compiled.explain()
    return twins


def test_a_union_of_types():
    """It never changes, and another one under its name is seen."""
    global NUMBER
    twins = settled(lambda: ((lambda x: x * 2 if isinstance(SCALE, NUMBER) else x), None))
    NUMBER = int | str
    try:
        twins.call(vector(), 3)
    finally:
        NUMBER = int | float


def test_a_global_number():
    global SCALE
    twins = settled(lambda: ((lambda x: x * SCALE), None))
    SCALE = 3.0
    try:
        twins.call(vector(), 3)
    finally:
        SCALE = 2.0
    twins.call(vector(), 3)


def test_an_entry_of_a_global_dict():
    twins = settled(lambda: ((lambda x: x ** SETTINGS["power"] + len(SETTINGS["names"])), None))
    SETTINGS["power"] = 3
    twins.call(vector(), 3)
    SETTINGS["names"].append("c")
    twins.call(vector(), 3)
    SETTINGS.update(power=2, names=["a", "b"])
    twins.call(vector(), 3)


def test_a_variable_of_an_enclosing_function():
    def build():
        factor = [1.5]
        offset = 1

        def function(x):
            return x * factor[0] + offset

        def change(value):
            nonlocal offset
            factor[0] = value
            offset += 1

        return function, change

    twins = settled(build)
    for value in (2.5, 1.5):
        for change in (twins.plain_state, twins.state):
            change(value)
        twins.call(vector(), 4)


class Thing:
    bias = 1.0

    def __init__(self):
        self.scale = 2.0
        self.unrelated = 0
        self.inner = types.SimpleNamespace(flag=True, word="relu")

    def run(self, x):
        x = x * self.scale + self.bias
        if self.inner.flag:
            x = getattr(F, self.inner.word)(x)
        return x


@pytest.mark.parametrize("change", ["scale", "flag", "word", "bias"])
def test_attributes_of_objects_and_classes(change):
    def build():
        thing = Thing()
        return thing.run, thing

    twins = settled(build)
    things = [twins.state, twins.plain_state]
    try:
        for thing in things:
            if change == "scale":
                thing.scale = -1.0
            elif change == "bias":
                Thing.bias = 7.0
            else:
                setattr(thing.inner, change, {"flag": False, "word": "sigmoid"}[change])
        twins.call(vector(), 4)
    finally:
        Thing.bias = 1.0
    twins.call(vector(), 4)


def test_a_method_that_is_exchanged():
    def build():
        thing = Thing()
        return (lambda x: thing.run(x)), thing

    twins = settled(build)
    for thing in (twins.state, twins.plain_state):
        thing.run = lambda x: x - 100
    twins.call(vector(), 4)


def test_arguments_that_are_no_tensors():
    def build():
        def function(x, n, word, flags=(1, 2), *, last=None):
            y = x * n + len(word) + sum(flags)
            return y if last is None else y * last["k"]

        return function, None

    twins = settled(build, lambda: (flambeau.ones(3), 2, "abc"))
    for args in (
        (3, "abc"),
        (3.0, "abc"),
        (True, "abc"),
        (2, "abcd"),
        (2, "abc", (1, 3)),
        (2, "abc", (1,)),
        (float("nan"), ""),
    ):
        twins.call(lambda args=args: (flambeau.ones(3), *args), 3)


def test_shapes_strides_and_dtypes():
    def build():
        def function(x):
            y = x * 2 if x.shape[0] > 4 else x + 1
            return y.sum() if x.is_contiguous() else y

        return function, None

    twins = settled(build, lambda: (flambeau.randn(5, 3),))
    for make in (
        lambda: (flambeau.randn(4, 3),),
        lambda: (flambeau.randn(3, 5).t(),),
        lambda: (flambeau.randn(5, 6)[:, ::2],),
        lambda: (flambeau.randn(5, 3).double(),),
        lambda: (flambeau.arange(15).reshape(5, 3),),
        lambda: (flambeau.randn(5, 3)[1:],),
        lambda: (flambeau.randn(8, 3)[3:],),
        lambda: (flambeau.randn(0, 3),),
        lambda: (flambeau.randn(5, 1).expand(5, 3),),
    ):
        twins.call(make, 5)


def test_arguments_that_share_memory():
    def build():
        def function(x, y):
            x.add_(1)
            return y * 2

        return function, None

    def apart():
        return flambeau.ones(4), flambeau.ones(4)

    def together():
        x = flambeau.ones(8)
        return x[:4], x[2:6]

    def equal():
        x = flambeau.ones(4)
        return x, x

    twins = settled(build, apart)
    for make in (together, equal, apart, together):
        twins.call(make, 5)


def test_an_argument_that_is_a_parameter():
    def build():
        weight = flambeau.ones(4)

        def function(x):
            weight.add_(1)
            return x * weight

        return function, weight

    twins = settled(build, vector(4))
    for function, weight in ((twins.plain, twins.plain_state), (twins.compiled, twins.state)):
        function(weight)
    twins.call(vector(4), 3)


def model_and_step(optimizer=flambeau.optim.SGD, **options):
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.4), nn.Linear(5, 2))
    optimizer = optimizer(model.parameters(), **{"lr": 0.1, **options})

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, [model, optimizer]


def batch():
    return flambeau.randn(8, 6), flambeau.randn(8, 2)


CHANGES = {
    "eval": lambda model, optimizer: model.eval(),
    "dropout": lambda model, optimizer: setattr(model[3], "p", 0.9),
    "frozen": lambda model, optimizer: model[0].weight.requires_grad_(False),
    "frozen layer": lambda model, optimizer: model[4].requires_grad_(False),
    "learning rate": lambda model, optimizer: optimizer.param_groups[0].update(lr=0.01),
    "decay": lambda model, optimizer: optimizer.param_groups[0].update(weight_decay=0.5),
    "state": lambda model, optimizer: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    "data": lambda model, optimizer: setattr(model[0].weight, "data", flambeau.ones(5, 6)),
    "parameter": lambda model, optimizer: setattr(model[0], "bias", None),
    "layer": lambda model, optimizer: model.__setitem__(2, nn.Tanh()),
    "activation": lambda model, optimizer: setattr(model[2], "inplace", True),
    "momentum of statistics": lambda model, optimizer: setattr(model[1], "momentum", 0.7),
    "no gradient": lambda model, optimizer: optimizer.zero_grad(),
    "zero gradient": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "hook": lambda model, optimizer: model[2].register_forward_hook(lambda module, args, out: out * 2),
    "tensor hook": lambda model, optimizer: model[0].weight.register_hook(lambda g: g * 2),
    "optimizer's state": lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
    "new group": lambda model, optimizer: optimizer.add_param_group({"params": [flambeau.ones(2, requires_grad=True)]}),
    "value": lambda model, optimizer: model[0].weight.data.mul_(2),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("optimizer", [flambeau.optim.SGD, flambeau.optim.AdamW])
def test_changes_of_a_model_and_its_optimizer(name, optimizer):
    twins = Twins(lambda: model_and_step(optimizer))
    twins.call(batch, 5)
    assert twins.native >= 1, twins.compiled.explain()
    before = twins.native
    for state in (twins.plain_state, twins.state):
        CHANGES[name](*state)
    twins.call(batch, 5)
    if "hook" not in name:
        assert twins.native > before, twins.compiled.explain()


def test_a_model_that_keeps_the_handle_of_its_hook():
    """A handle knows the table of hooks by a weak reference, which is no reason to leave a model as it is."""

    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 2)
            self.handle = self.linear.register_forward_hook(lambda module, args, out: out * 2)

        def forward(self, x):
            return self.linear(x) + self.handle.id * 0

    def build():
        flambeau.manual_seed(0)
        model = Doubling().requires_grad_(False)
        return (lambda x: model(x)), model

    twins = settled(build)
    for model in (twins.plain_state, twins.state):
        model.handle.remove()
    before = twins.native
    twins.call(SIX, 5)
    assert twins.native > before, twins.compiled.explain()


def test_modes():
    twins = settled(lambda: ((lambda x, w: (x @ w).relu()), None), lambda: (flambeau.randn(3, 4), flambeau.randn(4, 2)))
    make = lambda: (flambeau.randn(3, 4), flambeau.randn(4, 2))  # noqa: E731
    leaves = lambda: (flambeau.randn(3, 4), flambeau.randn(4, 2).requires_grad_())  # noqa: E731
    twins.call(leaves, 5)
    with flambeau.no_grad():
        twins.call(leaves, 5)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        twins.call(make, 5)
    with flambeau.inference_mode():
        twins.call(make, 5)
    flambeau.set_default_dtype(flambeau.float64)
    try:
        twins.call(make, 5)
    finally:
        flambeau.set_default_dtype(flambeau.float32)
    twins.call(make, 2)


def test_the_default_dtype():
    twins = settled(lambda: ((lambda x: flambeau.ones(3) * 2 + x.sum().double()), None))
    flambeau.set_default_dtype(flambeau.float64)
    try:
        twins.call(lambda: (flambeau.ones(6),), 4)
    finally:
        flambeau.set_default_dtype(flambeau.float32)


def test_the_seed():
    twins = settled(lambda: ((lambda x: F.dropout(x, 0.5) + flambeau.rand(6) + flambeau.randn(6)), None))
    twins.call(vector(), 4)
    a, b = twins.compiled(flambeau.ones(6)), twins.compiled(flambeau.ones(6))
    assert not a.equal(b)


def test_the_number_of_threads():
    twins = settled(lambda: ((lambda x: (x @ x.t()).sum()), None), lambda: (flambeau.randn(20, 30),))
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(1 if before > 1 else 2)
    try:
        twins.call(lambda: (flambeau.randn(20, 30),), 4)
    finally:
        flambeau.set_num_threads(before)


# -- what happens besides results ---------------------------------------------------------------------------------------


def test_python_side_effects_happen():
    def build():
        losses, counts = [], {"calls": 0}

        def function(x):
            losses.append(x.shape[0])
            counts["calls"] += 1
            return x * 2

        return function, [losses, counts]

    Twins(build).call(vector(), 6)


def test_attributes_that_code_stores():
    class Counter:
        def __init__(self):
            self.count = 0

        def run(self, x):
            self.count += 1
            return x * self.count

    def build():
        counter = Counter()
        return counter.run, counter.__dict__

    Twins(build).call(vector(), 6)


def test_values_that_python_reads():
    def build():
        def function(x):
            if x.sum() > 0:
                return x * 2
            return x - float(x.min())

        return function, None

    twins = Twins(build)
    twins.call(vector(), 8)
    assert "value" in twins.compiled.explain()


def test_fullgraph_is_an_error():
    function = flambeau.compile(lambda x: x * x.max().item(), fullgraph=True)
    function(flambeau.ones(2))
    with pytest.raises(RuntimeError, match="cannot be one graph"):
        function(flambeau.ones(2))


def test_one_warning_says_why():
    function = flambeau.compile(lambda x: x * x.max().item())
    function(flambeau.ones(2))
    with pytest.warns(UserWarning, match="runs as it is: .*values"):
        function(flambeau.ones(2))
    assert function(flambeau.full((2,), 3.0)).tolist() == [9, 9]


def test_results_that_are_kept_do_not_change():
    step, (model, optimizer) = model_and_step()
    compiled = flambeau.compile(step)
    kept = []
    for _ in range(8):
        loss = compiled(*batch())
        kept.append(
            (loss, loss.item(), [p.grad for p in model.parameters()], [p.grad.tolist() for p in model.parameters()])
        )
    for loss, value, grads, values in kept:
        assert loss.item() == value
        assert [g.tolist() for g in grads] == values


def test_views_of_gradients_that_are_kept_do_not_change():
    step, (model, optimizer) = model_and_step()
    compiled = flambeau.compile(step)
    for _ in range(5):
        compiled(*batch())
    view = model[0].weight.grad.detach()[1:]
    array = model[4].weight.grad.numpy()
    before, other = view.tolist(), array.tolist()
    for _ in range(3):
        compiled(*batch())
    assert view.tolist() == before and array.tolist() == other


def test_errors_of_kernels():
    def build():
        weight = flambeau.randn(5, 3)
        return (lambda i, t: F.cross_entropy(F.embedding(i, weight), t)), weight

    twins = settled(build, lambda: (flambeau.tensor([1, 2]), flambeau.tensor([0, 2])))
    with pytest.raises(IndexError, match="out of range"):
        twins.compiled(flambeau.tensor([1, 5]), flambeau.tensor([0, 2]))
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        twins.compiled(flambeau.tensor([1, 2]), flambeau.tensor([0, 3]))
    twins.call(lambda: (flambeau.tensor([1, 2]), flambeau.tensor([0, 2])), 2)


def test_gradients_add_up_without_zero_grad():
    def build():
        w = flambeau.ones(3, requires_grad=True)

        def function(x):
            (w * x).sum().backward()

        return function, w

    twins = Twins(build)
    twins.call(vector(3), 7)
    assert twins.native >= 1, twins.compiled.explain()


def test_gradients_of_arguments():
    def build():
        def function(x):
            loss = (x * x).sum()
            loss.backward()
            return loss

        return function, None

    twins = Twins(build)
    twins.call(lambda: (flambeau.randn(4).requires_grad_(),), 6)
    assert twins.native >= 1, twins.compiled.explain()


def test_changed_arguments():
    twins = settled(lambda: ((lambda x: x.mul_(2).t()[0].add_(1)), None), lambda: (flambeau.randn(3, 4),))
    twins.call(lambda: (flambeau.randn(3, 4),), 3)


def test_a_second_backward_is_refused_as_in_eager():
    step, _ = model_and_step()
    compiled = flambeau.compile(step)
    for _ in range(6):
        loss = compiled(*batch())
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_foreign_functions_are_not_compiled():
    import random
    import time

    for function in (lambda x: x * random.random(), lambda x: x + time.time(), lambda x: print("", end="") or x):
        twins = flambeau.compile(function)
        with pytest.warns(UserWarning, match="not compiled"):
            for _ in range(3):
                twins(flambeau.ones(2))


def test_seeds_and_settings_that_the_function_changes():
    def seeding(x):
        flambeau.manual_seed(3)
        return x * 2

    def switching(x):
        flambeau.set_default_dtype(
            flambeau.float64 if flambeau.get_default_dtype() is flambeau.float32 else flambeau.float32
        )
        return x * 2

    Twins(lambda: (seeding, None)).call(vector(), 6)
    try:
        compiled = flambeau.compile(switching)
        for i in range(6):
            assert compiled(flambeau.ones(2)) is not None
            assert flambeau.get_default_dtype() is (flambeau.float32 if i % 2 else flambeau.float64)
    finally:
        flambeau.set_default_dtype(flambeau.float32)


def test_tensors_made_of_numbers():
    twins = Twins(lambda: ((lambda x: x[:2] + flambeau.tensor([1.0, 2.0]) + flambeau.as_tensor([3, 4])), None))
    twins.call(vector(), 6)


def test_memory_shared_through_numpy():
    import numpy as np

    memory = np.zeros(10, np.float32)

    def build():
        def function(x, y):
            x.add_(1)
            return y * 2

        return function, None

    def make():
        memory[:] = 0
        return flambeau.from_numpy(memory[:6]), flambeau.from_numpy(memory[4:])

    def apart():
        memory[:] = 0
        return flambeau.from_numpy(memory[:5]), flambeau.from_numpy(memory[5:])

    twins = Twins(build)
    for make_one in (apart, make, apart):
        twins.call(make_one, 5)


def test_threads_have_recordings_of_their_own():
    import threading

    step, (model, _) = model_and_step()
    compiled = flambeau.compile(lambda x: model[0](x).detach().sum())
    failures = []

    def work():
        for _ in range(30):
            x = flambeau.randn(8, 6)
            if abs(compiled(x).item() - model[0](x).sum().item()) > 1e-3:
                failures.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_explain_and_reset():
    compiled = flambeau.compile(lambda x: (x + 1).relu() * 2)
    for _ in range(5):
        compiled(flambeau.ones(3))
    text = flambeau.compiler.show(compiled)
    assert "recording 0" in text and "1 native calls" in text and "fusing loops" in text
    flambeau.compiler.reset()
    assert compiled(flambeau.ones(3)).tolist() == [4, 4, 4]
    told = flambeau._dynamo.explain(lambda x: x * 2)(flambeau.ones(2))
    assert told.graph_count == 1 and told.graph_break_count == 0


def test_compile_of_a_module_in_place():
    model = nn.Linear(3, 2)
    expected = model(flambeau.ones(1, 3))
    model.compile()
    for _ in range(5):
        assert model(flambeau.ones(1, 3)).equal(expected)
    with flambeau.no_grad():
        for _ in range(5):
            assert model(flambeau.ones(1, 3)).equal(expected)
    assert "recording 0" in model._compiled_call_impl.explain()


def test_numbers_that_are_only_returned():
    def build():
        w = flambeau.ones(3, requires_grad=True)
        optimizer = flambeau.optim.SGD([w], lr=0.1)

        def function(x):
            optimizer.zero_grad()
            loss = (w * x).square().sum()
            loss.backward()
            optimizer.step()
            size = w.detach().norm()
            return loss.item(), {"size": size.item()}

        return function, [w, optimizer]

    twins = Twins(build)
    twins.call(vector(3), 7)
    assert twins.native >= 3, twins.compiled.explain()


@pytest.mark.parametrize(
    "body",
    ["v = x.sum().item()\n    return v + 1", "return float(x.sum())", "return x * x.sum().item()", "return round(x.sum().item(), 1)",
     "return x if x.sum().item() > 0 else -x", "return '%.2f' % x.sum().item()", "return [x.sum().item()] * 2", "return x.argmax().item()"],
)  # fmt: skip
def test_numbers_that_are_used(body):
    space = {"__name__": "program"}
    exec(f"def function(x):\n    {body}\n", space)
    twins = Twins(lambda: (space["function"], None))
    twins.call(vector(), 7)
    assert not twins.native


def test_what_reaches_outside_the_process_is_not_compiled(tmp_path):
    place = str(tmp_path / "x.pt")

    def function(x):
        flambeau.save(x, place)
        return x * 2

    compiled = flambeau.compile(function)
    with pytest.warns(UserWarning, match="files or other processes"):
        for k in range(5):
            compiled(flambeau.full((2,), float(k)))
    assert flambeau.load(place).tolist() == [4, 4]


REDUCED = {
    "sum": lambda x, y: ((x - y) * 2).exp().sum(),
    "rows": lambda x, y: (x * y + 1).sum(1),
    "columns": lambda x, y: (x * y + 1).tanh().mean(0),
    "max": lambda x, y: (x.abs() + y).amax(1),
    "any": lambda x, y: ((x + 3) * y > 0).any(),
    "argmax": lambda x, y: (x * y).argmax(1),
    "norm": lambda x, y: (x - y).norm(),
    "half": lambda x, y: (x.bfloat16() * y.bfloat16() + 1).sum(),
    "kept": lambda x, y: [(z := x * y).sum(), z],
}


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_of_formulas(name):
    twins = settled(lambda: (REDUCED[name], None), lambda: (flambeau.randn(7, 33), flambeau.randn(7, 33)))
    recorded = twins.behind.found
    graphs = [r.program.graph for e in recorded.values() if type(e) is list for r in e]
    if name != "kept":
        assert len(graphs[0].steps) == 1, graphs[0].text()


def test_a_forward_of_the_librarys_that_is_exchanged(monkeypatch):
    def build():
        layer = nn.Linear(6, 3)
        return (lambda x: layer(x).detach()), layer

    twins = settled(build)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * SCALE)
    twins.call(vector(), 4)


def test_arguments_that_are_parts_of_larger_memory():
    def build():
        return (lambda x: x.mul_(2).sum()), None

    def inside():
        return (flambeau.randn(1000)[500:506],)

    twins = settled(build, inside)
    for make in (vector(), inside, lambda: (flambeau.randn(6)[0:],), vector(), inside):
        twins.call(make, 3)


def test_classes_that_override_operators_do_not_switch_it_off():
    """Once there is such a class a mode is on for good; functions of plain tensors are compiled all the same."""

    class Marked(flambeau.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    marked = flambeau.ones(6).as_subclass(Marked)
    assert type(marked + 1) is Marked
    settled(lambda: ((lambda x: x * 2 + 1), None))

    @flambeau.compile
    def twice(x):
        return x * 2

    for _ in range(6):
        assert type(twice(marked)) is Marked


def test_what_only_frozen_functions_hold(monkeypatch):
    """A function that is found by a computed name, in a heap that the program has frozen, as servers do."""

    def scaled():
        factor = [2.0]
        return (lambda x: x * factor[0]), factor

    function, factor = scaled()
    monkeypatch.setattr(flambeau, "put_there_by_a_test", function, raising=False)
    gc.freeze()
    twins = Twins(lambda: ((lambda x: getattr(flambeau, "put_there" + "_by_a_test")(x)), None))
    twins.call(vector(), SETTLED)
    factor[0] = 5.0
    twins.call(vector(), 3)


@pytest.mark.skipif(not frames.FUNCTIONS_ARE_KNOWN, reason="frames of this Python do not tell which function they run")
def test_functions_that_ran_are_found_without_looking_through_the_heap(monkeypatch):
    """A heap of millions of objects takes a second to look through: only a function that makes others by name needs that."""
    looked: list[int] = []
    monkeypatch.setattr(code_names, "functions_of", lambda codes: looked.append(len(codes)) or [])
    factor = [2.0]
    monkeypatch.setattr(flambeau, "put_there_by_a_test", lambda x: x * factor[0], raising=False)
    function = lambda x: sum([getattr(flambeau, "put_there" + "_by_a_test")(x) for _ in range(2)])  # noqa: E731
    twins = Twins(lambda: (function, None))
    twins.call(vector(), SETTLED)
    factor[0] = 5.0
    twins.call(vector(), 3)
    assert looked and not any(looked)


def test_a_tensor_that_requires_grad_once_more() -> None:
    """It has had an autograd state since the first time: its header no longer shows the change."""
    w, x = flambeau.ones(2), flambeau.ones(2)
    compiled = flambeau.compile(lambda x: x * w)
    for turn in range(5):
        assert [compiled(x).requires_grad for _ in range(SETTLED)] == [turn % 2 == 1] * SETTLED
        w.requires_grad_(turn % 2 == 0)


def test_an_option_that_is_gone_is_the_steps_error():
    """The guard raised it, before the step had made its gradients."""
    twins = Twins(model_and_step)
    twins.call(batch, 4)
    found = []
    for function, (model, optimizer) in ((twins.plain, twins.plain_state), (twins.compiled, twins.state)):
        del optimizer.param_groups[0]["lr"]
        flambeau.manual_seed(7)
        with pytest.raises(KeyError, match="lr"):
            function(*batch())
        found.append([p.grad for p in model.parameters()])
    same(*found)


class Setting:
    """A class with a number that functions read."""

    value = 2.0


@pytest.mark.parametrize("kind", ["variable", "list", "dict", "class"])
def test_a_number_at_the_address_of_an_equal_one_that_is_gone_is_another(kind):
    """Words of memory are compared: what was found equal to a value must live as long as its address is expected."""
    numbers, table, number, half = [2.0], {"number": 2.0}, 2.0, 1.5

    def step(x):
        return x * {"variable": lambda: number, "list": lambda: numbers[0], "dict": lambda: table["number"],
                    "class": lambda: Setting.value}[kind]()  # fmt: skip

    Setting.value = 2.0
    compiled, x = flambeau.compile(step), flambeau.ones(1)
    for _ in range(6):
        compiled(x)
    if kind == "variable":
        number = number + 0.0  # an equal number, somewhere else
        assert compiled(x).item() == 2.0
        number = None
        number = half * 2  # where that one was
    elif kind == "class":
        Setting.value = Setting.value + 0.0
        assert compiled(x).item() == 2.0
        Setting.value = None
        Setting.value = half * 2
    else:
        held, key = (numbers, 0) if kind == "list" else (table, "number")
        held[key] = held[key] + 0.0
        assert compiled(x).item() == 2.0
        held[key] = None
        held[key] = half * 2
    assert compiled(x).item() == 3.0
