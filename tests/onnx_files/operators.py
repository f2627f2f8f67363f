"""Every operator of PyTorch's database, exported to ONNX and run in onnxruntime.

    python -m tests.onnx_files.operators [--opset 20] [--only REGEX] [--samples 4]

Prints what differs, what has no form, and how many operators are right ("partly": the rest is refused with an error that says why;
"wrong": another result, or an error of another kind)."""

from __future__ import annotations

import argparse
import collections
import re
import sys
import types
import warnings
from typing import Any

import numpy as np
import onnxruntime

import flambeau
from flambeau.core.tensor import Tensor
from flambeau.export._trace import Unsupported
from flambeau.library.aten.translation import DataDependent
from flambeau.onnx.dtypes import array_of
from flambeau.onnx.errors import UnsupportedOperatorError
from flambeau.utils import _pytree as pytree
from tests.door import converted, function_of

REFUSALS = (Unsupported, DataDependent, NotImplementedError)  # a program that no graph can hold, or not yet


class Call(flambeau.nn.Module):
    """One call of an operator: the tensors are the inputs, everything else is fixed."""

    def __init__(self, function: Any, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.__dict__.update(function=function, leaves=leaves, spec=spec)

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def exported(function: Any, args: tuple, kwargs: dict, opset: int) -> tuple[list[Any], list[Any]]:
    """The operator's results here, and those of onnxruntime."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
    module = Call(function, leaves, spec)
    wanted = pytree.tree_leaves(module(*(t.clone() for t in tensors)))
    if not wanted:  # coordinates in no dimensions
        return [], []
    program = flambeau.onnx.export(module, tensors, opset_version=opset, verbose=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    named = {i.name: array_of(t) for i, t in zip(program.model_proto.graph.input, tensors)}
    needed = {i.name for i in session.get_inputs()}
    return wanted, session.run(None, {k: v for k, v in named.items() if k in needed})


def here(info: Any) -> Any:
    """The function of an entry. Where the database has one of its own (a lambda over `torch`), the same with `torch` being Flambeau."""
    own = info.op
    if isinstance(own, types.FunctionType) and "testing" in own.__module__:
        rebuilt = types.FunctionType(
            own.__code__, {**own.__globals__, "torch": flambeau}, own.__name__, own.__defaults__, own.__closure__
        )
        rebuilt.__kwdefaults__ = own.__kwdefaults__
        return rebuilt
    found = function_of(info.name)
    return getattr(Tensor, info.name) if isinstance(found, flambeau.dtype) else found  # x.bfloat16()


def samples_of(info: Any, count: int) -> list[Any]:
    """Some samples, of the first of these dtypes that the operator takes."""
    import torch

    taken = info.supported_dtypes("cpu")
    kind = next((k for k in (torch.float32, torch.int64, torch.bool) if k in taken), None)
    if kind is None:
        return []
    samples = list(info.sample_inputs("cpu", kind, requires_grad=False))
    return samples[:: max(len(samples) // count, 1)][:count]


def is_random(function: Any, args: tuple, kwargs: dict) -> bool:
    """Whether two calls differ: numbers that are drawn."""
    runs = []
    for seed in range(4):
        flambeau.manual_seed(seed)
        runs.append(
            [array_of(t).copy() for t in pytree.tree_leaves(function(*args, **kwargs)) if isinstance(t, Tensor)]
        )
    kinds = ("f", "c")
    return any(
        not np.array_equal(a, b, equal_nan=a.dtype.kind in kinds) for one in runs[1:] for a, b in zip(runs[0], one)
    )


def same(wanted: list[Any], found: list[Any], values: bool = True) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} results instead of {len(wanted)}"
    for a, b in zip(wanted, found):
        a = array_of(a) if isinstance(a, Tensor) else np.asarray(a)
        if a.shape != b.shape:
            return f"shape {b.shape} instead of {a.shape}"
        if a.dtype != b.dtype and a.dtype.kind != b.dtype.kind:
            return f"{b.dtype} instead of {a.dtype}"
        if values and not np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"values differ by {np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    counts: collections.Counter = collections.Counter()
    for info in op_db:
        if options.only and not re.search(options.only, info.name):
            continue
        try:
            function = here(info)
        except AttributeError:
            continue
        problems: collections.Counter = collections.Counter()
        right = bad = 0
        for sample in samples_of(info, options.samples):
            try:
                given = [converted(((sample.input, *sample.args), sample.kwargs)) for _ in range(2)]
                (args, kwargs), again = given
                drawn = "empty" in info.name or is_random(function, *again)
            except Exception:  # no sample for this library: a module of PyTorch's, memory that others share
                continue
            try:
                problem = same(*exported(function, args, kwargs, options.opset), values=not drawn)
            except UnsupportedOperatorError as error:
                problem = "no form: " + "; ".join(str(error).splitlines()[1:2])
            except REFUSALS as error:
                problem = f"refused: {str(error).splitlines()[0][:150]}"
            except Exception as error:
                if "No corresponding Numpy type" in str(error):  # onnxruntime's Python cannot show bfloat16
                    break
                problem = f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}"
            if problem:
                problems[problem] += 1
                bad += not problem.startswith(("no form", "refused"))
            else:
                right += 1
        if not right and not problems:
            continue
        kind = "wrong" if bad else "right" if not problems else "partly" if right else "none"
        counts[kind] += 1
        if problems:
            print(
                f"{kind:7} {info.name} {info.variant_test_name} {right} right;",
                *(f"{n}x {p}" for p, n in problems.items()),
                flush=True,
            )
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
