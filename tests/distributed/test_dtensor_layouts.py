"""How spread tensors lie: views, redistribution in as few steps as can be, orders of cutting. What needs no communication runs in one
process of a world that is not there (the backend fake); the rest on four ranks."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections.abc import Iterator

import pytest
from answers import told

import flambeau as torch
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from flambeau.distributed.tensor._ops import _view_ops as views
from flambeau.distributed.tensor._redistribute import disable_redistribute_transform_optimization
from flambeau.distributed.tensor._utils import compute_global_tensor_shape
from flambeau.distributed.tensor.debug import CommDebugMode, _get_fast_path_sharding_prop_cache_stats
from flambeau.distributed.tensor.experimental import _attention as contexts
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from flambeau.distributed.tensor.parallel.input_reshard import input_reshard
from flambeau.distributed.tensor.placement_types import _MaskPartial, _StridedShard
from flambeau.testing._internal.distributed.fake_pg import FakeStore

from . import worlds

# -- one process ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def _case(rng: random.Random) -> tuple:
    """A view, a mesh, and how the argument lies on it."""

    def factors(n: int) -> list[int]:
        found = []
        while n > 1:
            found.append(rng.choice([d for d in range(2, n + 1) if n % d == 0]))
            n //= found[-1]
        return found + [1] * rng.choice([0, 0, 1])

    n = rng.choice([12, 24, 36, 48, 30])
    source, target, mesh = factors(n), factors(n), rng.choice([(6,), (3, 2), (2, 3), (2, 2, 2)])
    dims = range(len(source))
    made = [
        rng.choice(
            [("R",), ("S", rng.choice(dims)), ("S", rng.choice(dims)), ("_S", rng.choice(dims), rng.choice([2, 3, 4]))]
        )
        for _ in mesh
    ]
    return source, target, mesh, made, rng.random() < 0.7


def _answer(library, strided, maps, case: tuple) -> str:
    source, target, mesh, made, strict = case
    kinds = {"R": library.Replicate, "S": library.Shard, "_S": lambda d, f: strided(d, split_factor=f)}
    placements = [kinds[kind](*about) for kind, *about in made]
    try:
        rule = maps.view_groups(source, target)
        return repr(
            (rule, *map(list, maps.propagate_shape_and_sharding(placements, tuple(source), rule, mesh, strict)))
        )
    except RuntimeError as problem:
        return str(problem)
    except (AssertionError, KeyError) as problem:  # what PyTorch's own placements never meet
        return type(problem).__name__


def test_views_lie_as_in_pytorch() -> None:
    rng = random.Random(5)
    cases = [_case(rng) for _ in range(400)]

    def theirs() -> list[str]:
        library = importlib.import_module("torch.distributed.tensor")
        maps = importlib.import_module("torch.distributed.tensor._ops._view_ops")
        strided = importlib.import_module("torch.distributed.tensor.placement_types")._StridedShard
        return [_digest(_answer(library, strided, maps, case)) for case in cases]

    ours = torch.distributed.tensor
    for case, wanted in zip(cases, told("views", theirs)):
        found = _answer(ours, _StridedShard, views, case)
        assert _digest(found) == wanted, (case, found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def test_dim_maps_say_where_dimensions_come_from() -> None:
    In, Split = views.InputDim, views.Split
    joined = views.Flatten((In(0), In(1)))
    assert views.view_groups([3, 4, 5], [12, 5]) == (joined, In(2))
    assert views.view_groups([2, 3], [3, 2]) == (Split(joined, (3, 2), 0), Split(joined, (3, 2), 1))
    assert views.dim_maps[torch.squeeze](torch.ones(1, 3, 1)) == (In(1),)
    assert views.dim_maps[torch.Tensor.repeat](torch.ones(2, 3), 1, 2, 2) == (
        views.Singleton(), views.Repeat(In(0), 2), views.Repeat(In(1), 2),
    )  # fmt: skip
    with pytest.raises(TypeError, match="Did you mean to use .input_dim"):
        assert In(0) == 0


def test_a_view_that_would_have_to_move_is_an_error(world: None) -> None:
    mesh = init_device_mesh("cpu", (4,))
    uneven = distribute_tensor(torch.zeros(6, 4), mesh, [Shard(0)])
    with pytest.raises(
        RuntimeError, match="Cannot flatten unevenly sharded tensor(.|\n)*Sharding propagation failed for aten.view"
    ):
        uneven.view(-1)
    with pytest.raises(RuntimeError, match="requires redistribution"):
        distribute_tensor(torch.zeros(1, 4), mesh, [Shard(0)]).squeeze(0)
    with pytest.raises(RuntimeError, match="Attempted to unbind along the sharded dimension 0"):
        uneven.unbind(0)
    with pytest.raises(RuntimeError, match="in-place operations that require placement changes"):
        DTensor.from_local(torch.tensor(2.0), mesh, [Partial()]).clamp_(max=1)
    with pytest.raises(ValueError, match="Mixed Partial reduce types"):
        DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (2, 2)), [Partial(), Partial("max")])


def test_orders_of_cutting(world: None) -> None:
    mesh = init_device_mesh("cpu", (2, 2))
    spec = DTensorSpec(mesh, (Shard(0), Shard(0)), None, (ShardOrderEntry(0, (1, 0)),))
    assert spec.cuts == (_StridedShard(0, split_factor=2), Shard(0))
    assert DTensorSpec._maybe_convert_StridedShard_to_shard_order(spec.cuts, mesh) == spec.shard_order
    assert DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order) == "S(0)[1]S(0)[0]"
    assert not DTensorSpec.is_default_device_order(spec.shard_order)
    with pytest.raises(AssertionError, match="doesn't have a matching shard"):
        spec.shard_order = (ShardOrderEntry(1, (0, 1)),)


def test_collectives_along_joined_dimensions_are_one(world: None) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    mesh["a", "b"]._flatten("ab")
    spread = DTensor.from_local(torch.ones(8, 4), mesh, [Partial(), Partial("avg")])
    ways = {"all_reduce": [Replicate()] * 2, "reduce_scatter_tensor": [Shard(0)] * 2}
    for name, placements in ways.items():
        with CommDebugMode() as comm:
            spread.redistribute(placements=placements)
        assert {str(op).rpartition(".")[2]: n for op, n in comm.get_comm_counts().items()} == {name: 1}
        with disable_redistribute_transform_optimization(), CommDebugMode() as comm:
            spread.redistribute(placements=placements)
        assert comm.get_total_counts() == 2


def test_tables_of_what_modules_did(world: None, tmp_path) -> None:
    mesh = init_device_mesh("cpu", (4,))
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with CommDebugMode() as comm:
        model(torch.ones(4, 8, requires_grad=True)).sum().backward()
    reduced = torch.ops.c10d_functional.all_reduce
    assert comm.comm_module_counts["Sequential.2"]["forward"][reduced] == 1
    assert comm.comm_module_counts["Sequential"]["backward"][reduced] == 1
    assert comm.get_sharding_info()["Sequential.0.weight"] == (Shard(0),)
    comm.generate_json_dump(tmp_path / "modules.json")
    tree = json.loads((tmp_path / "modules.json").read_text())
    assert [child["fqn"] for child in tree["children"][0]["children"]] == [f"Sequential.{i}" for i in range(3)]
    comm.log_comm_debug_tracing_table_to_file(tmp_path / "modules.txt", noise_level=1)
    text = (tmp_path / "modules.txt").read_text()
    assert "*c10d_functional.all_reduce: 1" in text and "*weight: (Shard(dim=0),)" in text and "\033" not in text


def test_decisions_are_counted(world: None) -> None:
    torch.distributed.tensor.debug._clear_sharding_prop_cache()
    spread = distribute_tensor(torch.zeros(8), init_device_mesh("cpu", (4,)), [Shard(0)])
    for _ in range(3):
        spread + 1
    assert _get_fast_path_sharding_prop_cache_stats() == (2, 1)


def test_balanced_orders_of_a_sequence() -> None:
    order = contexts._HeadTailLoadBalancer(8, 2, "cpu")
    assert order._generate_indices().tolist() == [[0, 1, 6, 7, 2, 3, 4, 5]]
    assert order._generate_indices()[0][order._generate_indices(restore=True)[0].long()].tolist() == list(range(8))
    documents = contexts._PerDocumentHeadTailLoadBalancer([[4, 8]], 2, "cpu")._generate_indices()
    assert documents.tolist() == [[0, 3, 1, 2, 4, 5, 10, 11, 6, 7, 8, 9]]
    times = torch.tensor([9, 14, 2, 20, 10, 15, 8, 14, 16, 19, 15, 3, 12, 1, 12, 10])
    groups = contexts._PTRRLoadBalancer.ptrr_scheduling(times, 4)
    assert groups.tolist() == [[3, 12, 13, 14], [2, 4, 7, 9], [1, 8, 11, 15], [0, 5, 6, 10]]


# -- four ranks ---------------------------------------------------------------------------------------------------------------------


def _same(spread: DTensor, whole: torch.Tensor) -> None:
    found = spread.full_tensor()
    assert found.shape == whole.shape and torch.allclose(found, whole, atol=1e-5), (spread.placements, found, whole)


def pieces_of_joined_dimensions(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.randn(3, 2 * size, 5)
    dist.broadcast(whole, 0)
    whole.requires_grad = True
    spread = distribute_tensor(whole.detach(), mesh, [Shard(1)]).requires_grad_()
    with CommDebugMode() as comm:
        flat = spread.flatten(0, 1)
        turned = (flat * 2).t().relu()
    assert comm.get_total_counts() == 0 and flat.placements == (_StridedShard(0, split_factor=3),)
    assert turned.placements == (_StridedShard(1, split_factor=3),)
    _same(turned, (whole.flatten(0, 1) * 2).t().relu())
    back = flat.view(3, 2 * size, 5)
    assert back.placements == (Shard(1),)
    (flat * flat).sum().backward()
    (whole * whole).sum().backward()
    _same(spread.grad, whole.grad)
    narrow = distribute_tensor(torch.arange(float(size)).view(1, size), mesh, [Shard(1)])
    assert narrow.squeeze_(0).placements == (Shard(0),) and narrow.shape == (size,)


def redistribution_between_all(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    mesh["a", "b"]._flatten("ab")
    whole = torch.arange(8 * 6.0).reshape(8, 6)
    places = [Replicate(), Shard(0), Shard(1), _StridedShard(0, split_factor=2)]
    for before in [(p, q) for p in places for q in places[:3]]:
        spread = distribute_tensor(whole, mesh, before)
        for after in [(p, q) for p in places for q in places[:3]]:
            _same(spread.redistribute(placements=after), whole)
    mixed = DTensor.from_local(torch.full((4,), float(rank)), mesh, [Partial("sum"), Partial("avg")])
    _same(mixed, torch.full((4,), 3.0))
    assert compute_global_tensor_shape(torch.Size([rank, 2]), init_device_mesh("cpu", (size,)), [Shard(0)]) == (6, 2)


def rules_for_more_operators(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    whole, index = torch.randn(8, size), torch.randint(8, (1, size))
    table = distribute_tensor(whole, mesh, [Shard(0)])
    found = table.gather(0, distribute_tensor(index, mesh, [Replicate()]))
    assert isinstance(found.placements[0], _MaskPartial)
    _same(found, whole.gather(0, index))
    _same(nn.functional.pad(table, (1, 2)), nn.functional.pad(whole, (1, 2)))
    _same(table.select_scatter(table.select(1, 0), 1, 2), whole.select_scatter(whole.select(1, 0), 1, 2))
    highest = -DTensor.from_local(torch.full((2,), float(rank)), mesh, [Partial("max")])
    assert highest.placements == (Partial("min"),)
    _same(highest, torch.full((2,), -3.0))
    target = torch.tensor([0, 1, -100, 2, 3, 1, 0, -100])
    scores = whole.clone().requires_grad_()
    spread = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    for placements in ([Replicate()], [Shard(0)]):
        spread.grad = scores.grad = None
        loss = nn.functional.cross_entropy(spread, distribute_tensor(target, mesh, placements))
        assert loss.placements == (Partial(),)
        expected = nn.functional.cross_entropy(scores, target)
        _same(loss, expected)
        loss.backward()
        expected.backward()
        _same(spread.grad, scores.grad)


def attention_of_parts(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 2, 4 * size, 8) for _ in range(3))
    expected = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    class Attention(nn.Module):
        def forward(self, *qkv: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)

    style = contexts._ContextParallel(seq_dim=2, attention_type=contexts._ContextParallel.AttentionType.SDPA)
    module = parallelize_module(Attention(), mesh, style)
    for method, balancer in (("allgather", None), ("alltoall", contexts._HeadTailLoadBalancer(4 * size, size, "cpu"))):
        contexts.set_rotate_method(method)
        parts = contexts._context_parallel_shard(mesh, [query, key, value], [2] * 3, load_balancer=balancer)
        contexts._enable_context_parallel_dispatcher()
        try:
            found = module(*parts)
        finally:
            contexts._disable_context_parallel_dispatcher()
        whole = contexts.context_parallel_unshard(mesh, [found], [2], balancer)[0]
        assert torch.allclose(whole, expected, atol=1e-5)
    contexts._cp_options.enable_load_balance = True
    contexts.set_rotate_method("allgather")


def inputs_kept_in_parts(rank: int, size: int) -> None:
    torch.manual_seed(0)
    batch, plain = torch.randn(size, 4), nn.Linear(4, 4)
    kept = nn.Linear(4, 4)
    kept.load_state_dict(plain.state_dict())
    input_reshard(kept, init_device_mesh("cpu", (size,)), 0)
    for module in (plain, kept):
        (module(batch) ** 2).sum().backward()
    assert torch.allclose(kept.weight.grad, plain.weight.grad)


CHECKS = [
    pieces_of_joined_dimensions, redistribution_between_all, rules_for_more_operators, attention_of_parts, inputs_kept_in_parts,
]  # fmt: skip


test_on_four_ranks = worlds.test_of(CHECKS, 4)
