"""Small cases of layers, optimizers and distributions in which one word of the library decides: what comes out is PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau


def exact(L: Any, *shape: int) -> Any:
    total = 1
    for n in shape:
        total *= n
    return ((L.arange(float(total)) * 37 % 101 - 50) / 64).reshape(shape)


def linear_loss(L: Any, out: tuple, bias: bool) -> Any:
    layer = L.nn.LinearCrossEntropyLoss(4, 3, out_features=out, bias=bias)
    with L.no_grad():
        for p in layer.parameters():
            p.copy_(exact(L, *p.shape))
    target = L.arange(2 * (out[0] if out else 1)).reshape(2, *out) % 3
    return layer(exact(L, 2, 4), target).detach()


def spectral(L: Any, rounds: int) -> Any:
    return L.nn.utils.parametrizations.spectral_norm(L.nn.Linear(2, 2), n_power_iterations=rounds).weight.shape


def searched(L: Any, a: float, k: float, start: float) -> Any:
    """LBFGS with a line search on a wave along a slope: brackets, zooms and steps that go too far."""
    x = L.tensor([start, -start], dtype=L.float64, requires_grad=True)
    optimizer = L.optim.LBFGS([x], lr=0.8, max_iter=8, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (0.05 * x * x - 0.3 * x + a * (k * x).sin()).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return [round(v, 5) for v in x.tolist()]


def low_rank(L: Any, rank: int) -> Any:
    D = L.distributions.LowRankMultivariateNormal(exact(L, 3), exact(L, 3, rank), exact(L, 3).abs() + 0.5)
    return D.log_prob(exact(L, 2, 3) + 1), D.entropy(), D.variance, D.covariance_matrix


def pareto(L: Any) -> Any:
    D = L.distributions.GeneralizedPareto(L.tensor(0.5), L.tensor(1.5), L.tensor([-0.3, 0.2, 0.6, 1.0, 1.3, 2.5]))
    return D.mean, D.variance


def scaled(L: Any, mode: str, size: tuple, shape: tuple, **options: Any) -> Any:
    return L.nn.functional.interpolate(
        exact(L, *shape).contiguous(memory_format=L.channels_last), size, mode=mode, **options
    )


CASES: dict[str, Any] = {
    **{f"linear loss {o}, {b}": lambda L, o=o, b=b: linear_loss(L, o, b) for o in ((), (2,), (5,)) for b in (False, True)},
    **{f"spectral {n}": lambda L, n=n: spectral(L, n) for n in (-1, 0, 1)},
    **{f"searched {g}": lambda L, g=g: searched(L, *g) for g in ((0.4, 2.0, 1.0), (0.9, 1.3, 0.2), (0.2, 5.0, 2.0), (1.5, 0.7, 0.1), (0.6, 3.0, 4.0))},
    **{f"low rank {n}": lambda L, n=n: low_rank(L, n) for n in (1, 2, 4)}, "pareto": pareto,
    **{f"scaled {m} {s} {t}": lambda L, m=m, s=s, t=t: scaled(L, m, s, t) for m in ("bilinear", "area", "nearest") for s, t in (((4, 3), (2, 8, 8, 6)), ((8, 9), (1, 5, 4, 3)))},
    "scaled bicubic": lambda L: scaled(L, "bicubic", (5, 7), (2, 4, 8, 6)), "scaled corners": lambda L: scaled(L, "bilinear", (4, 3), (2, 8, 8, 6), align_corners=True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, same_outcome) -> None:
    same_outcome(CASES[name])


def test_a_graph_in_a_folder_is_a_package_of_its_own(tmp_path) -> None:
    traced = flambeau.fx.symbolic_trace(flambeau.nn.Sequential(flambeau.nn.Linear(2, 3), flambeau.nn.ReLU()))
    traced.to_folder(tmp_path / "kept", "Kept")
    names: dict[str, Any] = {"__name__": "kept.module", "__file__": str(tmp_path / "kept" / "module.py")}
    text = (tmp_path / "kept" / "module.py").read_text()
    assert text.endswith("\n") and "class Kept" in text
    compile(text, names["__file__"], "exec")
