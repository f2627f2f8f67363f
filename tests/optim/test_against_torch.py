"""Every optimizer beside PyTorch's: same parameters, same gradients, many steps."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau import nn, optim

torch = judge("torch")

SHAPES = [(4, 3), (5,), (2, 3, 2), (), (0, 3)]
CASES: dict[str, list[dict]] = {
    "SGD": [
        {}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}, {"weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True, "maximize": True},
    ],
    "Adam": [
        {}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True, "betas": (0.5, 0.9)}, {"eps": 1e-3},
        {"decoupled_weight_decay": True, "weight_decay": 0.1},
    ],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.2}],
    "NAdam": [
        {}, {"weight_decay": 0.1, "momentum_decay": 6e-3},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    ],
    "RAdam": [
        {}, {"weight_decay": 0.1, "betas": (0.8, 0.9)}, {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"betas": (0.9, 0.6), "maximize": True},
    ],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}],
    "Adagrad": [{}, {"lr_decay": 0.5, "weight_decay": 0.1, "initial_accumulator_value": 0.1, "maximize": True}],
    "Adadelta": [{}, {"weight_decay": 0.1, "rho": 0.95, "maximize": True}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}, {"momentum": 0.5}],
    "Rprop": [{}, {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1), "maximize": True}],
    "ASGD": [{}, {"t0": 10}, {"t0": 10, "weight_decay": 0.1, "maximize": True, "lambd": 0.1}],
    "Adafactor": [{}, {"weight_decay": 0.1, "maximize": True}, {"eps": (1e-8, 1e-2), "d": 2.0, "beta2_decay": -0.5}],
}  # fmt: skip
ALL = [(name, options) for name, cases in CASES.items() for options in cases]
TOLERANCE = {"float32": 2e-5, "float64": 2e-7, "complex64": 2e-5}


def values(rng: np.random.RandomState, shape: tuple, dtype: str) -> np.ndarray:
    x = np.asarray(rng.standard_normal(shape))
    if dtype.startswith("complex"):
        x = np.asarray(x + 1j * rng.standard_normal(shape))
    return x.astype(dtype)


def pair(dtype: str, shapes: list = SHAPES) -> tuple[list, list]:
    rng = np.random.RandomState(0)
    start = [values(rng, s, dtype) for s in shapes]
    theirs = [torch.nn.Parameter(torch.from_numpy(v.copy())) for v in start]
    return theirs, [nn.Parameter(flambeau.from_numpy(v.copy())) for v in start]


def run(theirs: list, ours: list, optimizers: tuple, steps: int, dtype: str, seed: int = 1) -> None:
    rng = np.random.RandomState(seed)
    for _ in range(steps):
        for t, f in zip(theirs, ours):
            g = values(rng, tuple(t.shape), dtype)
            t.grad, f.grad = torch.from_numpy(g.copy()), flambeau.from_numpy(g.copy())
        for optimizer in optimizers:
            optimizer.step()


def assert_close(ours, theirs, dtype: str) -> None:
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def assert_same(theirs: list, ours: list, their_optimizer, our_optimizer, dtype: str) -> None:
    for t, f in zip(theirs, ours):
        assert_close(f, t, dtype)
        their_state, our_state = their_optimizer.state[t], our_optimizer.state[f]
        assert set(their_state) == set(our_state)
        for name, value in their_state.items():
            assert_close(our_state[name], value, "float32" if value.dim() == 0 else dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_fifty_steps(name: str, options: dict, dtype: str) -> None:
    shapes = SHAPES if name != "Adafactor" else [(4, 3), (5,), (2, 3, 2)]
    theirs, ours = pair(dtype, shapes)
    a = getattr(torch.optim, name)(theirs, **options, foreach=False)
    b = getattr(optim, name)(ours, **options, foreach=False)
    run(theirs, ours, (a, b), 50, dtype)
    assert_same(theirs, ours, a, b, dtype)
    assert repr(a) == repr(b)


@pytest.mark.parametrize("name", [n for n in CASES if n != "Adafactor"])
def test_complex_parameters(name: str) -> None:
    options = CASES[name][-1]
    theirs, ours = pair("complex64")
    a = getattr(torch.optim, name)(theirs, **options, foreach=False)
    b = getattr(optim, name)(ours, **options)
    run(theirs, ours, (a, b), 10, "complex64")
    assert_same(theirs, ours, a, b, "complex64")


def to_torch(x):
    """A state_dict with PyTorch's tensors."""
    if isinstance(x, flambeau.Tensor):
        return torch.from_numpy(x.detach().numpy().copy())
    if isinstance(x, dict):
        return {k: to_torch(v) for k, v in x.items()}
    return type(x)(map(to_torch, x)) if isinstance(x, (list, tuple)) else x


def to_flambeau(x):
    if isinstance(x, torch.Tensor):
        return flambeau.from_numpy(x.detach().numpy().copy())
    if isinstance(x, dict):
        return {k: to_flambeau(v) for k, v in x.items()}
    return type(x)(map(to_flambeau, x)) if isinstance(x, (list, tuple)) else x


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_state_dicts_are_interchangeable(name: str, options: dict) -> None:
    theirs, ours = pair("float32", [(4, 3), (5,)])
    a = getattr(torch.optim, name)(theirs, **options)
    b = getattr(optim, name)(ours, **options)
    run(theirs, ours, (a, b), 3, "float32")
    ours_saved, theirs_saved = b.state_dict(), a.state_dict()
    assert ours_saved["param_groups"] == theirs_saved["param_groups"]
    assert list(ours_saved["state"]) == list(theirs_saved["state"])
    # Crosswise: their state goes on in our optimizer, ours in theirs.
    a2 = getattr(torch.optim, name)(theirs)
    b2 = getattr(optim, name)(ours)
    a2.load_state_dict(to_torch(ours_saved))
    b2.load_state_dict(to_flambeau(theirs_saved))
    run(theirs, ours, (a2, b2), 3, "float32", seed=2)
    assert_same(theirs, ours, a2, b2, "float32")


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (3, 8), (5, 5)])
def test_muon(shape: tuple, nesterov: bool) -> None:
    theirs, ours = pair("float32", [shape])
    options = {"nesterov": nesterov, "adjust_lr_fn": "match_rms_adamw"}
    a, b = torch.optim.Muon(theirs, **options), optim.Muon(ours, **options)
    run(theirs, ours, (a, b), 10, "float32")
    # Its iteration is in bfloat16: 8 bits of every step, of size lr.
    np.testing.assert_allclose(ours[0].detach().numpy(), theirs[0].detach().numpy(), atol=1e-4)
    assert repr(a) == repr(b)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.parametrize(
    "options",
    [{"line_search_fn": "strong_wolfe"}, {"lr": 1e-2}, {"lr": 0.01, "history_size": 3, "max_iter": 7},
     {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 2}],
    ids=str,
)  # fmt: skip
def test_lbfgs(options: dict) -> None:
    theirs = torch.nn.Parameter(torch.tensor([-1.5, 2.0], dtype=torch.float64))
    ours = nn.Parameter(flambeau.tensor([-1.5, 2.0], dtype=flambeau.float64))
    a, b = torch.optim.LBFGS([theirs], **options), optim.LBFGS([ours], **options)
    for x, optimizer in ((theirs, a), (ours, b)):

        def closure():
            optimizer.zero_grad()
            loss = rosenbrock(x)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(6)]
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    their_state, our_state = a.state[theirs], b.state[ours]
    assert set(their_state) == set(our_state)
    assert (their_state["n_iter"], their_state["func_evals"]) == (our_state["n_iter"], our_state["func_evals"])
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", [*CASES, "Muon", "SparseAdam", "LBFGS"])
def test_signatures(name: str) -> None:
    def shape(cls):
        return [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()]

    assert shape(getattr(optim, name)) == shape(getattr(torch.optim, name))


@pytest.mark.parametrize("name", ["Adam", "SGD", "NAdam", "RMSprop"])
def test_learning_rate_as_tensor(name: str) -> None:
    theirs, ours = pair("float32", [(4, 3)])
    a = getattr(torch.optim, name)(theirs, lr=torch.tensor(0.01), foreach=False)
    b = getattr(optim, name)(ours, lr=flambeau.tensor(0.01))
    run(theirs, ours, (a, b), 3, "float32")
    a.param_groups[0]["lr"].fill_(0.1)
    b.param_groups[0]["lr"].fill_(0.1)
    run(theirs, ours, (a, b), 3, "float32")
    assert_same(theirs, ours, a, b, "float32")


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RMSprop", "Rprop"])
@pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])
def test_steps_for_gpu_graphs_are_refused_on_the_cpu(library, name: str) -> None:
    p = library.nn.Parameter(library.ones(2))
    optimizer = getattr(library.optim, name)([p], capturable=True)
    optimizer.step()  # nothing to do yet
    p.grad = library.ones(2)
    with pytest.raises(AssertionError, match="must be on supported devices"):
        optimizer.step()


def test_betas_as_tensors() -> None:
    theirs, ours = pair("float32", [(4, 3)])
    a = torch.optim.Adam(theirs, betas=(torch.tensor(0.8), torch.tensor([0.9])), foreach=False)
    b = optim.Adam(ours, betas=(flambeau.tensor(0.8), flambeau.tensor([0.9])))
    run(theirs, ours, (a, b), 5, "float32")
    assert_same(theirs, ours, a, b, "float32")


DIFFERENTIABLE = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "ASGD"]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_flow_through_a_differentiable_step(name: str) -> None:
    rng = np.random.RandomState(3)
    start, first, second = (rng.standard_normal(6) for _ in range(3))
    options = {"weight_decay": 0.1, "differentiable": True}
    if name == "SGD":
        options["momentum"] = 0.9
    results = []
    for lib, library in ((torch, torch.optim), (flambeau, optim)):
        x = lib.tensor(start, requires_grad=True)
        g = lib.tensor(first, requires_grad=True)
        p = x.clone()
        optimizer = getattr(library, name)([p], **options)
        p.grad = g
        optimizer.step()
        if name != "Adamax":  # PyTorch's fails after two steps: its second one overwrites what the first has saved
            p.grad = lib.tensor(second) * g
            optimizer.step()
        (p * p).sum().backward()
        results.append((p.detach().numpy(), x.grad.numpy(), g.grad.numpy()))
    # PyTorch's Adam works with a float32 step count here; ours with a float64 one.
    for theirs, ours in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5 if name.startswith("Adam") else 1e-6, atol=1e-9)


def test_gradient_of_the_learning_rate() -> None:
    results = []
    for lib, library in ((torch, torch.optim), (flambeau, optim)):
        lr = lib.tensor(0.1, requires_grad=True, dtype=lib.float64)
        x = lib.tensor([1.0, -2.0], dtype=lib.float64, requires_grad=True)
        p = x.clone()
        optimizer = library.SGD([p], lr=lr, differentiable=True)
        p.grad = lib.tensor([0.5, 3.0], dtype=lib.float64)
        optimizer.step()
        (p * p).sum().backward()
        results.append(lr.grad.item())
    assert results[0] == pytest.approx(results[1], rel=1e-12)


def test_groups_with_their_own_options() -> None:
    theirs, ours = pair("float32", [(4, 3), (5,), (2, 2)])

    def groups(params):
        return [{"params": params[:1], "lr": 0.1}, {"params": params[1:], "weight_decay": 0.5, "amsgrad": True}]

    a, b = torch.optim.Adam(groups(theirs), foreach=False), optim.Adam(groups(ours), foreach=False)
    run(theirs, ours, (a, b), 5, "float32")
    assert_same(theirs, ours, a, b, "float32")
    assert repr(a) == repr(b)
    copied = copy.deepcopy(b)
    assert copied.state_dict()["param_groups"] == a.state_dict()["param_groups"]


def test_parameters_that_join_late_have_their_own_step_count() -> None:
    theirs, ours = pair("float32", [(4, 3), (5,)])
    a, b = torch.optim.Adam(theirs, foreach=False), optim.Adam(ours)
    run(theirs[:1], ours[:1], (a, b), 4, "float32")
    run(theirs, ours, (a, b), 4, "float32")
    assert_same(theirs, ours, a, b, "float32")
    assert [int(b.state[p]["step"]) for p in ours] == [8, 4]


def test_float64_default_keeps_float64_steps() -> None:
    flambeau.set_default_dtype(flambeau.float64)
    torch.set_default_dtype(torch.float64)
    try:
        theirs, ours = pair("float64", [(3,)])
        a, b = torch.optim.NAdam(theirs), optim.NAdam(ours)
        run(theirs, ours, (a, b), 5, "float64")
        assert b.state[ours[0]]["step"].dtype is flambeau.float64
        np.testing.assert_allclose(ours[0].detach().numpy(), theirs[0].detach().numpy(), rtol=1e-13)
    finally:
        flambeau.set_default_dtype(flambeau.float32)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "Adadelta"])
def test_bfloat16_parameters(name: str) -> None:
    start = np.linspace(-2, 2, 33, dtype="float32")
    t = torch.nn.Parameter(torch.from_numpy(start).bfloat16())
    f = nn.Parameter(flambeau.from_numpy(start).bfloat16())
    a, b = getattr(torch.optim, name)([t], lr=0.05), getattr(optim, name)([f], lr=0.05)
    for _ in range(5):
        t.grad, f.grad = torch.from_numpy(start).bfloat16(), flambeau.from_numpy(start).bfloat16()
        a.step()
        b.step()
    np.testing.assert_allclose(f.detach().float().numpy(), t.detach().float().numpy(), rtol=0.03, atol=0.01)
    assert {str(v.dtype) for v in b.state[f].values()} == {str(v.dtype) for v in a.state[t].values()}
