"""Every schedule beside PyTorch's: the same rates, exactly; the same saved state, warnings and errors."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings

import pytest
from answers import judge

import flambeau
from flambeau import optim

torch = judge("torch")

LIBRARIES = {"theirs": torch, "ours": flambeau}


def half(epoch: int) -> float:
    return 0.5**epoch


def slower(epoch: int) -> float:
    return 1 / (1 + 0.1 * epoch)


class Scale:
    """A callable object, whose attributes are saved."""

    def __init__(self, rate: float):
        self.rate = rate

    def __call__(self, epoch: float) -> float:
        return self.rate**epoch


SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, [half, slower]),
    "lambda of an object": lambda s, o: s.LambdaLR(o, Scale(0.9)),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, slower),
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.3),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], gamma=0.7),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.3, total_iters=4),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.2, end_factor=0.8, total_iters=7),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=9, power=1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=6, eta_min=0.001),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.01),
    "equal restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=4),
    "triangular": lambda s, o: s.CyclicLR(o, 0.01, [0.1, 0.3], step_size_up=3, step_size_down=5),
    "triangular2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=4, mode="triangular2", base_momentum=0.7),
    "exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=4, mode="exp_range", gamma=0.97),
    "own scale": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=Scale(0.9), scale_mode="iterations"),
    "one cycle": lambda s, o: s.OneCycleLR(o, max_lr=[0.5, 1.0], total_steps=25),
    "one cycle, linear": lambda s, o: s.OneCycleLR(o, 0.5, epochs=5, steps_per_epoch=5, anneal_strategy="linear"),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=25, three_phase=True, pct_start=0.4),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, total_iters=2), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], milestones=[3, 8]
    ),
    "sequential of chained": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 10)], milestones=[4]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, total_iters=3), s.ExponentialLR(o, 0.9)]),
    "swa": lambda s, o: sibling(s, "SWALR")(o, swa_lr=[0.05, 0.02], anneal_epochs=5),
    "swa, linear": lambda s, o: sibling(s, "SWALR")(o, swa_lr=0.05, anneal_epochs=3, anneal_strategy="linear"),
    "swa at once": lambda s, o: sibling(s, "SWALR")(o, swa_lr=0.05, anneal_epochs=0),
}  # fmt: skip


def sibling(schedulers, name: str):
    return getattr({torch.optim.lr_scheduler: torch, optim.lr_scheduler: flambeau}[schedulers].optim.swa_utils, name)


def make_optimizer(lib, kind: str = "SGD", **options):
    params = [lib.zeros(2, requires_grad=True) for _ in range(2)]
    if kind == "SGD":
        options.setdefault("momentum", 0.9)
    return getattr(lib.optim, kind)([{"params": params[:1]}, {"params": params[1:], "lr": 0.4}], lr=0.2, **options)


def rates(optimizer) -> list:
    return [
        (float(g["lr"]), g.get("momentum"), tuple(map(float, g["betas"])) if "betas" in g else None)
        for g in optimizer.param_groups
    ]


def sequence(lib, make, steps: int, kind: str = "SGD") -> list:
    optimizer = make_optimizer(lib, kind)
    scheduler = make(lib.optim.lr_scheduler, optimizer)
    result = [(rates(optimizer), scheduler.get_last_lr())]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        result.append((rates(optimizer), scheduler.get_last_lr()))
    return result


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name: str, kind: str) -> None:
    assert sequence(flambeau, SCHEDULES[name], 24, kind) == sequence(torch, SCHEDULES[name], 24, kind)


@pytest.mark.parametrize("name", SCHEDULES)
def test_saved_state(name: str) -> None:
    saved = {}
    for key, lib in LIBRARIES.items():
        optimizer = make_optimizer(lib)
        scheduler = SCHEDULES[name](lib.optim.lr_scheduler, optimizer)
        for _ in range(5):
            optimizer.step()
            scheduler.step()
        saved[key] = scheduler.state_dict()
    assert pickle.loads(pickle.dumps(saved["ours"])) == saved["ours"]
    assert saved["ours"] == saved["theirs"]
    # PyTorch's state goes on in our schedule.
    expected = sequence(flambeau, SCHEDULES[name], 8)[6:]
    optimizer = make_optimizer(flambeau)
    scheduler = SCHEDULES[name](optim.lr_scheduler, optimizer)
    source = make_optimizer(flambeau)
    first = SCHEDULES[name](optim.lr_scheduler, source)
    for _ in range(5):
        source.step()
        first.step()
    optimizer.load_state_dict(source.state_dict())
    scheduler.load_state_dict(copy.deepcopy(saved["theirs"]))
    found = []
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        found.append((rates(optimizer), scheduler.get_last_lr()))
    assert found == expected


CLOSED = ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "lambda", "restarts"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLOSED)
def test_going_to_a_given_epoch(name: str) -> None:
    found = {}
    for key, lib in LIBRARIES.items():
        optimizer = make_optimizer(lib)
        scheduler = SCHEDULES[name](lib.optim.lr_scheduler, optimizer)
        found[key] = []
        for epoch in (3, 0, 7, 4, 20):
            optimizer.step()
            scheduler.step(epoch)
            found[key].append(rates(optimizer))
    assert found["ours"] == found["theirs"]


RESUMABLE = {
    "step": lambda s, o, last: s.StepLR(o, 3, last_epoch=last),
    "exponential": lambda s, o, last: s.ExponentialLR(o, 0.9, last_epoch=last),
    "cosine": lambda s, o, last: s.CosineAnnealingLR(o, 10, last_epoch=last),
    "linear": lambda s, o, last: s.LinearLR(o, total_iters=9, last_epoch=last),
    "polynomial": lambda s, o, last: s.PolynomialLR(o, 9, last_epoch=last),
    "one cycle": lambda s, o, last: s.OneCycleLR(o, 0.5, total_steps=20, last_epoch=last),
    "cyclic": lambda s, o, last: s.CyclicLR(o, 0.01, 0.1, 4, last_epoch=last),
    "restarts": lambda s, o, last: s.CosineAnnealingWarmRestarts(o, 3, last_epoch=last),
    "lambda": lambda s, o, last: s.LambdaLR(o, half, last_epoch=last),
    "multiplicative": lambda s, o, last: s.MultiplicativeLR(o, slower, last_epoch=last),
}


@pytest.mark.parametrize("name", RESUMABLE)
def test_resuming_with_last_epoch(name: str) -> None:
    found = {}
    for key, lib in LIBRARIES.items():
        optimizer = make_optimizer(lib)
        scheduler = RESUMABLE[name](lib.optim.lr_scheduler, optimizer, -1)
        for _ in range(4):
            optimizer.step()
            scheduler.step()
        again = make_optimizer(lib)
        again.load_state_dict(optimizer.state_dict())
        resumed = RESUMABLE[name](lib.optim.lr_scheduler, again, scheduler.last_epoch)
        found[key] = [rates(again)]
        for _ in range(4):
            again.step()
            resumed.step()
            found[key].append(rates(again))
    assert found["ours"] == found["theirs"]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_plateau(mode: str, threshold_mode: str) -> None:
    metrics = [1.0, 0.9, 0.95, 0.91, 0.9, 0.9, 0.89999, 0.5, 0.6, 0.7, 0.6, 0.65, 0.7, 0.71, 0.72, 0.9, 0.3, 1, 1, 1, 1]
    found = {}
    for key, lib in LIBRARIES.items():
        optimizer = make_optimizer(lib)
        scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode, factor=0.5, patience=2, threshold=0.01, threshold_mode=threshold_mode, cooldown=1,
            min_lr=[0.05, 0.01],
        )  # fmt: skip
        found[key] = []
        for metric in metrics:
            scheduler.step(lib.tensor(metric))
            found[key].append((rates(optimizer), scheduler.get_last_lr(), scheduler.in_cooldown))
        found[key].append(scheduler.state_dict())
    assert found["ours"] == found["theirs"]
    assert found["ours"][-2] != found["ours"][0]


def test_rates_in_tensors_are_changed_in_place() -> None:
    found = {}
    for key, lib in LIBRARIES.items():
        rate = lib.tensor(0.5)
        optimizer = lib.optim.Adam([lib.zeros(2, requires_grad=True)], lr=rate)
        scheduler = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        optimizer.step()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] is rate
        found[key] = (
            rate.item(),
            [x.item() for x in scheduler.get_last_lr()],
            optimizer.param_groups[0]["initial_lr"].item(),
        )
    assert found["ours"] == found["theirs"] == (0.25, [0.25], 0.5)


def warned(action) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(w.message)[:60] for w in caught if issubclass(w.category, UserWarning)]


def stepped_too_early(lib) -> None:
    lib.optim.lr_scheduler.StepLR(make_optimizer(lib), 2).step()


def overridden(lib) -> None:
    optimizer = make_optimizer(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step = lambda: None
    optimizer.step()
    scheduler.step()


def in_order(lib) -> None:
    optimizer = make_optimizer(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    scheduler.step()
    scheduler.step()


def epoch_given(lib) -> None:
    optimizer = make_optimizer(lib)
    scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    scheduler.step(3)


def asked_for_lr(lib) -> None:
    lib.optim.lr_scheduler.StepLR(make_optimizer(lib), 2).get_lr()


@pytest.mark.parametrize("action", [stepped_too_early, overridden, in_order, epoch_given, asked_for_lr])
def test_warnings(action) -> None:
    assert warned(lambda: action(flambeau)) == warned(lambda: action(torch))


ERRORS = {
    "no optimizer": lambda s, o: s.StepLR("sgd", 3),
    "initial_lr missing": lambda s, o: s.StepLR(o, 3, last_epoch=4),
    "functions": lambda s, o: s.LambdaLR(o, [half]),
    "not callable": lambda s, o: s.MultiplicativeLR(o, 3),
    "constant": lambda s, o: s.ConstantLR(o, factor=2),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0),
    "linear end": lambda s, o: s.LinearLR(o, end_factor=2),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    "restarts factor": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=0),
    "restarts minimum": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, eta_min="0"),
    "restarts epoch": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
    "cyclic mode": lambda s, o: s.CyclicLR(o, 0.1, 1, mode="square"),
    "cyclic lists": lambda s, o: s.CyclicLR(o, [0.1], 1),
    "one cycle length": lambda s, o: s.OneCycleLR(o, 0.1),
    "one cycle steps": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-2),
    "one cycle epochs": lambda s, o: s.OneCycleLR(o, 0.1, epochs=2.5, steps_per_epoch=2),
    "one cycle part": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, pct_start=2),
    "one cycle strategy": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, anneal_strategy="sqrt"),
    "one cycle over": lambda s, o: [c.step() for c in [s.OneCycleLR(o, 0.1, total_steps=2)] for _ in range(4)],
    "plateau factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1),
    "plateau mode": lambda s, o: s.ReduceLROnPlateau(o, mode="mean"),
    "plateau threshold": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
    "plateau minima": lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1]),
    "no schedulers": lambda s, o: s.SequentialLR(o, [], []),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2)], [3]),
    "sequential plateau": lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o), s.StepLR(o, 2)], [3]),
    "chain of nothing": lambda s, o: s.ChainedScheduler([]),
    "chain of strangers": lambda s, o: s.ChainedScheduler([s.StepLR(o, 2), s.StepLR(copy.deepcopy(o), 2)]),
    "swa strategy": lambda s, o: sibling(s, "SWALR")(o, 0.1, anneal_strategy="sqrt"),
    "swa epochs": lambda s, o: sibling(s, "SWALR")(o, 0.1, anneal_epochs=-1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    messages = {}
    for key, lib in LIBRARIES.items():
        with pytest.raises(Exception) as caught:
            ERRORS[name](lib.optim.lr_scheduler, make_optimizer(lib))
        messages[key] = (caught.type, str(caught.value)[:60])
    assert messages["ours"] == messages["theirs"]


def test_cycling_momentum_needs_a_momentum() -> None:
    optimizer = optim.Adagrad([flambeau.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="momentum or beta1"):
        optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1)
    optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1, cycle_momentum=False)


@pytest.mark.parametrize("name", torch.optim.lr_scheduler.__all__)
def test_signatures(name: str) -> None:
    def shape(cls):
        return [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()]

    assert shape(getattr(optim.lr_scheduler, name)) == shape(getattr(torch.optim.lr_scheduler, name))


def test_own_schedules_by_inheritance() -> None:
    class Halving(optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = make_optimizer(flambeau)
    scheduler = Halving(optimizer)
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.1, 0.2]


def test_a_schedule_does_not_keep_the_optimizer_alive() -> None:
    import gc
    import weakref

    optimizer = make_optimizer(flambeau)
    optim.lr_scheduler.StepLR(optimizer, 2)
    reference = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert reference() is None
    finally:
        gc.enable()


def test_functions_come_last_in_the_saved_state():
    optimizer = optim.SGD([flambeau.ones(1, requires_grad=True)], lr=1.0)
    for schedule, name in (
        (optim.lr_scheduler.LambdaLR(optimizer, half), "lr_lambdas"),
        (optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, cycle_momentum=False), "_scale_fn_custom"),
    ):
        assert list(schedule.state_dict())[-1] == name
