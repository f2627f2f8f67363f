"""Sharded models train as one process does: each check runs in two processes, once for all tests of the file."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import distributed as dist
from flambeau import nn
from flambeau.distributed._composable import checkpoint, replicate
from flambeau.distributed._composable.replicate_with_fsdp import replicate as replicate_on_engine
from flambeau.distributed.algorithms._comm_hooks import default_hooks
from flambeau.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.fsdp import (
    CPUOffloadPolicy,
    FlatParameter,
    FSDPModule,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    load_shards,
    register_fsdp_forward_method,
)
from flambeau.distributed.fsdp import FullyShardedDataParallel as FSDP
from flambeau.distributed.fsdp.wrap import ModuleWrapPolicy
from flambeau.distributed.pieces import lay_out, stretches
from flambeau.distributed.tensor import DTensor, Replicate, Shard
from flambeau.serialization.sharded import save_sharded

from . import worlds


class Block(nn.Module):
    def __init__(self, width: int = 7) -> None:
        super().__init__()
        self.wide, self.narrow, self.norm = nn.Linear(width, 10), nn.Linear(10, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.relu(self.wide(self.norm(x))))


def _model(width: int = 7) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(width), Block(width), nn.Linear(width, 5))


def _sharded(size: int, model: nn.Module | None = None, **options) -> nn.Module:
    model = _model() if model is None else model
    mesh = options.pop("mesh", None) or init_device_mesh("cpu", (size,))
    for block in list(model)[:2]:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def _train(
    model, rank: int, size: int, steps: int = 3, clip: Callable | None = None, micro: bool = False
) -> list[float]:
    """Losses of this rank's part of the batch; `size=1` is one process with all of it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(4, 7, generator=generator).chunk(size)[rank]
        parts = x.chunk(2) if micro else [x]
        for number, part in enumerate(parts):
            if micro and isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(number == 1)
            loss = model(part).pow(2).mean() / len(parts)
            loss.backward()
            losses.append(loss.item())
        if clip is not None:
            clip(model)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def _expected(**options) -> nn.Module:
    model = _model()
    _train(model, 0, 1, **options)
    return model


def _close(state: dict, model: nn.Module, tolerance: float = 2e-6) -> None:
    wanted = model.state_dict()
    assert list(state) == list(wanted)
    for name, value in wanted.items():
        found = state[name]
        found = found.full_tensor() if isinstance(found, DTensor) else found
        assert (found - value).abs().max() < tolerance, (name, (found - value).abs().max())


def shards_train_as_one_process(rank: int, size: int) -> None:
    model = _sharded(size)
    parameter = model[0].wide.weight
    assert isinstance(parameter, DTensor) and parameter.placements == (Shard(0),)
    assert type(model).__name__ == "FSDPSequential" and isinstance(model[0], FSDPModule)

    def clip(model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    _train(model, rank, size, clip=clip)
    _close(model.state_dict(), _expected(clip=clip))
    assert model[0].wide.weight is parameter  # between the passes
    model.unshard()
    assert model[2].weight.shape == (5, 7) and not isinstance(model[2].weight, DTensor)
    model.reshard()


def kept_parameters_and_gathered_gradients(rank: int, size: int) -> None:
    for options in ({"reshard_after_forward": False}, {"offload_policy": CPUOffloadPolicy()}):
        model = _sharded(size, **options)
        model[0].set_modules_to_forward_prefetch([model[1]])
        model[1].set_modules_to_backward_prefetch([model[0]])
        _train(model, rank, size, micro=True)
        _close(model.state_dict(), _expected(micro=True))


def memory_is_given_back(rank: int, size: int) -> None:
    model = _sharded(size)
    x = torch.randn(2, 7)
    model(x).sum().backward()
    group = model[0]._get_fsdp_state()._fsdp_param_group
    whole = group.fsdp_params[0].unsharded_param
    assert whole.untyped_storage().nbytes() == 0
    y = model[0](x.requires_grad_())
    y._backward_hooks = None
    assert whole.untyped_storage().nbytes() == 0 and len(y) == 2


def hybrid_meshes(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("copies", "parts"))
    model = _sharded(size, mesh=mesh)
    assert model[0].wide.weight.placements == (Replicate(), Shard(0))
    _train(model, rank, size)
    _close(model.state_dict(), _expected())


def another_dimension(rank: int, size: int) -> None:
    model = _model(8)
    reference = copy.deepcopy(model)
    fully_shard(
        model, mesh=init_device_mesh("cpu", (size,)), shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 else None
    )
    assert model[0].wide.weight.placements == (Shard(1),)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    model(x.chunk(size)[rank]).pow(2).mean().backward()
    reference(x).pow(2).mean().backward()
    for found, wanted in zip(model.parameters(), reference.parameters()):
        assert torch.allclose(found.grad.full_tensor(), wanted.grad, atol=1e-6)


def lower_precision(rank: int, size: int) -> None:
    model = _sharded(size, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    seen = []
    model[0].wide.register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, module.weight.dtype)))
    out = model(torch.randn(2, 7))
    out.sum().backward()
    assert out.dtype is torch.bfloat16 and model[0].wide.weight.grad.dtype is torch.float32
    assert seen == [(torch.bfloat16, torch.bfloat16)] and model[0].wide.weight.dtype is torch.float32


def checkpoints_and_other_methods(rank: int, size: int) -> None:
    model = _model()
    for block in list(model)[:2]:
        checkpoint(block)
    model = _sharded(size, model)
    _train(model, rank, size)
    _close(model.state_dict(), _expected())
    Block.twice = lambda self, x: self.forward(self.forward(x))
    register_fsdp_forward_method(model[0], "twice")
    assert model[0].twice(torch.randn(2, 7)).shape == (2, 7)
    assert isinstance(model[0].wide.weight, DTensor)
    del Block.twice


def states_are_loaded(rank: int, size: int) -> None:
    model, source = _sharded(size), _sharded(size, _expected())
    model.load_state_dict(source.state_dict())
    _close(model.state_dict(), _expected())
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 7)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert isinstance(state["state"][0]["exp_avg"], DTensor)
    optimizer.load_state_dict(state)


def models_come_from_meta(rank: int, size: int) -> None:
    folder = Path(tempfile.gettempdir()) / f"fsdp-test-{os.getppid()}"
    if rank == 0:
        save_sharded(_model().state_dict(), folder, max_shard_size=300)
        save_sharded(_model().state_dict(), folder / "bin", max_shard_size=300, safe_serialization=False)
    dist.barrier()
    for place in (None, folder, folder / "bin"):
        with torch.device("meta"):
            model = _model()
        model = _sharded(size, model)
        if place is None:
            with pytest.raises(RuntimeError, match="should be materialized from meta device"):
                model(torch.ones(1, 7))
            continue
        model.to_empty(device="cpu")
        assert model[0].wide.weight.to_local().shape[0] == 10 // size
        assert load_shards(model, place) == ([], [])
        _close(model.state_dict(), _model())
        _train(model, rank, size)
        _close(model.state_dict(), _expected())


def wrapped_models_train_as_one_process(rank: int, size: int) -> None:
    for original in (False, True):
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
            model = FSDP(
                _model(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=original, sharding_strategy=strategy,
                device_id=torch.device("cpu"),
            )  # fmt: skip
            _train(model, rank, size, clip=lambda m: m.clip_grad_norm_(0.5))
            reference = _expected(clip=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.5))
            _close(model.state_dict(), reference)
            with FSDP.summon_full_params(model):
                assert [n for n, _ in model.named_parameters()] == [n for n, _ in reference.named_parameters()]
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = model.state_dict()
                assert state["0.wide.weight"].placements == (Shard(0),)
                model.load_state_dict(state)
            _close(model.state_dict(), reference)


def wrapped_optimizer_states(rank: int, size: int) -> None:
    reference = _model()
    optimizers = []
    for model in (FSDP(_model(), use_orig_params=True, device_id=torch.device("cpu")), reference):
        part = (rank, size) if isinstance(model, FSDP) else (0, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        x = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).chunk(part[1])[part[0]]
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizers.append((model, optimizer))
    (model, optimizer), (_, alone) = optimizers
    state = FSDP.optim_state_dict(model, optimizer)
    for number, (name, _) in enumerate(reference.named_parameters()):
        wanted = alone.state_dict()["state"][number]
        assert torch.allclose(state["state"][name]["exp_avg"], wanted["exp_avg"], atol=1e-7)
        assert state["state"][name]["step"] == 1
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))


def wrapped_optimizer_states_from_rank_0(rank: int, size: int) -> None:
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    for original in (True, False):
        model = FSDP(_model(), use_orig_params=original, device_id=torch.device("cpu"))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        model(torch.ones(1, 7)).sum().backward()
        optimizer.step()
        whole = FSDP.full_optim_state_dict(model, optimizer)
        assert bool(whole) is (rank == 0)
        wanted = {n: {k: v.clone() for k, v in one.items()} for n, one in optimizer.state_dict()["state"].items()}
        configs = FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=True)
        for through_checkpoint in (False, True):
            fresh = torch.optim.Adam(model.parameters(), lr=0.01)
            if through_checkpoint:
                set_optimizer_state_dict(model, fresh, whole, options=options)
            else:
                with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *configs):
                    fresh.load_state_dict(FSDP.optim_state_dict_to_load(model, fresh, whole))
            found = fresh.state_dict()["state"]
            assert all(torch.equal(found[n][k], v) for n, one in wanted.items() for k, v in one.items())
        with pytest.raises(ValueError, match='must have the keys "state"'):
            FSDP.optim_state_dict_to_load(model, optimizer, {})


def wrapped_parameters_may_be_replaced(rank: int, size: int) -> None:
    stepped = []
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
        model = FSDP(nn.Linear(4, 2), use_orig_params=True, sharding_strategy=strategy, device_id=torch.device("cpu"))
        weight = model.module.weight
        assert weight.ndim == (2 if strategy is ShardingStrategy.NO_SHARD else 1)
        weight.data = torch.ones_like(weight)
        model.module.weight = nn.Parameter(weight.detach() * 2)
        model.module.bias.data = torch.zeros_like(model.module.bias)
        assert (model(torch.ones(1, 4)) == 8).all()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: stepped.append((p.grad.shape, p.shape)))
        model(torch.ones(1, 4)).sum().backward()
        assert stepped and all(a == b for a, b in stepped)
        model.module.weight = nn.Parameter(torch.ones(1000))
        with pytest.raises(RuntimeError, match="Cannot writeback when the parameter shape changes"):
            model._group.unshard()


def wrapped_local_states_and_hooks(rank: int, size: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    hook, state = default_hooks.bf16_compress_hook, default_hooks.LowPrecisionState(group)
    for original in (False, True):
        model = FSDP(_model(), use_orig_params=original, device_id=torch.device("cpu"))
        whole = {name: value.clone() for name, value in model.state_dict().items()}
        assert isinstance(model._flat_param, FlatParameter) and not isinstance(
            nn.Parameter(torch.ones(1)), FlatParameter
        )
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            saved = {name: value.clone() for name, value in model.state_dict().items()}
            assert list(saved) == ["_flat_param"] and saved["_flat_param"].placements == (Shard(0),)
            with torch.no_grad():
                for p in model.parameters():
                    p.zero_()
            model.load_state_dict(saved)
        _close(whole, model)
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
        model = FSDP(_model(), sharding_strategy=strategy, device_id=torch.device("cpu"))
        model.register_comm_hook(state, hook)
        with pytest.raises(AssertionError, match="A communication hook is already registered"):
            model.register_comm_hook(state, hook)
        model(torch.ones(1, 7) * (rank + 1)).sum().backward()
        reference = _model()
        for one in range(size):
            (reference(torch.ones(1, 7) * (one + 1)).sum() / size).backward()
        with FSDP.summon_full_params(model, with_grads=True):
            for found, wanted in zip(model.parameters(), reference.parameters()):
                assert torch.allclose(found.grad, wanted.grad, rtol=2e-2, atol=1e-3)


class Partial(nn.Module):
    """Of its parts one is frozen and one is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.frozen, self.unused = nn.Linear(7, 3), nn.Linear(7, 3), nn.Linear(5, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) * self.frozen(x)


def wrapped_parts_without_gradients(rank: int, size: int) -> None:
    torch.manual_seed(0)
    reference = Partial()
    model = FSDP(copy.deepcopy(reference), use_orig_params=True, device_id=torch.device("cpu"))
    for _ in range(2):
        model(torch.ones(2, 7) * (rank + 1)).sum().backward()
    for rank_of in range(size):
        for _ in range(2):
            (reference(torch.ones(2, 7) * (rank_of + 1)).sum() / size).backward()
    assert all(p.grad is None for p in model.frozen.parameters())
    with FSDP.summon_full_params(model, with_grads=True):
        for name, wanted in reference.used.named_parameters():
            assert torch.allclose(getattr(model.used, name).grad, wanted.grad)
        assert not model.unused.weight.grad.any()


def wrapped_precision_and_no_sync(rank: int, size: int) -> None:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FSDP(_model(), mixed_precision=precision, use_orig_params=True, device_id=torch.device("cpu"))
    out = model(torch.randn(2, 7))
    out.sum().backward()
    assert out.dtype is torch.bfloat16 and next(model.parameters()).dtype is torch.float32
    kept = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16, keep_low_precision_grads=True)
    with pytest.warns(UserWarning, match="submodules of type"):
        model = FSDP(
            nn.Sequential(nn.Linear(7, 7), nn.BatchNorm1d(7)), auto_wrap_policy=lambda **_: False, mixed_precision=kept,
            device_id=torch.device("cpu"),
        )  # fmt: skip
    assert isinstance(model.module[1], FSDP) and model(torch.randn(4, 7)).dtype is torch.float16
    model(torch.randn(4, 7)).sum().backward()
    assert model._flat_param.grad.dtype is torch.float16 and model.module[1]._flat_param.grad.dtype is torch.float32
    model = FSDP(_model(), device_id=torch.device("cpu"))
    with model.no_sync():
        model(torch.ones(1, 7)).sum().backward()
    assert model._flat_param.grad is None
    model(torch.ones(1, 7)).sum().backward()
    reference = _model()
    for _ in range(2):
        reference(torch.ones(1, 7)).sum().backward()
    with FSDP.summon_full_params(model, with_grads=True):
        for found, wanted in zip(model.parameters(), reference.parameters()):
            assert torch.allclose(found.grad, wanted.grad, atol=1e-5)


def replicas(rank: int, size: int) -> None:
    for make in (replicate, lambda m: replicate_on_engine(m, mesh=init_device_mesh("cpu", (size,)))):
        model = make(_model())
        _train(model, rank, size)
        _close(model.state_dict(), _expected())


CHECKS = [
    shards_train_as_one_process, kept_parameters_and_gathered_gradients, memory_is_given_back, hybrid_meshes, another_dimension,
    lower_precision, checkpoints_and_other_methods, states_are_loaded, models_come_from_meta, wrapped_models_train_as_one_process,
    wrapped_optimizer_states, wrapped_optimizer_states_from_rank_0, wrapped_parts_without_gradients,
    wrapped_parameters_may_be_replaced, wrapped_local_states_and_hooks, wrapped_precision_and_no_sync, replicas,
]  # fmt: skip


def test_pieces_of_a_long_tensor_go_to_their_ranks() -> None:
    tensors = [torch.arange(1.0, 6.0), torch.arange(6.0, 8.0), torch.empty(0)]
    shares = stretches(tensors, [0, 6, 8], 4, 3)  # a gap behind the first, nothing for the last
    flat = torch.full((12,), float("nan"))
    lay_out(flat, shares)
    assert flat.tolist() == [1, 2, 3, 4, 5, 0, 6, 7, 0, 0, 0, 0]
    assert [sum(share.room for share in own) for own in shares] == [4, 4, 4]


test_in_two_processes = worlds.test_of(CHECKS, 2)
