"""What an argument is when nobody gives it: the defaults of public functions, classes and methods are PyTorch's and torchvision's."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from answers import told

from tests.vision.oracle import torchvision

PLAIN = (bool, int, float, str, type(None))
MODULES = [
    "torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn", "torch.nn.utils.parametrize",
    "torch.nn.utils.parametrizations", "torch.nn.utils.prune", "torch.nn.utils.stateless", "torch.nn.attention", "torch.nn.attention.flex_attention",
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.distributions", "torch.distributions.transforms",
    "torch.distributions.constraints", "torch.autograd", "torch.autograd.functional", "torch.autograd.graph", "torch.autograd.gradcheck",
    "torch.autograd.profiler", "torch.autograd.forward_ad", "torch.func", "torch.fx", "torch.fx.subgraph_rewriter", "torch.fx.passes.split_module",
    "torch.fx.passes.shape_prop", "torch.jit", "torch.export", "torch.library", "torch.hub", "torch.signal.windows",
    "torch.utils.data", "torch.utils.checkpoint", "torch.utils.benchmark", "torch.utils.flop_counter", "torch.utils.weak", "torch.utils._pytree",
    "torch.profiler", "torch.testing", "torch.sparse", "torch.masked", "torch.nested", "torch.package", "torch.quasirandom", "torch.serialization",
    "torch.multiprocessing", "torch.amp", "torch.futures", "torch.overrides", "torch.ao.quantization", "torch.ao.quantization.observer",
    "torch.ao.quantization.fake_quantize", "torch.ao.nn.quantized", "torch.ao.nn.quantized.dynamic", "torch.ao.nn.qat", "torch.ao.nn.intrinsic",
    "torch.ao.pruning", "torch.distributed", "torch.distributed.algorithms.join", "torch.distributed.checkpoint", "torch.distributed.tensor",
    "torch.distributed.tensor.parallel", "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.optim", "torch.distributed.rpc",
    "torch.distributed.elastic.multiprocessing", "torch.distributed.launcher.api",
    "torchvision.ops", "torchvision.utils", "torchvision.io", "torchvision.datasets", "torchvision.datasets.utils", "torchvision.datasets.video_utils",
    "torchvision.transforms", "torchvision.transforms.functional", "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional", "torchvision.models", "torchvision.models.detection", "torchvision.models.segmentation",
    "torchvision.models.video", "torchvision.models.optical_flow", "torchvision.models.quantization", "torchvision.models.feature_extraction",
    "torchvision.models.detection.anchor_utils", "torchvision.models.detection.rpn", "torchvision.models.detection.roi_heads",
    "torchvision.models.detection.transform", "torchvision.models.detection.generalized_rcnn", "torchvision.models.detection.ssdlite",
    "torchvision.models.detection.backbone_utils", "torchvision.models.detection.faster_rcnn", "torchvision.models.swin_transformer",
    "torchvision.models.vision_transformer", "torchvision.models.video.mvit", "torchvision.models.optical_flow.raft", "torchvision.models.maxvit",
    "torchvision.tv_tensors",
]  # fmt: skip
# Modules that define functions and classes which the ones above do not show.
INNER = (Path(__file__).parent / "modules_with_defaults.txt").read_text().split()


def shown(value: Any) -> str | None:
    """A default as text, None for what has no text of its own."""
    if isinstance(value, (tuple, list)):
        parts = [shown(v) for v in value]
        return None if None in parts else repr([ast.literal_eval(str(part)) for part in parts])
    return repr(value) if isinstance(value, PLAIN) else None


def defaults(function: Any) -> dict[str, str]:
    """The plain defaults of a function's parameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    return {p.name: text for p in parameters if p.default is not p.empty and (text := shown(p.default)) is not None}


def public(module: Any, own: bool = False) -> dict[str, dict[str, str]]:
    """The defaults of a module's functions and classes, and of the public methods that classes define themselves; `own`: of those that
    it defines itself."""
    found = {}
    root = module.__name__.partition(".")[0]
    for name in getattr(module, "__all__", None) or dir(module):
        thing = getattr(module, name, None)
        home = getattr(thing, "__module__", None) or ""
        if (
            name.startswith("_")
            or not callable(thing)
            or home.partition(".")[0] not in (root, "flambeau", "torch", "torchvision")
            or (own and home != module.__name__)
        ):
            continue
        found[name] = defaults(thing)
        if isinstance(thing, type):
            for key, method in vars(thing).items():
                if not key.startswith("_") and inspect.isfunction(getattr(method, "__func__", method)):
                    found[f"{name}.{key}"] = defaults(getattr(method, "__func__", method))
    return {name: values for name, values in sorted(found.items()) if values}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [*MODULES, *INNER])
def test_defaults(module: str) -> None:
    if module.startswith("torchvision"):
        torchvision()
    theirs = told(f"defaults of {module}", lambda: public(importlib.import_module(module), module in INNER))
    ours = importlib.import_module(module.replace("torchvision", "flambeau.vision").replace("torch", "flambeau"))
    wrong = []
    for name, wanted in theirs.items():
        thing: Any = ours
        for part in name.split("."):
            thing = getattr(thing, part, None)
        found = defaults(getattr(thing, "__func__", thing)) if thing is not None else {}
        same = {key: key not in found or _is_same(found[key], text) for key, text in wanted.items()}
        wrong += [f"{name}({key}={found[key]}), PyTorch {wanted[key]}" for key in wanted if not same[key]]
    assert not wrong, wrong


def _is_same(ours: str, theirs: str) -> bool:
    return ours == theirs or ast.literal_eval(ours) == ast.literal_eval(theirs)
