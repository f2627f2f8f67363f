"""Random numbers of every kind, bit for bit: digests of what PyTorch draws, and of its generator's state afterwards."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
import hashlib

def sha(t):
    # The bits of a tensor in the order of its elements.
    t = L.view_as_real(t) if t.is_complex() else t
    return hashlib.sha1(t.contiguous().reshape(-1).view(L.uint8).numpy().tobytes()).hexdigest()[:12]

def drawn(call, *dtypes, sizes=(0, 1, 2, 15, 16, 17, 31, 33, 3000), ends=True):
    found = []
    for dtype in dtypes:
        for n in sizes:
            L.manual_seed(n)
            if n % 2:
                L.randn(1)  # leaves a normal number waiting
            try:
                t = call(L.zeros(n, dtype=getattr(L, dtype)))
            except Exception as problem:
                found.append(type(problem).__name__)
                continue
            state = hashlib.sha1(L.get_rng_state().numpy().tobytes()).hexdigest()[:6]
            found.append([sha(t), state])
    return found
FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("uint8", "int8", "int16", "int32", "int64", "bool")
"""
FILLS = [
    "uniform_()", "uniform_(-0.1, 0.3)", "uniform_(0, 7)", "uniform_(1, 1.001)", "uniform_(2, 2)", "normal_()", "normal_(0.3, 1.7)", "normal_(0.5, 0)", "log_normal_()", "log_normal_(-3, 4)",
    "exponential_()", "exponential_(2.5)", "cauchy_()", "cauchy_(0.3, 1.7)", "geometric_(0.3)", "geometric_(0.5)", "bernoulli_(0.3)", "random_()", "random_(100)", "random_(3, None)",
]  # fmt: skip
RANGES = [
    (-5, None), (0, None), (-(2**63), None), (-(2**63), 2**63 - 1), (0, 1), (-3, 8), (0, 2**24 + 2), (2000, 3001), (0, 2**28 - 1), (0, 2**28), (0, 2**40), (-(2**33), 2**33),
    (2**53, 2**60), (-3001, -2000), (5, 2**62), (-(2**62) - 1, -7), (0, 2049), (-2049, 3), (0, 257), (250, 300), (-128, 128),
]  # fmt: skip
PROGRAMS = [
    *(f"drawn(lambda t: t.{fill}, *FLOATS)" for fill in FILLS),
    *(f"drawn(lambda t: t.repeat(2, 1).t().{fill}, *FLOATS, sizes=(3, 40, 500))" for fill in FILLS),
    *(f"drawn(lambda t: t.{fill}, *WHOLE, sizes=(1, 17, 1000))" for fill in FILLS if fill.startswith(("geometric", "bernoulli", "random"))),
    *(f"drawn(lambda t: t.random_({low}, {high}), *FLOATS, *WHOLE, sizes=(40,))" for low, high in RANGES),
    *(f"drawn(lambda t: L.{call}, 'complex64', 'complex128', sizes=(1, 5, 7, 8, 9, 1000))" for call in ("randn(len(t), dtype=t.dtype)", "rand(len(t), dtype=t.dtype)", "randn(len(t), 2, dtype=t.dtype)[:, 0].normal_(0.5, 2.0)", "zeros_like(t).normal_(0.5, 2.0)")),
    *(f"drawn(lambda t: t.bernoulli_(L.linspace(0, 1, len(t), dtype=L.float64).to(L.{p})), *FLOATS, 'int64', 'uint8', 'bool', sizes=(0, 1, 16, 17, 900))" for p in ("float32", "float64", "float16", "bfloat16")),
    *(f"drawn(lambda t: {make}.{fill}, 'float32', sizes=(0, 5))" for fill in ("uniform_()", "normal_()", "bernoulli_(L.linspace(0, 1, 5))") for make in ("L.zeros(5, 8).t()[:, :5]", "L.zeros(2, 3, 4, 5).to(memory_format=L.channels_last)", "L.zeros(3, 4, 5, 5).permute(2, 0, 3, 1)[..., :3, [0, 1, 2, 3, 0]]", "L.zeros(6, 15)[::2, 1::3]", "L.zeros(4, 1, 5).transpose(0, 1)", "L.zeros(100).as_strided((1, 5, 1, 5), (7, 4, 4, 1))")),
    "drawn(lambda t: L.randperm(len(t), dtype=t.dtype), *FLOATS, *WHOLE[:-1], sizes=(0, 1, 2, 15, 17, 128, 129, 256, 257, 300, 2049, 2050))",
    "drawn(lambda t: L.randperm(len(t)), 'int64', sizes=(4095, 4096, 30000))",
    "drawn(lambda t: L.nn.functional.alpha_dropout(L.linspace(-3, 3, len(t)).to(t.dtype), 0.4, True), *FLOATS, sizes=(5, 1000))",
    "drawn(lambda t: L.nn.functional.feature_alpha_dropout(L.linspace(-3, 3, len(t)).reshape(-1, 5, 2).to(t.dtype), 0.4, True), 'float32', 'float64', sizes=(20, 1000))",
    "drawn(lambda t: L.nn.functional.dropout(L.linspace(-3, 3, len(t)).to(t.dtype), 0.3, True), *FLOATS, sizes=(5, 1000))",
    "drawn(lambda t: L.nn.functional.dropout2d(L.linspace(-3, 3, len(t)).reshape(2, -1, 5, 2).to(t.dtype), 0.3, True), *FLOATS, sizes=(20, 1000))",
    "drawn(lambda t: L.nn.functional.rrelu(L.linspace(-3, 3, len(t)).to(t.dtype), 0.1, 0.35, True), 'float32', 'float64', 'bfloat16')",
    "drawn(lambda t: L.poisson(L.cat((L.linspace(0, 40, len(t)), L.logspace(-3, 4, len(t)))).to(t.dtype)), *FLOATS, sizes=(1, 700))",
    "drawn(lambda t: L.binomial((L.arange(len(t)) ** 2 % 4999).to(t.dtype), ((L.arange(len(t)) * 37 % 65) / 64).to(t.dtype)), 'float32', 'float64', sizes=(1, 20, 999))",
    "drawn(lambda t: L.binomial(L.full_like(t, 30.0), ((L.arange(len(t)) * 37 % 67 - 1) / 64).to(t.dtype)), 'float32', 'float64', sizes=(300,))",
    "drawn(lambda t: L._standard_gamma((2.0 ** (L.arange(len(t)) % 19 - 9)).to(t.dtype)), 'float32', 'float64', sizes=(1, 900))",
    "drawn(lambda t: L._sample_dirichlet((L.arange(1.0, len(t) + 1) / 7).reshape(-1, 3).to(t.dtype)), 'float32', 'float64', sizes=(3, 300))",
    *(f"drawn(lambda t: L.multinomial((L.arange(1.0, len(t) + 1) % 17 / 4 + 0.25).reshape(-1, 20).to(t.dtype), {n}, {r}), 'float32', 'float64', sizes=(20, 200))" for n, r in ((1, False), (1, True), (5, False), (12, False), (50, True))),
    *(f"drawn(lambda t: L.{call}, 'float32', sizes=(1, 20))" for call in ("normal(t, 2.0)", "normal(t + 1, L.arange(len(t)) + 0.5)", "normal(2.0, t + 3)", "normal(0.5, 2.0, (len(t),))", "rand_like(t)", "randn_like(t)", "randint_like(t, 3, 9)", "randint(5, (len(t), 2))", "randint(-3, 5, (len(t),), dtype=L.int8)", "bernoulli(t + 0.4)", "bernoulli(t, 0.3)", "rand(len(t), 3, dtype=L.float64)", "randn(3, len(t))")),
    "L.manual_seed(5)\ng = L.Generator().manual_seed(9)\n[sha(x) for x in (L.rand(3, generator=g), L.randn(20, generator=g), L.randperm(9, generator=g), L.randint(9, (4,), generator=g), L.rand(3), L.empty(5).exponential_(generator=g))], g.initial_seed(), L.initial_seed()",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
