"""Small programs with optimizers in which one word of the library decides: PyTorch computes the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

STEPS = """
def run(name, scale, **options):
    # Gradients so small that `eps` decides, or as large as the weights, in two groups with options of their own.
    weights = [nn.Parameter(exact(3, 4, dtype=L.float64)), nn.Parameter(exact(2, 2, dtype=L.float64) * 3)]
    optimizer = getattr(L.optim, name)([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.03}], **options)
    for step in range(6):
        optimizer.zero_grad()
        for w in weights:
            w.grad = (w.detach() * 1.3 + 0.2 * step).sin() * scale
        optimizer.step()
    return [w.detach() for w in weights], [[str(k), v] for s in optimizer.state_dict()["state"].values() for k, v in sorted(s.items())]
"""
OPTIONS = {
    "SGD": ["lr=0.1", "lr=0.1, momentum=0.8", "lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.1", "lr=0.1, momentum=0.8, nesterov=True", "lr=0.1, maximize=True, weight_decay=0.2"],
    "Adam": ["", "lr=0.1, betas=(0.7, 0.9), eps=1e-3", "weight_decay=0.3", "amsgrad=True, lr=0.1, betas=(0.5, 0.6)", "maximize=True, weight_decay=0.1", "decoupled_weight_decay=True, weight_decay=0.1, lr=0.1"],
    "AdamW": ["", "lr=0.1, betas=(0.7, 0.9), eps=1e-3", "weight_decay=0.3", "amsgrad=True, lr=0.1, betas=(0.5, 0.6), maximize=True"],
    "Adamax": ["", "lr=0.1, betas=(0.7, 0.9), eps=1e-3, weight_decay=0.1", "maximize=True"],
    "NAdam": ["", "lr=0.1, betas=(0.7, 0.9), eps=1e-3, momentum_decay=0.1", "weight_decay=0.2", "decoupled_weight_decay=True, weight_decay=0.2, lr=0.1, maximize=True"],
    "RAdam": ["", "lr=0.1, betas=(0.7, 0.9), eps=1e-3", "betas=(0.9, 0.3)", "weight_decay=0.2, betas=(0.8, 0.95)", "decoupled_weight_decay=True, weight_decay=0.2, lr=0.1, maximize=True"],
    "Adagrad": ["", "lr=0.1, lr_decay=0.2, eps=1e-3", "weight_decay=0.2, initial_accumulator_value=0.3, lr=0.1", "maximize=True"],
    "Adadelta": ["", "lr=0.5, rho=0.7, eps=1e-3", "weight_decay=0.2, maximize=True"],
    "RMSprop": ["", "lr=0.1, alpha=0.8, eps=1e-3", "momentum=0.7, weight_decay=0.1", "centered=True, momentum=0.5, lr=0.05, alpha=0.7", "maximize=True"],
    "Rprop": ["", "lr=0.1, etas=(0.4, 1.5), step_sizes=(1e-3, 0.15)", "maximize=True"],
    "ASGD": ["", "lr=0.1, lambd=0.1, alpha=0.6, t0=2", "weight_decay=0.2, maximize=True, lr=0.1"],
    "Adafactor": ["", "lr=0.1, beta2_decay=-0.5, eps=(None, 1e-2), d=1.5", "lr=0.1, weight_decay=0.2, eps=(1e-4, 1e-1)", "maximize=True, lr=0.2"],
    "Muon": ["lr=0.1", "lr=0.1, weight_decay=0.3, momentum=0.8, nesterov=False", "lr=0.1, ns_coefficients=(3.0, -4.0, 2.0), eps=1e-2, ns_steps=3", "lr=0.1, adjust_lr_fn='match_rms_adamw'", "lr=0.1, adjust_lr_fn='original'"],
}  # fmt: skip
PROGRAMS = [
    # schedules at their limits
    *(f"S = L.optim.lr_scheduler\nrates(lambda o: S.{text})" for text in (
        "OneCycleLR(o, 0.3, total_steps=14)", "OneCycleLR(o, [0.3, 0.5], epochs=2, steps_per_epoch=7, pct_start=0.25, div_factor=10.0, final_div_factor=100.0)", "OneCycleLR(o, 0.3, 14, three_phase=True, base_momentum=0.7, max_momentum=0.8)",
        "OneCycleLR(o, 0.3, 14, cycle_momentum=False, anneal_strategy='linear')", "OneCycleLR(o, 0.3, 14, pct_start=0.4, three_phase=True, anneal_strategy='linear')", "CyclicLR(o, 0.1, 0.4, 3)", "CyclicLR(o, 0.1, 0.4, 2, 4, 'exp_range', 0.8)", "CyclicLR(o, 0.1, 0.4, 3, 1, 'triangular2', cycle_momentum=False)",
        "CyclicLR(o, 0.1, 0.4, 3, scale_fn=lambda x: 0.5 ** x)", "CyclicLR(o, 0.1, 0.4, 3, scale_fn=lambda x: 0.5 ** x, scale_mode='iterations', base_momentum=0.5, max_momentum=0.75)", "CosineAnnealingLR(o, 4)", "CosineAnnealingLR(o, 5, 0.05)", "CosineAnnealingWarmRestarts(o, 3, 2, 0.01)", "CosineAnnealingWarmRestarts(o, 3)",
        "ConstantLR(o)", "ConstantLR(o, 0.01, 3)", "LinearLR(o)", "LinearLR(o, 0.1, 0.7, 4)", "LinearLR(o, 1.0, 0.0, 12)", "PolynomialLR(o)", "PolynomialLR(o, 7, 2.5)", "StepLR(o, 3)", "MultiStepLR(o, [2, 4, 4, 9])", "ExponentialLR(o, 0.8)", "MultiplicativeLR(o, lambda e: 0.9 + 0.01 * e)", "LambdaLR(o, [lambda e: 0.9 ** e, lambda e: 1 / (e + 1)])",
        "SequentialLR(o, [S.ConstantLR(o, 0.5, 2), S.LinearLR(o, 0.2, 1.0, 3), S.StepLR(o, 2)], [2, 6])", "ChainedScheduler([S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.9), S.CosineAnnealingLR(o, 6)])")),
    *(f"S = L.optim.lr_scheduler\no = L.optim.SGD([nn.Parameter(L.ones(1))], 0.1, 0.9)\nraised(lambda: S.{text})" for text in (
        "OneCycleLR(o, 0.3)", "OneCycleLR(o, 0.3, 0)", "OneCycleLR(o, 0.3, epochs=0, steps_per_epoch=3)", "OneCycleLR(o, 0.3, epochs=3, steps_per_epoch=0)", "OneCycleLR(o, 0.3, 5, pct_start=1.1)", "OneCycleLR(o, 0.3, 5, anneal_strategy='x')", "CyclicLR(o, 0.1, 0.4, mode='x')", "ConstantLR(o, 1.1)", "ConstantLR(o, -0.1)", "LinearLR(o, 0.0)", "LinearLR(o, 1.1)", "LinearLR(o, 0.5, 1.1)",
        "LinearLR(o, 0.5, -0.1)", "CosineAnnealingWarmRestarts(o, 0)", "CosineAnnealingWarmRestarts(o, 1.5)", "CosineAnnealingWarmRestarts(o, 2, 0)", "CosineAnnealingWarmRestarts(o, 1, 1, 'x')", "LambdaLR(o, [])", "MultiplicativeLR(o, 3)", "ReduceLROnPlateau(o, factor=1.0)", "ReduceLROnPlateau(o, 'x')", "ReduceLROnPlateau(o, threshold_mode='x')", "SequentialLR(o, [], [])",
        "SequentialLR(o, [S.StepLR(o, 2)], [1])", "ChainedScheduler([])", "ReduceLROnPlateau(o, min_lr=[0, 0])", "CyclicLR(L.optim.Adagrad([nn.Parameter(L.ones(1))]), 0.1, 0.4)", "StepLR(o, 2, last_epoch=3)", "StepLR(3, 2)")),
    *(f"""S = L.optim.lr_scheduler
o = L.optim.SGD([{{"params": [nn.Parameter(L.ones(1))], "lr": r}} for r in (0.1, 0.4)])
s = S.ReduceLROnPlateau(o, {options})
found = []
for loss in (3.0, 2.0, 2.0, 1.9999, 1.9998, 2.5, 2.4, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.1, 0.99995, -0.5, -0.6, -0.50001, -0.5, -0.7, -0.7, -0.7):
    s.step(loss)
    found.append([[g["lr"] for g in o.param_groups], s.num_bad_epochs, s.cooldown_counter, float(s.best), s.last_epoch])
found""" for options in ("patience=1", "'max', 0.5, 0", "patience=1, threshold=0.1", "patience=0, threshold=0.1, threshold_mode='abs', cooldown=2", "'max', patience=1, threshold=0.2, threshold_mode='abs'", "'max', patience=1, threshold=0.2, cooldown=1", "patience=0, min_lr=[0.05, 0.01], factor=0.3", "patience=0, eps=0.02, factor=0.5", "patience=0, eps=0.025, factor=0.5")),
    """S = L.optim.lr_scheduler
o = L.optim.SGD([nn.Parameter(L.ones(1))], 0.1)
s = S.ReduceLROnPlateau(o, patience=0, min_lr=0.02)
s.step(1.0)
o.add_param_group({"params": [nn.Parameter(L.ones(1))], "lr": 0.025})
s.step(2.0, epoch=7)
[g["lr"] for g in o.param_groups], s.last_epoch, s.get_last_lr()""",
    """S = L.optim.lr_scheduler
o = L.optim.SGD([nn.Parameter(L.ones(1))], 0.1)
s = S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01)
found = []
for epoch in (0, 0.5, 2.99, 3, 3.5, 8.9, 9, 10.25, 20.5, 21, 1, 44.99, 45):
    s.step(epoch)
    found.append([s.get_last_lr(), s.T_cur, s.T_i, s.last_epoch])
t = S.CosineAnnealingWarmRestarts(o, 4)
for epoch in (0.5, 4, 5.5, 13):
    t.step(epoch)
    found.append([t.get_last_lr(), t.T_cur, t.T_i, t.last_epoch])
found, raised(lambda: s.step(-1))""",
    """S = L.optim.lr_scheduler
class Scale:
    def __init__(self, r):
        self.r = r
    def __call__(self, x):
        return self.r ** x
o = L.optim.SGD([nn.Parameter(L.ones(1))], 0.1, 0.9)
a, b, c = S.CyclicLR(o, 0.1, 0.4, 3, scale_fn=Scale(0.5)), S.CyclicLR(o, 0.1, 0.4, 3, scale_fn=Scale(0.7)), S.CyclicLR(o, 0.1, 0.4, 3, scale_fn=lambda x: 1)
saved = a.state_dict()
b.load_state_dict(dict(saved)), c.load_state_dict(c.state_dict())
b._scale_fn_custom.r, saved["_scale_fn_custom"], c.state_dict()["_scale_fn_custom"]""",
    # averages
    """U = L.optim.swa_utils
a, c = [exact(3), exact(2)], [exact(3) * 2, exact(2) + 3]
for update, n in ((U.get_swa_multi_avg_fn(), 0), (U.get_swa_multi_avg_fn(), 3), (U.get_ema_multi_avg_fn(0.8), 1), (U.get_ema_multi_avg_fn(), 2)):
    update(a, c, L.tensor(n)) if n else update(a[:1], c[:1], L.tensor(n))
a, U.get_swa_avg_fn()(exact(3), exact(3) * 2, L.tensor(4)), U.get_ema_avg_fn(0.7)(exact(3), exact(3) * 2, 1), U.get_ema_avg_fn()(exact(3), exact(3) * 2, 1), raised(lambda: U.get_ema_avg_fn(1.1)), raised(lambda: U.get_ema_multi_avg_fn(-0.1))""",
    """U = L.optim.swa_utils
m = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, momentum=0.3))
nn.init.ones_(m[0].weight)
models = [U.AveragedModel(m, use_buffers=b, multi_avg_fn=f, avg_fn=g) for b in (False, True) for f, g in ((None, None), (U.get_ema_multi_avg_fn(0.5), None), (None, U.get_ema_avg_fn(0.25)))]
for k in range(3):
    m(exact(4, 2) * (k + 1))
    with L.no_grad():
        m[0].weight += exact(2, 2)
    for s in models:
        s.update_parameters(m)
U.update_bn([exact(4, 2), exact(2, 2) * 3, [exact(6, 2) + 1]], models[0])
[[s.n_averaged, *s.module.state_dict().values()] for s in models], m[1].momentum, models[0].module[1].momentum, raised(lambda: U.AveragedModel(m, avg_fn=U.get_ema_avg_fn(), multi_avg_fn=U.get_ema_multi_avg_fn()))""",
    # optimizers as a whole
    """p = [nn.Parameter(exact(2)) for _ in range(3)]
o = L.optim.Adam([{"params": p[:1], "lr": 0.2}, {"params": p[1:2], "betas": (0.1, 0.2)}], lr=0.5)
found = [raised(lambda: o.add_param_group({"params": q})) for q in (p[0], [p[2] * 2], {p[2]})]
o.add_param_group({"params": [p[2]], "weight_decay": 0.3})
found, str(o), [[g["lr"], list(g["betas"]), g["weight_decay"], len(g["params"])] for g in o.param_groups], o.state_dict()["param_groups"], raised(lambda: L.optim.SGD([], 0.1)), raised(lambda: L.optim.SGD([p[0].detach() * p[1]], 0.1)), raised(lambda: L.optim.SGD(p[0], 0.1))""",
    *(f"p = [nn.Parameter(exact(2, 2))]\nraised(lambda: L.optim.{text})" for text in (
        "SGD(p, -0.1)", "SGD(p, 0.1, -0.1)", "SGD(p, 0.1, weight_decay=-1)", "SGD(p, 0.1, nesterov=True)", "SGD(p, 0.1, 0.9, 0.1, nesterov=True)", "Adam(p, -1)", "Adam(p, eps=-1)", "Adam(p, betas=(1.0, 0.9))", "Adam(p, betas=(0.9, 1.0))", "Adam(p, betas=(-0.1, 0.9))", "Adam(p, weight_decay=-0.1)", "Adam(p, 0.0)", "Adamax(p, eps=-1)",
        "NAdam(p, momentum_decay=-1)", "RAdam(p, betas=(0.9, -0.1))", "Adagrad(p, lr_decay=-1)", "Adagrad(p, initial_accumulator_value=-1)", "Adagrad(p, eps=-1)", "Adadelta(p, rho=1.1)", "Adadelta(p, rho=1.0)", "Adadelta(p, eps=-1)", "RMSprop(p, alpha=-1)", "RMSprop(p, momentum=-1)", "RMSprop(p, eps=-1)", "Rprop(p, etas=(1.0, 1.2))", "Rprop(p, etas=(0.5, 1.0))", "Rprop(p, etas=(0.0, 1.2))",
        "ASGD(p, weight_decay=-1)", "Adafactor(p, beta2_decay=0.1)", "Adafactor(p, d=0.9)", "Adafactor(p, d=1.0)", "Adafactor(p, eps=(-1.0, 1.0))", "Adafactor(p, eps=(1.0, -1.0))", "Muon(p, momentum=-1)", "Muon([nn.Parameter(exact(2))])", "Muon(p, adjust_lr_fn='x')", "LBFGS(p, line_search_fn='x')", "LBFGS([{'params': p}, {'params': [nn.Parameter(exact(1))]}])", "LBFGS(p, -1)", "SparseAdam(p, -1)", "SparseAdam(p, betas=(1.0, 0.9))", "SparseAdam(p, eps=0.0)")),
    *(f"""x = nn.Parameter(L.tensor({start}, dtype=L.float64))
o = L.optim.LBFGS([x], {options})
seen = []
def closure():
    o.zero_grad()
    loss = {loss}
    loss.backward()
    seen.append(float(loss))
    return loss
for _ in range(3):
    o.step(closure)
seen, x, [s["n_iter"] for s in o.state_dict()["state"].values()], [s["func_evals"] for s in o.state_dict()["state"].values()]""" for start, loss in (
        ("[-1.2, 1.0]", "100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2"), ("[2.0, -3.0]", "(x ** 4).sum() - 3 * x[0] * x[1] + x.cos().sum()"), ("[0.3, 0.1]", "(x * L.tensor([50.0, 0.1], dtype=L.float64) * x).sum() + (6 * x).sin().sum()"), ("[1e-3, 5.0]", "(x.abs() + 1e-3).log().sum() + 0.1 * (x * x).sum()"))
      for options in ("lr=0.5", "line_search_fn='strong_wolfe'", "lr=0.1, max_iter=5, history_size=2, line_search_fn='strong_wolfe'", "max_iter=6, max_eval=4, tolerance_grad=1e-1, tolerance_change=1e-2", "lr=5.0, max_iter=9, line_search_fn='strong_wolfe'")),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program)


@pytest.mark.parametrize("scale", [1.0, 1e-7])
@pytest.mark.parametrize("name, options", [(name, text) for name in OPTIONS for text in OPTIONS[name]])
def test_steps(name: str, options: str, scale: float) -> None:
    check(f"run({name!r}, {scale}, {options})", STEPS)
