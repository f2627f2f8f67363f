"""Losses, gradients and state dicts of sharded training beside the real PyTorch's, in the same two processes over gloo."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from . import worlds

pytest.importorskip("torch", reason="compares with the real PyTorch")


def _library(name: str, rank: int, size: int, path: str) -> Any:
    lib = importlib.import_module(name)
    importlib.import_module(f"{name}.distributed")
    if not lib.distributed.is_initialized():
        lib.set_num_threads(1)
        lib.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    return lib


def _both(rank: int, size: int, run: Callable) -> tuple[Any, Any]:
    """The same function with each library; Flambeau's ranks tell each other where PyTorch's meet."""
    import flambeau

    box = [None]
    if rank == 0:
        import tempfile

        box = [tempfile.mktemp()]
    flambeau.distributed.broadcast_object_list(box, 0)
    return run(_library("torch", rank, size, box[0])), run(flambeau)


def _model(lib: Any) -> Any:
    nn = lib.nn
    model = nn.Sequential(
        nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6)),
        nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)),
        nn.Linear(6, 5),
    )
    lib.manual_seed(3)
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.randn(p.shape) * 0.4)
    return model


def _train(lib: Any, model: Any, rank: int, size: int, clip: Callable) -> list[float]:
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    found = []
    for step in range(4):
        lib.manual_seed(step)
        x = lib.randn(4, 6).chunk(size)[rank]
        loss = lib.nn.functional.mse_loss(model(x), lib.ones(4 // size, 5))
        loss.backward()
        found += [loss.item(), float(clip())]
        optimizer.step()
        optimizer.zero_grad()
    return found


def _close(ours: Any, theirs: Any, tolerance: float) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert abs(a - b) <= tolerance, (ours, theirs)


def _fully_sharded(rank: int, size: int, lower: bool) -> None:
    def run(lib: Any) -> Any:
        fsdp = importlib.import_module(f"{lib.__name__}.distributed.fsdp")
        meshes = importlib.import_module(f"{lib.__name__}.distributed.device_mesh")
        policy = (
            fsdp.MixedPrecisionPolicy(lib.bfloat16, lib.float32, lib.float32) if lower else fsdp.MixedPrecisionPolicy()
        )
        model, mesh = _model(lib), meshes.init_device_mesh("cpu", (size,))
        inner = fsdp.MixedPrecisionPolicy(lib.bfloat16, lib.float32) if lower else policy
        for part in list(model)[:2]:
            fsdp.fully_shard(part, mesh=mesh, mp_policy=inner)
        fsdp.fully_shard(model, mesh=mesh, mp_policy=policy)

        def clip() -> Any:
            return lib.nn.utils.clip_grad_norm_(model.parameters(), 0.3).full_tensor()

        losses = _train(lib, model, rank, size, clip)
        state = {
            name: (str(p.placements), tuple(p.shape), p.to_local().flatten().tolist(), str(p.dtype)[-7:])
            for name, p in model.state_dict().items()
        }
        return losses, state, type(model).__name__

    (their_losses, their_state, their_name), (losses, state, name) = _both(rank, size, run)
    _close(losses, their_losses, 2e-2 if lower else 1e-5)
    assert name == their_name and list(state) == list(their_state)
    for key, (placements, shape, values, dtype) in state.items():
        assert (placements, shape, dtype) == (their_state[key][0], their_state[key][1], their_state[key][3])
        _close(values, their_state[key][2], 5e-2 if lower else 2e-5)


def fully_shard(rank: int, size: int) -> None:
    _fully_sharded(rank, size, lower=False)


def fully_shard_in_lower_precision(rank: int, size: int) -> None:
    _fully_sharded(rank, size, lower=True)


def wrapped(rank: int, size: int) -> None:
    def run(lib: Any) -> Any:
        fsdp = importlib.import_module(f"{lib.__name__}.distributed.fsdp")
        found = []
        for original in (True, False):
            model = fsdp.FullyShardedDataParallel(_model(lib), use_orig_params=original, device_id=lib.device("cpu"))
            names = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
            losses = _train(lib, model, rank, size, lambda model=model: model.clip_grad_norm_(0.3))
            state = model.state_dict()
            found.append((names, losses, {k: v.flatten().tolist() for k, v in state.items()}))
        return found

    theirs, ours = _both(rank, size, run)
    for (their_names, their_losses, their_state), (names, losses, state) in zip(theirs, ours):
        assert names == their_names, (names, their_names)
        _close(losses, their_losses, 1e-5)
        assert list(state) == list(their_state)
        for key in state:
            _close(state[key], their_state[key], 2e-5)


CHECKS = [fully_shard, fully_shard_in_lower_precision, wrapped]


test_as_pytorch_does = worlds.test_of(CHECKS, 2)
