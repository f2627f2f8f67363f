"""Walks PyTorch's public names and lists what Flambeau lacks and where the signatures differ.

python -m tests.api.surface                 a table of counts, one line a namespace
python -m tests.api.surface --missing       ... and the names that are missing
python -m tests.api.surface --signatures    ... and the signatures that differ
python -m tests.api.surface --docs          ... and the functions without a docstring
python -m tests.api.surface --only nn.utils only namespaces that match
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import types
import warnings
from typing import Any

import torch

_NAMES = """
torch Tensor nn nn.functional nn.init nn.parameter nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations
nn.utils.prune nn.utils.stateless nn.utils.fusion nn.utils.clip_grad nn.utils.convert_parameters nn.attention nn.grad
nn.attention.bias nn.parallel nn.modules.utils nn.modules.module nn.modules.loss
optim optim.lr_scheduler optim.swa_utils optim.optimizer
autograd autograd.function autograd.functional autograd.graph autograd.gradcheck autograd.grad_mode autograd.anomaly_mode
autograd.forward_ad utils utils.data utils.data.dataset utils.data.dataloader utils.data.sampler utils.data.datapipes
utils.data.distributed utils.data.graph_settings utils.checkpoint utils.benchmark utils.hooks utils.dlpack utils.deterministic
utils.collect_env utils.model_zoo utils.backcompat utils.flop_counter utils.module_tracker utils.mobile_optimizer
utils.weak utils.cpp_backtrace utils.throughput_benchmark utils.bundled_inputs utils.tensorboard
linalg fft special signal signal.windows sparse masked masked.maskedtensor nested distributions distributions.constraints
distributions.transforms distributions.utils distributions.kl random hub
backends backends.cpu backends.cuda backends.cudnn backends.mkl backends.mkldnn backends.mps backends.openmp backends.opt_einsum
backends.nnpack backends.quantized backends.xeon backends.cusparselt backends.cudnn.rnn backends.mha backends.kleidiai
testing overrides library serialization storage types cpu cpu.amp mps mps.event xpu cuda cuda.amp cuda.random cuda.memory accelerator mtia
version futures amp amp.autocast_mode amp.grad_scaler func functional return_types quasirandom multiprocessing compiler
__config__ __future__ torch_version
"""
NAMESPACES = _NAMES.split()


def _object(root: types.ModuleType, path: str) -> Any:
    """The module or class at ``path`` below ``root``, or None."""
    if path == "torch":
        return root
    if path == "Tensor":
        return root.Tensor
    try:
        return importlib.import_module(f"{root.__name__}.{path}")
    except ImportError:
        return None


def _is_foreign(value: Any) -> bool:
    """Whether a value only leaked into a namespace by an import (``typing.Any``, ``warnings``, ...)."""
    if isinstance(value, types.ModuleType):
        return not value.__name__.startswith("torch.")
    home = getattr(value, "__module__", None)
    if type(value).__module__ in ("typing", "__future__") or isinstance(value, types.GenericAlias):
        return True
    return isinstance(home, str) and not home.startswith(("torch", "_", "builtins"))


def public_names(path: str) -> list[str]:
    """The public names of one of PyTorch's namespaces: ``__all__`` where it has one, otherwise what is defined there."""
    home = _object(torch, path)
    if home is None:
        return []
    declared = getattr(home, "__all__", None)
    if declared is not None and path != "torch":
        names = set(declared)
    else:
        names = {name for name in dir(home) if not name.startswith("_")}
    if path == "Tensor":
        names |= {name for name in dir(home) if name.startswith("__") and name.endswith("__")} - set(dir(object))
    return sorted(name for name in names if hasattr(home, name) and not _is_foreign(getattr(home, name)))


def missing_names(library: types.ModuleType, path: str) -> list[str]:
    home = _object(library, path)
    return [name for name in public_names(path) if home is None or not hasattr(home, name)]


def _parameters(value: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None


def _words(parameters: list[inspect.Parameter]) -> list[str]:
    return [
        f"{'*' if p.kind is p.KEYWORD_ONLY else ''}{p.name}" + ("" if p.default is p.empty else f"={p.default!r}")
        for p in parameters
    ]


def _plain(word: str) -> str:
    return re.sub(r"flambeau|torch", "T", re.sub(r" at 0x[0-9a-f]+", "", word))


def signature_differences(library: types.ModuleType, path: str) -> list[str]:
    """``name: theirs | ours`` where both are Python functions and their parameters differ."""
    found = []
    home = _object(library, path)
    for name in public_names(path):
        theirs, ours = getattr(_object(torch, path), name), getattr(home, name, None)
        if ours is None or not callable(theirs) or name.startswith("__"):
            continue
        first, second = _parameters(theirs), _parameters(ours)
        if first is None or second is None or [p.kind for p in first] == [2, 4]:
            continue
        a, b = [[_plain(w) for w in _words(x)] for x in (first, second)]
        if a != b:
            found.append(f"{name}\n      torch    ({', '.join(a)})\n      flambeau ({', '.join(b)})")
    return found


def undocumented(library: types.ModuleType, path: str) -> list[str]:
    home = _object(library, path)
    if home is None:
        return []
    values = ((name, getattr(home, name, None)) for name in public_names(path) if not name.startswith("__"))
    return [name for name, value in values if callable(value) and not (getattr(value, "__doc__", None) or "").strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--library", default="flambeau")
    parser.add_argument("--only", default="")
    for option in ("missing", "signatures", "docs"):
        parser.add_argument(f"--{option}", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    library = importlib.import_module(chosen.library)
    walked = present = 0
    for path in NAMESPACES:
        if not re.search(chosen.only, path):
            continue
        names, missing = public_names(path), missing_names(library, path)
        walked, present = walked + len(names), present + len(names) - len(missing)
        print(f"{path:32} {len(names) - len(missing):5} / {len(names):5}")
        for wanted, lines in (("missing", missing), ("docs", undocumented(library, path))):
            if getattr(chosen, wanted) and lines:
                print(f"    {wanted}:", " ".join(lines))
        if chosen.signatures:
            for line in signature_differences(library, path):
                print("   ", line)
    print(f"{'in all':32} {present:5} / {walked:5}")


if __name__ == "__main__":
    main()
