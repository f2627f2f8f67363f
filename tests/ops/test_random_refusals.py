"""Random numbers from operators: arguments at the border, probabilities of 0 and 1, and the kind of the error beyond, as with PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
t = L.tensor
p, x = (exact(3, 4) + 0.8) / 2, exact(3, 4)
def G(n=3):
    return L.Generator().manual_seed(n)
def seeded(call):
    L.manual_seed(5)
    r = call()
    return [r, L.rand(1)]
"""
# A program for each line: expressions, between semicolons.
CALLS = """
L.bernoulli(p, generator=G()); L.bernoulli(p, 0.25, generator=G()); L.bernoulli(p, out=L.empty(0)); seeded(lambda: L.bernoulli(p, out=L.empty(3, 4))); seeded(lambda: L.bernoulli(p, 0.7, out=L.empty(2))); L.bernoulli(p, "a"); L.bernoulli(p, 1.5); L.bernoulli(p, -0.1); L.bernoulli(p, 1.0); L.bernoulli(p, 0); L.bernoulli(p + 1); L.bernoulli(p.long()); L.bernoulli(p, out=L.empty(3, 4, dtype=L.int64)); L.bernoulli(p.double(), generator=G())
seeded(lambda: p.clone().bernoulli_(p)); p.clone().bernoulli_(2.0); seeded(lambda: p.long().bernoulli_(0.5)); L.bernoulli(p, t(0.5)); p.clone().bernoulli_(t(0.5))
seeded(lambda: L.normal(0.0, 1.0, (2, 3))); seeded(lambda: L.normal(2, 3, (2, 3), generator=G())); seeded(lambda: L.normal(p, 2.0)); seeded(lambda: L.normal(1.0, p)); seeded(lambda: L.normal(x, p)); seeded(lambda: L.normal(x)); seeded(lambda: L.normal(x[0], p)); seeded(lambda: L.normal(x, p, out=L.empty(0))); seeded(lambda: L.normal(x[0], p, out=L.empty(3, 4))); seeded(lambda: L.normal(x, 0.5, out=L.empty(3, 4))); seeded(lambda: L.normal(0.5, p, out=L.empty(3, 4))); seeded(lambda: L.normal(0.0, 1.0, (5,), out=L.empty(0))); L.normal(x, -1.0); L.normal(x, 0.0)
L.normal(x, -p); L.normal(0.0, -1.0, (2,)); L.normal(0.0, float("nan"), (2,)); L.normal("a", 1.0, (2,)); L.normal(x, "a"); L.normal(x, p, (2,)); L.normal(x, p, dtype=L.float64); L.normal(x.long(), 1.0); L.normal(x, p.to(L.complex64)); L.normal(x, p.double()); L.normal(0.0, 1.0); L.normal(0.0, 1.0, 3); L.normal(0.0, 1.0, (2,), dtype=L.int64); L.normal(0.0, 1.0, (2,), out=L.empty(2, dtype=L.int64))
L.normal(x.to(L.complex64), 1.0); seeded(lambda: L.normal(0.0, 1.0, (20,), dtype=L.float64)); seeded(lambda: L.normal(0.0, 1.0, (20,), dtype=L.float16)); seeded(lambda: L.normal(0.0, 1.0, (20,), dtype=L.complex64)); L.normal(x, p, out=3); seeded(lambda: L.normal(0.0, 1.0, (2,), requires_grad=True)); L.normal(x, p[:2])
seeded(lambda: L.multinomial(p, 2)); seeded(lambda: L.multinomial(p, 6, True)); seeded(lambda: L.multinomial(p, 1)); seeded(lambda: L.multinomial(p[0], 1)); seeded(lambda: L.multinomial(p[0], 4)); L.multinomial(p, 5); L.multinomial(p, 0); L.multinomial(p, -1); L.multinomial(p.long(), 1); L.multinomial(x, 1); L.multinomial(p * 0, 1); L.multinomial(p[None], 1); L.multinomial(p[:0], 2); L.multinomial(p[:, :0], 2)
L.multinomial(t(1.0), 1); L.multinomial(p / 0, 1); seeded(lambda: L.multinomial(t([0.0, 1.0, 0.0, 2.0]), 2)); L.multinomial(t([0.0, 1.0, 0.0]), 2); seeded(lambda: L.multinomial(p, 3, generator=G())); seeded(lambda: L.multinomial(p, 2, out=L.empty(0, dtype=L.int64))); L.multinomial(p, 2, out=L.empty(0)); seeded(lambda: L.multinomial(p.double(), 2, True)); seeded(lambda: L.multinomial(p.half(), 1)); seeded(lambda: L.multinomial(p.double(), 1, True)); L.multinomial(p.to(L.complex64), 1); L.multinomial(p, 2.0); seeded(lambda: L.multinomial(p.bfloat16(), 2))
seeded(lambda: L.poisson(p * 9)); seeded(lambda: L.poisson(p.double() * 30, generator=G())); L.poisson(p.long()); L.poisson(-p); L.poisson(p.to(L.complex64)); seeded(lambda: L.poisson(p * 0)); seeded(lambda: L.poisson((p * 9).half())); seeded(lambda: L.binomial(p.round() * 9, p.clamp(0, 1))); seeded(lambda: L.binomial(t([40.0, 100.0]), t([0.4, 0.9]))); seeded(lambda: L.binomial(t([[5.0], [9.0]]).expand(2, 3), t([0.1, 0.5, 0.99]).expand(2, 3))); L.binomial(t([4]), t([0.5])); L.binomial(t([4.0]), t([1])); L.binomial(t([4.0]), t([0.5]).double()); L.binomial(t([-4.0]), t([0.5]))
L.binomial(t([4.0]), t([1.5])); L.binomial(t([4.0]).half(), t([0.5]).half()); seeded(lambda: L.binomial(t([4.0, 5.0]), t(0.5))); seeded(lambda: L.binomial(t([40.0]).double(), t([0.5]).double(), generator=G()))
seeded(lambda: L._standard_gamma(p * 4)); seeded(lambda: L._standard_gamma(p.double())); L._standard_gamma(p.half()); L._standard_gamma(p.long()); seeded(lambda: L._standard_gamma(t([0.001, 0.5, 1.0, 300.0]))); seeded(lambda: L._sample_dirichlet(p + 0.1)); seeded(lambda: L._sample_dirichlet((p + 0.1).double())); L._sample_dirichlet(p.half()); L._sample_dirichlet(p.long()); seeded(lambda: L._sample_dirichlet(p[0] + 1)); seeded(lambda: L._sample_dirichlet(exact(2, 2, 3).abs() + 1)); seeded(lambda: L._sample_dirichlet((p + 0.1).T)); seeded(lambda: L.distributions.Dirichlet(t([0.001, 0.002])).sample((3,))); L._dirichlet_grad(p.double() / 9, p.double(), p.double() * 3)
seeded(lambda: L.poisson((p * 9).T)); seeded(lambda: L._standard_gamma(p.T)); seeded(lambda: L.binomial((p.round() * 9).T, p.clamp(0, 1).T)); seeded(lambda: L.bernoulli(p.T)); seeded(lambda: L.normal(x.T, p.T)); seeded(lambda: L.rrelu(x, 0.1, 0.3, True)); L.rrelu(x.long(), 0.1, 0.3, True); L.rrelu(x.half(), 0.1, 0.3, True); seeded(lambda: L.rrelu(x.bfloat16(), 0.1, 0.3, True))
x.clone().random_(5, 3); x.clone().random_(3, 3); seeded(lambda: x.clone().random_(3, 4)); seeded(lambda: x.long().random_()); seeded(lambda: x.clone().random_(0, 2 ** 24)); x.char().random_(200); x.clone().exponential_(0); x.clone().exponential_(-1); x.long().exponential_(); seeded(lambda: x.clone().exponential_(2.0)); seeded(lambda: x.clone().geometric_(0.5)); x.clone().geometric_(0.0); x.clone().geometric_(1.0); x.clone().geometric_(1.5)
seeded(lambda: x.long().geometric_(0.25)); seeded(lambda: x.clone().cauchy_(1, 2)); x.clone().cauchy_(0, 0); x.long().cauchy_(); seeded(lambda: x.clone().log_normal_(1, 0.5)); x.clone().log_normal_(1, 0); x.clone().log_normal_(1, -1); x.long().log_normal_(); seeded(lambda: x.clone().uniform_(2, 3)); x.clone().uniform_(3, 2); x.clone().uniform_(2, 2); x.long().uniform_(); x.half().uniform_(-7e4, 7e4); seeded(lambda: x.clone().normal_(1, 2))
x.clone().normal_(0, -1); x.long().normal_(); L.randint(3, 3, (2,)); L.randint(3, 2, (2,)); seeded(lambda: L.randint(3, 4, (2,))); seeded(lambda: L.randint(0, 2 ** 40, (3,))); L.randint(300, (2,), dtype=L.uint8); seeded(lambda: L.randint(256, (2,), dtype=L.uint8)); L.randint(2, (2,), dtype=L.bool); seeded(lambda: L.randperm(7)); seeded(lambda: L.randperm(7, dtype=L.int32, generator=G())); L.randperm(-1); L.randperm(0); L.randperm(300, dtype=L.uint8)
seeded(lambda: L.randint_like(x, 2, 9)); seeded(lambda: L.rand_like(x.T)); seeded(lambda: L.randn_like(x, dtype=L.float64)); L.rand(2, dtype=L.int64); L.randn(2, dtype=L.int64); seeded(lambda: L.rand(2, dtype=L.complex64)); seeded(lambda: F.dropout(x, 0.5)); seeded(lambda: F.dropout(x, 1.0)); F.dropout(x, 1.1); F.dropout(x, -0.1); seeded(lambda: F.alpha_dropout(x, 0.5)); seeded(lambda: F.feature_alpha_dropout(exact(2, 3, 4), 0.5)); seeded(lambda: F.dropout2d(exact(2, 3, 2, 2))); seeded(lambda: L.native_dropout(x, 0.3, True))
L.native_dropout(x, 0.3, False); seeded(lambda: F.gumbel_softmax(x, 0.5, True)); seeded(lambda: L.nn.init.trunc_normal_(L.empty(3, 4), 0, 1, -0.5, 0.5))
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
