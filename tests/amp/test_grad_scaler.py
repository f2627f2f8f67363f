"""GradScaler on the CPU: numbers, order of calls, files; the same as PyTorch's."""

from __future__ import annotations

import pickle
import warnings

import pytest

import flambeau


def _scaled_training(torch, enabled):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2, enabled=enabled)
    seen = []
    for step in range(6):
        optimizer.zero_grad()
        x = torch.ones(2, 3) * (float("inf") if step == 3 else step + 1)
        scaler.scale(model(x).square().mean() / 100).backward()
        if step == 1:
            scaler.unscale_(optimizer)
        if enabled or step != 3:
            scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), [round(p, 4) for p in model.weight.tolist()[0]]))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("enabled", [True, False])
def test_grad_scaler_trains_as_pytorchs(same_outcome, enabled):
    same_outcome(lambda torch: _scaled_training(torch, enabled))


def test_grad_scaler_order_of_calls():
    parameter = flambeau.nn.Parameter(flambeau.ones(1))
    optimizer = flambeau.optim.SGD([parameter], lr=1.0)
    scaler = flambeau.amp.GradScaler("cpu")
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    other = flambeau.amp.GradScaler("cpu", init_scale=2.0)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 65536.0 and parameter.item() == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not flambeau.cuda.amp.GradScaler().is_enabled()
    assert len(caught) == 2


def _setup(torch, dtype="float32", **options):
    parameter = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=getattr(torch, dtype)))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    return parameter, optimizer, torch.amp.GradScaler("cpu", init_scale=8.0, **options)


EARLY = ["scaler.update()", "scaler.step(optimizer)", "scaler.unscale_(optimizer)"]


@pytest.mark.parametrize("call", EARLY)
def test_nothing_was_scaled_yet(same_outcome, call):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch)
        parameter.grad = torch.ones(2)
        return eval(call, {"scaler": scaler, "optimizer": optimizer})

    same_outcome(scenario)


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -float("inf")])
@pytest.mark.parametrize("by_hand", [True, False])
def test_infinite_gradients_skip_the_step(same_outcome, bad, by_hand):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch)
        scaler.scale(parameter.sum())
        parameter.grad = torch.tensor([1.0, bad])
        if by_hand:
            scaler.unscale_(optimizer)
        found = scaler._found_inf_per_device(optimizer)
        returned = scaler.step(optimizer)
        scaler.update()
        return returned, parameter, parameter.grad, len(found), scaler.get_scale(), scaler.state_dict()

    same_outcome(scenario)


@pytest.mark.parametrize("factor", [2.0, 1e30])
def test_growth(same_outcome, factor):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch, growth_interval=2, growth_factor=factor)
        seen = []
        for _ in range(9):
            parameter.grad = None
            scaler.scale((parameter * 1e-30).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append(scaler.state_dict())
        return seen, parameter

    same_outcome(scenario)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(same_outcome, dtype):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch, dtype)
        loss = scaler.scale(parameter.sum())
        seen = [loss.dtype, scaler.scale(parameter).dtype]
        loss.backward()
        scaler.step(optimizer)
        return seen, parameter, parameter.grad

    same_outcome(scenario)


NEW_SCALES = [
    "5.0",
    "torch.tensor(6.0)",
    "torch.tensor([6.0])",
    "torch.tensor([6.0, 1.0])",
    "torch.tensor(6.0, requires_grad=True)",
]


@pytest.mark.parametrize("new_scale", NEW_SCALES)
def test_update_to_a_given_factor(same_outcome, new_scale):
    def scenario(torch):
        parameter, _, scaler = _setup(torch)
        scaler.scale(parameter.sum())
        scaler.update(eval(new_scale, {"torch": torch}))
        return scaler.get_scale()

    same_outcome(scenario)


def test_what_can_be_scaled(same_outcome):
    for make in (
        lambda torch, x, scaler: scaler.scale([x, (x, x)]),
        lambda torch, x, scaler: type(scaler.scale(iter([x]))),
        lambda torch, x, scaler: scaler.scale(3),
        lambda torch, x, scaler: torch.amp.GradScaler("cpu", growth_factor=1.0),
        lambda torch, x, scaler: torch.amp.GradScaler("cpu", backoff_factor=1.0),
        lambda torch, x, scaler: scaler.load_state_dict({}),
        lambda torch, x, scaler: scaler.step(torch.optim.SGD([x.requires_grad_()]), closure=lambda: None),
        lambda torch, x, scaler: torch.amp.GradScaler("cpu", enabled=False).scale(x),
    ):
        same_outcome(lambda torch, make=make: make(torch, torch.ones(2), torch.amp.GradScaler("cpu", init_scale=4.0)))


def test_clipping_between_unscaling_and_step(same_outcome):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch)
        scaler.scale((parameter * 30).sum()).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        scaler.step(optimizer)
        scaler.update()
        return norm, parameter, parameter.grad

    same_outcome(scenario)


def test_one_bad_optimizer_of_two(same_outcome):
    def scenario(torch):
        parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
        optimizers = [torch.optim.SGD([p], lr=0.1) for p in parameters]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(parameters[0].sum() + parameters[1].sum() * float("inf")).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        return parameters, scaler.get_scale()

    same_outcome(scenario)


def test_files(same_outcome):
    def scenario(torch):
        parameter, optimizer, scaler = _setup(torch, growth_interval=1)
        scaler.scale(parameter.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        copied = pickle.loads(pickle.dumps(scaler))
        fresh = torch.amp.GradScaler("cpu")
        fresh.scale(parameter.sum())
        fresh.load_state_dict(scaler.state_dict())
        return copied.state_dict(), fresh.state_dict(), fresh.scale(torch.ones(1))

    same_outcome(scenario)
    parameter, optimizer, scaler = _setup(flambeau)
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(AssertionError, match="beginning of an iteration"):
        pickle.dumps(scaler)


class _Itself(flambeau.optim.SGD):
    """Unscales by itself, as PyTorch's fused optimizers do."""

    _step_supports_amp_scaling = True

    def step(self, closure=None):
        self.seen = float(self.grad_scale), float(self.found_inf)


def test_optimizers_that_unscale_by_themselves():
    p = flambeau.nn.Parameter(flambeau.ones(2))
    optimizer = _Itself([p], lr=0.1)
    scaler = flambeau.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.seen == (4.0, 0.0) and p.grad.tolist() == [4.0, 4.0]
    assert not hasattr(optimizer, "grad_scale")


def test_fused_optimizers_take_the_same_steps():
    weights = []
    for fused in (False, True):
        p = flambeau.nn.Parameter(flambeau.ones(3))
        optimizer = flambeau.optim.SGD([p], lr=0.5, fused=fused)
        scaler = flambeau.amp.GradScaler("cpu", init_scale=8.0)
        for factor in (1.0, float("inf"), 2.0):
            optimizer.zero_grad()
            scaler.scale((p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        weights.append((p.tolist(), scaler.get_scale()))
    assert weights[0] == weights[1] == ([-0.5, -0.5, -0.5], 4.0)
