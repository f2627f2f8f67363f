"""torchvision's families through TorchScript, both ways: `python -m tests.jit.vision_models [names]`.

Each model is compiled here, saved, and run by PyTorch; compiled and saved by PyTorch with the same weights, and run here. Takes minutes,
so that the tests do not do it; skips where PyTorch and torchvision are not installed.
"""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any

import numpy as np

import flambeau
from flambeau import vision
from tests.vision.oracle import torchvision

FAMILIES = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5",
    "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d",
    "wide_resnet50_2", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11", "vgg11_bn", "vit_b_32",
    "segmentation.fcn_resnet50", "segmentation.deeplabv3_mobilenet_v3_large", "segmentation.lraspp_mobilenet_v3_large",
]  # fmt: skip


def options(name: str) -> dict[str, Any]:
    if name in ("googlenet", "inception_v3"):
        return {"init_weights": False, "aux_logits": True}
    return {"weights_backbone": None} if name.startswith("segmentation.") else {}


def made(models: Any, name: str) -> Any:
    for part in name.split("."):
        models = getattr(models, part)
    return models(**options(name)).eval()


def flat(out: Any) -> np.ndarray:
    if isinstance(out, dict):
        out = list(out.values())
    if isinstance(out, (tuple, list)):
        return np.concatenate([flat(o) for o in out if o is not None])
    return np.asarray(out.numpy()).ravel()


def check(name: str, torch: Any, theirs: Any) -> list[bool]:
    """Whether the compiled model, the file run by PyTorch and PyTorch's file run here give what the model gives."""
    size = 299 if name == "inception_v3" else 224 if name.startswith(("maxvit", "vit")) else 64
    x = np.random.RandomState(0).randn(1, 3, size, size).astype("float32")
    model = made(vision.models, name)
    script = flambeau.jit.script(model)
    mine, back = io.BytesIO(), io.BytesIO()
    script.save(mine)
    mine.seek(0)
    original = made(theirs.models, name)
    state = original.state_dict()
    for key, value in model.state_dict().items():
        state[key].copy_(torch.from_numpy(np.array(value.detach().numpy())))
    torch.jit.save(torch.jit.script(original), back)
    back.seek(0)
    with flambeau.no_grad(), torch.no_grad():
        wanted = flat(model(flambeau.from_numpy(x)))
        found = [
            script(flambeau.from_numpy(x)), torch.jit.load(mine)(torch.from_numpy(x)), flambeau.jit.load(back)(flambeau.from_numpy(x)),
        ]  # fmt: skip
    return [bool(np.allclose(wanted, flat(f), atol=1e-3, rtol=1e-3)) for f in found]


def main() -> None:
    warnings.simplefilter("ignore")
    theirs = torchvision()
    import torch

    good = 0
    names = sys.argv[1:] or FAMILIES
    for name in names:
        found = check(name, torch, theirs)
        good += all(found)
        print(f"{name}: compiled {found[0]}, in PyTorch {found[1]}, from PyTorch {found[2]}", flush=True)
    print(f"{good} of {len(names)}")


if __name__ == "__main__":
    main()
