"""Everything passes the door: what modes see, what kernels may touch, what a record says. See tests/door.py for the whole operator database."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest
import side_by_side
from all_operators import OWN

import flambeau as torch
from flambeau.core import modes
from flambeau.ops import OPS

ROOT = Path(torch.__file__).parent


def run_in_new_process(program: str) -> str:
    """The output of a program that starts before any kernel exists."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TRAINING = """
import tests.door as door
door.install()
import flambeau as torch
from flambeau import nn
F = nn.functional

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 3 * 3, 12)
        self.layer_norm, self.embed, self.out = nn.LayerNorm(12), nn.Embedding(7, 12), nn.Linear(12, 5)
        self.rnn, self.attention = nn.LSTM(12, 12, batch_first=True), nn.MultiheadAttention(12, 2, batch_first=True)
    def forward(self, x, tokens):
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        x = F.dropout(F.gelu(self.linear(x.flatten(1))), 0.1)
        h, _ = self.rnn(self.embed(tokens))
        h, _ = self.attention(h, h, h, need_weights=False)
        return self.out(self.layer_norm(x + h.mean(1)))

def train(optimizer, watched):
    torch.manual_seed(0)
    net = Net()
    optimizer = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01)
    x, tokens, y = torch.randn(6, 3, 8, 8), torch.randint(0, 7, (6, 5)), torch.randint(0, 5, (6,))
    import contextlib
    with door.Door().watch() if watched else contextlib.nullcontext():
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x, tokens), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    return [loss.detach(), *(p.detach() for p in net.parameters())]

for name in ("SGD", "Adam", "AdamW", "RMSprop"):
    plain, watched = train(name, False), train(name, True)
    for a, b in zip(plain, watched):
        torch.testing.assert_close(a, b)
print(sorted(door.Door.violations))
assert not door.Door.violations
assert door.Door.seen["_fused_adam"] == 4  # two steps each of Adam and AdamW
"""


def test_every_native_call_of_training_steps_is_inside_an_operator() -> None:
    assert run_in_new_process(TRAINING).strip() == "[]"


UNSEEN = """
import tests.door as door
door.install()
import flambeau as torch
from flambeau.ops.machinery.declare import declare_composite

def peeks(x):
    return float(x._array().sum())

peeks = declare_composite(peeks, function=False, method=False)
with door.Door().watch():
    peeks(torch.ones(3))
print(len(door.Door.violations))
"""


def test_what_touches_memory_outside_an_operator_is_noticed() -> None:
    assert run_in_new_process(UNSEEN).strip() == "1"


TOY = """
import flambeau as torch
from tests.backends.toy_device import ToyBackend
toy = ToyBackend()
torch.backends.register("toy", toy)
x = torch.randn(4, 5)
t = x.to("toy")
assert t.device.type == "toy" and repr(t).endswith("device='toy')")
assert torch.equal(((t * 2 + t).relu() - 1).cpu(), (x * 2 + x).relu() - 1)
torch.testing.assert_close(torch.softmax(t, 1).cpu(), torch.softmax(x, 1))
torch.testing.assert_close(t.t().contiguous().sum(0).cpu(), x.sum(1))
w = torch.ones(4, 5).to("toy").requires_grad_()
(w.exp() * t).sum().backward()
torch.testing.assert_close(w.grad.cpu(), torch.ones(4, 5).exp() * x)
optimizer = torch.optim.Adam([w], lr=0.1)
optimizer.step()
assert w.device.type == "toy" and not torch.equal(w.detach().cpu(), torch.ones(4, 5))
before = len(toy.launches)
for wrong in (lambda: t + x, lambda: torch.cat([t, x])):
    try:
        wrong()
    except RuntimeError as problem:
        assert "same device" in str(problem)
    else:
        raise AssertionError("two devices in one call")
try:
    torch.linalg.inv(torch.eye(3).to("toy"))
except NotImplementedError as problem:
    assert "toy" in str(problem)
else:
    raise AssertionError("a kernel that does not exist")
print(before > 5)
"""


def test_a_device_of_ones_own_computes_what_compiles_and_names_what_is_missing() -> None:
    assert run_in_new_process(TOY).strip() == "True"


def test_a_toy_device_is_small() -> None:
    assert len((Path(__file__).parents[1] / "backends/toy_device.py").read_text().splitlines()) < 150


def test_modes_belong_to_their_thread() -> None:
    """vmap, autocast and plain arithmetic side by side in two threads: nobody sees the others, and nothing is left on a stack."""
    gc.collect()
    torch.ones(1) + torch.ones(1)  # names that another test has given are gone: their mode leaves now
    before = list(modes.own.stack), len(modes.active)  # a class that overrides operators, in another test, stays known
    rounds, problems = side_by_side.run(seconds=2)
    assert not problems and rounds > 2
    assert (list(modes.own.stack), len(modes.active)) == before


def test_a_second_identical_call_plans_and_compiles_nothing() -> None:
    from flambeau.backends.cpu import jit

    x = torch.randn(5, 7, requires_grad=True)

    def step() -> None:
        torch.nn.functional.layer_norm(torch.softmax(x * 2 + 1, 1), (7,)).sum().backward()

    step()
    step()  # from now on gradients are added to those of the step before
    add, compiled = OPS["add"].impl, jit.stats.compiled + jit.stats.loaded
    plans = len(add.plans)
    step()
    assert jit.stats.compiled + jit.stats.loaded == compiled and len(add.plans) == plans


# -- what records say ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OWN, ids=lambda op: op.key)
def test_records_have_a_key_and_a_schema(op) -> None:
    assert OPS[op.key] is op
    text = str(op.schema)
    assert text.startswith(("aten::", "flambeau::")) and "->" in text


def test_bind_gives_the_canonical_call() -> None:
    x = torch.ones(2, 3)
    assert OPS["sum"].bind((x,), {"axis": 1}) == {"input": x, "dim": 1, "keepdim": False, "dtype": None}
    bound = OPS["add"].bind((x, 2), {})
    assert list(bound) == ["input", "other", "alpha"] and bound["alpha"] == 1
    assert list(OPS["clamp"].bind((x, 0.0), {})) == ["input", "min", "max"]


def test_meta_tensors_stop_after_the_layout_rule() -> None:
    x = torch.randn(2, 3, 8, 8, device="meta")
    y = torch.nn.functional.conv2d(x, torch.randn(4, 3, 3, 3, device="meta"))
    assert y.device.type == "meta" and y.shape == (2, 4, 6, 6)


# -- what the source says --------------------------------------------------------------------------------------------------


ASKS = re.compile(r"\bis (not )?cpu\b|\.device [=!]= |\.type ([=!]=|in|not in) .*\"cpu\"")


def test_no_operator_asks_whether_it_is_on_the_cpu() -> None:
    assert ASKS.search("if where is cpu:") and ASKS.search('if x.device.type != "cpu":')
    lines = [(p, i, l) for p in (ROOT / "ops").rglob("*.py") for i, l in enumerate(p.read_text().splitlines(), 1)]
    found = [f"{p.relative_to(ROOT)}:{i}" for p, i, l in lines if ASKS.search(l)]
    assert found == []


def test_the_cpu_and_meta_are_backends_like_any_other() -> None:
    from flambeau.core.backend import backend_of

    host, cpu = backend_of(torch.device("cpu")), torch.device("cpu")
    address = host.allocate(16, cpu)
    host.fill(address, 3, 16, cpu)
    t = torch.zeros(16, dtype=torch.uint8)
    host.read(t.data_ptr(), address, 16, cpu)
    host.release(address, 16, cpu)
    assert t.tolist() == [3] * 16 and host.on_host and host.compiles and host.generator(cpu) is torch.default_generator
    meta = torch.device("meta")
    nowhere = backend_of(meta)
    nowhere.fill(nowhere.allocate(16, meta), 3, 16, meta)
    assert not nowhere.has_values and not nowhere.compiles
    with pytest.raises(NotImplementedError, match="no data"):
        nowhere.read(t.data_ptr(), 0, 16, meta)
    for name in ("cpu", "meta"):
        with pytest.raises(ValueError, match="already"):
            torch.backends.register(name, host)


def composites() -> list[tuple[Path, ast.FunctionDef]]:
    """The functions that are declared as made of other operators."""
    found = []
    for path in ROOT.rglob("*.py"):
        for f in ast.walk(ast.parse(path.read_text())):
            for d in f.decorator_list if isinstance(f, ast.FunctionDef) else []:
                name, options = (d.func, d.keywords) if isinstance(d, ast.Call) else (d, [])
                if isinstance(name, ast.Name) and name.id == "composite" and "kind" not in [k.arg for k in options]:
                    found.append((path, f))
    return found


def test_a_composite_touches_no_memory() -> None:
    touching = {"_array", "ptr", "data_ptr", "buffer", "ctypes"}
    found = composites()
    assert len(found) > 300
    assert [
        f"{path.name}:{n.lineno} {f.name}"
        for path, f in found
        for n in ast.walk(f)
        if isinstance(n, ast.Attribute) and n.attr in touching
    ] == []


def test_every_operator_has_a_name_of_its_own() -> None:
    from flambeau.ops.machinery.record import Op, register

    with pytest.raises(ValueError, match="declared twice"):
        register(Op("alias", "view", lambda x: x, ()))


def test_primitives_have_layout_rules() -> None:
    """An operator with kernels says what its results look like without computing them. The number without may only shrink."""
    from flambeau.ops.machinery.primitive import Primitive

    without = [
        key
        for key, op in OPS.items()
        if isinstance(op.impl, Primitive)
        and op.kind == "primitive"
        and op.layout is None
        and not op.writes
        and not op.reads_values
    ]
    assert len(without) <= ALLOWED_WITHOUT_LAYOUT, without


ALLOWED_WITHOUT_LAYOUT = 37  # made of other operators, with a derivative of their own. May only shrink.


def test_what_must_be_declared_is_declared() -> None:
    """Operators with kernels or views of their own say what `vmap` does with them, be it one element after the other."""
    from flambeau.func import rules  # noqa: F401  the rules with code of their own

    kinds = [op for op in OPS.values() if op.kind == "primitive" or (op.kind == "view" and op.impl is not None)]
    assert [op.key for op in kinds if op.batching is None] == []
    assert {op.autocast for op in OPS.values() if not callable(op.autocast)} == {
        "lower",
        "float32",
        "widest",
        "parts",
        "",
    }


def test_every_named_batching_rule_exists() -> None:
    from flambeau.func import batching
    from flambeau.func.rules import random

    every = [op for op in OPS.values() if op.batching is not None and not callable(op.batching)]
    named = {op.batching for op in every if op.kind != "random"}
    assert len(named) > 10
    drawn = {
        "new",
        "like",
        "rows",
        "each",
        *random._MASKS,
        *random._NOISE,
        *random._CHANNELS,
    }  # one rule reads them all
    assert {op.batching for op in every if op.kind == "random"} <= drawn
    for declared in named:
        assert callable(batching.named_rule(declared))


def tables_of_operators(room: str) -> list[str]:
    """Tables at the top of a room's modules whose keys are mostly names of operators."""
    names = {op.name for op in OPS.values()} | set(OPS)
    names |= {op.inplace.op.name for op in OPS.values() if op.inplace is not None}
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                target = ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
                words = [w for node in ast.walk(statement.value) for w in keys_of(node)]
                hits = [w for w in words if w in names]
                if target != "__all__" and len(hits) > 1 and len(hits) * 3 >= len(words) * 2:
                    found.append(f"{path.relative_to(ROOT).as_posix()} {target}")
    return found


def keys_of(node: ast.AST) -> list[str]:
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return [k.value for k in items if isinstance(k, ast.Constant) and isinstance(k.value, str)]


WORDS = {  # tables of other things that happen to be called like operators
    "core/dtype.py ALIASES", "core/print_options.py _PROFILES", "ops/machinery/aten_form.py REDUCTIONS",
}  # fmt: skip


@pytest.mark.parametrize("room", ["core", "ops/machinery", "amp", "func", "autograd"])
def test_no_table_of_operators_stands_outside_the_records(room: str) -> None:
    assert set(tables_of_operators(room)) - WORDS == set()


def test_a_door_does_not_take_its_own_names_for_arguments() -> None:
    from flambeau.ops.machinery.declare import declare_internal

    def unlucky(x, op): ...

    with pytest.raises(ValueError, match="its door uses the name 'op' itself"):
        declare_internal(unlucky, layout=lambda x, op: (x.shape, x.dtype, x.device))
    OPS.pop("internal.unlucky")  # it was known before its door was written


def test_no_function_walks_frames_to_read_what_a_caller_wrote() -> None:
    for file in ("overrides.py", "core/overrides.py"):
        tree = ast.parse((ROOT / file).read_text())
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "f_locals"]


def test_gradients_on_meta_need_no_values() -> None:
    x = torch.empty(3, 3, device="meta", requires_grad=True)
    for result in (x.prod(), x.prod(1).sum(), x.cumprod(0).sum(), torch.linalg.det(x)):
        (g,) = torch.autograd.grad(result, x)
        assert g.shape == x.shape and g.device.type == "meta"


def test_sums_over_nothing_are_zero_without_a_kernel() -> None:
    for where in ("cpu", "meta"):
        x, w = torch.zeros(0, 3, 4, 4, device=where), torch.ones(2, 3, 3, 3, device=where, requires_grad=True)
        torch.nn.functional.conv2d(x, w).sum().backward()
        assert w.grad is not None and w.grad.shape == w.shape
        assert where == "meta" or not w.grad.any()


# -- recording -------------------------------------------------------------------------------------------------------------


def _x(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).div(7).requires_grad_()


RECORDED = {
    "mm": lambda: ((_x(2, 3), _x(3, 2)), {}),
    "addmm": lambda: ((_x(2), _x(2, 3), _x(3, 2).detach()), {"beta": 2, "alpha": 0.5}),
    "clone": lambda: ((_x(2, 3),), {}),
    "internal.softmax_along": lambda: ((_x(2, 3), 1), {}),
    "internal.layer_norm_rows": lambda: ((_x(2, 3), _x(3), None, 3, 1e-5), {}),
    "internal.cross_entropy_indices": lambda: ((_x(2, 3), torch.tensor([0, 2]), None, "mean", -100, 0.0, False), {}),
    "gather": lambda: ((_x(2, 3), 1, torch.tensor([[0, 2], [1, 1]])), {}),
}


@pytest.mark.parametrize("key", RECORDED)
def test_recording_that_is_written_out_is_the_general_one(key: str) -> None:
    """What a call leaves in the graph, and what comes back through it, is the same either way."""
    op, seen = OPS[key], []
    assert op.function.unseen is not op.impl
    for call in (op.impl, op.function):
        args, kwargs = RECORDED[key]()
        result = call(*args, **kwargs)
        node = result.grad_fn
        names = [n for n in dir(node) if n.startswith("_saved_") and n[7:] in node.saved_fields()]
        saved = {n: getattr(node, n) for n in names}
        wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        first = torch.autograd.grad(result.sum(), wanted, retain_graph=True)
        again = torch.autograd.grad(result.sum(), wanted)
        if node.holds_tensors:
            with pytest.raises(RuntimeError, match="a second time"):
                torch.autograd.grad(result.sum(), wanted)
        facts = node.name(), node.output_info, len(node.next_functions), node.holds_tensors, list(saved)
        seen.append((facts, list(saved.values()), first, again))
    assert seen[0][0] == seen[1][0]
    for general, ours in zip(seen[0][1], seen[1][1]):
        assert torch.equal(general, ours) if isinstance(general, torch.Tensor) else general == ours
    torch.testing.assert_close(seen[0][2:], seen[1][2:])


def test_what_is_no_tensor_is_refused_as_ever_by_calls_that_are_recorded() -> None:
    for wrong in (lambda: torch.mm(_x(2, 2), [[1.0]]), lambda: torch.mm(3, _x(2, 2)), lambda: torch.mm(_x(2, 2))):
        with pytest.raises((TypeError, AttributeError)):
            wrong()
