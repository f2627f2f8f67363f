"""Sizes of arguments that change from call to call."""

from __future__ import annotations

import functools
import math
import threading
import time
from contextlib import nullcontext

import pytest

import flambeau
from flambeau import nn
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError

from .helpers import Twins

F = nn.functional


def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = flambeau.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [model, optimizer]


def batch(size):
    return lambda: (flambeau.randn(size, 4), flambeau.randint(0, 2, (size,)))


def test_one_program_is_for_many_sizes():
    twins = Twins(build)
    twins.call(batch(8), 5)
    twins.call(batch(9), 2)  # eager, while instructions are noted; compared
    native = twins.native
    for size in range(10, 30):
        twins.call(batch(size), 3)  # eager, compared, native
    assert twins.native == native + 20, twins.compiled.explain()
    assert not twins.behind.reasons and len(twins.behind.recordings()) == 2
    assert "for sizes from 2 to" in twins.compiled.explain()
    native = twins.native
    twins.call(batch(8), 2)
    twins.call(batch(19), 2)
    assert twins.native == native + 4


def test_a_model_without_code_of_its_own_is_for_many_sizes_too():
    model = flambeau.compile(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))
    with flambeau.no_grad():
        for size in (3, 3, 3, 3, *[*range(5, 15)] * 3):
            model(flambeau.ones(size, 4))
    assert "for sizes from 2 to" in flambeau.compiler.show(model)


def test_sizes_are_native_when_they_come_the_third_time():
    twins = Twins(build)
    for size in [*range(5, 60)] * 3:
        twins.call(batch(size))
    assert twins.native >= 50 and not twins.behind.reasons


def test_the_last_batch_of_an_epoch():
    """It is compared in the second epoch, and native from the third on; nothing is recorded for it alone."""
    twins = Twins(build)
    for _ in range(3):
        twins.call(batch(16), 6)
        twins.call(batch(5))
    assert [r.calls for r in twins.behind.recordings()] == [15, 1]


def test_a_new_size_needs_no_new_kernels(monkeypatch):
    from flambeau.backends.cpu import jit

    twins = Twins(build)
    twins.call(batch(8), 5)
    twins.call(batch(9), 4)
    before = len(jit.signatures)
    twins.call(batch(11), 4)
    assert len(jit.signatures) == before


def test_the_oldest_sizes_are_forgotten(monkeypatch):
    from flambeau.compiler import sizes

    monkeypatch.setattr(sizes, "KEPT", 3)
    twins = Twins(build)
    twins.call(batch(2), 4)
    for size in (3, 4, 5, 6, 2, 3):
        twins.call(batch(size), 3)
    assert len(twins.behind.recordings()) <= 4


def test_without_dynamic_sizes_each_is_a_kind_of_its_own():
    twins = Twins(build, dynamic=False)
    for size in range(2, 13):
        twins.call(batch(size), 3)
    assert len(twins.behind.recordings()) == 8 and "recordings already" in twins.behind.reasons[0]


def test_marks_say_which_sizes_change():
    function = flambeau.compile(lambda x: x * 2 + 1, dynamic=False)
    for size in range(2, 14):
        for _ in range(3):
            x = flambeau.ones(size, 3)
            flambeau._dynamo.mark_dynamic(x, 0)
            assert function(x).sum().item() == 9 * size
    assert not function._compiled.reasons and len(function._compiled.recordings()) == 2

    still = flambeau.compile(lambda x: x * 2 + 1)
    with pytest.warns(UserWarning, match="8 recordings already"):
        for size in range(2, 14):
            for _ in range(3):
                x = flambeau.ones(size, 3)
                flambeau._dynamo.mark_static(x, 0)
                assert still(x).sum().item() == 9 * size
    with pytest.raises(IndexError, match="2 dimensions has none with number 2"):
        flambeau._dynamo.mark_dynamic(flambeau.ones(1, 1), 2)


def _chunks(lib, x):
    assert x.shape[0] % 4 == 0
    return x.view(-1, 4, 3).sum(1)


# A function, the sizes of its arguments (None: not marked), and whether the marked one is a constant.
MARKED = {
    "a constant beside it": (lambda lib, x: x + lib.ones(4, 1), [4], True),
    "a view": (lambda lib, x: x.view(4, 3) * 2, [4], True),
    "an argument that is not marked": (lambda lib, x, y: x * y, [4, None], True),
    "two marked ones": (lambda lib, x, y: x * y, [4, 4], False),
    "a free one": (lambda lib, x: x.sin(), [4], False),
    "multiples": (_chunks, [4], False),
    "twice another": (lambda lib, x, y: x.repeat(2, 1) * y, [4, 8], False),
    "a bound": (lambda lib, x: x * 2 if x.shape[0] < 5 else x + lib.ones(3, 2), [4], False),
}


def _marked(lib, sizes, mark):
    given = [lib.ones(rows or 4, 3) for rows in sizes]
    for t, rows in zip(given, sizes):
        if rows:
            mark(t, 0)
    return given


@pytest.mark.parametrize("name", MARKED)
def test_a_marked_size_that_is_a_constant_is_an_error(name):
    function, sizes, wrong = MARKED[name]
    dynamo, run = flambeau._dynamo, functools.partial(function, flambeau)
    compiled = flambeau.compile(run)
    for _ in range(2):
        compiled(*_marked(flambeau, sizes, dynamo.mark_dynamic))
    if wrong:
        with pytest.raises(ConstraintViolationError, match=r"marked L\['x'\].size\(\)\[0\] as dynamic"):
            compiled(*_marked(flambeau, sizes, dynamo.mark_dynamic))
    for _ in range(3):
        given = _marked(flambeau, sizes, dynamo.maybe_mark_dynamic)
        assert flambeau.equal(compiled(*given), run(*given))
    for _ in range(0 if wrong else 3):
        compiled(*_marked(flambeau, sizes, dynamo.mark_dynamic))


@pytest.mark.parametrize("name", MARKED)
def test_pytorch_raises_for_the_same_marked_sizes(name):
    torch = pytest.importorskip("torch")
    function, sizes, wrong = MARKED[name]
    compiled = torch.compile(functools.partial(function, torch), backend="eager")
    given = _marked(torch, sizes, torch._dynamo.mark_dynamic)
    with pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError) if wrong else nullcontext():
        compiled(*given)


def test_control_flow_on_sizes_is_followed():
    def function(x):
        if x.shape[0] > 4:
            return x.sum(0)
        return x.mean(0) * x.shape[0] - 1

    twins = Twins(lambda: (function, None))
    for size in (3, 6, 4, 5, 3, 6):
        twins.call(lambda size=size: (flambeau.randn(size, 2),), 3)


def test_recordings_share_their_memory():
    function = flambeau.compile(lambda x: ((x @ x).tanh() @ x).sum())
    for size in (64, 32, 48, 16):
        for _ in range(4):
            x = flambeau.full((size, size), 0.01)
            assert function(x).item() == pytest.approx(((x @ x).tanh() @ x).sum().item(), rel=1e-6)
    recordings = function._compiled.recordings()
    assert 1 < len(recordings) <= 4 and len({r.program.arena.ptr for r in recordings}) <= 2  # one was too small


def one_by_one(x):
    """A function whose sizes have no program in common: half a size is no polynomial."""
    return x.exp().cumsum(0)[::2] * 2


def test_sizes_that_never_come_back():
    """Recording each of them would take longer than running them as they are."""
    compiled = flambeau.compile(one_by_one)
    for n in (2, 2, 2, 2, *range(3, 40)):
        x = flambeau.randn(n, 3)
        flambeau.testing.assert_close(compiled(x), one_by_one(x))
    behind = compiled._compiled
    assert 2 < len(behind.recordings()) < 10 and not behind.reasons
    assert "some sizes have no program in common with others" in compiled.explain()
    for _ in range(6):
        compiled(flambeau.randn(39, 3))
    assert len(behind.recordings()) < 11 and behind.recordings()[-1].calls > 0


def test_sizes_that_change_in_every_call_are_given_up():
    """Nothing is kept of them, little is recorded, and one reason is told; what is called with one size later is native again."""
    recorded = []
    compiled = flambeau.compile(one_by_one)
    with pytest.warns(UserWarning, match="other sizes in nearly every call") as told:
        for n in (*range(1, 301), *range(1, 301)):
            x = flambeau.randn(n, 3)
            flambeau.testing.assert_close(compiled(x), one_by_one(x))
            recorded.append(len(compiled._compiled.recordings()))
    behind = compiled._compiled
    assert len(told) == 1 and len(behind.reasons) == 1 and behind.reasons[0] in compiled.explain()
    assert max(recorded) <= 3 and not behind.recordings() and not behind.last
    assert len(behind.found) <= 64 and len(behind.causes) <= 64
    for _ in range(2000):
        compiled(x)
        if behind.last is not None:
            break
    assert behind.recordings()[0].calls


def test_recordings_of_sizes_are_earned():
    """Sizes that come three times each and never again are not worth one each."""
    compiled = flambeau.compile(one_by_one)
    made = set()
    for n in (n for n in range(1, 100) for _ in range(3)):
        x = flambeau.randn(n, 3)
        flambeau.testing.assert_close(compiled(x), one_by_one(x))
        made |= set(map(id, compiled._compiled.recordings()))
    assert 2 < len(made) < 20


def test_a_size_between_many_others_stays_native():
    compiled = flambeau.compile(one_by_one)
    usual = flambeau.randn(3, 3)
    for n in (n for k in range(4, 300) for n in (3, k)):
        compiled(usual if n == 3 else flambeau.randn(n, 3))
    behind = compiled._compiled
    assert not behind.reasons and sum(r.calls for r in behind.recordings()) > 250


def test_a_growing_cache():
    from_keys = nn.Linear(8, 16)

    def build():
        def step(token, keys, values):
            k, v = from_keys(token).chunk(2, -1)
            keys, values = flambeau.cat([keys, k], 1), flambeau.cat([values, v], 1)
            return F.scaled_dot_product_attention(token, keys, values), keys, values

        return step, None

    twins = Twins(build)
    with flambeau.no_grad():
        for tokens in [*range(1, 60)] * 3:  # each size is compared when it comes again
            twins.call(lambda n=tokens: (flambeau.randn(1, 1, 8), flambeau.randn(1, n, 8), flambeau.randn(1, n, 8)))
    assert twins.native >= 50, twins.compiled.explain()


def test_memory_does_not_grow_with_the_number_of_sizes():
    compiled = flambeau.compile(lambda x: (x @ x.T).softmax(-1) @ x)
    for n in range(2, 200):
        compiled(flambeau.randn(n, 4))
    behind = compiled._compiled
    assert len(behind.recordings()) <= 3 and len(behind.found) <= 3, flambeau.compiler.show(compiled)
    assert not behind.reasons


def test_what_another_thread_draws_is_no_effect_of_the_function():
    compiled, done = flambeau.compile(lambda x: (x @ x.T).softmax(-1) @ x), threading.Event()

    def draw():
        while not done.is_set():
            flambeau.randn(4)
            time.sleep(0.0001)

    other = threading.Thread(target=draw)
    other.start()
    try:
        for n in range(2, 30):
            compiled(flambeau.ones(n, 4))
    finally:
        done.set()
        other.join()
    behind = compiled._compiled
    assert not behind.reasons and len(behind.recordings()) <= 3, compiled.explain()


def test_errors_tell_of_the_call_that_has_them():
    table = flambeau.randn(10, 4)

    def rows(i):
        return F.embedding(i, table) * 2

    compiled = flambeau.compile(rows)
    for n in (3, 4, 5, 6, 20):
        i = flambeau.arange(n) % 10
        flambeau.testing.assert_close(compiled(i), rows(i))
    bad = flambeau.tensor([1, 2, 11, 3, 4, 5, 6])
    with pytest.raises(IndexError) as eager:
        rows(bad)
    with pytest.raises(IndexError) as native:
        compiled(bad)
    assert str(native.value) == str(eager.value)
    flambeau.testing.assert_close(compiled(flambeau.arange(7)), rows(flambeau.arange(7)))


TABLE, PAIRS, NAMES = {12: 3.0}, {(n, 0): 3.0 + (n == 12) for n in range(300)}, [float(n) for n in range(300)]


TWELVE, ENDS = 12, [1.0] * 40 + [5.0] + [1.0] * 200


def divided(x):
    try:
        return x * (1 / (x.shape[0] - 31))
    except ZeroDivisionError:
        return x * 2


def only_twelve(n):
    return 2.0 if n == 12 else 1.0


def by_division(x):
    return x / x.shape[0] + x.sum() / len(x)


def into_parts(x):
    n, d = x.shape
    return x.view(n, 2, d // 2).transpose(0, 1).reshape(2 * n, d // 2).softmax(-1)


class Heads(nn.Module):
    """Attention as it is often written, with a causal mask where the function for it is missing."""

    def __init__(self):
        super().__init__()
        self.flash, self.heads = True, 2
        self.mask = flambeau.ones(200, 200).tril().view(1, 1, 200, 200)

    def forward(self, x):
        t, c = x.size()
        q, k, v = (y.view(1, t, self.heads, c // self.heads).transpose(1, 2) for y in (x, x, x))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            y = y.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1) @ v
        return y.transpose(1, 2).contiguous().view(t, c)


def in_place(x):
    x.mul_(2)
    return x + 1


# Each is called with many sizes, and must give what it gives eagerly. Those of the first list decide by sizes.
DECIDING = {
    "greater": lambda x: x.sum(0) if x.shape[0] > 9 else x.mean(0),
    "equal": lambda x: x * 2 if x.shape[0] == 12 else x * 3,
    "remainder": lambda x: x * (1 + x.shape[0] % 5),
    "one of": lambda x: x * 2 if x.size(0) in (12, 31) else x * 3,
    "in another function": lambda x: x * only_twelve(x.shape[0]),
    "length": lambda x: x * 2 if len(x) == 12 else x * 3,
    "truth": lambda x: x * 2 if x.shape[0] - 12 else x * 3,
    "a table": lambda x: x * TABLE.get(x.shape[0], 1.0),
    "a table of pairs": lambda x: x * PAIRS[x.shape[0], 0],
    "a list": lambda x: x * NAMES[x.shape[0]],
    "a set": lambda x: x * len({x.shape[0], 12}),
    "smaller": lambda x: x * min(x.shape[0], 12),
    "half": lambda x: x[: x.shape[0] // 2] * 2,
    "every second": lambda x: x[::2] * 2,
    "the first": lambda x: x[:10] * 2,
    "pieces": lambda x: [t * 2 for t in x.split(4)],
    "rows": lambda x: sum(r for r in x),
    "the size": lambda x: (x * 2, x.shape[0]),
    "a view of that size": lambda x: (x * 2, x.t()),
    "near one": lambda x: x * min(abs(x.shape[0] - 31), 1),
    "the same object": lambda x: x * (2 if x.shape[0] is TWELVE else 1),
    "the end of a list": lambda x: x * ENDS[x.shape[0] + 9 :][0],
    "a function given": lambda x, size_of=len: x * (2 if size_of(x) == 12 else 1),
    "rows counted": lambda x: x * (2 if sum(1 for _ in x) == 12 else 1),
    "division by zero": divided,
}
FOLLOWING = {
    "division": by_division,
    "parts": into_parts,
    "heads": Heads().forward,
    "in place": in_place,
    "the last": lambda x: x[-2:].exp() + 1,
    "reciprocal": lambda x: x * (1.0 / x.shape[0]),
    "positions": lambda x: x + flambeau.arange(x.shape[0])[:, None],
    "of each two": lambda x: (x @ x.T).softmax(-1) @ x,
    "triangle": lambda x: (x @ x.T).tril().sum(0),
    "views": lambda x: (x[:2], x, x * 2),
    "uniform": lambda x: x + flambeau.rand_like(x),
    "dropout": lambda x: F.dropout(x, 0.3),
    "normal": lambda x: x + flambeau.randn(x.shape),
    "filled": lambda x: x.new_zeros(x.shape[0], 2) + flambeau.eye(x.shape[0])[:, :2],
    "padded": lambda x: F.pad(x, (1, 1, 0, 3)),
    "statistics": lambda x: (x.var(0), x.mean(), x.std()),
    "numbers": lambda x: x + flambeau.tensor([x.shape[0], 1, 2, 3]),
}
SIZES = (6, 7, 8, 9, 10, 13, 16, 5, 3, 33, 64, 2, 12, 100, 31, 48, 65, 7)


@pytest.mark.parametrize("name", [*DECIDING, *FOLLOWING])
def test_every_size_gives_what_it_gives_eagerly(name):
    function = {**DECIDING, **FOLLOWING}[name]
    twins = Twins(lambda: (function, None))
    for n in SIZES * 3:
        twins.call(lambda n=n: (flambeau.randn(n, 4),))
    if name in FOLLOWING:
        assert sum(r.calls for r in twins.behind.recordings() if r.sizes) > 12, twins.compiled.explain()


def test_sizes_of_none_and_one():
    twins = Twins(lambda: (lambda x, y: (x * y + 1).softmax(0), None))
    for n in (4, 5, 6, 1, 0, 7, 1, 0, 9, 2, 30, 1, 0):
        twins.call(lambda n=n: (flambeau.randn(n, 4), flambeau.randn(1, 4)))
        twins.call(lambda n=n: (flambeau.randn(n, 4), flambeau.randn(n, 4)))


@pytest.mark.parametrize("make", [
    lambda n: (flambeau.randn(4, n).t(),),
    lambda n: (flambeau.randn(n, 8)[:, ::2],),
    lambda n: (flambeau.randn(n + 3, 4)[3:],),
    lambda n: (flambeau.randn(n, 4, dtype=flambeau.float64 if n % 2 else flambeau.float32),),
    lambda n: (flambeau.randn(n % 3 + 1, n, 4),),
    lambda n: (flambeau.randn(n, 8)[:, : 4 + n % 2],),
], ids=["transposed", "strided", "offset", "dtype", "two sizes", "stride of one size"])  # fmt: skip
def test_other_strides_and_dtypes(make):
    twins = Twins(lambda: (lambda x: (x.exp() + 1).sum(-1), None))
    for n in SIZES:
        twins.call(lambda n=n: make(n))


def test_sizes_that_grow_in_opposite_directions():
    twins = Twins(lambda: (lambda x, y: flambeau.cat([x, y]).exp(), None))
    for n in (3, 4, 5, 6, 7, 8, 9, 10, 12, 2, 17):
        twins.call(lambda n=n: (flambeau.randn(n, 4), flambeau.randn(20 - n, 4)))


def test_training_with_a_norm_and_dropout():
    def build():
        layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3)
        model = nn.Sequential(*layers)
        optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step, [model, optimizer]

    twins = Twins(build)
    for n in SIZES * 3:
        twins.call(lambda n=n: (flambeau.randn(n, 4), flambeau.randint(0, 3, (n,))))
    assert twins.native > 6, twins.compiled.explain()


def test_what_a_call_leaves_in_python_happens_once():
    log, counter = [], {"calls": 0}

    def noting(x):
        log.append(1)
        return x * 2

    def counting(x):
        counter["calls"] += 1
        return x * 2

    for function in (noting, counting):
        compiled = flambeau.compile(function)
        for n in range(2, 22):
            compiled(flambeau.randn(n, 3))
    assert len(log) == 20 and counter["calls"] == 20
