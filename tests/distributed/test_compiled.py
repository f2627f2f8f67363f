"""Compiled steps with collectives: each rank decides by itself how it runs a call, and all exchange the same messages."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import flambeau
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks
from flambeau.distributed.fsdp import FullyShardedDataParallel, fully_shard
from flambeau.distributed.fsdp.wrap import ModuleWrapPolicy
from flambeau.distributed.tensor import DTensor, Shard, init_device_mesh
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from flambeau.nn.parallel import DistributedDataParallel
from tests.distributed import worlds

STEPS = 10


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def _data(rank: int, number: int, rows: int = 5) -> flambeau.Tensor:
    return flambeau.randn(rows, 4, generator=flambeau.Generator().manual_seed(10 * number + rank))


class Training:
    """A model in DistributedDataParallel, its optimizer, and a step."""

    def __init__(self, make: Callable[[], nn.Module] = _perceptron, **settings: Any):
        flambeau.manual_seed(0)
        self.model = DistributedDataParallel(make(), **settings)
        self.optimizer = flambeau.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, x: flambeau.Tensor) -> flambeau.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[flambeau.Tensor]:
        return [t.detach().clone() for t in self.model.state_dict().values()]


def _recordings(compiled: Any) -> list[Any]:
    return [r for r in compiled._compiled.recordings() if r.checked and r.calls]


def _compared(train: Callable[[bool], tuple[list, list]], exact: bool = True) -> None:
    """Train as it is and compiled; losses and states must be the same."""
    (losses, state), (other_losses, other_state) = train(False), train(True)
    for a, b in zip([*losses, *state], [*other_losses, *other_state]):
        if exact:
            assert flambeau.equal(a, b), (a, b)
        flambeau.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def _trained(rank: int, make: Any = _perceptron, rows: Callable[[int], int] = lambda i: 5, data: Any = _data, exact: bool = True,
             hook: Any = None, kind: Any = Training, **settings: Any) -> Any:  # fmt: skip
    kept = []

    def train(compiled: bool) -> tuple[list, list]:
        training = kind(make, **settings)
        if hook is not None:
            training.model.register_comm_hook(None, hook)
        step = flambeau.compile(training.step) if compiled else training.step
        kept.append(step)
        return [step(data(rank, i, rows(i))).detach() for i in range(STEPS)], training.state()

    _compared(train, exact)
    return kept[1]


def a_step_is_one_program(rank: int, size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = _trained(rank)
    (recorded,) = _recordings(step)
    assert recorded.program.sends and recorded.calls >= STEPS - 5
    assert "collective.all_reduce_" in flambeau.compiler.show(step)


def _convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 2))


def _pictures(rank: int, number: int, rows: int) -> flambeau.Tensor:
    return flambeau.randn(rows, 1, 6, 6, generator=flambeau.Generator().manual_seed(10 * number + rank))


def _normalised() -> nn.Module:
    layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers))


def statistics_of_all_ranks(rank: int, size: int) -> None:
    (recorded,) = _recordings(_trained(rank, _normalised, exact=False))
    assert sum(bool(s.call and s.call.sends) for s in recorded.program.segments) > 3


def forward_passes_without_backward_in_between(rank: int, size: int) -> None:
    """A forward pass lets DistributedDataParallel expect gradients, which never come: a step after it is another recording, once."""

    def train(compiled: bool) -> tuple[list, list]:
        training = Training()
        step = flambeau.compile(training.step) if compiled else training.step
        losses = []
        for i in range(16):
            losses.append(step(_data(rank, i)).detach())
            if i % 3 == 2:
                training.model(_data(rank, i))
        assert not compiled or [r.calls > 0 for r in _recordings(step)] == [True, True], flambeau.compiler.show(step)
        return losses, training.state()

    _compared(train)


def buffers_are_broadcast_by_the_program(rank: int, size: int) -> None:
    step = _trained(rank, _convolutional, data=_pictures, exact=False)
    (recorded,) = _recordings(step)
    names = [s.call.name for s in recorded.program.segments if s.call is not None and s.call.sends]
    assert names == ["collective.broadcast_"] * 2 + ["collective.all_reduce_.start", "collective.wait_"], names


def sizes_change_on_one_rank_only(rank: int, size: int) -> None:
    """One rank replays while the other runs a new size as it is, records it and compares it."""
    step = _trained(rank, rows=lambda i: 5 if rank == 0 or i < 6 else 3)
    assert sum(r.calls for r in _recordings(step)) >= (3 if rank == 0 else 1)


def one_rank_is_not_compiled(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = Training()
        step = flambeau.compile(training.step) if compiled and rank == 1 else training.step
        return [step(_data(rank, i)).detach() for i in range(STEPS)], training.state()

    _compared(train)


def several_buckets(rank: int, size: int) -> None:
    wide = lambda: nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))  # noqa: E731
    step = _trained(rank, wide, bucket_cap_mb=0.01)
    (recorded,) = _recordings(step)
    sent = ["native" if s.call is None else s.call.sends for s in recorded.program.segments]
    assert sent.count("start") == sent.count("end") > 1
    assert "native" in sent[sent.index("start") : sent.index("end")]  # the backward pass goes on meanwhile


def gradients_are_views_of_buckets(rank: int, size: int) -> None:
    assert _recordings(_trained(rank, gradient_as_bucket_view=True))


def a_static_graph(rank: int, size: int) -> None:
    assert _recordings(_trained(rank, static_graph=True))


def a_hook_that_rounds(rank: int, size: int) -> None:
    assert _recordings(_trained(rank, hook=default_hooks.fp16_compress_hook))


def unused_parameters_are_searched_for_eagerly(rank: int, size: int) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _trained(rank, find_unused_parameters=True)
    assert sum("is not compiled" in str(w.message) or "is split" in str(w.message) for w in told) == 1, told


def gradients_add_up_without_sync(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = Training()

        def accumulate(x: flambeau.Tensor) -> flambeau.Tensor:
            with training.model.no_sync():
                loss = training.model(x).pow(2).mean()
                loss.backward()
            return loss

        def finish(x: flambeau.Tensor) -> flambeau.Tensor:
            loss = training.model(x).pow(2).mean()
            loss.backward()
            training.optimizer.step()
            training.optimizer.zero_grad()
            return loss

        if compiled:
            accumulate, finish = flambeau.compile(accumulate), flambeau.compile(finish)
        losses = []
        for i in range(STEPS):
            losses += [accumulate(_data(rank, 2 * i)).detach(), finish(_data(rank, 2 * i + 1)).detach()]
        if compiled:
            assert _recordings(finish), flambeau.compiler.show(finish)
        return losses, training.state()

    _compared(train)


def one_step_accumulates_and_syncs(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = Training()

        def both(x: flambeau.Tensor, y: flambeau.Tensor) -> flambeau.Tensor:
            training.optimizer.zero_grad()
            with training.model.no_sync():
                training.model(x).pow(2).mean().backward()
            loss = training.model(y).pow(2).mean()
            loss.backward()
            training.optimizer.step()
            return loss

        step = flambeau.compile(both) if compiled else both
        losses = [step(_data(rank, 2 * i), _data(rank, 2 * i + 1)).detach() for i in range(STEPS)]
        if compiled:
            assert _recordings(step), flambeau.compiler.show(step)
        return losses, training.state()

    _compared(train)


def collectives_by_hand(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        flambeau.manual_seed(0)
        model = _perceptron()
        optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

        def step(x: flambeau.Tensor) -> flambeau.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
            for work, p in zip(works, model.parameters()):
                work.wait()
                p.grad /= dist.get_world_size()
            dist.barrier()
            optimizer.step()
            return loss

        run = flambeau.compile(step) if compiled else step
        losses = [run(_data(rank, i)).detach() for i in range(STEPS)]
        if compiled:
            assert _recordings(run), flambeau.compiler.show(run)
        return losses, [p.detach() for p in model.parameters()]

    _compared(train)


def ranks_have_another_order(rank: int, size: int) -> None:
    """What is started in one group while another one is waited for may be the other way around on another rank."""
    groups = [dist.new_group() for _ in range(2)]
    mine = groups if rank == 0 else groups[::-1]

    def both(x: flambeau.Tensor) -> flambeau.Tensor:
        a, b = x * 2, x * 3
        work = dist.all_reduce(a if rank == 0 else b, group=mine[0], async_op=True)
        dist.all_reduce(b if rank == 0 else a, group=mine[1])
        work.wait()
        return a + b

    run = flambeau.compile(both)
    for i in range(6):
        assert run(flambeau.full((3,), float(i + rank))).tolist() == [5.0 * (2 * i + 1)] * 3
    assert _recordings(run)


def messages_nobody_waits_for_are_not_recorded(rank: int, size: int) -> None:
    started = []

    def begin(x: flambeau.Tensor) -> flambeau.Tensor:
        y = x * 2
        started.append((dist.all_reduce(y, async_op=True), y))
        return x + 1

    run = flambeau.compile(begin)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            run(flambeau.full((3,), float(i + rank)))
    for i, (work, y) in enumerate(started):
        work.wait()
        assert y.tolist() == [2.0 * (2 * i + 1)] * 3


def an_error_while_messages_are_under_way(rank: int, size: int) -> None:
    """The next calls run as they are: what was started may still write to the recording's memory."""
    table = flambeau.arange(4.0)

    def look_up(x: flambeau.Tensor, index: flambeau.Tensor) -> flambeau.Tensor:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        found = table.index_select(0, index)
        work.wait()
        return y + found

    run = flambeau.compile(look_up)
    good, bad = flambeau.tensor([0, 1, 2]), flambeau.tensor([0, 1, 9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(9):
            if i == 6:
                with pytest.raises(IndexError):
                    run(flambeau.ones(3), bad)
            found = run(flambeau.full((3,), float(i + rank)), good)
            assert found.tolist() == [2.0 * (2 * i + 1) + k for k in range(3)]


def results_of_collectives_are_differentiated(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        weight = flambeau.ones(4, requires_grad=True)

        def step(x: flambeau.Tensor) -> flambeau.Tensor:
            weight.grad = None
            loss = dist.nn.functional.all_reduce((x * weight).sum(0)).pow(2).sum()
            loss.backward()
            with flambeau.no_grad():
                weight.sub_(weight.grad, alpha=1e-3)
            return loss

        run = flambeau.compile(step) if compiled else step
        losses = [run(_data(rank, i)).detach() for i in range(STEPS)]
        if compiled:
            assert _recordings(run), flambeau.compiler.show(run)
        return losses, [weight.detach()]

    _compared(train, exact=False)


def a_mistake_on_one_rank_ends_both(rank: int, size: int) -> None:
    """As in a call that is not compiled: one rank raises, the other one waits for it in vain, and says so."""
    for compiled in (False, True):
        group = dist.new_group(timeout=timedelta(seconds=2))
        training = Training(process_group=group)
        bad = [False]

        def step(x: flambeau.Tensor, training: Training = training, bad: list = bad) -> flambeau.Tensor:
            if bad[0]:
                raise KeyError("no such example")
            return training.step(x)

        run = flambeau.compile(step) if compiled else step
        for i in range(6):
            run(_data(rank, i))
        assert not compiled or _recordings(run)
        bad[0] = rank == 1
        with pytest.raises(KeyError if rank == 1 else dist.DistBackendError):
            run(_data(rank, 7))
        dist.barrier()


def the_world_is_asked_for_again(rank: int, size: int) -> None:
    """A recording does not survive the group whose rank it holds."""
    run = flambeau.compile(lambda x: x * (dist.get_rank() + 1))
    x = flambeau.ones(3)
    for _ in range(5):
        assert run(x).tolist() == [1.0 + rank] * 3
    group, dist.group.WORLD = dist.group.WORLD, dist.new_group([1, 0])
    try:
        assert run(x).tolist() == [1.0 + dist.get_rank()] * 3
    finally:
        dist.group.WORLD = group


def messages_between_two_ranks_are_not_recorded(rank: int, size: int) -> None:
    def exchange(x: flambeau.Tensor) -> flambeau.Tensor:
        y = flambeau.empty_like(x)
        work = dist.isend(x * 2, 1 - rank)
        dist.recv(y, 1 - rank)
        work.wait()
        return y + 1

    run = flambeau.compile(exchange)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            assert run(flambeau.full((3,), float(i + rank))).tolist() == [2.0 * (i + 1 - rank) + 1] * 3


def a_compiled_model_with_collectives(rank: int, size: int) -> None:
    """Forward and backward are programs of their own; a derivative that nobody asks for is not tried out, which would send messages."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        model = _normalised()
        called = flambeau.compile(model) if compiled else model
        for i in range(8):
            called(_data(rank, i))
        parallel = DistributedDataParallel(model)
        optimizer = flambeau.optim.SGD(parallel.parameters(), lr=0.1)
        for i in range(STEPS):
            optimizer.zero_grad()
            called(_data(rank, i)).pow(2).mean().backward()
            optimizer.step()
        outcomes.append([p.detach().clone() for p in parallel.parameters()])
        if compiled:
            (recorded,) = _recordings(called._compiled)
            assert recorded.program.sends and recorded.derivative.checked and recorded.derivative.program.sends
    flambeau.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-5, atol=1e-6)


def a_compiled_model_inside_and_outside(rank: int, size: int) -> None:
    outcomes = []
    for kind in ("eager", "inside", "outside"):
        flambeau.manual_seed(0)
        model = _perceptron()
        model = flambeau.compile(model) if kind == "inside" else model
        parallel = DistributedDataParallel(model)
        called = flambeau.compile(parallel) if kind == "outside" else parallel
        optimizer = flambeau.optim.SGD(parallel.parameters(), lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(STEPS):
                optimizer.zero_grad()
                called(_data(rank, i)).pow(2).mean().backward()
                optimizer.step()
        outcomes.append([p.detach().clone() for p in parallel.parameters()])
    for other in outcomes[1:]:
        flambeau.testing.assert_close(other, outcomes[0], rtol=1e-5, atol=1e-6)


class Sharded(Training):
    """The same for a model in FullyShardedDataParallel."""

    def __init__(self, make: Callable[[], nn.Module] = _perceptron, **settings: Any):
        flambeau.manual_seed(0)
        self.model = FullyShardedDataParallel(make(), **settings)
        self.optimizer = flambeau.optim.Adam(self.model.parameters(), lr=0.01)

    def state(self) -> list[flambeau.Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]


def _sent(recorded: Any) -> list[str]:
    return [s.call.name.removeprefix("collective.") for s in recorded.program.segments if s.call and s.call.sends]


def a_step_of_flat_parameters_is_one_program(rank: int, size: int) -> None:
    for original in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step = _trained(rank, kind=Sharded, use_orig_params=original)
        (recorded,) = _recordings(step)
        assert recorded.calls >= STEPS - 5
        assert _sent(recorded) == ["all_gather_parts_", "reduce_scatter_parts_.start", "wait_"], _sent(recorded)


def a_step_of_nested_units_is_one_program(rank: int, size: int) -> None:
    """Inner units are gathered for each pass, ahead of time in the backward one, and their memory is given back in between."""
    wide = lambda: nn.Sequential(nn.Linear(4, 7), nn.Sequential(nn.Linear(7, 7), nn.ReLU()), nn.Linear(7, 1))  # noqa: E731
    policy = ModuleWrapPolicy({nn.Linear})
    step = _trained(rank, wide, kind=Sharded, use_orig_params=True, auto_wrap_policy=policy)
    (recorded,) = _recordings(step)
    sent = _sent(recorded)
    gathers = sum(name.startswith("all_gather_parts_") for name in sent)
    assert gathers > sent.count("reduce_scatter_parts_.start") == 3, sent


def gradients_of_shards_are_clipped(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = Sharded(use_orig_params=True)

        def clipped(x: flambeau.Tensor) -> flambeau.Tensor:
            training.optimizer.zero_grad()
            loss = training.model(x).pow(2).mean()
            loss.backward()
            training.model.clip_grad_norm_(0.1)
            training.optimizer.step()
            return loss

        step = flambeau.compile(clipped) if compiled else clipped
        losses = [step(_data(rank, i)).detach() for i in range(STEPS)]
        if compiled:
            (recorded,) = _recordings(step)
            assert "all_reduce_" in _sent(recorded)
        return losses, training.state()

    _compared(train)


class SpreadParameters(Training):
    """The same for parameters that are cut over the ranks, each by itself (`fully_shard`)."""

    def __init__(self, make: Callable[[], nn.Module] = _perceptron, inner: bool = False, **settings: Any):
        flambeau.manual_seed(0)
        self.model: Any = make()
        for layer in self.model if inner else ():
            if list(layer.parameters()):
                fully_shard(layer, **settings)
        fully_shard(self.model, **settings)
        self.optimizer = flambeau.optim.Adam(self.model.parameters(), lr=0.01)

    def state(self) -> list[flambeau.Tensor]:
        return [t for p in self.model.parameters() for t in (p.full_tensor().detach(), p.grad.to_local())]


def a_step_of_spread_parameters_is_one_program(rank: int, size: int) -> None:
    for inner in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step = _trained(rank, kind=SpreadParameters, inner=inner)
        (recorded,) = _recordings(step)
        assert recorded.calls >= STEPS - 5
        assert _sent(recorded).count("reduce_scatter_parts_.start") == (2 if inner else 1), _sent(recorded)


def gradients_of_spread_parameters_are_spread(rank: int, size: int) -> None:
    """Each call makes new ones: whoever holds the part of an earlier one keeps it. A learning rate that changes is followed."""
    parts: list[list[list[float]]] = []
    for compiled in (False, True):
        training = SpreadParameters()
        step = flambeau.compile(training.step) if compiled else training.step
        kept = []
        for i in range(STEPS):
            training.optimizer.param_groups[0]["lr"] = 0.01 if i < 7 else 0.5
            step(_data(rank, i))
            grads = [p.grad for p in training.model.parameters()]
            assert all(type(g) is DTensor and g.placements == (Shard(0),) and not g.requires_grad for g in grads)
            kept.append([g.to_local() for g in grads])
        parts.append([[t.tolist() for t in one] for one in kept])
    assert parts[0] == parts[1] and len({str(one) for one in parts[0]}) == STEPS


def gradients_that_are_spread_add_up_as_they_do_eagerly(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = SpreadParameters()

        def accumulate(x: flambeau.Tensor) -> flambeau.Tensor:
            loss = training.model(x).pow(2).mean()
            loss.backward()
            return loss

        run = flambeau.compile(accumulate) if compiled else accumulate
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = [run(_data(rank, i)).detach() for i in range(STEPS)]
        return losses, training.state()

    _compared(train)


def _tensor_parallel() -> nn.Module:
    mesh = init_device_mesh("cpu", (2,))
    return parallelize_module(_perceptron(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


class TensorParallel(Training):
    """The same for layers of which each rank computes a part."""

    def __init__(self) -> None:
        flambeau.manual_seed(0)
        self.model: Any = _tensor_parallel()
        self.optimizer = flambeau.optim.Adam(self.model.parameters(), lr=0.01)

    def state(self) -> list[flambeau.Tensor]:
        return [p.full_tensor().detach() for p in self.model.parameters()]


def a_step_of_tensor_parallel_layers_is_one_program(rank: int, size: int) -> None:
    def train(compiled: bool) -> tuple[list, list]:
        training = TensorParallel()
        step = flambeau.compile(training.step, fullgraph=True) if compiled else training.step
        losses = [step(_data(0, i)).detach() for i in range(STEPS)]
        assert not compiled or _recordings(step)[0].calls >= STEPS - 5
        return losses, training.state()

    _compared(train)


def spread_arguments_and_results_run_as_they_are(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2,))
    part = flambeau.arange(6.0).view(2, 3) + rank
    weight = DTensor.from_local(part, mesh, [Shard(0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (lambda t: t * 2 + weight, lambda t: weight.t(), lambda t: (t * weight).to_local()):
            run = flambeau.compile(function)
            for i in range(6):
                given = DTensor.from_local(part * i, mesh, [Shard(0)])
                found, expected = run(given), function(given)
                assert type(found) is type(expected) and flambeau.equal(
                    *(getattr(t, "_local_tensor", t) for t in (found, expected))
                )


CHECKS = [
    a_step_is_one_program,
    buffers_are_broadcast_by_the_program,
    statistics_of_all_ranks,
    forward_passes_without_backward_in_between,
    sizes_change_on_one_rank_only,
    one_rank_is_not_compiled,
    several_buckets,
    gradients_are_views_of_buckets,
    a_static_graph,
    a_hook_that_rounds,
    unused_parameters_are_searched_for_eagerly,
    gradients_add_up_without_sync,
    one_step_accumulates_and_syncs,
    collectives_by_hand,
    ranks_have_another_order,
    messages_nobody_waits_for_are_not_recorded,
    an_error_while_messages_are_under_way,
    results_of_collectives_are_differentiated,
    the_world_is_asked_for_again,
    messages_between_two_ranks_are_not_recorded,
    a_compiled_model_with_collectives,
    a_compiled_model_inside_and_outside,
    a_step_of_flat_parameters_is_one_program,
    a_step_of_nested_units_is_one_program,
    gradients_of_shards_are_clipped,
    a_step_of_spread_parameters_is_one_program,
    gradients_of_spread_parameters_are_spread,
    gradients_that_are_spread_add_up_as_they_do_eagerly,
    a_step_of_tensor_parallel_layers_is_one_program,
    spread_arguments_and_results_run_as_they_are,
    a_mistake_on_one_rank_ends_both,
]


test_between_two_ranks = worlds.test_of(CHECKS, 2)


OVER_MPI = [a_step_is_one_program, several_buckets, sizes_change_on_one_rank_only, ranks_have_another_order]


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_over_mpi() -> None:
    told = worlds.run(OVER_MPI, 2, "mpi")
    assert not any(told.values()), told
