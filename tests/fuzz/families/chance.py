"""Random numbers from a seed, bit by bit, and distributions."""

from __future__ import annotations

from ..draw import COMPLEX, FLOATS, INTEGERS, Draw
from .family import exact_family, family


@exact_family
def random_numbers(draw: Draw) -> list[str]:
    dtype = draw.among(*FLOATS, *FLOATS, *INTEGERS, "bool", *COMPLEX)
    real = draw.among(*FLOATS)
    shape = draw.among((draw.number(0, 40),), draw.shape(0, 3, 5), (17,), (16,), (3, 7))
    a = draw.tensor(shape, dtype)
    p = f"torch.tensor({draw.number(0, 8)} / 8, dtype=torch.{real}).expand({shape})"
    positive = draw.tensor(shape, real, "positive")
    low, high = draw.number(-5, 5), draw.number(6, 300)
    of = f"dtype=torch.{dtype}"
    call = draw.among(
        f"torch.rand({shape}, {of})", f"torch.randn({shape}, {of})", f"torch.randint({low}, {high}, {shape}, {of})", f"torch.randperm({draw.number(0, 50)}, {of})",
        f"torch.randint({draw.among(0, -2**40)}, {draw.among(2**33, 2**62, 2**31)}, {shape})",
        f"{a}.uniform_({low}, {high})", f"{a}.normal_({low}, {draw.number(0, 3)})", f"{a}.exponential_({draw.among(1, 0.5, 3)})", f"{a}.geometric_(0.3)",
        f"{a}.cauchy_({low}, 2)", f"{a}.log_normal_(0.5, 0.25)", f"{a}.random_()", f"{a}.random_({low}, {high})", f"{a}.random_({high})", f"{a}.bernoulli_(0.3)",
        f"{a}.bernoulli_({p})", f"torch.bernoulli({p})", f"torch.poisson({positive})", f"torch.normal({positive}, {positive})", f"torch.normal({positive}, 2.0)",
        f"torch.normal(1.5, {positive})", f"torch.normal(1.0, 2.0, {shape})", f"torch.binomial({positive}.round(), {p})", f"torch._standard_gamma({positive})",
        f"torch._sample_dirichlet({positive})", f"torch.multinomial({draw.tensor((draw.number(1, 3), draw.number(2, 6)), real, 'positive')}, {draw.number(1, 4)}{draw.options(replacement=('True', 'False'))})",
        f"F.dropout({positive}, {draw.among(0.1, 0.5, 0.0, 1.0)})", f"F.alpha_dropout({positive}, 0.3)", f"F.feature_dropout({positive}, 0.5)" if draw.chance(0) else f"F.dropout1d({positive}, 0.4)",
        f"F.rrelu({positive} - 1, training=True)", f"F.gumbel_softmax({positive}, dim=-1{draw.options(hard='True', tau='0.5')})", f"torch.rand_like({positive})", f"torch.randn_like({positive})",
        f"torch.randint_like({a}, {high})", f"nn.init.trunc_normal_({positive})", f"nn.init.xavier_normal_({positive})", f"nn.init.kaiming_uniform_({positive})", f"nn.init.orthogonal_({positive})",
        f"nn.init.sparse_({positive}, 0.3)", f"F.fractional_max_pool2d({draw.tensor((1, 2, 6, 5), real)}, 2, output_ratio=0.6)", f"torch.nn.Linear(3, 2, {of}).weight.detach()",
    )  # fmt: skip
    seed = draw.among(0, 1, 7, 123456789, -3, 2**40)
    lines = [
        f"torch.manual_seed({seed})",
        f"result = {call}",
        f"after = {draw.among('torch.rand(3)', 'torch.randn(20)', 'torch.randn(3)', 'torch.randn(2, dtype=torch.float64)')}",
    ]
    return [*lines, "again = torch.randn(3)"] if draw.chance(0.5) else lines


# name: parameters as (name, kind) where kind is the set of values
DISTRIBUTIONS: dict[str, dict[str, str]] = {
    "Normal": {"loc": "real", "scale": "positive"}, "LogNormal": {"loc": "real", "scale": "positive"}, "Laplace": {"loc": "real", "scale": "positive"},
    "Cauchy": {"loc": "real", "scale": "positive"}, "Gumbel": {"loc": "real", "scale": "positive"}, "Exponential": {"rate": "positive"},
    "Gamma": {"concentration": "positive", "rate": "positive"}, "Beta": {"concentration1": "positive", "concentration0": "positive"},
    "Chi2": {"df": "positive"}, "StudentT": {"df": "positive", "loc": "real", "scale": "positive"}, "FisherSnedecor": {"df1": "positive", "df2": "positive"},
    "HalfNormal": {"scale": "positive"}, "HalfCauchy": {"scale": "positive"}, "Weibull": {"scale": "positive", "concentration": "positive"},
    "Pareto": {"scale": "positive", "alpha": "positive"}, "Kumaraswamy": {"concentration1": "positive", "concentration0": "positive"},
    "InverseGamma": {"concentration": "positive", "rate": "positive"}, "VonMises": {"loc": "real", "concentration": "positive"},
    "Uniform": {"low": "real", "high": "above"}, "Bernoulli": {"probs": "unit"}, "Geometric": {"probs": "unit"}, "Poisson": {"rate": "positive"},
    "Binomial": {"total_count": "count", "probs": "unit"}, "NegativeBinomial": {"total_count": "count", "probs": "unit"}, "Dirichlet": {"concentration": "row"},
    "Categorical": {"probs": "row"}, "OneHotCategorical": {"probs": "row"}, "Multinomial": {"total_count": "four", "probs": "row"}, "ContinuousBernoulli": {"probs": "unit"},
    "RelaxedBernoulli": {"temperature": "half", "probs": "unit"}, "RelaxedOneHotCategorical": {"temperature": "half", "probs": "row"}, "LogisticNormal": {"loc": "lined", "scale": "row"},
    "MultivariateNormal": {"loc": "lined", "scale_tril": "tril"}, "LowRankMultivariateNormal": {"loc": "lined", "cov_factor": "factor", "cov_diag": "row"},
    "GeneralizedPareto": {"loc": "real", "scale": "positive", "concentration": "real"}, "Wishart": {"df": "above", "covariance_matrix": "spd"},
}  # fmt: skip


def _parameter(draw: Draw, kind: str, batch: tuple[int, ...], dtype: str, grad: bool) -> str:
    shape = draw.broadcast(batch) if draw.chance(0.3) else batch
    number = {"four": "4", "half": f"torch.tensor(0.5, dtype=torch.{dtype})"}.get(kind)
    if number:
        return number
    text = {
        "real": lambda: draw.tensor(shape, dtype, draw.among("plain", "plain", "special")), "positive": lambda: draw.tensor(shape, dtype, "positive"),
        "above": lambda: f"({draw.tensor(shape, dtype, 'positive')} + 4)", "unit": lambda: f"({draw.tensor(shape, dtype, 'positive')} / {draw.among(2, 2, 4, 3)})",
        "count": lambda: f"({draw.tensor(shape, dtype, 'positive')} * 4).ceil()", "row": lambda: draw.tensor((*batch, 3), dtype, "positive"),
        "lined": lambda: draw.tensor((*batch, 3), dtype), "factor": lambda: draw.tensor((*batch, 3, 2), dtype), "tril": lambda: f"({draw.tensor((*batch, 3, 3), dtype, 'positive')}).tril()",
        "spd": lambda: f"(torch.eye(3, dtype=torch.{dtype}) + 0.5).expand({(*batch, 3, 3)})",
    }[kind]()  # fmt: skip
    return f"{text}.detach().requires_grad_()" if grad else text


@family
def distributions(draw: Draw) -> list[str]:
    name = draw.among(*DISTRIBUTIONS)
    dtype, batch = draw.among("float32", "float32", "float64"), draw.among((), (1,), (2,), (3,), (2, 1), (2, 3), (0,))
    names = dict(zip("abc", DISTRIBUTIONS[name].items()))
    lines = [
        f"{letter} = {_parameter(draw, kind, batch, dtype, draw.chance(0.5))}" for letter, (_, kind) in names.items()
    ]
    given = ", ".join(f"{key}={letter}" for letter, (key, _) in names.items())
    if draw.chance(0.2):
        given = given.replace("probs=", "logits=")
    given += draw.options(0.2, validate_args=("False", "True"))
    lines.append(f"law = torch.distributions.{name}({given})")
    if draw.chance(0.2):
        lines.append(f"law = law.expand({draw.among((2, 2, *batch), (3, *batch), batch)})")
    if draw.chance(0.1):
        lines.append("law = torch.distributions.Independent(law, 1)")
    where = f"law.{draw.among('sample', 'sample', 'rsample')}({draw.among('', (2,), (3, 2), 'torch.Size([0])')})"
    value = draw.tensor(
        draw.among(batch, (), (2, *batch)), draw.among(dtype, "float64"), draw.among("special", "plain", "positive")
    )
    point = draw.among(
        "law.sample().detach()", value, value, f"{value}.abs()", f"{value}.abs().clamp(0, 1)", f"{value}.round()"
    )
    lines.append(
        "result = " + draw.among(
            where, f"law.log_prob({point})", f"law.log_prob({point})", f"law.cdf({point})", f"law.icdf({value}.abs() / 2)", "law.entropy()", "law.mean", "law.variance", "law.stddev",
            "law.mode", "law.enumerate_support()", "law.enumerate_support(expand=False)", "(law.batch_shape, law.event_shape)", "law.has_rsample", "torch.distributions.kl_divergence(law, law)",
            f"law.support.check({point})", "law.perplexity()", "repr(law)", "[c.check(getattr(law, n)) for n, c in law.arg_constraints.items() if n in law.__dict__]",
        )
    )  # fmt: skip
    if draw.chance(0.12):
        other = draw.among(*DISTRIBUTIONS)
        numbers = dict(zip("xyz", DISTRIBUTIONS[other].items()))
        lines[-1:] = [
            f"{letter} = {_parameter(draw, kind, batch, dtype, False)}" for letter, (_, kind) in numbers.items()
        ]
        lines += [
            f"other = torch.distributions.{other}({', '.join(f'{key}={letter}' for letter, (key, _) in numbers.items())})"
        ]
        lines += ["result = torch.distributions.kl_divergence(law, other)"]
    graded = [
        letter for letter in names if any(line.startswith(f"{letter} =") and "requires_grad" in line for line in lines)
    ]
    return [*lines, f"slopes = grads(result, {', '.join(graded)})"] if graded and draw.chance(0.5) else lines


TRANSFORMS = (
    "ExpTransform()", "PowerTransform(torch.tensor(2.0))", "SigmoidTransform()", "TanhTransform()", "SoftplusTransform()", "AbsTransform()", "AffineTransform(1.5, -2.0)",
    "AffineTransform(torch.tensor([1.0, 2.0]), 3.0, event_dim=1)", "SoftmaxTransform()", "StickBreakingTransform()", "LowerCholeskyTransform()", "CorrCholeskyTransform()",
    "PositiveDefiniteTransform()", "CumulativeDistributionTransform(torch.distributions.Normal(0.0, 2.0))", "ReshapeTransform((2,), (1, 2))", "IndependentTransform(ExpTransform(), 1)".replace("ExpT", "torch.distributions.transforms.ExpT"),
)  # fmt: skip


@family
def transforms(draw: Draw) -> list[str]:
    """Transforms alone, inverted and composed; transformed distributions."""
    T = "torch.distributions.transforms."
    shape = draw.among((2,), (3,), (2, 2), (3, 3), (1,), (2, 3), ())
    a = draw.tensor(
        shape, draw.among("float32", "float64"), draw.among("plain", "positive", "special"), grad=draw.chance(0.5)
    )
    lines = [f"a = {a}", f"t = {T}{draw.among(*TRANSFORMS)}"]
    if draw.chance(0.3):
        lines.append(f"t = {T}ComposeTransform([t, {T}{draw.among(*TRANSFORMS)}])")
    lines += [line for line in (f"t = t.with_cache({draw.number(0, 1)})", "t = t.inv") if draw.chance(0.25)]
    ways = ["t(a)", "(t(a), t.inv(t(a)))", "t.log_abs_det_jacobian(a, t(a))", "(t.forward_shape(a.shape), t.inverse_shape(a.shape))", "(t.bijective, t.domain.event_dim, t.codomain.event_dim)", "t.codomain.check(a)", "t.domain.check(a)", "t.sign", "t == t.inv.inv"]  # fmt: skip
    law = f"torch.distributions.TransformedDistribution(torch.distributions.Normal(torch.zeros({shape}), 1.0), [t])"
    ways += [f"{law}.sample()", f"{law}.log_prob(a)", f"{law}.cdf(a)", f"{law}.icdf(a.abs() / 3)", f"({law}.batch_shape, {law}.event_shape)", f"torch.distributions.biject_to({law}.support)(a)"]  # fmt: skip
    lines.append(f"result = {draw.among(*ways)}")
    return [*lines, "slopes = grads(result, a)"] if "requires_grad" in a and draw.chance(0.5) else lines
