"""Helpers of PyTorch's private rooms that libraries call: answers taken from PyTorch 2.13."""

from __future__ import annotations

import importlib

import pytest

import flambeau
from flambeau.compat.private import _utils, entry_points
from flambeau.core.pytree import tree_flatten
from flambeau.distributed import distributed_c10d
from flambeau.func import mapping
from flambeau.horovod import torch as horovod
from flambeau.nn import functional as F
from flambeau.ops.nn.attention import attention_gradients


def test_tensors_are_grouped_by_type_and_size() -> None:
    tensors = [
        flambeau.ones(4),
        flambeau.ones(4).double(),
        flambeau.ones(3),
        flambeau.ones(9),
        flambeau.ones(1).double(),
    ]
    assert [[t.numel() for t in group] for group in _utils._take_tensors(tensors, 30)] == [[4, 3], [4], [9], [1]]


def test_values_are_spread_over_a_structure() -> None:
    _, spec = tree_flatten({"a": (1, 2), "b": 3})
    spread = mapping._broadcast_to_and_flatten
    assert spread({"a": 5, "b": 6}, spec) == [5, 5, 6]
    assert spread(0, spec) == [0, 0, 0]
    assert spread({"a": (1, 2, 3), "b": 6}, spec) is None


def test_horovods_operations_are_found_under_their_module() -> None:
    assert horovod.mpi_ops.Sum == horovod.Sum


def test_scaled_mm_takes_one_scale_or_one_for_each_row_and_column() -> None:
    generator = flambeau.Generator().manual_seed(0)
    a, b = (flambeau.randn(n, 16, generator=generator).to(flambeau.float8_e4m3fn) for n in (4, 8))
    kinds = F.ScalingType
    rows, columns = flambeau.arange(1.0, 5.0)[:, None], flambeau.arange(1.0, 9.0)[None]
    by_rows = F.scaled_mm(a, b.t(), rows, kinds.RowWise, columns, kinds.RowWise, output_dtype=flambeau.float32)
    assert flambeau.allclose(by_rows, (a.float() * rows) @ (b.float().t() * columns))
    two, half, row = flambeau.tensor(2.0), flambeau.tensor(0.5), flambeau.ones(8)
    whole = F.scaled_mm(a, b.t(), [two], [kinds.TensorWise], half, kinds.TensorWise, bias=row)
    assert whole.dtype is flambeau.bfloat16 and flambeau.allclose(
        whole.float(), a.float() @ b.float().t() + 1, rtol=1e-2
    )
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        F.scaled_mm(a, b.t(), two, kinds.BlockWise1x32, half, kinds.BlockWise1x32)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_attention_from_its_logarithms(causal: bool) -> None:
    q, k, v, g = (flambeau.randn(2, 3, 5, 4, dtype=flambeau.float64) for _ in range(4))
    inputs = [t.requires_grad_() for t in (q, k, v)]
    out, logs = flambeau.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    out.backward(g)
    found = attention_gradients(g, q, k, v, out, logs, None, causal, None)
    assert all(flambeau.allclose(own, t.grad) for own, t in zip(found, inputs))
    for name in ("flash", "cudnn"):
        given = (None, True) if name == "cudnn" else ()
        with pytest.raises(NotImplementedError, match="from the 'CPU' backend"):
            getattr(flambeau.ops.aten, f"_scaled_dot_product_{name}_attention")(q, k, v, *given)


def test_all_true_and_any_true() -> None:
    mixed = flambeau.tensor([True, False])
    assert not flambeau.ops.aten._is_all_true(mixed) and flambeau.ops.aten._is_any_true(mixed)


def test_a_running_profile_can_be_ended_from_outside() -> None:
    with flambeau.autograd.profiler.profile():
        pass
    flambeau.autograd.profiler.profile().__enter__()
    assert flambeau.autograd._profiler_enabled()
    flambeau.autograd._disable_profiler()
    assert not flambeau.autograd._profiler_enabled()


def test_questions_about_parts_that_are_absent_are_answered() -> None:
    assert not isinstance([], entry_points.ShufflerIterDataPipe)
    with pytest.raises(RuntimeError, match="IterableDataset"):
        entry_points.ShufflerIterDataPipe([])
    with pytest.raises(NotImplementedError, match="new_group"):
        distributed_c10d._new_process_group_helper(2, 0)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("transforms.transforms", "_setup_size"),
        ("transforms._functional_tensor", "rgb_to_grayscale hflip"),
        ("transforms.v2._utils", "query_size check_type _setup_size is_pure_tensor"),
        ("datasets.video_utils", "VideoClips unfold"),
        ("_internally_replaced_utils", "load_state_dict_from_url"),
        ("ops.boxes", "_box_inter_union"),
    ],
)
def test_torchvisions_private_helpers_are_found_under_their_modules(module: str, names: str) -> None:
    found = importlib.import_module(f"flambeau.vision.{module}")
    assert all(callable(getattr(found, name)) for name in names.split())
