"""Small programs with distributions at the limits of what they are defined for: PyTorch computes the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
D, C = L.distributions, L.distributions.constraints
t = lambda *v: L.tensor(v, dtype=L.float64)

def edges(d, *values):
    # Densities and probabilities below, at and above the limits of the support, and the inverse at 0 and 1.
    found = []
    for name, points in (("log_prob", values), ("cdf", values), ("icdf", (0.0, 0.25, 0.5, 0.9, 1.0))):
        for v in points:
            try:
                found.append(getattr(d, name)(L.as_tensor(v, dtype=L.float64)))
            except Exception as problem:
                found.append(type(problem).__name__)
    return found
"""
HALF_LINE = "-1.0, 0.0, 1e-3, 1.0, 2.5"
EDGES = {
    "Bernoulli(t(0.0, 0.3, 1.0)": "0.0, 1.0", "Beta(t(0.5, 1.0, 3.0), t(2.0, 1.0, 1.0)": "0.0, 0.25, 1.0", "Binomial(3, t(0.0, 0.3, 1.0)": "0.0, 1.0, 3.0", "Categorical(t(0.2, 0.0, 0.8)": "0, 1, 2", "Cauchy(t(0.0, 1.0), t(1.0, 3.0)": "-1.0, 0.0, 1.0, 7.0", "Chi2(t(1.0, 2.0, 5.0)": HALF_LINE, "ContinuousBernoulli(t(0.1, 0.4995, 0.5, 0.502, 0.97)": "-0.5, 0.0, 0.3, 1.0, 1.5",
    "Exponential(t(0.5, 2.0)": HALF_LINE, "FisherSnedecor(t(1.0, 2.0, 5.0), t(1.5, 6.0, 9.0)": HALF_LINE, "Gamma(t(0.4, 1.0, 7.0), t(1.0, 2.0, 0.5)": HALF_LINE, "Geometric(t(0.2, 1.0)": "0.0, 1.0, 3.0", "Gumbel(t(0.0, 1.0), t(1.0, 3.0)": "-2.0, 0.0, 4.0", "HalfCauchy(t(1.0, 3.0)": HALF_LINE, "HalfNormal(t(1.0, 3.0)": HALF_LINE,
    "InverseGamma(t(1.5, 5.0), t(1.0, 2.0)": "1e-2, 0.5, 3.0", "Kumaraswamy(t(1.5, 0.5), t(1.0, 2.0)": "0.0, 0.5, 1.0", "Laplace(t(0.0, 1.0), t(1.0, 3.0)": "-1.0, 0.0, 1.0", "LogNormal(t(0.0, 1.0), t(1.0, 0.3)": "1e-3, 1.0, 4.0", "NegativeBinomial(t(3.0, 8.0), t(0.3, 0.0)": "0.0, 1.0, 5.0", "Normal(t(0.0, 1.0), t(1.0, 3.0)": "-30.0, 0.0, 1.0", "Pareto(t(1.0, 2.0), t(3.0, 0.7)": "0.5, 1.0, 2.0, 3.0", "Poisson(t(0.0, 0.5, 40.0)": "0.0, 1.0, 30.0",
    "StudentT(t(0.9, 2.0, 5.0), 1.0, 2.0": "-3.0, 1.0, 2.0", "Uniform(t(0.0, 1.0), t(1.0, 3.0)": "-0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 3.5", "VonMises(t(0.0, 1.0), t(1e-3, 8.0)": "-3.14, 0.0, 3.0", "Weibull(t(1.0, 2.0), t(0.5, 3.0)": "0.0, 1.0, 2.0", "RelaxedBernoulli(t(0.7), t(0.2, 0.9)": "0.0, 0.2, 1.0", "relaxed_bernoulli.LogitRelaxedBernoulli(t(0.7), t(0.2, 0.9)": "-2.0, 0.0, 3.0",
}  # fmt: skip
MOMENTS = [
    "Beta(t(0.5, 1.0, 1.0, 3.0, 0.9), t(0.5, 1.0, 2.0, 1.0, 0.9))", "Cauchy(t(0.0), t(1.0))", "ContinuousBernoulli(t(0.1, 0.4995, 0.5, 0.502, 0.97))", "FisherSnedecor(t(1.0, 2.0, 3.0, 3.0, 3.0), t(2.0, 2.5, 4.0, 4.5, 9.0))", "GeneralizedPareto(t(0.0), t(1.5), t(-0.5, 0.0, 0.4, 0.5, 0.9, 1.0, 1.3))", "Dirichlet(t(0.5, 1.0, 3.0))", "Dirichlet(t(1.0, 1.5, 3.0))", "Geometric(t(0.2, 1.0))", "InverseGamma(t(0.5, 1.0, 1.5, 2.0, 3.0), t(1.0))",
    "Kumaraswamy(t(0.5, 1.0, 2.0), t(0.5, 1.0, 3.0))", "NegativeBinomial(t(3.0, 0.5), t(0.3, 0.6))", "Pareto(t(1.0), t(0.5, 1.0, 1.5, 2.0, 3.0))", "StudentT(t(0.5, 1.0, 1.5, 2.0, 5.0))", "VonMises(t(0.5), t(1e-3, 1.0))", "Weibull(t(1.0), t(0.5, 1.0, 2.0))", "Gamma(t(0.5, 1.0, 3.0), t(2.0))", "Wishart(t(2.5), L.eye(2, dtype=L.float64))", "Wishart(t(4.0), L.eye(2, dtype=L.float64) * 2)",
    "LowRankMultivariateNormal(t(0.0, 1.0, 2.0), exact(3, 2, dtype=L.float64), t(1.0, 2.0, 0.5))", "LowRankMultivariateNormal(exact(2, 3, dtype=L.float64), exact(3, 1, dtype=L.float64), exact(2, 1, 3, dtype=L.float64) ** 2 + 1)", "MultivariateNormal(t(0.0, 1.0), precision_matrix=L.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=L.float64))", "LKJCholesky(3, 0.7)", "Multinomial(4, t(0.2, 0.8))", "OneHotCategorical(t(0.2, 0.8, 0.8))", "Poisson(t(0.0, 3.5))", "Binomial(5, t(0.0, 0.35, 1.0))",
    "MixtureSameFamily(D.Categorical(t(0.2, 0.8)), D.Beta(t(1.0, 2.0), t(3.0, 1.0)))", "Independent(D.Normal(t(0.0, 1.0), t(1.0, 2.0)), 1)", "LogisticNormal(t(0.5, 1.0), t(1.0))",
]  # fmt: skip
REGIONS = {
    "boolean": "0.0, 0.5, 1.0, 2.0", "one_hot": "[0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0]", "nonnegative_integer": "-1.0, 0.0, 0.5, 3.0", "positive_integer": "0.0, 1.0, 1.5", "integer_interval(1, 3)": "0.0, 1.0, 2.5, 3.0, 4.0", "real": "float('nan'), float('inf'), 0.0", "real_vector": "[0.0, 1.0], [0.0, float('nan')]", "positive": "0.0, 0.25, -1.0, 1.0", "nonnegative": "-0.1, 0.0, 0.3, 1.0", "greater_than(2)": "2.0, 2.1", "greater_than_eq(2)": "1.9, 2.0",
    "less_than(2)": "2.0, 1.9", "unit_interval": "-0.1, 0.0, 0.3, 1.0, 1.1", "interval(2, 3)": "1.9, 2.0, 3.0, 3.1", "half_open_interval(2, 3)": "1.9, 2.0, 3.0", "simplex": "[0.2, 0.8], [0.2, 0.7], [-0.2, 1.2], [0.2, 0.8000001]", "multinomial(3)": "[1.0, 2.0], [1.0, 3.0], [-1.0, 4.0]", "lower_triangular": "[[1.0, 0.0], [2.0, 3.0]], [[1.0, 0.5], [2.0, 3.0]]", "lower_cholesky": "[[1.0, 0.0], [2.0, 3.0]], [[1.0, 0.0], [2.0, 0.0]], [[1.0, 0.1], [2.0, 1.0]]",
    "corr_cholesky": "[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.7]]", "square": "[[1.0, 2.0]], [[1.0]]", "symmetric": "[[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [2.1, 1.0]]", "positive_semidefinite": "[[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]]", "positive_definite": "[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.5], [0.4, 1.0]]", "independent(C.positive, 1)": "[1.0, 0.0], [1.0, 2.0]", "cat([C.positive, C.unit_interval], -1, [1, 2])": "[2.0, 0.5, 1.0], [2.0, 1.5, 1.0], [0.0, 0.5, 1.0]",
    "stack([C.positive, C.unit_interval], -1)": "[2.0, 0.5], [2.0, 1.5], [0.0, 0.5]", "real_vector ": "[1.0]", "dependent_property": "", "nonnegative ": "[0.0]",
}  # fmt: skip
PROGRAMS = [
    *(f"edges(D.{family}, validate_args=False), {values})" for family, values in EDGES.items()),
    *(f"d = D.{text}\n[getattr(d, n) if raised(lambda: getattr(d, n)) == 'none' else raised(lambda: getattr(d, n)) for n in ('mean', 'variance', 'stddev', 'mode', 'scale_tril', 'precision_matrix', 'covariance_matrix')], d.entropy() if raised(d.entropy) == 'none' else raised(d.entropy), d.perplexity() if raised(d.perplexity) == 'none' else 0" for text in MOMENTS),
    *(f"[[c.check(L.tensor(v, dtype=L.float64)), c.is_discrete, c.event_dim] for c in [C.{region.strip()}] for v in ({values},)]" for region, values in REGIONS.items() if values),
    # divergences that no formula of their own is for, or at the limits of the supports
    *(f"D.kl_divergence(D.{p}, D.{q})" for p, q in (
        ("Uniform(t(0.5, 1.0, 2.0), t(3.0))", "Pareto(t(1.0), t(2.5))"), ("Uniform(t(0.0, 0.5), t(1.0))", "Uniform(t(0.0), t(1.0, 2.0))"), ("Uniform(t(-0.5, 0.1, 0.2), t(0.9, 1.0, 1.1))", "Beta(t(2.0), t(3.0))"), ("Uniform(t(-0.5, 0.0, 0.2), t(0.9))", "Exponential(t(2.0))"), ("Uniform(t(-0.5, 0.0, 0.2), t(0.9))", "Gamma(t(2.0), t(1.5))"), ("Uniform(t(-0.5), t(0.9))", "ContinuousBernoulli(t(0.3))"),
        ("Pareto(t(1.0, 2.0, 3.0), t(2.0))", "Pareto(t(2.0), t(3.0))"), ("Pareto(t(1.0), t(0.5, 1.0, 2.0))", "Exponential(t(2.0))"), ("Pareto(t(1.0), t(0.5, 1.0, 2.0))", "Gamma(t(2.0), t(1.5))"), ("Pareto(t(1.0), t(1.5, 2.0, 2.5))", "Normal(t(0.0), t(2.0))"), ("Bernoulli(t(0.0, 0.4, 1.0))", "Bernoulli(t(0.0, 0.6, 0.5))"), ("Bernoulli(t(0.3))", "Poisson(t(0.7))"), ("Binomial(4, t(0.2))", "Binomial(3, t(0.3))"),
        ("Categorical(t(0.2, 0.0, 0.8))", "Categorical(t(0.3, 0.4, 0.3))"), ("Categorical(t(0.3, 0.4, 0.3))", "Categorical(t(0.2, 0.0, 0.8))"), ("Poisson(t(0.5, 2.0))", "Poisson(t(1.5))"), ("HalfNormal(t(2.0))", "HalfNormal(t(3.0))"), ("Independent(D.Normal(t(0.0, 1.0), t(1.0, 2.0)), 1)", "Independent(D.Normal(t(0.5, 1.0), t(2.0, 2.0)), 1)"), ("Geometric(t(0.3))", "Geometric(t(0.6))"),
        ("Beta(t(0.7), t(2.0))", "Beta(t(1.7), t(3.0))"), ("Laplace(t(0.0, 3.0), t(1.0))", "Laplace(t(1.0), t(2.0))"), ("Gumbel(t(0.0), t(1.0))", "Gumbel(t(1.0), t(2.0))"), ("Gumbel(t(0.0), t(1.0))", "Normal(t(1.0), t(2.0))"), ("Cauchy(t(0.0), t(1.0))", "Cauchy(t(1.0), t(2.0))"), ("ContinuousBernoulli(t(0.2, 0.5))", "ContinuousBernoulli(t(0.3, 0.6))"))),
    """from types import MethodType
class Own(D.ExponentialFamily):
    arg_constraints, support, _mean_carrier_measure = {}, C.positive, 0.25
    def __init__(self, rate):
        self.rate = rate
        super().__init__(rate.shape, validate_args=False)
    _natural_params = property(lambda self: (-self.rate,))
    def _log_normalizer(self, x):
        return -L.log(-x)
p, q = Own(t(0.5, 2.0)), Own(t(1.5, 1.0))
p.entropy(), D.kl_divergence(p, q), [f(D.ExponentialFamily.entropy, d) for d in (D.Normal(t(0.5), t(2.0)), D.Gamma(t(0.5, 3.0), t(2.0)), D.Exponential(t(0.5)), D.Bernoulli(t(0.3)), D.Beta(t(0.5), t(2.0)), D.Dirichlet(t(0.5, 3.0)), D.Poisson(t(3.0)), D.Categorical(t(0.2, 0.8)), D.ContinuousBernoulli(t(0.1, 0.4995, 0.97))) for f in (lambda e, d: e(d) if raised(lambda: e(d)) == 'none' else raised(lambda: e(d)),)]""",
    *(f"d = D.{text}\n[d._log_normalizer(*[p.detach() for p in d._natural_params]), [p.detach() for p in d._natural_params]]" for text in ("Normal(t(0.5, 1.0), t(2.0))", "Gamma(t(0.5, 3.0), t(2.0))", "Exponential(t(0.5))", "Bernoulli(t(0.3))", "Beta(t(0.5), t(2.0))", "Dirichlet(t(0.5, 3.0))", "Poisson(t(3.0))", "ContinuousBernoulli(t(0.1, 0.4995, 0.51, 0.97))")),
    "N = D.TransformedDistribution\n[N(D.Normal(L.zeros(s), 1.0), k).sample().shape for s in ((), (2,), (3, 2)) for k in ([D.ExpTransform()], [D.StickBreakingTransform()] if s else [], D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.TanhTransform()]))], D.LogisticNormal(L.zeros(()), L.ones(())).sample().shape",
    "x = exact(3, 4, dtype=L.float64)\nT = D.transforms\n[[k(x), k.inv(k(x)), k.log_abs_det_jacobian(x, k(x)), k.bijective, k.sign if raised(lambda: k.sign) == 'none' else None] for k in (T.ExpTransform(), T.SigmoidTransform(), T.TanhTransform(), T.SoftplusTransform(), T.AffineTransform(1.0, -2.0), T.AffineTransform(t(1.0, 2.0, 3.0, 4.0), 0.5, 1), T.StickBreakingTransform(), T.CorrCholeskyTransform() if False else T.PowerTransform(1.0), T.identity_transform)]",
    "x = exact(2, 6, dtype=L.float64)\nT = D.transforms\nc = T.CorrCholeskyTransform()\nc(x), c.inv(c(x)), c.log_abs_det_jacobian(x, c(x)), T.LowerCholeskyTransform()(x[:, :4].reshape(2, 2, 2)), T.PositiveDefiniteTransform()(x[:, :4].reshape(2, 2, 2)), T.SoftmaxTransform()(x), T.AbsTransform()(x), T.CatTransform([T.ExpTransform(), T.AffineTransform(1, 2)], 1, [2, 4])(x), T.StackTransform([T.ExpTransform(), T.AffineTransform(1, 2)], 0)(x), T.ReshapeTransform((6,), (2, 3))(x), T.CumulativeDistributionTransform(D.Normal(t(0.0), t(2.0)))(x), T.IndependentTransform(T.ExpTransform(), 1).log_abs_det_jacobian(x, x.exp()), c.forward_shape((2, 6)), c.inverse_shape((4, 4)), T.StickBreakingTransform().forward_shape((6,)), raised(lambda: c.forward_shape((5,)))",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
