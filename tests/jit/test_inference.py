"""Compiled programs that are to run fast or in mixed precision: frozen layers, autocast, switches of fusers."""

from __future__ import annotations

import io
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn

from .oracle import quiet, real_torch


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 2, 1)
        self.register_buffer("gain", torch.tensor([2.0, -3.0]).reshape(2, 1, 1))
        self.last = nn.Linear(32, 5)
        self.last_norm = nn.BatchNorm1d(5, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.relu(self.norm(self.first(x)))) * self.gain / 2.0 + 0.5
        return self.last_norm(self.last(x.flatten(1)))


def trained() -> Layers:
    torch.manual_seed(0)
    net = Layers()
    for _ in range(3):  # so that means and variances are something
        net(torch.randn(8, 1, 6, 6) * 3 + 1)
    return net.eval()


def kinds(module: Any) -> set[str]:
    return {node.kind() for node in module.graph.nodes()}


def test_what_scales_channels_goes_into_the_layer_before() -> None:
    net = trained()
    script = torch.jit.script(net)
    x = torch.randn(2, 1, 6, 6)
    plain = torch.jit.freeze(script, optimize_numerics=False)
    assert {"aten::batch_norm", "aten::mul", "aten::div", "aten::add"} <= kinds(plain)
    for module in (torch.jit.freeze(script), torch.jit.optimize_for_inference(script)):
        assert not {"aten::batch_norm", "aten::mul", "aten::div", "aten::add"} & kinds(module)
        torch.testing.assert_close(module(x), net(x), rtol=1e-4, atol=1e-5)
    assert "first.weight_fused_bn" in str(torch.jit.freeze(script).graph)
    torch.jit.run_frozen_optimizations(plain)
    assert "aten::batch_norm" not in kinds(plain)
    torch.testing.assert_close(plain(x), net(x), rtol=1e-4, atol=1e-5)


def test_frozen_files_run_in_pytorch(tmp_path: Any) -> None:
    real = real_torch()
    net, path = trained(), str(tmp_path / "frozen.pt")
    torch.jit.freeze(torch.jit.script(net)).save(path)
    x = torch.randn(2, 1, 6, 6)
    found = quiet(real.jit.load, path)(real.tensor(x.tolist()))
    torch.testing.assert_close(torch.tensor(found.tolist()), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_value_that_others_read_is_not_changed() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x)
            return y * 2.0 + y

    net = Shared().eval()
    x = torch.randn(1, 1, 3, 3)
    frozen = torch.jit.freeze(torch.jit.script(net))
    assert "aten::mul" in kinds(frozen)
    torch.testing.assert_close(frozen(x), net(x))


# -- autocast ---------------------------------------------------------------------------------------------------------------


def mixed(x: torch.Tensor):  # type: ignore[no-untyped-def]
    with torch.autocast("cpu", torch.bfloat16):
        y, inside = x @ x, torch.is_autocast_cpu_enabled()
    return y, inside, torch.is_autocast_cpu_enabled()


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y


def test_autocast_holds_inside_compiled_code() -> None:
    script = torch.jit.script(mixed)
    y, inside, outside = script(torch.ones(2, 2))
    assert y.dtype is torch.bfloat16 and inside and not outside
    with torch.autocast("cpu"):
        assert script(torch.ones(2, 2))[2]


def test_autocast_survives_a_file() -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Mixed()), file)
    file.seek(0)
    assert torch.jit.load(file)(torch.ones(2, 2)).dtype is torch.bfloat16


def test_pytorch_reads_autocast(tmp_path: Any) -> None:
    real = real_torch()
    path = str(tmp_path / "mixed.pt")
    torch.jit.script(Mixed()).save(path)
    graph = str(quiet(real.jit.load, path).inlined_graph)
    assert all(f'SetAttr[name="{name}"]' in graph for name in ("_enabled", "device", "fast_dtype"))


def test_an_error_leaves_the_contexts() -> None:
    @torch.jit.script
    def fails(x: torch.Tensor, flag: bool):  # type: ignore[no-untyped-def]
        with torch.autocast("cpu"), torch.no_grad():
            if flag:
                raise ValueError("no")
            y = x @ x
        return y

    with pytest.raises(torch.jit.Error):
        fails(torch.ones(2, 2), True)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert fails(torch.ones(2, 2), False).dtype is torch.bfloat16


def test_switches_of_fusers_are_checked() -> None:
    before = torch.jit.set_fusion_strategy([("STATIC", 1)])
    assert torch.jit.set_fusion_strategy(before) == [("STATIC", 1)]
    with pytest.raises(ValueError, match="FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: X"):
        torch.jit.set_fusion_strategy([("X", 1)])
    with torch.jit.fuser("fuser1"), torch.jit.optimized_execution(False):
        assert not torch.jit.onednn_fusion_enabled()
    with pytest.raises(Exception, match="unrecognized fuser option"), torch.jit.fuser("fuser9"):
        pass
    with pytest.raises(NotImplementedError, match="not fused"):
        torch.jit.enable_onednn_fusion(True)


# -- traces -----------------------------------------------------------------------------------------------------------------


def test_sizes_in_slices_are_no_constants_of_a_trace() -> None:
    def parts(x: Any) -> Any:
        return x[: x.size(0) - 1, 1 : x.size(2), 1:3], x[0:5, ..., None, x.shape[2] - 5]

    traced = torch.jit.trace(parts, torch.randn(5, 6, 7))
    y = torch.randn(7, 8, 9)
    for found, expected in zip(traced(y), parts(y)):
        assert torch.equal(found, expected)


def test_traced_resizing_keeps_the_factor() -> None:
    def larger(x: Any) -> Any:
        return nn.functional.interpolate(x, scale_factor=3, mode="bilinear", align_corners=False)

    traced = torch.jit.trace(larger, torch.randn(1, 1, 4, 4))
    x = torch.randn(1, 1, 5, 2)
    torch.testing.assert_close(traced(x), larger(x))


def test_what_a_trace_cannot_show_is_an_error_and_no_constant() -> None:
    from flambeau.ops.index.subscript import elements_at

    with pytest.raises(NotImplementedError, match="has no counterpart among PyTorch's"):
        torch.jit.trace(lambda x: elements_at(x, torch.tensor([1])), torch.ones(2))


def test_a_formula_of_ones_own_is_traced_as_its_steps() -> None:
    from flambeau.ops import pointwise

    @pointwise
    def own(x: Any) -> Any:
        return x * x + 1

    traced = torch.jit.trace(lambda x: own(x), torch.ones(2))
    assert [n.kind() for n in traced.graph.nodes() if n.kind().startswith("aten")] == ["aten::mul", "aten::add"]
    assert traced(torch.tensor([2.0, 3.0])).tolist() == [5.0, 10.0]


def test_a_step_that_pytorch_has_no_operator_for_is_an_error_of_a_trace() -> None:
    from flambeau.ops import pointwise

    @pointwise
    def own(x: Any) -> Any:
        return bitcast(x, torch.int32) + 1  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(NotImplementedError, match="the step bitcast of a formula has no counterpart"):
        torch.jit.trace(lambda x: own(x), torch.ones(2))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[x > 0],
        lambda x: x[:, x[0] > 0],
        lambda x: x.unique(),
        lambda x: 3 / (x * x + 1),
        lambda x: x.clone().index_put_((x > 0,), x.abs().max()),
    ],
    ids=["mask", "mask of columns", "unique", "quotient", "written mask"],
)
def test_results_that_depend_on_values_are_no_constants_of_a_trace(program: Any) -> None:
    traced = torch.jit.trace(program, torch.tensor([[1.0, -2.0, 3.0], [-1.0, 2.0, -3.0]]), check_trace=False)
    x = torch.tensor([[-1.0, 5.0, 3.0], [-1.0, -2.0, -7.0], [0.0, 1.0, 2.0]])
    assert torch.equal(traced(x), program(x))


def test_values_written_through_a_mask_are_written_by_the_trace() -> None:
    def written(x: Any, y: Any) -> Any:
        x = x * 1
        x[x > 0] = y[x > 0]
        return x

    traced = torch.jit.trace(written, (torch.tensor([[1.0, -2.0], [3.0, -4.0]]), torch.zeros(2, 2)))
    x, y = torch.tensor([[-1.0, 5.0], [-3.0, 4.0]]), torch.full((2, 2), 7.0)
    assert traced(x, y).tolist() == [[-1.0, 7.0], [-3.0, 7.0]]


def test_subscripts_with_tensors_are_traced_by_what_they_are_made_of() -> None:
    def picked(x: Any, i: Any) -> Any:
        y = x[i] * 2
        y[0, 1:] = x[1, : x.shape[1] - 1]
        return y

    i = torch.tensor([1, 0])
    traced = torch.jit.trace(picked, (torch.randn(3, 4), i))
    x = torch.randn(5, 4)
    assert torch.equal(traced(x, i), picked(x, i))


# -- variables --------------------------------------------------------------------------------------------------------------


def doubled(xs: list[int], x: int):  # type: ignore[no-untyped-def]
    y = [x * 2 for x in xs]
    if x > 0:
        y = [x + 1 for x in y]
    return y, {x: -x for x in xs}, x


def test_comprehensions_have_variables_of_their_own() -> None:
    assert torch.jit.script(doubled)([1, 2], 5) == doubled([1, 2], 5) == ([3, 5], {1: -1, 2: -2}, 5)


def test_old_style_modules_save_define_and_show_their_graphs(tmp_path: Any) -> None:
    class Old(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.define("def twice(self, x): return self.weight * x * 2")

        @torch.jit.script_method
        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.twice(x) + 1

    module = Old()
    assert "aten::add" in str(module.forward.graph) and torch.equal(module(torch.ones(2)), torch.full((2,), 3.0))
    module.save(str(tmp_path / "old.pt"))
    assert torch.equal(torch.jit.load(str(tmp_path / "old.pt"))(torch.ones(2)), module(torch.ones(2)))


def test_tensors_of_one_element_become_numbers_and_lists_of_tensors_are_compared() -> None:
    @torch.jit.script
    def added(a: int, b: float):  # type: ignore[no-untyped-def]
        return a + b

    @torch.jit.script
    def found(items: list[torch.Tensor], item: torch.Tensor):  # type: ignore[no-untyped-def]
        return items.count(item), items.index(item), items == items

    assert added(torch.tensor(2), torch.tensor(0.5)) == 2.5
    assert found([torch.tensor(3), torch.tensor(1), torch.tensor(1)], torch.tensor(1)) == (2, 1, True)


def test_modules_with_other_hooks_are_of_other_types() -> None:
    class Hooked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def plus_one(self, input: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return out + 1

    def plus_two(self, input: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return out + 2

    for hook, expected in ((plus_one, 1.0), (plus_two, 2.0), (plus_one, 1.0)):
        module = Hooked()
        module.register_forward_hook(hook)
        assert torch.jit.script(module)(torch.zeros(1)).item() == expected
