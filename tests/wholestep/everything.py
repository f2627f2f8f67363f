"""PyTorch's own databases of operators, modules and optimizers, compiled as whole steps and compared with eager.

    python -m tests.wholestep.everything                         # all three; needs torch==2.13.0
    python -m tests.wholestep.everything modules --only Conv
    python -m tests.wholestep.everything operators --samples 2

Each sample is called six times as it is and compiled, forward and backward, on twins of the same state. Results, gradients, parameters,
buffers and the random number generator must agree. The last lines say how many did, how many ran natively, and which did not.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau.core.tensor import Tensor
from tests.door import converted, function_of, tensors_in
from tests.wholestep.helpers import same

CALLS = 6
Step = tuple[Callable, Any, Callable[[], tuple]]  # a function, its state, what makes arguments


def backward(result: Any) -> list:
    """Differentiate the sum of everything that can be."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and t.dtype.is_floating_point]
    if outputs:
        flambeau.autograd.backward(outputs, [flambeau.ones_like(t) for t in outputs])
    return [t.detach() for t in tensors_in(result)]


def operators(given: Any) -> Iterator[tuple[str, Callable[[], Step]]]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        kinds = sorted(info.dtypes, key=str)
        if not kinds or (given.only and not re.search(given.only, info.name)):
            continue
        if re.match(r"(new_)?empty", info.name):
            continue  # whatever was in that memory
        dtype = torch.float32 if torch.float32 in kinds else kinds[0]
        try:
            function = function_of(info.name)
            samples = list(
                info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point)
            )
        except (AttributeError, NotImplementedError, RuntimeError):
            continue
        for k, sample in enumerate(samples[:: max(1, len(samples) // given.samples)][: given.samples]):

            def build(function: Any = function, sample: Any = sample) -> Step:
                kwargs = converted(sample.kwargs)

                def step(*args: Any) -> Any:
                    return backward(function(*args, **kwargs))

                return step, None, lambda: tuple(converted(v) for v in (sample.input, *sample.args))

            yield f"{info.name}[{k}]", build


def modules(given: Any) -> Iterator[tuple[str, Callable[[], Step]]]:
    import torch
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if given.only and not re.search(given.only, info.name):
            continue
        samples = info.module_inputs_func(info, "cpu", torch.float32, True, training=True)
        for k, sample in enumerate(samples[: 2 * given.samples]):

            def build(info: Any = info, sample: Any = sample) -> Step:
                cls = function_of(info.module_cls.__module__.replace("torch.", "", 1) + "." + info.module_cls.__name__)
                made = sample.constructor_input
                module = cls(*converted(made.args), **converted(made.kwargs))
                called = sample.forward_input

                def step(*args: Any, **kwargs: Any) -> Any:
                    for p in module.parameters():
                        p.grad = None
                    return backward(module(*args, **kwargs))

                return step, module, lambda: (converted(called.args), converted(called.kwargs))

            yield f"{info.name}[{k}]", build


def optimizers(given: Any) -> Iterator[tuple[str, Callable[[], Step]]]:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        name = info.optim_cls.__name__
        if given.only and not re.search(given.only, name):
            continue
        for k, sample in enumerate(info.optim_inputs_func(device="cpu")):

            def build(name: str = name, sample: Any = sample) -> Step:
                sparse = name == "SparseAdam"
                model = flambeau.nn.Sequential(
                    flambeau.nn.Embedding(5, 4, sparse=True)
                    if sparse
                    else flambeau.nn.Linear(4, 6, bias=name != "Muon"),
                    flambeau.nn.Tanh(),
                )
                optimizer = function_of(f"optim.{name}")(model.parameters(), **converted(sample.kwargs))

                def step(x: Any) -> Any:
                    def closure() -> Any:
                        optimizer.zero_grad()
                        loss = model(x).square().mean()
                        loss.backward()
                        return loss

                    if name == "LBFGS":
                        return optimizer.step(closure)
                    loss = closure()
                    optimizer.step()
                    return loss

                return (
                    step,
                    [model, optimizer],
                    lambda: (flambeau.randint(0, 5, (3,)) if sparse else flambeau.randn(3, 4),),
                )

            yield f"{name}[{k}]", build


def outcome(build: Callable[[], Step]) -> str:
    """ "native", "in parts" or "eager": how the sample ran compiled, having given what it gives as it is."""
    from tests.wholestep.helpers import visible

    flambeau.manual_seed(0)
    plain, plain_state, make = build()
    flambeau.manual_seed(0)
    function, state, _ = build()
    compiled = flambeau.compile(function)
    for number in range(CALLS):
        results = []
        for f in (plain, compiled):
            flambeau.manual_seed(number)
            args, kwargs = parted(make())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = f(*args, **kwargs)
            grads = [
                t.grad
                for t in tensors_in(list(args))
                if isinstance(t, Tensor) and t.is_leaf and t.layout is flambeau.strided
            ]
            grads = [None if g is None else g.to_dense() if g.is_sparse else g for g in grads]
            results.append([result, grads, flambeau.get_rng_state()])
        same(*results, f"call {number}")
        same(visible(plain_state), visible(state), f"state after call {number}")
    return told(compiled._compiled)


def told(behind: Any) -> str:
    calls = sum(r.calls for r in behind.recordings())
    if calls:
        return "native"
    inside = sum(told(p) != "eager" for p in behind.parts())
    return "in parts" if inside else f"eager: {re.sub(' [(].*', '', (behind.reasons or ['-'])[0])[:90]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["modules", "optimizers", "operators"])
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=3)
    given = parser.parse_args()
    counts: collections.Counter = collections.Counter()
    wrong = []
    try:
        for what in given.what:
            for name, build in globals()[what](given):
                try:
                    once(build)
                except Exception as error:
                    print(
                        f"{what} {name} does not run as it is: {type(error).__name__}: {str(error)[:160]}", flush=True
                    )
                    counts[f"{what}: not as it is either"] += 1
                    continue
                try:
                    how = outcome(build)
                except AssertionError as error:
                    how = "WRONG"
                    wrong.append(f"{what} {name}: {str(error)[:300]}")
                    print(wrong[-1], flush=True)
                except Exception as error:
                    how = "ERROR"
                    wrong.append(f"{what} {name}: {type(error).__name__}: {str(error)[:300]}")
                    print(wrong[-1], flush=True)
                counts[f"{what}: {how}"] += 1
    except KeyboardInterrupt:
        print(f"interrupted at {what} {name}")  # what there is so far
    for how, n in sorted(counts.items()):
        print(f"{n:6d} {how}")
    return 1 if wrong else 0


def once(build: Callable[[], Step]) -> None:
    """Run a sample as it is: what does not work so is no matter of compiling."""
    function, _, make = build()
    args, kwargs = parted(make())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(*args, **kwargs)


def parted(args: Any) -> tuple[tuple, dict]:
    """Positional and keyword arguments."""
    return args if len(args) == 2 and isinstance(args[1], dict) else (args, {})


if __name__ == "__main__":
    sys.exit(main())
