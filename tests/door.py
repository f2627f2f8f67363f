"""Does everything pass the door? Every native call and every look at memory must happen inside an operator that modes see.

    python -m tests.door                       every operator of PyTorch's database: forward and backward
    python -m tests.door --only 'conv|pool'    some of them
    python -m tests.door --toy                 the same on a device whose memory the host cannot read: nothing may read garbage
    python -m tests.door --device cuda         the same on a GPU
    python -m tests.door --device meta         results look like those on the CPU

`Door` is a mode that looks into composites and lets every other operator compute; what is computed outside one is a violation, named by the
line of Flambeau that did it. `install` must come before the first kernel is made."""

from __future__ import annotations

import argparse
import collections
import contextlib
import re
import sys
import traceback
from typing import Any

import flambeau
from flambeau.backends.cpu import native_call
from flambeau.core import modes
from flambeau.core.tensor import Tensor

_HERE = str(flambeau.__path__[0])


class Door(modes.Mode):
    """Sees every call; `inside` counts the operators that are computing."""

    inside = 0
    watching = False
    violations: collections.Counter = collections.Counter()
    seen: collections.Counter = collections.Counter()

    def handle(self, op: Any, function: Any, args: tuple, kwargs: dict) -> Any:
        Door.seen[op.key or op.name] += 1
        if op.kind == "composite":
            with self:
                return modes.unwatched(function)(*args, **kwargs)
        Door.inside += 1
        try:
            return function(*args, **kwargs)
        finally:
            Door.inside -= 1

    @contextlib.contextmanager
    def watch(self) -> Any:
        before, Door.watching = Door.watching, True
        try:
            with self:
                yield self
        finally:
            Door.watching = before

    @classmethod
    def check(cls, what: str) -> None:
        if cls.watching and not cls.inside:
            frames = [f for f in traceback.extract_stack()[:-2] if f.filename.startswith(_HERE)]
            place = next(
                (f for f in reversed(frames) if not f.filename.endswith(("core/tensor.py", "kernels/loops.py"))), None
            )
            where = "?" if place is None else f"{place.filename[len(_HERE) + 1 :]}:{place.lineno} {place.name}"
            cls.violations[f"{what} in {where}"] += 1


class _CheckedCall:
    """A native function that notes whether an operator called it."""

    __slots__ = ("function", "__self__")

    def __init__(self, function: Any):
        self.function, self.__self__ = function, function.__self__

    def __call__(self, *args: Any) -> Any:
        Door.check("native call")
        return self.function(*args)


def install() -> None:
    """From now on native calls and NumPy views of memory are checked. Kernels that exist already are not."""
    builtin, array = native_call.builtin, Tensor._array
    native_call.builtin = lambda entry, kernel: _CheckedCall(builtin(entry, kernel))

    def checked_array(self: Tensor) -> Any:
        Door.check("memory")
        return array(self)

    Tensor._array = checked_array


# -- PyTorch's database --------------------------------------------------------------------------------------------------


def converted(value: Any, where: str | None = None) -> Any:
    """PyTorch's tensors, dtypes and containers of them as Flambeau's."""
    import torch

    if isinstance(value, torch.Tensor):
        data = value.detach()
        kind = str(data.dtype).split(".")[1]
        array = data.view(torch.int16).numpy() if kind == "bfloat16" else data.resolve_conj().resolve_neg().numpy()
        t = flambeau.from_numpy(array.copy())
        t = t.view(flambeau.bfloat16) if kind == "bfloat16" else t
        t = t if where is None else t.to(where)
        return t.requires_grad_() if value.requires_grad else t
    if isinstance(value, torch.dtype):
        return getattr(flambeau, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return flambeau.device(where or str(value))
    if isinstance(value, (torch.memory_format, torch.layout)):
        return getattr(flambeau, str(value).split(".")[1])
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(converted(v, where) for v in value)
    if isinstance(value, dict):
        return {k: converted(v, where) for k, v in value.items()}
    return value


def function_of(name: str) -> Any:
    place: Any = flambeau
    for part in name.split("."):
        place = getattr(place, part)
    return place


def tensors_in(value: Any) -> list:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def run_sample(function: Any, sample: Any, where: str | None) -> None:
    args = [converted(v, where) for v in (sample.input, *sample.args)]
    kwargs = converted(sample.kwargs, where)
    if where is not None and "device" in kwargs:
        kwargs["device"] = where
    with Door().watch():
        result = function(*args, **kwargs)
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        if outputs:
            flambeau.autograd.backward(outputs, [flambeau.ones_like(t) for t in outputs])
    if where is not None:
        for t in tensors_in(result):
            assert t.device.type == where, f"the result is on {t.device}"
        expected = function(*[converted(v) for v in (sample.input, *sample.args)], **converted(sample.kwargs))
        unspecified = function.__name__.startswith("empty")  # whatever was in that memory
        for a, b in zip([] if unspecified else tensors_in(result), tensors_in(expected)):
            if where == "meta":  # which has no values
                assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()), "it looks otherwise on meta"
                continue
            flambeau.testing.assert_close(a.detach().cpu(), b.detach(), equal_nan=True)


def main() -> int:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--device", help="another device that is there, such as cuda")
    parser.add_argument("--samples", type=int, default=4)
    given = parser.parse_args()
    install()
    where = given.device
    if given.toy:
        from tests.backends.toy_device import ToyBackend

        flambeau.backends.register("toy", ToyBackend())
        where = "toy"
    counts: collections.Counter = collections.Counter()
    for info in op_db:
        if given.only and not re.search(given.only, info.name):
            continue
        kinds = sorted(info.dtypes, key=str)
        if not kinds:
            continue
        dtype = torch.float32 if torch.float32 in kinds else kinds[0]
        before = dict(Door.violations)
        outcome = "ok"
        print(info.name, end=" ", flush=True)
        try:
            function = function_of(info.name)
            samples = list(
                info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point)
            )
            for sample in samples[:: max(1, len(samples) // given.samples)][: given.samples]:
                torch.manual_seed(0)
                flambeau.manual_seed(0)
                run_sample(function, sample, where)
        except NotImplementedError as error:
            outcome = f"missing: {str(error)[:150]}"
        except Exception as error:
            outcome = f"{type(error).__name__}: {str(error)[:200]}"
        new = [k for k, n in Door.violations.items() if n != before.get(k, 0)]
        if new:
            outcome += "; outside: " + ", ".join(new)
        counts[outcome.split(":")[0].split(";")[0]] += 1
        print(outcome, flush=True)
    print("\n== places", flush=True)
    for place, n in Door.violations.most_common():
        print(f"{n:6d} {place}")
    print(dict(counts), "violations:", len(Door.violations))
    return 1 if Door.violations else 0


if __name__ == "__main__":
    sys.exit(main())
