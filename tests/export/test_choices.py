"""`torch.cond`: run, recorded with both branches, differentiated, exported, written and read; sizes and gradients in `make_fx`."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.nn import functional as F


def choice(x: Any) -> Any:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Net(nn.Module):
    """Branches that read parameters, a buffer and a value from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: Any) -> Any:
        z = x * 5

        def yes(x: Any, y: Any) -> Any:
            return self.inner(x) + self.shift, y * 3

        def no(x: Any, y: Any) -> Any:
            return x - z, y * 2

        a, b = torch.cond(x.sum() > 0, yes, no, (x, x * 2))
        return (a + b).reshape(x.shape[0], 1, -1)


def both_signs(*shape: int) -> list[Any]:
    x = torch.rand(*shape)
    return [x, -x]


def test_one_of_two_functions_is_called_and_gradients_flow() -> None:
    for x in both_signs(2, 3):
        x.requires_grad_()
        result = choice(x)
        expected = x.sin() if x.sum() > 0 else x.cos()
        assert torch.equal(result, expected)
        assert torch.equal(*(torch.autograd.grad(r.sum(), x)[0] for r in (result, expected)))
    with pytest.warns(UserWarning, match="Pred is a Python constant"):
        assert torch.cond(True, lambda: torch.ones(1), lambda: torch.zeros(1)).item() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", torch.sin, torch.cos, (torch.ones(2),)), "Expected pred to be bool or tensor, but got a."),
        ((torch.ones(2) > 0, torch.sin, torch.cos, (torch.ones(2),)), "single-element tensor"),
        ((torch.tensor(True), 3, torch.cos, (torch.ones(2),)), "Expect both branches to be callable."),
        ((torch.tensor(True), torch.sin, torch.cos, torch.ones(2)), "Expect operands to be a tuple"),
    ],
)
def test_arguments_are_checked(arguments: tuple, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.cond(*arguments)


def test_proxies_cannot_decide() -> None:
    with pytest.raises(RuntimeError, match=r"Expected pred to be bool or tensor, but got Proxy\(gt\)"):
        fx.symbolic_trace(choice)


def test_graphs_hold_both_branches() -> None:
    module = make_fx(choice)(torch.ones(2, 3))
    assert "torch.ops.higher_order.cond(gt, true_graph_0, false_graph_0, (x_1,))" in module.code
    for other in (module, pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        for x in both_signs(2, 3):
            assert torch.equal(other(x), choice(x))


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_the_derivative_of_a_choice_is_a_choice(pre_dispatch: bool) -> None:
    outside = torch.ones(3, requires_grad=True)

    def gradient(x: Any, w: Any) -> Any:
        y = torch.cond(x.sum() > 0, lambda v: (v * w).sin(), lambda v: v.cos() * w * outside, (x,))
        return torch.autograd.grad((y * y).sum(), [x, w])

    module = make_fx(gradient, pre_dispatch=pre_dispatch)(*(torch.ones(3, requires_grad=True) for _ in range(2)))
    assert sum(n.target is torch.ops.higher_order.cond for n in module.graph.nodes) == 2
    for x in both_signs(3):
        w = torch.rand(3)
        expected = gradient(x.clone().requires_grad_(), w.clone().requires_grad_())
        for found, wanted in zip(module(x, w), expected):
            torch.testing.assert_close(found, wanted)


def test_branches_that_a_graph_cannot_hold() -> None:
    x, yes = torch.ones(2), torch.tensor(True)
    cases: list[tuple[Any, Any, str]] = [
        (lambda v: v.add_(1).sin(), torch.cos, "changes one of its operands"),
        (lambda v: v, torch.cos, "return a clone"),
        (lambda v: v[:1] + 1, torch.cos, "of the same shapes"),
        (lambda v: 3, torch.cos, "must return tensors"),
    ]
    for true_fn, false_fn, message in cases:
        with pytest.raises(RuntimeError, match=message):
            make_fx(lambda v, t=true_fn, f=false_fn: torch.cond(yes, t, f, (v,)))(x)


def test_exported_choices() -> None:
    net = Net()
    program = torch.export.export(net, (torch.ones(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    modules = [program.module(), program.run_decompositions().module(), torch.export.unflatten(program)]
    for x in both_signs(5, 3):
        for module in modules:
            torch.testing.assert_close(module(x), net(x))


def test_files_with_choices_cross(tmp_path: Any) -> None:
    real = pytest.importorskip("torch", reason="the other side of the file")
    net = Net()
    program = torch.export.export(net, (torch.ones(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    torch.export.save(program, str(tmp_path / "ours.pt2"))
    again = torch.export.load(str(tmp_path / "ours.pt2")).module()
    theirs = real.export.load(str(tmp_path / "ours.pt2"))
    real.export.save(theirs, str(tmp_path / "theirs.pt2"))
    back = torch.export.load(str(tmp_path / "theirs.pt2")).module()
    for x in both_signs(4, 3):
        expected = net(x)
        torch.testing.assert_close(again(x), expected)
        torch.testing.assert_close(back(x), expected)
        found = theirs.module()(real.tensor(x.tolist()))
        torch.testing.assert_close(torch.tensor(found.tolist()), expected.detach())


def test_sizes_are_computed_in_symbolic_graphs() -> None:
    def program(x: Any, y: Any) -> Any:
        return torch.cat([x, y]).view(x.shape[0] * 2, -1) * x.shape[1], x.new_zeros(x.shape)

    module = make_fx(program, tracing_mode="symbolic")(torch.ones(2, 3), torch.ones(2, 3))
    assert "torch.ops.aten.sym_size.int(x_1, 0)" in module.code
    x, y = torch.rand(5, 4), torch.rand(5, 4)
    for found, expected in zip(module(x, y), program(x, y)):
        assert torch.equal(found, expected)
    fake, plain = (make_fx(choice, tracing_mode=mode)(torch.ones(2)).code for mode in ("fake", "real"))
    assert fake == plain


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.sin() * x).sum(),
        lambda x: torch.relu(x @ x.T).mean(),
        lambda x: F.log_softmax(x, 1)[0].sum(),
        lambda x: (torch.tanh(x) / (1 + x * x)).pow(3).sum(),
        lambda x: torch.where(x > 0, x, 2 * x).clamp(-0.5, 0.5).sum(),
        lambda x: F.gelu(F.linear(x, torch.ones(4, 3))).std(),
    ],
)
def test_gradients_inside_a_program_are_part_of_its_graph(function: Any) -> None:
    def gradient(x: Any) -> Any:
        return torch.autograd.grad(function(x), x)[0]

    torch.manual_seed(0)
    module = make_fx(gradient)(torch.randn(2, 3).requires_grad_())
    x = torch.randn(2, 3)
    torch.testing.assert_close(module(x), gradient(x.clone().requires_grad_()))


def test_gradients_that_depend_on_values_are_an_error_and_no_constants() -> None:
    with pytest.raises(RuntimeError, match="data-dependent"):
        make_fx(lambda x: torch.autograd.grad(x.prod(1).sum(), x))(torch.ones(2, 3, requires_grad=True))


def test_nothing_is_warned_about_tensors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice(torch.ones(2))


def test_a_branch_that_returns_a_tensor_from_outside_is_refused() -> None:
    outside = torch.ones(2)
    with pytest.raises(RuntimeError, match="return a clone"):
        make_fx(lambda x: torch.cond(x.sum() > 0, lambda x: outside, lambda x: x + 1, (x,)))(torch.ones(2))


def test_calls_that_were_taken_back_leave_no_names() -> None:
    code = make_fx(lambda x: torch.cdist(x, x).expand(1, 4, 4))(torch.ones(4, 4)).code
    assert "expand = torch.ops.aten.expand.default(_cdist_forward, [1, 4, 4])" in code
