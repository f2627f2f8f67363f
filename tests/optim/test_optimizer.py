"""What all optimizers share: groups, hooks, state, gradients."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings

import pytest

import flambeau
from flambeau import nn, optim
from flambeau.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)


def parameters(count: int = 2) -> list:
    return [nn.Parameter(flambeau.ones(3) * (i + 1)) for i in range(count)]


def with_gradients(params: list) -> list:
    for p in params:
        p.grad = flambeau.ones_like(p)
    return params


def test_parameters_of_all_kinds() -> None:
    a, b = parameters()
    assert optim.SGD(iter([a, b])).param_groups[0]["params"] == [a, b]
    named = optim.SGD([("a", a), ("b", b)])
    assert named.param_groups[0]["param_names"] == ["a", "b"]
    assert optim.SGD([{"params": a, "lr": 2.0}]).param_groups[0]["lr"] == 2.0
    leaf = flambeau.ones(2, requires_grad=True)
    kept = (leaf * 2).requires_grad_()
    kept.retain_grad()
    assert optim.SGD([kept]).param_groups[0]["params"] == [kept]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: p, TypeError, "should be an iterable of Tensors or dicts"),
        (lambda p: [], ValueError, "optimizer got an empty parameter list"),
        (lambda p: [{"params": {p}}], TypeError, "ordered collections"),
        (lambda p: [p, "w"], TypeError, "optimizer can only optimize Tensors"),
        (lambda p: [p * 2], ValueError, "can't optimize a non-leaf Tensor"),
        (lambda p: [{"params": [p]}, {"params": [p]}], ValueError, "more than one parameter group"),
        (lambda p: [("a", p), p], ValueError, "Some param names are missing"),
        (
            lambda p: [{"params": [("a", p)]}, {"params": [nn.Parameter(flambeau.ones(1))]}],
            ValueError,
            "without names",
        ),
    ],
)
def test_bad_parameters(make, error, text: str) -> None:
    with pytest.raises(error, match=text):
        optim.SGD(make(nn.Parameter(flambeau.ones(3))))


def test_add_param_group() -> None:
    a, b = parameters()
    optimizer = optim.SGD([a], lr=0.5)
    optimizer.add_param_group({"params": b, "lr": 0.1})
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.1]
    assert optimizer.param_groups[1]["momentum"] == 0
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group([b])
    with_gradients([a, b])
    optimizer.step()
    assert flambeau.allclose(b, flambeau.full((3,), 1.9))


def test_duplicates_in_a_group_warn() -> None:
    (a,) = parameters(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optim.SGD([a, a])
    assert "duplicate parameters" in str(caught[0].message)


def test_required_options() -> None:
    class Own(Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Own(parameters())
    assert repr(Own(parameters(), 0.5)) == "Own (\nParameter Group 0\n    lr: 0.5\n)"
    with pytest.raises(NotImplementedError):
        Own(parameters(), 0.5).step()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none: bool) -> None:
    params = with_gradients(parameters())
    gradient = params[0].grad
    optim.SGD(params).zero_grad(set_to_none=set_to_none)
    if set_to_none:
        assert all(p.grad is None for p in params)
    else:
        assert params[0].grad is gradient
        assert gradient.tolist() == [0, 0, 0]


def test_zero_grad_detaches_gradients_with_a_history() -> None:
    p = nn.Parameter(flambeau.ones(2))
    (p * p).sum().backward(create_graph=True)
    optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad.grad_fn is None and not p.grad.requires_grad


def test_closure() -> None:
    p = nn.Parameter(flambeau.tensor([2.0]))
    optimizer = optim.SGD([p], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with flambeau.no_grad():
        assert optimizer.step(closure).item() == 4.0
        assert not flambeau.is_grad_enabled()
    assert p.item() == 0.0
    assert flambeau.is_grad_enabled()


def test_step_restores_grad_mode_after_an_error() -> None:
    optimizer = optim.SGD(parameters())

    def closure():
        raise KeyError("x")

    with pytest.raises(KeyError):
        optimizer.step(closure)
    assert flambeau.is_grad_enabled()


def test_step_hooks() -> None:
    params = with_gradients(parameters())
    optimizer = optim.SGD(params, lr=1.0)
    calls = []
    handles = [
        register_optimizer_step_pre_hook(lambda o, a, k: calls.append("global pre")),
        optimizer.register_step_pre_hook(lambda o, a, k: calls.append("pre")),
        optimizer.register_step_post_hook(lambda o, a, k: calls.append("post")),
        register_optimizer_step_post_hook(lambda o, a, k: calls.append("global post")),
    ]
    try:
        optimizer.step()
        assert calls == ["global pre", "pre", "post", "global post"]
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    assert len(calls) == 4


def test_pre_hook_may_replace_arguments() -> None:
    params = with_gradients(parameters())
    optimizer = optim.SGD(params)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: "loss"}))
    assert optimizer.step() == "loss"
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_hooks_of_user_defined_optimizers() -> None:
    class Sign(Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1.0})

        @flambeau.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    params = with_gradients(parameters())
    optimizer = Sign(params)
    seen = []
    optimizer.register_step_post_hook(lambda o, a, k: seen.append(o))
    optimizer.step()
    assert seen == [optimizer]
    assert params[0].tolist() == [0, 0, 0]
    assert Sign.step.__name__ == "step"


def test_state_dict_hooks() -> None:
    params = with_gradients(parameters())
    optimizer = optim.Adam(params)
    order = []
    optimizer.register_state_dict_pre_hook(lambda o: order.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: order.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, d: {**d, "note": 1})
    saved = optimizer.state_dict()
    assert order == ["first", "second"] and saved["note"] == 1

    def check(o, d):
        assert d["note"] == 1
        return {k: v for k, v in d.items() if k != "note"}

    optimizer.register_load_state_dict_pre_hook(check)
    optimizer.register_load_state_dict_post_hook(lambda o: order.append("loaded"))
    optimizer.load_state_dict(saved)
    assert order[-1] == "loaded" and saved["note"] == 1


def test_state_dict_numbers_parameters_over_groups() -> None:
    a, b, c = with_gradients(parameters(3))
    optimizer = optim.Adam([{"params": [a]}, {"params": [b, c], "lr": 0.5}])
    optimizer.step()
    saved = optimizer.state_dict()
    assert [g["params"] for g in saved["param_groups"]] == [[0], [1, 2]]
    assert list(saved["state"]) == [0, 1, 2]
    assert list(saved["state"][0]) == ["step", "exp_avg", "exp_avg_sq"]
    assert saved["state"][0]["step"].shape == () and saved["state"][0]["step"].item() == 1.0


def test_plain_sgd_has_no_state() -> None:
    params = with_gradients(parameters())
    optimizer = optim.SGD(params)
    optimizer.step()
    assert optimizer.state_dict()["state"] == {}


def test_state_of_others_does_not_get_in_the_way() -> None:
    params = with_gradients(parameters(1))
    optimizer = optim.SGD(params, lr=1.0, momentum=0.5, dampening=0.5)
    optimizer.state[params[0]]["note"] = "mine"
    optimizer.step()
    optimizer.step()
    assert params[0].tolist() == [-1.0] * 3  # buffers 1, then 0.5 * 1 + 0.5 * 1
    assert set(optimizer.state[params[0]]) == {"note", "momentum_buffer"}
    saved = optimizer.state_dict()
    saved["state"][0] = {"momentum_buffer": None}
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert params[0].tolist() == [-2.0] * 3


def test_loading_into_other_groups_fails() -> None:
    a, b = parameters()
    saved = optim.SGD([a, b]).state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.SGD([{"params": [a]}, {"params": [b]}]).load_state_dict(saved)
    with pytest.raises(ValueError, match="doesn't match the size"):
        optim.SGD([a]).load_state_dict(saved)


def test_loading_converts_state_but_not_steps() -> None:
    single = with_gradients(parameters(1))
    source = optim.Adam(single)
    source.step()
    double = nn.Parameter(flambeau.ones(3, dtype=flambeau.float64))
    target = optim.Adam([double])
    target.load_state_dict(source.state_dict())
    assert target.state[double]["exp_avg"].dtype is flambeau.float64
    assert target.state[double]["step"].dtype is flambeau.float32
    double.grad = flambeau.ones_like(double)
    target.step()
    assert target.state[double]["step"].item() == 2.0


def test_loading_numbers_of_old_checkpoints() -> None:
    params = with_gradients(parameters(1))
    optimizer = optim.Adam(params)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["step"] = 7
    del saved["param_groups"][0]["maximize"]
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert optimizer.state[params[0]]["step"].item() == 8.0
    assert optimizer.param_groups[0]["maximize"] is False


def test_loading_keeps_names() -> None:
    a, b = parameters()
    optimizer = optim.SGD([("a", a), ("b", b)])
    saved = optim.SGD([a, b], lr=3.0).state_dict()
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"] and optimizer.param_groups[0]["lr"] == 3.0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on_like_the_original(duplicate) -> None:
    params = with_gradients(parameters())
    optimizer = optim.Adam(params, lr=0.1)
    optimizer.step()
    twin = duplicate(optimizer)
    others = twin.param_groups[0]["params"]
    assert others[0] is not params[0]
    with_gradients(others)
    optimizer.step()
    twin.step()
    assert flambeau.equal(others[1], params[1])
    assert twin.state[others[0]]["step"].item() == 2.0


def test_fused_excludes_other_forms() -> None:
    for cls in (optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad):
        with pytest.raises(RuntimeError, match="cannot be `True` together"):
            cls(parameters(), fused=True, foreach=True)
        with pytest.raises(RuntimeError, match="does not support `differentiable`"):
            cls(parameters(), fused=True, differentiable=True)
        optimizer = cls(with_gradients(parameters()), fused=True)
        optimizer.step()
        imaginary = nn.Parameter(flambeau.ones(2, dtype=flambeau.complex64))
        imaginary.grad = flambeau.ones_like(imaginary)
        with pytest.raises(RuntimeError, match="floating point Tensors"):
            cls([imaginary], fused=True).step()


def test_scaled_gradients_of_fused_optimizers() -> None:
    params = with_gradients(parameters(1))
    optimizer = optim.SGD(params, lr=1.0, fused=True)
    optimizer.grad_scale, optimizer.found_inf = flambeau.tensor(4.0), flambeau.tensor(0.0)
    optimizer.step()
    assert params[0].tolist() == [0.75] * 3
    optimizer.found_inf = flambeau.tensor(1.0)
    optimizer.step()
    assert params[0].tolist() == [0.75] * 3


def test_swapped_in_parameters_and_state() -> None:
    params = with_gradients(parameters())
    optimizer = optim.Adam(params, lr=0.1)
    optimizer.step()
    before = [p.tolist() for p in params]
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.5
    others = {f"p{i}": p for i, p in enumerate(with_gradients(parameters()))}
    with optim.swap_in_optimizer_params_and_state(optimizer, others, saved):
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] == 0.5
    assert [p.tolist() for p in params] == before
    assert saved["state"][0]["step"].item() == 2.0 and optimizer.state[params[0]]["step"].item() == 1.0
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert others["p0"].tolist() != [1.0] * 3
    swap = optim.swap_in_optimizer_params_and_state
    with (
        pytest.raises(RuntimeError, match="match optimizer.param_groups ordering"),
        swap(optimizer, {"p0": others["p0"]}, saved),
    ):
        pass
    with pytest.raises(RuntimeError, match="extra keys"), swap(optimizer, others, {**saved, "state": {9: {}}}):
        pass


def test_changed_parameters_are_noticed_by_a_later_backward() -> None:
    p = nn.Parameter(flambeau.ones(2))
    loss = (p * p).sum()
    p.grad = flambeau.ones(2)
    optim.SGD([p]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*sgd.*test_optimizer.py"):
        loss.backward()


@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD", "Rprop", "RMSprop", "Adadelta", "Adafactor"])
def test_interrupted_first_step_leaves_no_half_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (p,) = with_gradients(parameters(1))
    optimizer = getattr(optim, name)([p])
    module = optim.elementwise if hasattr(optimizer, "update") else sys.modules[type(optimizer).__module__]
    made = module.zeros_like

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "zeros_like", interrupted)
    if name == "Rprop":
        monkeypatch.setattr(optim.adagrad, "full_like", interrupted)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert not optimizer.state[p]
    monkeypatch.undo()
    assert module.zeros_like is made
    optimizer.step()
    assert optimizer.state[p]


def test_options_that_an_older_checkpoint_of_sgd_lacks_are_those_of_pytorch():
    optimizer = optim.SGD(parameters(), lr=0.1)
    saved = optimizer.state_dict()
    for name in ("nesterov", "maximize", "foreach", "differentiable", "fused"):
        del saved["param_groups"][0][name]
    optimizer.load_state_dict(saved)
    [group] = optimizer.param_groups
    assert (group["nesterov"], group["maximize"], group["foreach"], group["differentiable"]) == (
        False,
        False,
        None,
        False,
    )
    assert group["fused"] is False
