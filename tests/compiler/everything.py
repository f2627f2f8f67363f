"""PyTorch's own databases of operators, modules and optimizers, compiled as whole steps and compared with eager.

    python -m tests.compiler.everything                         # all three; needs torch==2.13.0
    python -m tests.compiler.everything modules --only Conv
    python -m tests.compiler.everything operators --samples 2 --log build/operators.jsonl
    python -m tests.compiler.everything operators --device cuda --share 3/8      # on a GPU: every eighth, from the third on

Each sample is called six times as it is and compiled, forward and backward, on twins of the same state. Results, gradients, parameters,
buffers and the random number generator must agree. The last lines say how many did, how many ran natively, and which did not.

The work is done in another process, a new one after every hundred samples or when one takes longer than `--limit` seconds or crashes.
What is known stands in the log, line by line: started again with the same log, it goes on where it was.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flambeau
from flambeau.core.tensor import Tensor
from tests.compiler.helpers import same
from tests.door import converted, function_of, tensors_in

CALLS = 6
PER_PROCESS = 100  # samples
Step = tuple[Callable, Any, Callable[[], tuple]]  # a function, its state, what makes arguments
Sample = tuple[str, Callable[[], Step]]
Subject = tuple[str, Callable[[], Iterator[Sample]]]  # a name, and what makes its samples


def backward(result: Any) -> list:
    """Differentiate the sum of everything that can be."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and t.dtype.is_floating_point]
    if outputs:
        flambeau.autograd.backward(outputs, [flambeau.ones_like(t) for t in outputs])
    return [t.detach() for t in tensors_in(result)]


# Operators whose samples come in another order than their arguments.
ARRANGED: dict[str, Callable] = {
    "polygamma": lambda f: lambda x, n, **k: f(n, x, **k),
    "special.polygamma": lambda f: lambda x, n, **k: f(n, x, **k),
    "where": lambda f: lambda x, condition, y: f(condition, x, y),
    "nn.functional.embedding": lambda f: lambda weight, indices, **k: f(indices, weight, **k),
    "einsum": lambda f: lambda tensors, equation: f(equation, *tensors),
}


def operators(given: Any) -> Iterator[Subject]:
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if re.match(r"(new_)?empty", info.name):
            continue  # whatever was in that memory
        yield info.formatted_name, lambda info=info: samples_of(info, given)


def samples_of(info: Any, given: Any) -> Iterator[Sample]:
    import torch

    kinds = sorted(info.dtypes, key=str)
    if not kinds:
        return
    dtype = torch.float32 if torch.float32 in kinds else kinds[0]
    try:
        function = function_of(info.name)
        if isinstance(function, flambeau.dtype):
            function = getattr(Tensor, info.name)  # x.float()
        function = ARRANGED.get(info.name, lambda f: f)(function)
        samples = list(
            info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point)
        )
    except (AttributeError, NotImplementedError, RuntimeError):
        return
    for k, sample in enumerate(samples[:: max(1, len(samples) // given.samples)][: given.samples]):

        def build(sample: Any = sample) -> Step:
            kwargs = converted(sample.kwargs, given.device)

            def step(*args: Any) -> Any:
                return backward(function(*args, **kwargs))

            return step, None, lambda: tuple(converted(v, given.device) for v in (sample.input, *sample.args))

        yield f"{info.formatted_name}[{k}]", build


def modules(given: Any) -> Iterator[Subject]:
    import torch
    from torch.testing._internal.common_modules import module_db

    def samples_of(info: Any) -> Iterator[Sample]:
        samples = info.module_inputs_func(info, "cpu", torch.float32, True, training=True)
        for k, sample in enumerate(samples[: 2 * given.samples]):

            def build(sample: Any = sample) -> Step:
                cls = function_of(info.module_cls.__module__.replace("torch.", "", 1) + "." + info.module_cls.__name__)
                made = sample.constructor_input
                where = given.device
                module = cls(*converted(made.args), **converted(made.kwargs)).to(where or "cpu")
                called = sample.forward_input

                def step(*args: Any, **kwargs: Any) -> Any:
                    for p in module.parameters():
                        p.grad = None
                    return backward(module(*args, **kwargs))

                return step, module, lambda: (converted(called.args, where), converted(called.kwargs, where))

            yield f"{info.name}[{k}]", build

    for info in module_db:
        yield info.name, lambda info=info: samples_of(info)


def optimizers(given: Any) -> Iterator[Subject]:
    from torch.testing._internal.common_optimizers import optim_db

    def samples_of(info: Any) -> Iterator[Sample]:
        name = info.optim_cls.__name__
        for k, sample in enumerate(info.optim_inputs_func(device="cpu")):

            def build(name: str = name, sample: Any = sample) -> Step:
                sparse = name == "SparseAdam"
                model = flambeau.nn.Sequential(
                    flambeau.nn.Embedding(5, 4, sparse=True)
                    if sparse
                    else flambeau.nn.Linear(4, 6, bias=name != "Muon"),
                    flambeau.nn.Tanh(),
                ).to(given.device or "cpu")
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
                    lambda: (
                        (flambeau.randint(0, 5, (3,)) if sparse else flambeau.randn(3, 4)).to(given.device or "cpu"),
                    ),
                )

            yield f"{name}[{k}]", build

    for info in optim_db:
        yield info.optim_cls.__name__, lambda info=info: samples_of(info)


def outcome(build: Callable[[], Step], near: tuple[float, float]) -> str:
    """ "native", "in parts" or "eager": how the sample ran compiled, having given what it gives as it is."""
    from tests.compiler.helpers import visible

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
            generators = [flambeau.get_rng_state()]
            generators += [flambeau.cuda.get_rng_state()] if flambeau.cuda.is_initialized() else []
            results.append([result, grads, generators])
        same(*results, f"call {number}", near)
        same(visible(plain_state), visible(state), f"state after call {number}", near)
    return told(compiled._compiled)


def told(behind: Any) -> str:
    calls = sum(r.calls for r in behind.recordings())
    if calls:
        return "native"
    inside = sum(told(p) != "eager" for p in behind.parts())
    return "in parts" if inside else f"eager: {re.sub(' [(].*', '', (behind.reasons or ['-'])[0])[:90]}"


def tried(build: Callable[[], Step], near: tuple[float, float]) -> str:
    """How a sample ran: see `outcome`; or what went wrong."""
    try:
        once(build)
    except Exception as error:
        return f"not as it is either: {type(error).__name__}: {str(error)[:160]}"
    try:
        return outcome(build, near)
    except AssertionError as error:
        return f"WRONG: {str(error)[:300]}"
    except Exception as error:
        return f"ERROR: {type(error).__name__}: {str(error)[:300]}"


def work(given: Any) -> int:
    """Samples that the log does not know yet, each with a line before and one after it; at most so many."""
    known = {entry["done"] for entry in entries(given.log)}
    left = PER_PROCESS
    first, step = map(int, given.share.split("/"))
    near = (1e-5, 1e-6) if given.device is None else (1e-4, 1e-5)  # kernels of a graph sum in another order
    for what in given.what:
        for number, (subject, samples) in enumerate(globals()[what](given), 1):
            if number % step != first % step or f"{what} {subject}" in known or not re.search(given.only, subject):
                continue
            for name, build in samples():
                if f"{what} {name}" in known:
                    continue
                print(json.dumps({"begin": f"{what} {name}"}), flush=True)
                print(json.dumps({"done": f"{what} {name}", "how": tried(build, near)}), flush=True)
                left -= 1
                if not left:
                    return 0
            print(json.dumps({"done": f"{what} {subject}"}), flush=True)
    print(json.dumps({"end": True}), flush=True)
    return 0


def entries(log: str) -> list[dict]:
    path = Path(log)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def supervise(given: Any, log: Any) -> bool:
    """Run one process of work and write down what it says. Whether all is done."""
    command = [sys.executable, "-m", "tests.compiler.everything", *given.what, "--work", "--log", given.log]
    command += ["--samples", str(given.samples), "--only", given.only, "--share", given.share]
    command += [] if given.device is None else ["--device", given.device]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)  # no line may wait behind another
    assert worker.stdout is not None
    running, ended = "", False
    try:
        while True:
            ready, _, _ = select.select([worker.stdout], [], [], given.limit)
            line = worker.stdout.readline().decode() if ready else ""
            if not line:
                break
            entry = json.loads(line)
            ended = "end" in entry
            running = entry.get("begin", "")
            if "done" in entry:
                log.write(line)
                log.flush()
    finally:
        worker.kill()
        code = worker.wait()
    if running:
        how = "ERROR: it takes too long" if not ready else f"ERROR: the process ended ({code})"
        log.write(json.dumps({"done": running, "how": how}) + "\n")
        log.flush()
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["modules", "optimizers", "operators"])
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a sample")
    parser.add_argument(
        "--total", type=float, default=float("inf"), help="seconds after which it stops, to go on later"
    )
    parser.add_argument("--log", default="", help="where results are kept")
    parser.add_argument("--device", help="where samples run, such as cuda; the CPU unless said")
    parser.add_argument("--share", default="1/1", help="K/N: every Nth subject, from the Kth on")
    parser.add_argument("--work", action="store_true", help="run samples in this process")
    given = parser.parse_args()
    if given.work:
        return work(given)
    given.log = given.log or tempfile.mkstemp(suffix=".jsonl")[1]
    started, ended = time.monotonic(), False
    with open(given.log, "a") as log:
        while not ended and time.monotonic() - started < given.total:
            ended = supervise(given, log)
    counts: collections.Counter = collections.Counter()
    wrong = 0
    for entry in entries(given.log):
        what, _, name = entry["done"].partition(" ")
        how = entry.get("how", "")
        if how.startswith(("WRONG", "ERROR", "not as")):
            wrong += not how.startswith("not as")
            print(f"{what} {name}: {how}")
        if how:
            counts[f"{what}: {how.partition(':')[0] if not how.startswith('eager') else how}"] += 1
    for how, n in sorted(counts.items()):
        print(f"{n:6d} {how}")
    if not ended:
        print(f"not finished; go on with --log {given.log}")
    return 1 if wrong or not ended else 0


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
