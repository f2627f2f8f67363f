"""timm's models, unmodified, with Flambeau in the place of PyTorch: `python -m tests.programs.timm_models OUT.json [names]`.

Each model runs forward, backward and one step of training, hands its state to a new one, and gives features through fx. With `--torch`
the real PyTorch runs instead; `--compare A.json B.json` compares two such files. Takes minutes, so that the tests do not do it; says so
where timm is not installed (`pip install timm`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

NAMES = [
    "resnet18",
    "resnetv2_50",
    "convnext_atto",
    "convnextv2_atto",
    "vit_tiny_patch16_224",
    "deit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
    "efficientnet_b0",
    "tf_efficientnetv2_b0",
    "mobilenetv3_small_050",
    "mobilenetv4_conv_small",
    "mobilenetv2_050",
    "regnetx_002",
    "densenet121",
    "vgg11",
    "inception_v3",
    "xception41",
    "dla34",
    "dpn48b",
    "hrnet_w18_small",
    "mixer_s32_224",
    "resmlp_12_224",
    "gmlp_ti16_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "levit_128s",
    "coat_lite_tiny",
    "cait_xxs24_224",
    "edgenext_xx_small",
    "efficientformer_l1",
    "fastvit_t8",
    "ghostnet_050",
    "lcnet_035",
    "repvgg_a0",
    "rexnet_100",
]
SMALL = 128  # pixels, for models that take any size


def run(name: str) -> dict[str, Any]:
    import timm
    import torch
    from timm.models import create_feature_extractor, get_graph_node_names

    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=7)
    fixed = model.default_cfg.get("fixed_input_size", False) or any(w in name for w in ("swin", "levit", "coat", "efficientformer", "mlp", "mixer", "cait", "pvt"))  # fmt: skip
    size = model.default_cfg["input_size"][1] if fixed else SMALL
    x = torch.randn(2, 3, size, size)
    model.eval()
    with torch.no_grad():
        out = model(x)
    model.train()
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3]))
    loss.backward()
    grads = sum(float(p.grad.double().norm()) for p in model.parameters() if p.grad is not None)
    optimizer.step()
    again = timm.create_model(name, num_classes=7)
    again.load_state_dict(model.state_dict())
    weights = sum(float(p.double().abs().sum()) for p in again.parameters())
    model.eval()
    nodes = get_graph_node_names(model)[1]
    features = create_feature_extractor(model, {nodes[len(nodes) // 2]: "middle", nodes[-1]: "last"})
    with torch.no_grad():
        same = bool(torch.allclose(features(x)["last"], model(x), atol=1e-4, rtol=1e-4))
    words = hashlib.md5("|".join(nodes).encode()).hexdigest()
    return {
        "eval": out.double().tolist(),
        "loss": float(loss),
        "grads": grads,
        "weights": weights,
        "nodes": words,
        "features": same,
    }


def compare(first: str, second: str) -> None:
    """How many models of two files give the same (training is the same up to rounding)."""
    a, b = (json.loads(Path(f).read_text()) for f in (first, second))
    good = 0
    for name in a:
        if name not in b or "error" in a[name] or "error" in b[name]:
            print(f"{name}: {a[name].get('error') or b.get(name, {}).get('error', 'not run')}")
            continue
        x, y = a[name], b[name]
        near = all(abs(p - q) < 1e-3 * (1 + abs(q)) for r, s in zip(x["eval"], y["eval"]) for p, q in zip(r, s))
        near = near and all(abs(x[k] - y[k]) < 1e-2 * (1 + abs(y[k])) for k in ("loss", "grads", "weights"))
        same = near and x["nodes"] == y["nodes"] and x["features"] and y["features"]
        good += same
        if not same:
            print(f"{name}: { ({k: (x[k], y[k]) for k in ('loss', 'grads', 'weights', 'nodes', 'features')}) }")
    print(f"{good} of {len(a)}")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--compare"]:
        compare(*arguments[1:])
        return
    if importlib.util.find_spec("timm") is None:
        sys.exit("timm is not installed: pip install timm")
    if "--torch" not in arguments:
        import flambeau

        flambeau.install_as_torch()
    else:
        from tests.vision.oracle import torchvision

        torchvision()
    warnings.simplefilter("ignore")
    out, *names = [a for a in arguments if a != "--torch"]
    found: dict[str, Any] = {}
    for name in names or NAMES:
        try:
            found[name] = run(name)
        except Exception as problem:  # a model that fails is a result, too
            found[name] = {"error": f"{type(problem).__name__}: {problem}"[:300]}
        print(name, found[name].get("error", "ok"), flush=True)
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
