"""What a TorchDispatchMode sees of PyTorch's operator database, beside what it sees in PyTorch: forward, and gradients of the results' sum.

    python -m tests.library.dispatched                    # needs torch==2.13.0: counts, and the programs whose lists differ
    python -m tests.library.dispatched --only 'pool|norm' # both lists of these
    python -m tests.library.dispatched --backward         # with the mode around the backward pass alone

A program is the first sample of an entry of the database that has gradients. Counted are programs in which operators of Flambeau's own are
seen (`flambeau.name`), and those whose lists are equal but for `detach` and `empty`, which are about PyTorch's own bookkeeping."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau.utils._python_dispatch import TorchDispatchMode
from tests.compiler.everything import ARRANGED
from tests.door import converted

_OWN_AFFAIR = ("aten.detach.default", "aten.empty.memory_format")


def seen(torch: Any, mode: Any, function: Callable[[], Any], backward: bool) -> list[str]:
    """Return the operators that a mode sees in a call and its backward pass, or in the backward pass alone."""
    found: list[str] = []

    class Seen(mode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            found.append(str(func))
            return func(*args, **(kwargs or {}))

    def outputs() -> list[Any]:
        leaves = torch.utils._pytree.tree_leaves(function())
        return [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]

    before = outputs()
    slopes = [torch.ones_like(t) for t in before]
    with Seen():
        torch.autograd.backward(before if backward else outputs(), slopes)
    return [name for name in found if name not in _OWN_AFFAIR]


def programs(only: str) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Yield (name, the call in PyTorch, the same call here) of each entry with gradients."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    arranged = {**ARRANGED, "nn.functional.embedding_bag": ARRANGED["nn.functional.embedding"]}

    def program(root: Any, name: str, x: Any, args: tuple, kwargs: dict[str, Any]) -> Callable[[], Any]:
        function = arranged.get(name, lambda f: f)(functools.reduce(getattr, name.split("."), root))
        return lambda: function(x, *args, **kwargs)

    for entry in op_db:
        name = entry.name + (f" {entry.variant_test_name}" if entry.variant_test_name else "")
        if not re.search(only, name) or not entry.supports_autograd or torch.float32 not in entry.dtypes:
            continue
        for sample in entry.sample_inputs("cpu", torch.float32, requires_grad=True):
            given = sample.input, sample.args, sample.kwargs
            with contextlib.suppress(AttributeError, TypeError):  # no function of torch, sparse samples
                yield name, program(torch, entry.name, *given), program(flambeau, entry.name, *converted(given))
            break


def main() -> None:
    parser = argparse.ArgumentParser(description="What a TorchDispatchMode sees, here and in PyTorch.")
    parser.add_argument("--only", default="")
    parser.add_argument("--backward", action="store_true", help="the mode is on in the backward pass alone")
    arguments = parser.parse_args()
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode as Theirs

    warnings.simplefilter("ignore")
    equal, own, every, failed = 0, [], 0, []
    for name, theirs, ours in programs(arguments.only):
        try:
            expected = seen(torch, Theirs, theirs, arguments.backward)
        except Exception:  # noqa: BLE001 - not a program that PyTorch can differentiate
            continue
        every += 1
        try:
            found = seen(flambeau, TorchDispatchMode, ours, arguments.backward)
        except Exception as error:  # noqa: BLE001 - named below
            failed.append(f"{name}: {type(error).__name__}: {error}"[:200])
            continue
        equal += found == expected
        if any(not f.startswith("aten.") for f in found):
            own.append(name)
        if found != expected:
            print(
                f"{name}\n  here    {' '.join(found)}\n  PyTorch {' '.join(expected)}".replace("aten.", "").replace(
                    ".default", ""
                )
            )
    print(f"{every} programs: {equal} equal, {len(own)} with operators of Flambeau's own: {', '.join(own)}")
    print(f"{len(failed)} failed", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
